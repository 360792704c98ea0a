// SPDX-License-Identifier: Apache-2.0
// What snapshots next to training ask of the ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "runtime/comm/gather.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/train/snapshot/files.h"
#include "runtime/train/snapshot/folder_lock.h"
#include "runtime/train/snapshot/snapshot.h"
#include "runtime/train/train_rank.h"
#include "tests/runtime/single.h"
#include "tests/runtime_data/testing.h"

namespace {
constexpr int kLowest = 19;  // priority, as nice has it
std::atomic<int> most_urgent_flush = kLowest + 1;
}  // namespace

// In place of the library's: notes with which priority files are flushed.
extern "C" int fsync(int file) {
  const int now = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  int before = most_urgent_flush.load();
  while (now < before && !most_urgent_flush.compare_exchange_weak(before, now)) {
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace orrery::snapshot {
namespace {

constexpr double kDeadline_s = 60;

// One snapshot behind the first step, up to its manifest.
class OneSnapshot : public launch::StepHook {
 public:
  OneSnapshot(const std::string& folder, comm::Endpoint* endpoint, std::atomic<int>* sent)
      : folder_(folder),
        endpoint_(endpoint),
        sent_(sent),
        saver_({folder, 1, "synthetic", kDeadline_s}, endpoint) {}

  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (record.step != 1) return;
    saver_.Begin(executor, 1);
    EXPECT_FALSE(saver_.whole());
    PollAlone();
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
  // Ranks that have written their shard go on while the first has not asked yet.
  void PollAlone() {
    const auto shard = std::filesystem::path(folder_) / StepFolder(1) /
                       fmt::format("rank-{:05}.shard", endpoint_->rank());
    const auto wait = [](const auto& done) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!done() && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    if (endpoint_->rank() == 0) {
      wait([&] { return sent_->load() == 3; });
      EXPECT_EQ(sent_->load(), 3);
      return;
    }
    wait([&] { return std::filesystem::exists(shard); });
    saver_.Poll();
    ++*sent_;
  }

  std::string folder_;
  comm::Endpoint* endpoint_;
  std::atomic<int>* sent_;  // ranks that have polled
  Saver saver_;
};

// Two steps of four ranks with a snapshot behind the first.
void Train(const std::string& saved) {
  const parity::Job job = runtime_test::InPrecision(parity::TinyGpt(true), Precision::kFp32);
  Strategy strategy;
  strategy.dp = 4;
  const ir::Plan plan = runtime_test::LowerFor(job, strategy);
  std::atomic<int> sent = 0;
  const std::string failure = launch::RunLocalRanks(4, [&](comm::Endpoint* endpoint) {
    train::SyntheticSource data({.seed = 1, .vocab = job.model.vocab});
    OneSnapshot hook(saved, endpoint, &sent);
    launch::TrainOptions options;
    options.steps = 2;
    options.execute.deadline_s = kDeadline_s;
    launch::TrainRank(plan, endpoint, &data, options, {&hook});
  });
  EXPECT_EQ(failure, "");
  EXPECT_EQ(StepsIn(saved).size(), 1u);
}

TEST(Saving, RanksMeetNobodyBetweenSteps) {
  const train::Folder folder;
  Train(folder / "s");
}

TEST(Saving, WritersGiveWayToRanks) {
  const train::Folder folder;
  const int own = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  most_urgent_flush = kLowest + 1;
  Train(folder / "s");
  EXPECT_EQ(most_urgent_flush.load(), kLowest);
  EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), own);
}

std::string WhyRefused(const std::function<void()>& read) {
  try {
    read();
    return "";
  } catch (const SnapshotError& error) {
    return error.what();
  }
}

// LATEST as a link to /dev/zero filled the memory, and as a pipe held the run for ever.
TEST(Folders, OfSomebodyElseAreReadAsFilesOnly) {
  namespace fs = std::filesystem;
  const train::Folder folder;
  const std::string step = folder / StepFolder(10);
  fs::create_directory(step);
  train::WriteBytes(step + "/" + kManifestName, "x");
  const std::string latest = folder / kLatestName;
  const auto last = [&] { LastSaved(folder / ""); };
  EXPECT_EQ(LastSaved(folder / ""), 10);
  fs::create_symlink("/dev/zero", latest);
  EXPECT_EQ(WhyRefused(last), "cannot read '" + folder / "" + "/" + kLatestName +
                                  "': it is a symbolic link, which is not followed");
  EXPECT_NE(WhyRefused([&] { WithoutManifest(folder / ""); }), "");
  fs::remove(latest);
  ASSERT_EQ(mkfifo(latest.c_str(), 0600), 0);
  EXPECT_THAT(WhyRefused(last), testing::HasSubstr("LATEST': it is no regular file"));
  fs::remove(latest);
  train::WriteBytes(latest, std::string(5000, 's'));
  EXPECT_THAT(WhyRefused(last), testing::HasSubstr("larger than 4096 bytes"));
  train::WriteBytes(latest, StepFolder(10) + "\n");
  EXPECT_EQ(LastSaved(folder / ""), 10);
  const std::string shard = step + "/rank-00000.shard";
  fs::create_symlink("/proc/kcore", shard);
  EXPECT_THAT(WhyRefused([&] { HashOfFile(shard); }), testing::HasSubstr("not followed"));
  fs::create_symlink("/tmp/elsewhere", folder / ".lock");
  EXPECT_THAT(WhyRefused([&] { const FolderLock lock(folder / ""); }),
              testing::HasSubstr(".lock': it is a symbolic link, which is not followed"));
  fs::remove(folder / ".lock");
  ASSERT_EQ(mkfifo((folder / ".lock").c_str(), 0600), 0);
  EXPECT_THAT(WhyRefused([&] { const FolderLock lock(folder / ""); }),
              testing::HasSubstr(".lock': it is no regular file"));
}

// What lies where a file is written aside is replaced: neither written to nor waited for.
TEST(Folders, NothingIsWrittenThroughALinkInThem) {
  namespace fs = std::filesystem;
  const train::Folder folder;
  train::WriteBytes(folder / "mine", "mine");
  fs::create_symlink(folder / "mine", folder / "a.part");
  ASSERT_EQ(mkfifo((folder / "b.part").c_str(), 0600), 0);
  for (const char* name : {"a", "b"}) {
    WholeFile file(folder / name);
    file.Write("text", 4);
    file.Commit();
    EXPECT_EQ(ReadWhole(folder / name), "text");
  }
  EXPECT_EQ(ReadWhole(folder / "mine"), "mine");
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
