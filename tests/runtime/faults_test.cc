// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that fail or stall: all others end, and one message says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "runtime/exec/share.h"
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

// What all ranks gather behind the last step may fail, or last longer than a stop has time: what saves steps comes before it.
TEST(Stops, StepsAreSafeBeforeReportsAreGathered) {
  struct Reports : launch::StepHook {
    void AfterTraining(exec::Executor*) override { throw std::runtime_error("no answer"); }
  } reports;
  struct Saves : launch::StepHook {
    std::atomic<int64_t> saved = 0;
    void Secure(exec::Executor* executor) override { saved = executor->steps_done(); }
  } saves;
  const parity::Job job = InPrecision(parity::TinyMlp(), Precision::kFp32);
  const Trained run = Train(LowerFor(job, {}), job, 3, false, {&reports, &saves});
  EXPECT_THAT(run.failure, HasSubstr("no answer"));
  EXPECT_EQ(saves.saved, 3);
}

// A request to stop does not wait until pages are touched that no step will read.
TEST(Stops, LeaveTheArenaAlone) {
  constexpr int64_t kBytes = int64_t{80} << 20;
  std::vector<std::byte> memory(kBytes, std::byte{1});
  const auto still = [&] { return std::ranges::count(memory, std::byte{1}); };
  exec::Fill(memory.data(), 0, kBytes, [] { return true; });
  EXPECT_EQ(still(), kBytes);
  static std::atomic<int> asked = 0;
  exec::Fill(memory.data(), 0, kBytes, [] { return ++asked > 2; });
  EXPECT_EQ(still(), kBytes - (int64_t{32} << 20));
  exec::Fill(memory.data(), 0, kBytes);
  EXPECT_EQ(still(), 0);
  // The executor asks for its own: nothing but zeros of new pages lies in a poisoned arena.
  parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
  job.model.vocab = 262144;  // an arena beyond what an allocator keeps
  const ir::Plan plan = LowerFor(job, Strategy());
  const exec::RankImage image = exec::MakeRankImage(plan, 0, nullptr, 0xff, [] { return true; });
  ASSERT_GT(image.layout.arena_bytes, int64_t{32} << 20);
  EXPECT_EQ(image.arena.get()[image.layout.arena_bytes / 2], std::byte{0});
}

}  // namespace
}  // namespace orrery::runtime_test
