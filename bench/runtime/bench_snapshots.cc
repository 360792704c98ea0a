// SPDX-License-Identifier: Apache-2.0
// What snapshots next to training cost: blocks of ten steps with one snapshot and without, in turn, in one
// run of four ranks of this machine: name = value unit. Usage: bench_snapshots [FOLDER [ROUNDS]].
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
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

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Saves behind the first step of every second block, and notes on rank 0 how long blocks took.
class Blocks : public launch::StepHook {
 public:
  Blocks(snapshot::Saver* saver, bool notes, std::vector<double>* plain,
         std::vector<double>* saving)
      : saver_(saver), notes_(notes), plain_(plain), saving_(saving) {}

  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    const int64_t in_block = record.step % kBlockSteps, block = record.step / kBlockSteps;
    const bool saves = block % 2 == 1;
    if (in_block == 0) {
      saver_->Finish();
      if (notes_ && block > 2) (saves ? plain_ : saving_)->push_back(Now() - begin_);
      begin_ = Now();
      if (saves) saver_->Begin(executor, record.step);
    } else {
      saver_->Poll();
    }
  }
  void AfterTraining(exec::Executor*) override { saver_->Finish(); }

 private:
  snapshot::Saver* saver_;
  bool notes_;
  std::vector<double>*plain_, *saving_;
  double begin_ = 0;
};

double MedianOf(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all.empty() ? 0 : all[all.size() / 2];
}

int Measure(const std::string& folder, int64_t rounds) {
  Strategy strategy;
  strategy.dp = kBenchRanks;
  strategy.micro_batch = 4;
  const ir::Plan plan = SmallGptPlan(Precision::kFp32, strategy);
  std::vector<double> plain, saving;
  const std::string failure = launch::RunLocalRanks(kBenchRanks, [&](comm::Endpoint* endpoint) {
    train::SyntheticSource data({.seed = 1, .vocab = SmallGpt().vocab});
    snapshot::Saver saver({folder, 1, "synthetic", 120}, endpoint);
    Blocks blocks(&saver, endpoint->rank() == 0, &plain, &saving);
    launch::TrainOptions options;
    options.steps = (2 * rounds + 3) * kBlockSteps;
    launch::TrainRank(plan, endpoint, &data, options, {&blocks});
  });
  if (!failure.empty()) {
    fmt::print(stderr, "bench_snapshots: {}\n", failure);
    return 1;
  }
  std::vector<double> ratios;  // of neighbours, which share what else this machine does
  for (std::size_t i = 0; i < std::min(plain.size(), saving.size()); ++i)
    ratios.push_back(saving[i] / plain[i]);
  fmt::print("ten_steps_median = {:.1f} ms\n", 1e3 * MedianOf(plain));
  fmt::print("ten_steps_with_a_snapshot_median = {:.1f} ms\n", 1e3 * MedianOf(saving));
  fmt::print("ten_steps_min = {:.1f} ms\n", 1e3 * *std::min_element(plain.begin(), plain.end()));
  fmt::print("ten_steps_with_a_snapshot_min = {:.1f} ms\n",
             1e3 * *std::min_element(saving.begin(), saving.end()));
  fmt::print("snapshot_share_median_of_pairs = {:.2f} %\n", 100 * (MedianOf(ratios) - 1));
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
