// SPDX-License-Identifier: Apache-2.0
// What snapshots next to training ask of the ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/comm/gather.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/train/snapshot/files.h"
#include "runtime/train/snapshot/snapshot.h"
#include "runtime/train/train_rank.h"
#include "tests/runtime/single.h"
#include "tests/runtime_data/testing.h"

namespace orrery::snapshot {
namespace {

constexpr double kDeadline_s = 60;

// One snapshot behind the first step, up to its manifest.
class OneSnapshot : public launch::StepHook {
 public:
  OneSnapshot(const std::string& folder, comm::Endpoint* endpoint)
      : folder_(folder),
        endpoint_(endpoint),
        saver_({folder, 1, "synthetic", kDeadline_s}, endpoint) {}

  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (record.step != 1) return;
    saver_.Begin(executor, 1);
    EXPECT_FALSE(saver_.whole());
    const std::filesystem::path manifest =
        std::filesystem::path(folder_) / StepFolder(1) / kManifestName;
    do {
      saver_.Poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } while (comm::LargestOf(endpoint_, std::filesystem::exists(manifest) ? 0 : 1, kDeadline_s) !=
             0);
    // The shards are agreed upon: what is left is rank 0's, and no other waits for it between steps.
    EXPECT_TRUE(saver_.busy());
    const auto begin = std::chrono::steady_clock::now();
    if (endpoint_->rank() != 0) saver_.Poll();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    saver_.Finish();
    EXPECT_TRUE(saver_.whole());
    EXPECT_FALSE(saver_.busy());
  }

 private:
  std::string folder_;
  comm::Endpoint* endpoint_;
  Saver saver_;
};

TEST(Saving, RanksMeetForTheShardsAlone) {
  const parity::Job job = runtime_test::InPrecision(parity::TinyGpt(true), Precision::kFp32);
  Strategy strategy;
  strategy.dp = 4;
  const ir::Plan plan = runtime_test::LowerFor(job, strategy);
  const train::Folder folder;
  const std::string failure = launch::RunLocalRanks(4, [&](comm::Endpoint* endpoint) {
    train::SyntheticSource data({.seed = 1, .vocab = job.model.vocab});
    OneSnapshot hook(folder / "s", endpoint);
    launch::TrainOptions options;
    options.steps = 2;
    options.execute.deadline_s = kDeadline_s;
    launch::TrainRank(plan, endpoint, &data, options, {&hook});
  });
  EXPECT_EQ(failure, "");
  EXPECT_EQ(StepsIn(folder / "s").size(), 1u);
}

// Its manifest was removed through the link, and the user's file without a word.
TEST(Pruning, LeavesLinksAndFilesOfOthers) {
  namespace fs = std::filesystem;
  const train::Folder folder;
  const auto make = [&](const std::string& name) {
    fs::create_directories(folder / name);
    train::WriteBytes(folder / (name + "/" + kManifestName), "x");
  };
  for (const int step : {10, 20, 30, 40}) make("s/" + StepFolder(step));
  make("elsewhere");
  fs::remove_all(folder / ("s/" + StepFolder(10)));
  fs::create_directory_symlink(folder / "elsewhere", folder / ("s/" + StepFolder(10)));
  train::WriteBytes(folder / ("s/" + StepFolder(70)), "mine");
  fs::create_directories(folder / ("s/" + StepFolder(80)));  // unfinished
  EXPECT_EQ(StepFileIn(folder / "s"), folder / ("s/" + StepFolder(70)));
  Prune(folder / "s", 2);
  EXPECT_EQ(StepsIn(folder / "s"), (std::vector<int64_t>{40, 30, 10}));
  EXPECT_TRUE(fs::exists(folder / (std::string("elsewhere/") + kManifestName)));
  EXPECT_EQ(ReadWhole(folder / ("s/" + StepFolder(70))), "mine");
  EXPECT_FALSE(fs::exists(folder / ("s/" + StepFolder(80))));
  // A step that is written again takes the place of the link alone.
  RemoveStep(folder / "s", 10);
  EXPECT_EQ(StepsIn(folder / "s"), (std::vector<int64_t>{40, 30}));
  EXPECT_TRUE(fs::exists(folder / (std::string("elsewhere/") + kManifestName)));
  RemoveStep(folder / "s", 70);
  EXPECT_EQ(ReadWhole(folder / ("s/" + StepFolder(70))), "mine");
  fs::remove(folder / ("s/" + StepFolder(70)));
  EXPECT_EQ(StepFileIn(folder / "s"), "");
}

}  // namespace
}  // namespace orrery::snapshot
