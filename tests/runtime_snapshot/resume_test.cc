// SPDX-License-Identifier: Apache-2.0
// Training that stops and goes on: on the same layout to the last bit, on others within rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/train/snapshot/files.h"
#include "tests/runtime_data/testing.h"
#include "tests/runtime_snapshot/training.h"

namespace orrery::snapshot {
namespace {

using runtime_test::InPrecision;
using train::Folder;

Strategy Layout(int dp, int tp, int pp, int zero = 0) {
  Strategy s;
  s.dp = dp, s.tp = tp, s.pp = pp, s.zero = zero;
  return s;
}

struct Move {
  const char* name;
  Strategy from, to;
};

std::vector<Move> Moves() {
  Strategy sequence = Layout(1, 4, 1), interleaved = Layout(2, 1, 2), hybrid = Layout(2, 1, 1, 3);
  sequence.sequence_parallel = true;
  interleaved.schedule = PipelineSchedule::kInterleaved;
  interleaved.vpp = 2;
  hybrid.dp_outer = 2;
  return {{"dp 4 to tp 2 pp 2", Layout(4, 1, 1), Layout(1, 2, 2)},
          {"zero 3 to one rank", Layout(4, 1, 1, 3), Layout(1, 1, 1)},
          {"one rank to zero 3 on three", Layout(1, 1, 1), Layout(3, 1, 1, 3)},
          {"tp 4 with sequence to zero 1", sequence, Layout(2, 1, 1, 1)},
          {"interleaved to hybrid zero 3", interleaved, hybrid},
          {"hybrid zero 3 to tp 2 zero 2 pp 2", hybrid, Layout(2, 2, 2, 2)}};
}

// Ten steps in one go against five, a snapshot, and five more.
void ExpectSeamless(const parity::Job& job, const Move& move, double tolerance) {
  SCOPED_TRACE(move.name);
  const Folder folder;
  const Trained whole = Train(job, move.to, 10, {});
  const Trained first = Train(job, move.from, 5, Saving(folder / "s", 0));
  ASSERT_EQ(first.failure, "");
  const Trained rest = Train(job, move.to, 10, Resuming(folder / "s"));
  ASSERT_EQ(rest.failure, "");
  EXPECT_EQ(rest.losses.begin()->first, 6);
  EXPECT_EQ(rest.losses.size(), 5u);
  EXPECT_TRUE(rest.notes.empty());
  EXPECT_LE(Deviation(whole, rest), tolerance);
}

TEST(Resume, GptGoesOnInEveryOtherLayout) {
  const parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
  for (const Move& move : Moves()) ExpectSeamless(job, move, 1e-5);
}

TEST(Resume, SameLayoutIsEqualToTheLastBit) {
  const parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
  for (const Move& move : Moves()) ExpectSeamless(job, {move.name, move.from, move.from}, 0);
  ExpectSeamless(job, {"the last", Moves().back().to, Moves().back().to}, 0);
}

TEST(Resume, OtherFamiliesAndOptimizersGoOn) {
  for (parity::Job job : {parity::TinyBert(), parity::TinyLlama(), parity::TinyGpt(false)}) {
    job = InPrecision(job, Precision::kFp32);
    ExpectSeamless(job, Moves()[0], 1e-5);
  }
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kLamb}) {
    parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
    job.work.optimizer = optimizer;
    ExpectSeamless(job, Moves()[5], 1e-5);
  }
  const parity::Job t5 = InPrecision(parity::TinyT5(), Precision::kFp32);
  ExpectSeamless(t5, {"t5: dp 4 to tp 2", Layout(4, 1, 1), Layout(1, 2, 1)}, 1e-5);
  const parity::Job mlp = InPrecision(parity::TinyMlp(), Precision::kFp32);
  ExpectSeamless(mlp, {"mlp: dp 2 to zero 2 on 4", Layout(2, 1, 1), Layout(4, 1, 1, 2)}, 1e-5);
}

// Snapshots hold the master copy: codes and scales are made from it again, in layouts that hold some.
TEST(Resume, WeightsHeldInEightBitsAreCastAgain) {
  const parity::Job job = InPrecision(parity::LowPrecisionLlama(Fp8::kCurrent), Precision::kFp32);
  const auto held = [](Strategy s) {
    s.micro_batch = 1;
    s.fp8_weights = true;
    return s;
  };
  Strategy cast = Layout(1, 1, 1);
  cast.micro_batch = 1;
  const Strategy sharded = held(Layout(2, 1, 1, 1));
  ExpectSeamless(job, {"same", sharded, sharded}, 0);
  ExpectSeamless(job, {"to zero 3", sharded, held(Layout(2, 1, 1, 3))}, 2e-4);
  ExpectSeamless(job, {"to one rank", sharded, held(Layout(1, 1, 1))}, 2e-4);
  ExpectSeamless(job, {"to weights in full", sharded, cast}, 2e-4);
  ExpectSeamless(job, {"from weights in full", cast, sharded}, 2e-4);
}

TEST(Resume, HalfPrecisionKeepsMastersAndLossScale) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const parity::Job job = InPrecision(parity::TinyGpt(true), precision);
    const Move move = Moves()[5];
    ExpectSeamless(job, {"same", move.from, move.from}, 0);
    ExpectSeamless(job, move, 2e-2);
  }
}

TEST(Resume, DropoutDrawsGoOn) {
  parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
  job.work.dropout = 0.1;
  for (const Move& move : {Moves()[0], Moves()[4]}) {
    ExpectSeamless(job, move, 1e-5);
    ExpectSeamless(job, {"same", move.to, move.to}, 0);
  }
}

// Frozen weights are saved as they are, adapters with their moments.
TEST(Resume, AdaptersGoOn) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    parity::Job job = InPrecision(parity::TinyLlama(), precision);
    job.key += " lora";
    job.work.lora = {4, 8};
    const Move move = Moves()[5];
    ExpectSeamless(job, {"same", move.from, move.from}, 0);
    ExpectSeamless(job, move, precision == Precision::kFp32 ? 1e-5 : 2e-2);
  }
}

TEST(Resume, KeepsTheLastTwoSnapshots) {
  const parity::Job job = InPrecision(parity::TinyMlp(), Precision::kFp32);
  const Folder folder;
  EXPECT_EQ(Train(job, Layout(2, 1, 1), 9, Saving(folder / "s", 2)).failure, "");
  EXPECT_EQ(StepsIn(folder / "s"), (std::vector<int64_t>{9, 8}));
  EXPECT_EQ(ReadWhole(folder / "s/LATEST"), "step-00000009\n");
  HookOptions more = Saving(folder / "s", 2);
  more.resume = more.save;
  const Trained run = Train(job, Layout(2, 1, 1), 12, more);
  EXPECT_EQ(run.losses.size(), 3u);
  EXPECT_EQ(StepsIn(folder / "s"), (std::vector<int64_t>{12, 10}));
}

}  // namespace
}  // namespace orrery::snapshot
