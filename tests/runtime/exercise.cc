// SPDX-License-Identifier: Apache-2.0
// Whole numbers are summed, so that every order of summation gives the same bits.
#include "tests/runtime/exercise.h"

#include <fmt/format.h>

#include <numeric>
#include <vector>

namespace orrery::runtime_test {
namespace {

using comm::Collective;
using comm::CollectiveKind;

constexpr double kPatience = 60;  // seconds

// What rank r holds at position i: small enough for sums in f32.
float Held(int64_t r, int64_t i) { return static_cast<float>((r * 31 + i * 7) % 101 - 50); }

class Exercise {
 public:
  Exercise(comm::Endpoint* endpoint, std::vector<int64_t> members, int32_t key)
      : endpoint_(endpoint), members_(std::move(members)), line_(endpoint->Join(key, members_)) {
    while (members_[index_] != endpoint->rank()) ++index_;
  }

  std::string Run() {
    for (const int64_t n : {1, 2, 3, 7, 1000, 40000, 300001}) {
      AllReduce(n, false);
      AllReduce(n, true);
      ReduceScatter(n);
      AllGather(n);
      Broadcast(n);
      AllToAll(n);
    }
    Do({CollectiveKind::kBarrier});
    return fault_;
  }

 private:
  int64_t size() const { return static_cast<int64_t>(members_.size()); }

  void Do(const Collective& c) {
    const comm::OperationPtr operation = line_->Start(c);
    comm::Wait(endpoint_, operation.get(), kPatience, "exercise");
  }

  void Expect(const char* what, int64_t n, int64_t at, float is, float due) {
    if (is == due || !fault_.empty()) return;
    fault_ = fmt::format("{} of {} on rank {} of {}: element {} is {}, not {}", what, n,
                         endpoint_->rank(), members_.size(), at, is, due);
  }

  std::vector<float> Mine(int64_t n) const {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = Held(endpoint_->rank(), i);
    return x;
  }
  float Sum(int64_t i) const {
    float sum = 0;
    for (const int64_t r : members_) sum += Held(r, i);
    return sum;
  }
  float Largest(int64_t i) const {
    float largest = -1e9f;
    for (const int64_t r : members_) largest = std::max(largest, Held(r, i));
    return largest;
  }

  void AllReduce(int64_t n, bool maximum) {
    std::vector<float> x = Mine(n);
    Do({CollectiveKind::kAllReduce, x.data(), x.data(), n, ir::Dtype::kF32, maximum});
    for (int64_t i = 0; i < n; ++i)
      Expect("all_reduce", n, i, x[static_cast<std::size_t>(i)], maximum ? Largest(i) : Sum(i));
  }

  void ReduceScatter(int64_t n) {
    const std::vector<float> x = Mine(n * size());
    std::vector<float> y(static_cast<std::size_t>(n));
    Do({CollectiveKind::kReduceScatter, x.data(), y.data(), n});
    for (int64_t i = 0; i < n; ++i) {
      Expect("reduce_scatter", n, i, y[static_cast<std::size_t>(i)],
             Sum(static_cast<int64_t>(index_) * n + i));
    }
    if (x != Mine(n * size())) Expect("reduce_scatter's input", n, 0, 0, 1);
  }

  void AllGather(int64_t n) {
    const std::vector<float> x = Mine(n);
    std::vector<float> y(static_cast<std::size_t>(n * size()));
    Do({CollectiveKind::kAllGather, x.data(), y.data(), n});
    for (int64_t i = 0; i < n * size(); ++i) {
      Expect("all_gather", n, i, y[static_cast<std::size_t>(i)],
             Held(members_[static_cast<std::size_t>(i / n)], i % n));
    }
  }

  void Broadcast(int64_t n) {
    const int root = static_cast<int>(size()) - 1;
    std::vector<float> x = Mine(n);
    Collective c{CollectiveKind::kBroadcast, x.data(), x.data(), n};
    c.root = root;
    Do(c);
    for (int64_t i = 0; i < n; ++i) {
      Expect("broadcast", n, i, x[static_cast<std::size_t>(i)],
             Held(members_[static_cast<std::size_t>(root)], i));
    }
  }

  void AllToAll(int64_t n) {
    const std::vector<float> x = Mine(n * size());
    std::vector<float> y(x.size());
    Do({CollectiveKind::kAllToAll, x.data(), y.data(), n});
    for (int64_t i = 0; i < n * size(); ++i) {
      Expect("all_to_all", n, i, y[static_cast<std::size_t>(i)],
             Held(members_[static_cast<std::size_t>(i / n)],
                  static_cast<int64_t>(index_) * n + i % n));
    }
  }

  comm::Endpoint* endpoint_;
  std::vector<int64_t> members_;
  std::size_t index_ = 0;
  comm::CommunicatorPtr line_;
  std::string fault_;
};

// Each rank sends to the next and receives from the one before, twice on one channel.
std::string PassOn(comm::Endpoint* endpoint, int64_t n) {
  const int64_t rank = endpoint->rank(), size = endpoint->size();
  std::vector<int64_t> first(static_cast<std::size_t>(n), rank), second(first.size(), -rank);
  std::vector<int64_t> a(first.size()), b(first.size());
  const int64_t bytes = n * 8, next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const comm::OperationPtr all[] = {endpoint->Send(next, 3, first.data(), bytes),
                                    endpoint->Send(next, 3, second.data(), bytes),
                                    endpoint->Receive(previous, 3, a.data(), bytes),
                                    endpoint->Receive(previous, 3, b.data(), bytes)};
  for (const comm::OperationPtr& operation : all)
    comm::Wait(endpoint, operation.get(), kPatience, "messages");
  const bool good = a == std::vector<int64_t>(first.size(), previous) &&
                    b == std::vector<int64_t>(first.size(), -previous);
  return good ? "" : fmt::format("rank {}: messages of {} numbers came out of order", rank, n);
}

}  // namespace

std::string ExerciseEndpoint(comm::Endpoint* endpoint) {
  std::vector<int64_t> all(static_cast<std::size_t>(endpoint->size()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int64_t> alike;  // ranks of the same parity
  for (const int64_t r : all) {
    if (r % 2 == endpoint->rank() % 2) alike.push_back(r);
  }
  std::string fault = Exercise(endpoint, all, 0).Run();
  if (fault.empty()) fault = Exercise(endpoint, alike, 1).Run();
  for (const int64_t n : {1, 1000, 200000}) {
    if (fault.empty()) fault = PassOn(endpoint, n);
  }
  return fault;
}

}  // namespace orrery::runtime_test
