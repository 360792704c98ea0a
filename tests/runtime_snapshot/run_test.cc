// SPDX-License-Identifier: Apache-2.0
// Data and snapshots as a user meets them on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "runtime/train/snapshot/files.h"
#include "runtime/train/snapshot/folder_lock.h"
#include "tests/cli/run_plan.h"
#include "tests/runtime_data/testing.h"

namespace orrery::snapshot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using train::Folder;

Outcome Plan(const std::string& text) {
  std::istringstream in(text);
  return RunPlan({std::istream_iterator<std::string>(in), {}});
}

std::string TinyGpt(const Folder& folder) {
  WriteText(folder / "tiny.yaml",
            "name: tiny\nfamily: decoder\nlayers: 2\nhidden: 16\nffn: 32\nheads: 2\nvocab: 256\n"
            "max_positions: 32\nnorm: layer-norm\nactivation: gelu\npositions: learned\n"
            "tied_embeddings: true\n");
  return "run --model " + (folder / "tiny.yaml") + " --seq-len 16 --global-batch 8 --comm local ";
}

std::vector<double> Losses(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<double> losses;
  if (outcome.code != 0) return losses;
  const json record = json::parse(outcome.out);
  for (const json& step : record["steps"]) {
    losses.push_back(step["loss"]);
    EXPECT_GT(step["load_s"], 0);
  }
  return losses;
}

TEST(PlanRunData, CorpusIsLearntAndResumedInAnotherLayout) {
  const Folder folder;
  const std::string job = TinyGpt(folder) + "--data corpus --lr 1e-2 --json ";
  const auto whole = Losses(Plan(job + "--steps 30"));
  ASSERT_EQ(whole.size(), 30u);
  EXPECT_LT(whole.back(), 0.85 * whole.front());
  const std::string where = folder / "s";
  EXPECT_EQ(Losses(Plan(job + "--steps 20 --ranks 2 --dp 2 --save " + where)).size(), 20u);
  const auto rest = Losses(Plan(job + "--steps 30 --ranks 4 --tp 2 --pp 2 --resume " + where));
  ASSERT_EQ(rest.size(), 10u);
  for (std::size_t i = 0; i < rest.size(); ++i)
    EXPECT_NEAR(rest[i], whole[20 + i], 1e-5 * whole[20 + i]);
}

TEST(PlanRunData, BrokenFilesEndWithTwoAndNameTheByte) {
  const Folder folder;
  const std::string job = TinyGpt(folder) + "--steps 1 --data ";
  auto tokens = train::Counting<uint16_t>(1000, 200);
  tokens[500] = 300;
  train::WriteBytes(folder / "large.bin", train::BytesOf(tokens));
  train::WriteBytes(folder / "odd.u16", "123");
  train::WriteBytes(folder / "short.txt", "too short");
  const std::pair<const char*, const char*> cases[] = {
      {"large.bin", "large.bin: token 300 at byte 1000 is beyond the vocabulary of 256"},
      {"odd.u16", "odd.u16: ends within a token of 2 bytes, at byte 2"},
      {"short.txt", "short.txt: ends at byte 9 after 9 tokens, and one sample takes 17"},
      {"none.txt", "there is no file and no source"}};
  for (const auto& [name, message] : cases) {
    const Outcome outcome = Plan(job + (folder / name));
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  const Outcome features = Plan("run --model linear-20-1 --data " + (folder / "short.txt"));
  EXPECT_EQ(features.code, 2);
  EXPECT_THAT(features.err, HasSubstr("the model wants features"));
}

TEST(PlanRunSnapshots, FoldersThatCannotBeMeantAreRefusedAtOnce) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local --steps 2 ";
  const std::string where = folder / "s";
  EXPECT_EQ(Plan(job + "--resume " + where).code, 2);
  EXPECT_EQ(Plan(job + "--save-every 2").code, 2);
  ASSERT_EQ(Plan(job + "--save " + where).code, 0);
  const Outcome again = Plan(job + "--save " + where);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("holds snapshots already"));
  const Outcome done = Plan(job + "--resume " + where);
  EXPECT_EQ(done.code, 0);
  EXPECT_THAT(done.out, HasSubstr("no steps remain"));
  // A file of the user's is not replaced.
  fs::create_directory(folder / "other");
  train::WriteBytes(folder / "other/step-00000002", "mine");
  const Outcome file = Plan(job + "--save " + (folder / "other"));
  EXPECT_EQ(file.code, 2);
  EXPECT_THAT(file.err, HasSubstr("step-00000002' has the name of a snapshot and is no folder"));
  EXPECT_EQ(ReadWhole(folder / "other/step-00000002"), "mine");
}

// Somebody took it for saved: its shards are not written over.
TEST(PlanRunSnapshots, AFolderThatHasLostItsManifestsIsNoEmptyOne) {
  const Folder folder;
  const std::string where = folder / "s", step = where + "/step-00000002";
  const std::string job = "run --model linear-20-1 --comm local --steps 2 ";
  ASSERT_EQ(Plan(job + "--save " + where).code, 0);
  ASSERT_TRUE(fs::remove(step + "/manifest"));
  const std::string shard = ReadWhole(step + "/rank-00000.shard");
  for (const char* flags : {"--seed 7 --save ", "--supervise --seed 7 --save "}) {
    const Outcome again = Plan(job + flags + where);
    EXPECT_EQ(again.code, 2) << again.out;
    EXPECT_THAT(again.err, HasSubstr("the manifest of snapshot '" + step + "' was deleted"));
  }
  EXPECT_EQ(ReadWhole(step + "/rank-00000.shard"), shard);
  fs::remove_all(step);
  fs::remove(where + "/LATEST");
  EXPECT_EQ(Plan(job + "--save " + where).code, 0);
}

TEST(PlanRunSnapshots, NothingIsWrittenIntoAFolderBehindALink) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local --steps 4 ";
  const std::string where = folder / "s", link = folder / "link";
  ASSERT_EQ(Plan("run --model linear-20-1 --comm local --steps 2 --save " + where).code, 0);
  fs::create_directory_symlink(where, link);
  for (const std::string& flags :
       {"--resume " + link, "--resume " + where + " --save " + link + "/"}) {
    const Outcome outcome = Plan(job + flags);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("it is a symbolic link, which is not followed"));
  }
  EXPECT_FALSE(fs::exists(where + "/step-00000004"));
  EXPECT_EQ(Plan(job + "--resume " + link + " --save " + (folder / "other")).code, 0);
}

// A folder of somebody else's: LATEST as a link to /dev/zero filled the memory, as a pipe it held the run for ever.
TEST(PlanRunSnapshots, ALatestThatIsNoFileIsRefused) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local --steps 4 ";
  const std::string where = folder / "s", latest = where + "/LATEST";
  ASSERT_EQ(Plan("run --model linear-20-1 --comm local --steps 2 --save " + where).code, 0);
  fs::remove(latest);
  fs::create_symlink("/dev/zero", latest);
  for (const char* flags : {"--resume ", "--supervise --save "}) {
    const Outcome outcome = Plan(job + flags + where);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("LATEST': it is a symbolic link, which is not followed"));
    EXPECT_THAT(outcome.err, HasSubstr("without LATEST the newest snapshot counts"));
  }
  fs::remove(latest);
  ASSERT_EQ(mkfifo(latest.c_str(), 0600), 0);
  const Outcome pipe = Plan(job + "--resume " + where);
  EXPECT_EQ(pipe.code, 2) << pipe.out;
  EXPECT_THAT(pipe.err, HasSubstr("LATEST': it is no regular file"));
  fs::remove(latest);
  EXPECT_EQ(Plan(job + "--resume " + where).code, 0);
}

// Two runs that begin together see an empty folder; the second waits for the lock of the first.
TEST(PlanRunSnapshots, AFolderThatFillsWhileARunWaitsForItIsRefused) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local --steps 2 --save ";
  ASSERT_EQ(Plan(job + (folder / "first")).code, 0);
  const std::string where = folder / "s";
  std::optional<FolderLock> lock(where);
  const int opens = inotify_init1(IN_CLOEXEC);
  ASSERT_GE(inotify_add_watch(opens, (where + "/.lock").c_str(), IN_OPEN), 0);
  auto second = std::async(std::launch::async, [&] { return Plan(job + where); });
  char event[256];
  ASSERT_GT(read(opens, event, sizeof event), 0);  // it has looked at the folder
  close(opens);
  fs::copy(folder / "first/step-00000002", where + "/step-00000002", fs::copy_options::recursive);
  lock.reset();
  const Outcome outcome = second.get();
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("holds snapshots already"));
  EXPECT_EQ(StepsIn(where), std::vector<int64_t>{2});
}

TEST(PlanRunSnapshots, OtherTrainingArgumentsThanBeforeAreNamed) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local --optimizer adamw --lr 1e-3 ";
  const std::string where = folder / "s";
  ASSERT_EQ(Plan(job + "--global-batch 24 --steps 2 --save " + where).code, 0);
  const Outcome same = Plan(job + "--global-batch 24 --steps 3 --resume " + where);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.err, testing::Not(HasSubstr("so far")));
  const Outcome other = Plan(
      "run --model linear-20-1 --comm local --optimizer adamw --lr 0.01 --weight-decay 0.1 "
      "--lr-schedule cosine --warmup 1 --global-batch 48 --steps 5 --resume " +
      where);
  EXPECT_EQ(other.code, 0) << other.err;
  for (const char* change :
       {"--lr was 0.001 so far and is 0.01 from here on", "--weight-decay was 0.01 so far",
        "--lr-schedule was constant so far and is cosine", "--warmup was 0 so far",
        "--global-batch was 24 so far and is 48"})
    EXPECT_THAT(other.err, HasSubstr(change));
}

TEST(PlanRunSnapshots, ARunThatGoesOnIsSavedWhereItCameFrom) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local ", where = folder / "s";
  ASSERT_EQ(Plan(job + "--steps 2 --save " + where).code, 0);
  ASSERT_EQ(Plan(job + "--steps 5 --resume " + where).code, 0);
  EXPECT_THAT(StepsIn(where), testing::Contains(5));
}

TEST(PlanRunSnapshots, FoldersThatCannotBeWrittenAreInputErrors) {
  const Folder folder;
  train::WriteBytes(folder / "file", "");
  const Outcome outcome =
      Plan("run --model linear-20-1 --comm local --steps 2 --save " + (folder / "file/s"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write into '"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("step    1")));
}

// A limit on the size of files stands for a full disk: the write fails halfway through.
TEST(PlanRunSnapshots, AFullDiskEndsWithOneAndLeavesTheOldSnapshot) {
  const Folder folder;
  const std::string job = TinyGpt(folder), where = folder / "s";
  ASSERT_EQ(Plan(job + "--ranks 2 --dp 2 --steps 2 --save " + where).code, 0);
  const auto size = fs::file_size(where + "/step-00000002/rank-00000.shard");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{size / 2, size / 2};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Outcome outcome =
        Plan(job + "--ranks 2 --dp 2 --steps 3 --resume " + where + " --save-every 1");
    const bool right = outcome.code == 1 &&
                       outcome.err.find("cannot write '") != std::string::npos &&
                       outcome.err.find("rank-0000") != std::string::npos;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(StepsIn(where), std::vector<int64_t>{2});
  for (const auto& entry : fs::recursive_directory_iterator(where))
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
  EXPECT_EQ(Losses(Plan(job + "--ranks 2 --dp 2 --steps 4 --json --resume " + where)).size(), 2u);
}

}  // namespace
}  // namespace orrery::snapshot
