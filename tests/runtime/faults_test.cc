// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that fail or stall: all others end, and one message says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/runtime/single.h"

namespace orrery::runtime_test {
namespace {

using testing::HasSubstr;

// Does something on rank 1 after step 2.
class OnRankOne : public launch::StepHook {
 public:
  explicit OnRankOne(std::function<void()> act) : act_(std::move(act)) {}
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (executor->image().rank == 1 && record.step == 2) act_();
  }

 private:
  std::function<void()> act_;
};

Trained TrainWith(OnRankOne* hook, double deadline_s) {
  const parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
  Strategy strategy;
  strategy.dp = 4;
  return Train(LowerFor(job, strategy), job, 1000, false, {hook}, deadline_s);
}

TEST(Faults, AFailingRankNamesItselfAndItsCause) {
  OnRankOne hook([] { throw std::runtime_error("no space left on device"); });
  const Trained run = TrainWith(&hook, 60);
  EXPECT_THAT(run.failure, testing::MatchesRegex("rank 1 on .*: no space left on device"));
  EXPECT_LE(run.steps.size(), 3u);
}

TEST(Faults, AStalledRankIsNamedWithinTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  OnRankOne hook([] { std::this_thread::sleep_for(std::chrono::seconds(8)); });
  const Trained run = TrainWith(&hook, 2);
  EXPECT_THAT(run.failure, HasSubstr("step 3: waited 2 s for "));
  EXPECT_THAT(run.failure, HasSubstr("no answer from rank 1 on "));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Faults, ALossThatIsNoNumberIsReportedOnce) {
  parity::Job job = InPrecision(parity::TinyMlp(), Precision::kFp32);
  job.optimizer.lr = 1e38;
  job.work.clip_norm = 0;
  Strategy strategy;
  strategy.dp = 2;
  const Trained run = Train(LowerFor(job, strategy), job, 50, false);
  EXPECT_THAT(run.failure, testing::MatchesRegex("rank 0 on .*: the loss of step .*"));
}

}  // namespace
}  // namespace orrery::runtime_test
