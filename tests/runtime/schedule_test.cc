// SPDX-License-Identifier: Apache-2.0
// Learning rates by step, and what ends a run early: as functions, and on ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "model/base/host_list.h"
#include "runtime/comm/gather.h"
#include "runtime/launch/launchers.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/train/lr_hook.h"
#include "tests/runtime/single.h"

namespace orrery::runtime_test {
namespace {

using train::LrSchedule;
using train::LrShape;

TEST(LrSchedule, WarmsUpAndFallsToItsEnd) {
  const LrSchedule cosine{LrShape::kCosine, 10, 110, 0.1, 1};
  EXPECT_DOUBLE_EQ(cosine.At(1), 0.1);
  EXPECT_DOUBLE_EQ(cosine.At(5), 0.5);
  EXPECT_DOUBLE_EQ(cosine.At(10), 1);
  EXPECT_NEAR(cosine.At(60), 0.1 + 0.9 / 2, 1e-12);  // half of the way: cos(pi / 2) = 0
  EXPECT_NEAR(cosine.At(35), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2, 1e-12);  // a quarter
  EXPECT_NEAR(cosine.At(110), 0.1, 1e-12);
  EXPECT_NEAR(cosine.At(1000), 0.1, 1e-12);
  const LrSchedule square{LrShape::kPolynomial, 0, 100, 0, 2};
  EXPECT_DOUBLE_EQ(square.At(50), 0.25);
  EXPECT_DOUBLE_EQ(square.At(100), 0);
  EXPECT_DOUBLE_EQ((LrSchedule{LrShape::kConstant, 4, 0, 0, 1}).At(3), 0.75);
  EXPECT_DOUBLE_EQ((LrSchedule{LrShape::kConstant, 4, 0, 0, 1}).At(5), 1);
}

// A rate that is c times the plan's in every step is a plan with that rate.
TEST(LrSchedule, ReachesTheOptimizer) {
  parity::Job job = InPrecision(parity::TinyMlp(), Precision::kFp32);
  Strategy two;
  two.dp = 2;
  const LrSchedule half{LrShape::kPolynomial, 0, int64_t{1} << 40, 0.5, 1e18};  // at once
  launch::LrHook hooks[] = {launch::LrHook(half), launch::LrHook(half)};
  class PerRank : public launch::StepHook {  // ranks are threads
   public:
    explicit PerRank(launch::LrHook* hooks) : hooks_(hooks) {}
    void BeforeTraining(exec::Executor* e) override { hooks_[e->image().rank].BeforeTraining(e); }
    void AfterStep(exec::Executor* e, const launch::StepRecord& record) override {
      hooks_[e->image().rank].AfterStep(e, record);
    }

   private:
    launch::LrHook* hooks_;
  } per_rank(hooks);
  const Trained scheduled = Train(LowerFor(job, two), job, 5, false, {&per_rank});
  job.optimizer.lr /= 2;
  const Trained plain = Train(LowerFor(job, two), job, 5, false);
  ASSERT_EQ(scheduled.failure, "");
  ASSERT_EQ(scheduled.steps.size(), plain.steps.size());
  for (std::size_t i = 0; i < plain.steps.size(); ++i)
    EXPECT_EQ(scheduled.steps[i].result.loss, plain.steps[i].result.loss) << i;
}

TEST(LargestOf, IsTheSameOnAnyNumberOfRanks) {
  for (const int64_t ranks : {1, 2, 3, 4, 7, 12}) {
    std::atomic<int> right = 0;
    EXPECT_EQ(launch::RunLocalRanks(ranks,
                                    [&](comm::Endpoint* endpoint) {
                                      for (int64_t at = 0; at < ranks; ++at) {
                                        const int64_t mine = endpoint->rank() == at ? 40 + at : -at;
                                        right += comm::LargestOf(endpoint, mine, 20) == 40 + at;
                                      }
                                    }),
              "");
    EXPECT_EQ(right, ranks * ranks);
  }
}

// As another user: root has no such limit.
TEST(LocalRanks, ALimitOfThreadsIsAnErrorThatCountsThem) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{20, 20};
    setrlimit(RLIMIT_NPROC, &limit);
    if (getuid() == 0 && setuid(54321) != 0) _exit(2);
    const std::string failure = launch::RunLocalRanks(64, [](comm::Endpoint* endpoint) {
      comm::Wait(endpoint, endpoint->Barrier().get(), 20, "all ranks");
    });
    const bool right =
        failure.starts_with("only ") &&
        failure.find(" of 64 ranks could be started as threads: ") != std::string::npos;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "cannot become another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Launchers, HostsOfSlurmsShortForm) {
  using testing::ElementsAre;
  EXPECT_THAT(ExpandHosts("gpu[08-10,12],login"),
              ElementsAre("gpu08", "gpu09", "gpu10", "gpu12", "login"));
  EXPECT_THAT(ExpandHosts("r[1-2]n[0-1]"), ElementsAre("r1n0", "r1n1", "r2n0", "r2n1"));
  EXPECT_THAT(ExpandHosts("one"), ElementsAre("one"));
  for (const char* wrong : {"", "a[", "a]", "a[1", "a[x]", "a[3-1]", "a[1-2]]", "a,,b", "a[[1]]"})
    EXPECT_TRUE(ExpandHosts(wrong).empty()) << wrong;
  EXPECT_EQ(ExpandHosts("n[0-999999999]", 100).size(), 100u);
  EXPECT_EQ(ExpandHosts("n[0-99999][0-99999][0-99999]", 100).size(), 100u);  // at once
  std::string why;
  for (const auto& [wrong, reason] : {std::pair{"a,n[0-3", "the '[' of 'n[0-3' is never closed"},
                                      std::pair{"n[3-1]", "'3-1' is no range of hosts"},
                                      std::pair{"n[]", "'n[]' is no list of hosts"}}) {
    EXPECT_TRUE(ExpandHosts(wrong, 100, &why).empty());
    EXPECT_EQ(why, reason);
  }
}

}  // namespace
}  // namespace orrery::runtime_test
