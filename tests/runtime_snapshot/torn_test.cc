// SPDX-License-Identifier: Apache-2.0
// Snapshots that are torn or of something else: refused by name, the one before is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/snapshot/snapshot.h"
#include "tests/runtime_data/testing.h"
#include "tests/runtime_snapshot/training.h"

namespace orrery::snapshot {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using train::Folder;

class Torn : public testing::Test {
 protected:
  Torn() {
    job_ = runtime_test::InPrecision(parity::TinyMlp(), Precision::kFp32);
    layout_.dp = 2;
    whole_ = Train(job_, layout_, 8, {});
    EXPECT_EQ(Train(job_, layout_, 4, Saving(folder_ / "s", 2)).failure, "");
  }

  std::string Newest(const std::string& name) const { return folder_ / "s/step-00000004/" + name; }

  // The newest snapshot is broken: training must go on from step 2 as if it had never been.
  void ExpectPrevious(const std::string& why) const {
    const Trained run = Train(job_, layout_, 8, Resuming(folder_ / "s"));
    EXPECT_EQ(run.failure, "");
    ASSERT_FALSE(run.losses.empty());
    EXPECT_EQ(run.losses.begin()->first, 3);
    EXPECT_EQ(Deviation(run, whole_), 0);
    EXPECT_THAT(run.notes,
                ElementsAre(AllOf(HasSubstr("step-00000004 is not used: "), HasSubstr(why))));
  }

  const Folder folder_;
  parity::Job job_;
  Strategy layout_;
  Trained whole_;
};

void Change(const std::string& path, const std::function<void(std::string*)>& edit) {
  std::string bytes = ReadWhole(path);
  edit(&bytes);
  train::WriteBytes(path, bytes);
}

TEST_F(Torn, AFlippedBitOfAnyShard) {
  Change(Newest("rank-00001.shard"), [](std::string* bytes) { bytes->at(77) ^= 4; });
  ExpectPrevious("rank-00001.shard is torn: its hash differs");
}

TEST_F(Torn, AShortShard) {
  fs::resize_file(Newest("rank-00000.shard"), 100);
  ExpectPrevious("rank-00000.shard is torn: 100 bytes instead of");
}

TEST_F(Torn, ALongShard) {
  Change(Newest("rank-00000.shard"), [](std::string* bytes) { *bytes += "more"; });
  ExpectPrevious("rank-00000.shard is torn");
}

TEST_F(Torn, AMissingShard) {
  fs::remove(Newest("rank-00001.shard"));
  ExpectPrevious("rank-00001.shard is missing");
}

TEST_F(Torn, ADeletedManifestIsReported) {
  fs::remove(Newest("manifest"));
  ExpectPrevious("its manifest was deleted");
}

TEST_F(Torn, AnUnfinishedSnapshotIsNone) {
  fs::remove(Newest("manifest"));
  train::WriteBytes(folder_ / "s/LATEST", "step-00000002\n");
  const Trained run = Train(job_, layout_, 8, Resuming(folder_ / "s"));
  EXPECT_EQ(run.losses.begin()->first, 3);
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(Torn, ManifestsOfEveryLength) {
  const std::string manifest = ReadWhole(Newest("manifest"));
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{30},
                                   manifest.size() / 2, manifest.size() - 1}) {
    SCOPED_TRACE(length);
    train::WriteBytes(Newest("manifest"), manifest.substr(0, length));
    ExpectPrevious("its manifest ");
  }
}

TEST_F(Torn, AManifestWithAnotherDigit) {
  Change(Newest("manifest"), [](std::string* text) {
    const std::size_t at = text->find("\"step\":4");
    text->at(at + 7) = '5';
  });
  ExpectPrevious("its manifest is torn: the hash differs");
}

TEST_F(Torn, AManifestThatLacksAShardIsIncomplete) {
  Manifest manifest = ReadManifest(ReadWhole(Newest("manifest")));
  manifest.shards.pop_back();
  train::WriteBytes(Newest("manifest"), ManifestText(manifest));
  ExpectPrevious("it lacks ");
}

// A backup that was restored next to newer snapshots which a full disk has cut.
TEST_F(Torn, WhatIsNotUsedStaysAndDoesNotCountAsKept) {
  EXPECT_EQ(Train(job_, layout_, 8, Saving(folder_ / "newer", 2)).failure, "");
  for (const char* step : {"step-00000006", "step-00000008"}) {
    fs::copy(folder_ / "newer/" + step, folder_ / "s/" + step, fs::copy_options::recursive);
    fs::resize_file(folder_ / "s/" + step + "/rank-00000.shard", 10);
  }
  HookOptions on = Saving(folder_ / "s", 1);
  on.resume = folder_ / "s/.";
  const Trained run = Train(job_, layout_, 5, on);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.losses.begin()->first, 5);
  ASSERT_EQ(run.notes.size(), 3u);
  EXPECT_THAT(run.notes[2], HasSubstr("is none of the 2 snapshots that are kept"));
  EXPECT_EQ(StepsIn(folder_ / "s"), (std::vector<int64_t>{8, 6, 5, 4}));
  EXPECT_EQ(LastSaved(folder_ / "s"), 5);
  // What the run writes itself in their place counts.
  const Trained next = Train(job_, layout_, 7, on);
  EXPECT_EQ(next.losses.begin()->first, 6);
  EXPECT_EQ(StepsIn(folder_ / "s"), (std::vector<int64_t>{8, 7, 6}));
  const Trained rest = Train(job_, layout_, 8, on);
  EXPECT_EQ(rest.losses.begin()->first, 8);
  EXPECT_EQ(Deviation(rest, whole_), 0);
  EXPECT_EQ(StepsIn(folder_ / "s"), (std::vector<int64_t>{8, 7}));
}

TEST_F(Torn, AllOfThemTornIsAFailureThatNamesTheFolder) {
  for (const char* step : {"s/step-00000002/manifest", "s/step-00000004/manifest"})
    fs::resize_file(folder_ / step, 40);
  const Trained run = Train(job_, layout_, 8, Resuming(folder_ / "s"));
  EXPECT_THAT(run.failure, HasSubstr("there is no snapshot to resume from in '"));
  EXPECT_EQ(run.notes.size(), 2u);
  EXPECT_TRUE(run.losses.empty());
}

TEST_F(Torn, AnotherModelsSnapshotIsForeign) {
  parity::Job other = runtime_test::InPrecision(parity::TinyGpt(true), Precision::kFp32);
  Strategy one;
  const Trained run = Train(other, one, 8, Resuming(folder_ / "s"));
  EXPECT_THAT(run.failure, HasSubstr("there is no snapshot to resume from"));
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("it is of another model: there is no parameter"),
                                     HasSubstr("step-00000002 is not used")));
}

TEST_F(Torn, AnotherSizeOptimizerOrSeedIsForeign) {
  parity::Job sgd = job_;
  sgd.work.optimizer = job_.work.optimizer == Optimizer::kSgd ? Optimizer::kAdam : Optimizer::kSgd;
  const Trained run = Train(sgd, layout_, 8, Resuming(folder_ / "s"));
  EXPECT_THAT(run.notes.at(0),
              testing::AnyOf(HasSubstr("it is of another optimizer"), HasSubstr("it lacks ")));
  HookOptions seeded = Resuming(folder_ / "s");
  seeded.seed = 9;
  EXPECT_THAT(Train(job_, layout_, 8, seeded).notes.at(0),
              HasSubstr("made with --seed 1, and this run has 9"));
  EXPECT_EQ(Difference({{"a", {2, 3}}}, {{"a", {2, 4}}}), "parameter a is [2, 3], not [2, 4]");
  EXPECT_EQ(Difference({{"a", {2}}, {"b", {1}}}, {{"a", {2}}}),
            "parameter b is none of this model's");
  EXPECT_EQ(Difference({{"a", {2}}}, {{"a", {2}}}), "");
}

}  // namespace
}  // namespace orrery::snapshot
