// SPDX-License-Identifier: Apache-2.0
// The communicator's rings beside the MPI library's own collectives, call by call in turn, on two ranks of this machine:
// name = value unit. Starts its ranks itself; needs as many idle cores.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/mpi.h"
#include "runtime/launch/mpirun.h"
#include "runtime/launch/place.h"

namespace orrery {
namespace {

constexpr int kRingRanks = 2, kRingRounds = 21;
constexpr double kRingDeadline = 60;  // seconds
// Calls of less than this are timed several at once.
constexpr int64_t kTimedBytes = 256 << 10;
constexpr int64_t kMostTimed = 64;

std::string SizeText(int64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{}MiB", bytes >> 20) : fmt::format("{}KiB", bytes >> 10);
}

class Contest {
 public:
  Contest(comm::Endpoint* endpoint, comm::Communicator* all, int64_t bytes)
      : endpoint_(endpoint),
        all_(all),
        bytes_(bytes),
        in_(static_cast<std::size_t>(bytes / 4), 1.0f),
        out_(in_.size()) {}

  void Run() {
    const auto n = static_cast<int>(in_.size()), piece = n / kRingRanks;
    Pair(
        "all_reduce", [&] { Ours(comm::CollectiveKind::kAllReduce, n); },
        [&] { MPI_Allreduce(in_.data(), out_.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    Pair(
        "reduce_scatter", [&] { Ours(comm::CollectiveKind::kReduceScatter, piece); },
        [&] {
          MPI_Reduce_scatter_block(in_.data(), out_.data(), piece, MPI_FLOAT, MPI_SUM,
                                   MPI_COMM_WORLD);
        });
    Pair(
        "all_gather", [&] { Ours(comm::CollectiveKind::kAllGather, piece); },
        [&] {
          MPI_Allgather(in_.data(), piece, MPI_FLOAT, out_.data(), piece, MPI_FLOAT,
                        MPI_COMM_WORLD);
        });
  }

 private:
  void Ours(comm::CollectiveKind kind, int64_t n) {
    comm::Collective call;
    call.kind = kind;
    call.in = in_.data();
    call.out = out_.data();
    call.n = n;
    comm::Wait(endpoint_, all_->Start(call).get(), kRingDeadline, "a collective");
  }

  // Seconds of one call on its slowest rank.
  double Time(const std::function<void()>& call) const {
    const int64_t calls = std::clamp<int64_t>(kTimedBytes / bytes_, 1, kMostTimed);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    double seconds =
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
               static_cast<double>(calls),
           slowest = 0;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
  }

  void Pair(const std::string& name, const std::function<void()>& ours,
            const std::function<void()>& library) {
    std::vector<double> mine, theirs;
    for (int round = 0; round < kRingRounds; ++round) {
      mine.push_back(Time(ours));
      theirs.push_back(Time(library));
    }
    if (endpoint_->rank() != 0) return;
    for (auto* times : {&mine, &theirs}) {
      std::sort(times->begin(), times->end());
      const std::string who =
          fmt::format("{}_{}_{}", name, SizeText(bytes_), times == &mine ? "ring" : "library");
      fmt::print("{}_median = {:.1f} us\n", who, 1e6 * (*times)[times->size() / 2]);
      fmt::print("{}_min = {:.1f} us\n", who, 1e6 * times->front());
    }
    std::fflush(stdout);
  }

  comm::Endpoint* endpoint_;
  comm::Communicator* all_;
  int64_t bytes_;
  std::vector<float> in_, out_;
};

int Contests() {
  const auto endpoint = comm::ConnectMpi(kRingDeadline, "bench_ring");
  const auto all = endpoint->Join(0, {0, 1});
  for (const int64_t kibibytes : {1, 8, 64, 256, 512, 1024, 4096, 16384, 65536})
    Contest(endpoint.get(), all.get(), kibibytes << 10).Run();
  return 0;
}

}  // namespace
}  // namespace orrery

int main() {
  using namespace orrery;
  if (launch::FindPlace().size == 0)
    return launch::RunMpirun(launch::FindMpirun(), kRingRanks, {launch::OwnProgram()},
                             "bench_ring");
  return Contests();
}
