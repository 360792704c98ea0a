// SPDX-License-Identifier: Apache-2.0
// What snapshots next to training cost: blocks of ten steps with one snapshot and without, in turn, in one
// run of four ranks of this machine: name = value unit. On a machine that does other work, too, CPU time
// tells more than the clock: that of the calls of snapshots in the ranks and of all threads but the
// ranks, over that of ten steps. Usage: bench_snapshots [FOLDER [ROUNDS]].
#include <fmt/format.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/runtime/small_gpt.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/train/snapshot/hook.h"
#include "runtime/train/train_rank.h"

namespace orrery {
namespace {

constexpr int64_t kBenchRanks = 4, kBlockSteps = 10;

double Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Times {
  std::vector<double> clock, cpu;     // of ten steps, s
  std::vector<double> calls, writer;  // CPU s: of calls of the saver in all ranks; of other threads
};

// What all ranks tell rank 0.
struct Shared {
  std::array<clockid_t, kBenchRanks> clocks{};
  std::atomic<int64_t> calls_ns = 0;
};

// Saves behind the first step of every second block, and notes on rank 0 how long blocks took.
class Blocks : public launch::StepHook {
 public:
  Blocks(snapshot::Saver* saver, int64_t rank, Shared* shared, Times* plain, Times* saving)
      : saver_(saver), rank_(rank), shared_(shared), plain_(plain), saving_(saving) {
    pthread_getcpuclockid(pthread_self(), &shared->clocks[static_cast<std::size_t>(rank)]);
  }

  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    const int64_t in_block = record.step % kBlockSteps, block = record.step / kBlockSteps;
    const bool saves = block % 2 == 1;
    const double begin = Now(CLOCK_THREAD_CPUTIME_ID);
    const auto called = [&] {
      shared_->calls_ns += static_cast<int64_t>(1e9 * (Now(CLOCK_THREAD_CPUTIME_ID) - begin));
    };
    if (in_block != 0) {
      saver_->Poll();
      return called();
    }
    saver_->Finish();
    called();
    if (rank_ == 0) Note(block > 2 ? (saves ? plain_ : saving_) : nullptr);
    if (!saves) return;
    const double again = Now(CLOCK_THREAD_CPUTIME_ID);
    saver_->Begin(executor, record.step);
    shared_->calls_ns += static_cast<int64_t>(1e9 * (Now(CLOCK_THREAD_CPUTIME_ID) - again));
  }
  void AfterTraining(exec::Executor*) override { saver_->Finish(); }

 private:
  void Note(Times* block) {
    const double now = Now(CLOCK_MONOTONIC), cpu = Now(CLOCK_PROCESS_CPUTIME_ID);
    double ranks = 0;
    for (const clockid_t clock : shared_->clocks) ranks += Now(clock);
    const double calls = 1e-9 * static_cast<double>(shared_->calls_ns.exchange(0));
    if (block != nullptr) {
      block->clock.push_back(now - begin_);
      block->cpu.push_back(cpu - cpu_begin_);
      block->calls.push_back(calls);
      block->writer.push_back(cpu - ranks - others_begin_);
    }
    begin_ = now;
    cpu_begin_ = cpu;
    others_begin_ = cpu - ranks;
  }

  snapshot::Saver* saver_;
  int64_t rank_;
  Shared* shared_;
  Times *plain_, *saving_;
  double begin_ = 0, cpu_begin_ = 0, others_begin_ = 0;
};

double MedianOf(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all.empty() ? 0 : all[all.size() / 2];
}

// Of neighbours, which share what else this machine does.
double ShareOf(const std::vector<double>& plain, const std::vector<double>& saving) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(plain.size(), saving.size()); ++i)
    ratios.push_back(saving[i] / plain[i]);
  return 100 * (MedianOf(ratios) - 1);
}

int Measure(const std::string& folder, int64_t rounds) {
  Strategy strategy;
  strategy.dp = kBenchRanks;
  strategy.micro_batch = 4;
  const ir::Plan plan = SmallGptPlan(Precision::kFp32, strategy);
  Times plain, saving;
  Shared shared;
  const std::string failure = launch::RunLocalRanks(kBenchRanks, [&](comm::Endpoint* endpoint) {
    train::SyntheticSource data({.seed = 1, .vocab = SmallGpt().vocab});
    snapshot::Saver saver({folder, 1, "synthetic", 120}, endpoint);
    Blocks blocks(&saver, endpoint->rank(), &shared, &plain, &saving);
    launch::TrainOptions options;
    options.steps = (2 * rounds + 3) * kBlockSteps;
    launch::TrainRank(plan, endpoint, &data, options, {&blocks});
  });
  if (!failure.empty()) {
    fmt::print(stderr, "bench_snapshots: {}\n", failure);
    return 1;
  }
  const auto print = [](const char* name, const std::vector<double>& all) {
    fmt::print("{}_median = {:.1f} ms\n{}_min = {:.1f} ms\n", name, 1e3 * MedianOf(all), name,
               1e3 * *std::min_element(all.begin(), all.end()));
  };
  print("ten_steps", plain.clock);
  print("ten_steps_with_a_snapshot", saving.clock);
  print("ten_steps_cpu", plain.cpu);
  print("ten_steps_with_a_snapshot_cpu", saving.cpu);
  fmt::print("snapshot_share_median_of_pairs = {:.2f} %\n", ShareOf(plain.clock, saving.clock));
  fmt::print("snapshot_cpu_share_median_of_pairs = {:.2f} %\n", ShareOf(plain.cpu, saving.cpu));
  const double calls = MedianOf(saving.calls) - MedianOf(plain.calls),
               writer = MedianOf(saving.writer) - MedianOf(plain.writer);
  fmt::print("snapshot_calls_cpu = {:.1f} ms\nsnapshot_writer_cpu = {:.1f} ms\n", 1e3 * calls,
             1e3 * writer);
  fmt::print("snapshot_cpu_share = {:.2f} %\n", 100 * (calls + writer) / MedianOf(plain.cpu));
  return 0;
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  const fs::path folder = argc > 1
                              ? fs::path(argv[1])
                              : fs::temp_directory_path() / fmt::format("snapshots-{}", getpid());
  const int code = orrery::Measure(folder, argc > 2 ? std::max(1, std::atoi(argv[2])) : 21);
  if (argc < 2) fs::remove_all(folder);
  return code;
}
