// SPDX-License-Identifier: Apache-2.0
// What is read from a recorded step: memory over time, the critical path, communication by axis.
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "model/engine/event/critical_path.h"
#include "model/engine/event/memory_track.h"
#include "model/memory/software_memory.h"
#include "model/plan/ir/layout.h"
#include "tests/sim/recorded.h"

namespace orrery::sim {
namespace {

class RecordTest : public RecordedTest {
 protected:
  CriticalPath Path() const {
    return FindCriticalPath(plan_, tasks_, communicators_, timeline_, ops_, perturbation_);
  }
  static std::map<std::string, double> ByClass(const CriticalPath& path) {
    std::map<std::string, double> classes;
    for (const PathClass& part : path.classes) classes[part.name] = part.seconds;
    return classes;
  }
};

TEST_F(RecordTest, LiveBytesStayWithinTheLayoutAndReturnToTheStepsOwn) {
  for (const Strategy& strategy : VariedLayouts()) {
    Record(strategy);
    for (std::size_t r = 0; r < result_.ranks.size(); r += 3) {
      const StageMemoryMap map(ops_[StageOf(r)]);
      const MemoryTrack track = map.Track(timeline_[r]);
      const ir::Layout& layout = ops_[StageOf(r)].layout();
      EXPECT_LE(track.peak, layout.arena_bytes) << plan_.title;
      EXPECT_GT(track.peak, layout.step_bytes / 2) << plan_.title;
      EXPECT_GT(track.points.size(), 100u);
      const int64_t of_the_step = track.points.back().bytes;
      EXPECT_LE(of_the_step, layout.step_bytes);
      EXPECT_GT(of_the_step, 0.9 * static_cast<double>(layout.step_bytes));
      double before = -1;
      for (const MemoryPoint& point : track.points) {
        EXPECT_GT(point.time, before);
        EXPECT_LE(point.bytes, track.peak);
        EXPECT_GE(point.bytes, of_the_step);
        before = point.time;
      }
      EXPECT_LE(before, result_.seconds);
    }
  }
}

// One definition of live bytes: what `plan predict` reports is what the simulated step reaches.
TEST_F(RecordTest, ThePeakOverTimeIsThatOfThePredictionInRandomLayouts) {
  std::mt19937 random(20);
  const auto draw = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  int played = 0, with_shared = 0;
  for (int i = 0; i < 60; ++i) {
    framework_.static_layout = i % 3 == 0;
    framework_.memory_gradients_late = i % 3 == 1;
    Strategy strategy = Layout(1 << draw(3), 1 << draw(3), 1 << draw(3), 1 << draw(2));
    strategy.zero = draw(4);
    strategy.sequence_parallel = strategy.tp > 1 && draw(2) == 0;
    strategy.overlap_grad_reduce = draw(2) == 0;
    strategy.overlap_param_gather = draw(2) == 0;
    strategy.reduce_in_backward = strategy.zero < 2 && draw(2) == 0;
    strategy.fp32_grads = draw(2) == 0;
    strategy.recompute = draw(2) == 0 ? Recompute::kFull : Recompute::kNone;
    strategy.schedule = static_cast<PipelineSchedule>(draw(3));
    if (strategy.schedule == PipelineSchedule::kInterleaved) strategy.vpp = 2;
    work_.global_batch = 32;
    if (CheckStrategy(model_, work_, strategy)) continue;
    Record(strategy);
    ++played;
    for (std::size_t r = 0; r < result_.ranks.size(); ++r) {
      const TaskOps& ops = ops_[StageOf(r)];
      const StageDemand demand = DemandOf(plan_, ops.program(), ops.layout(), ops.holding());
      with_shared += !ir::SharedGradients(ops.program()).empty() && !framework_.static_layout;
      const StageMemoryMap map(ops);
      const MemoryTrack track = map.Track(timeline_[r]);
      EXPECT_EQ(static_cast<double>(track.peak), demand.live) << plan_.title;
      EXPECT_EQ(map.DateOf(timeline_[r], demand.fullest.call, demand.fullest.op), track.peak_time)
          << plan_.title;
    }
  }
  EXPECT_GT(played, 20);
  EXPECT_GT(with_shared, 5);
}

TEST_F(RecordTest, TheCriticalPathIsTheStep) {
  for (const Strategy& strategy : VariedLayouts()) {
    Record(strategy);
    const CriticalPath path = Path();
    double sum = 0;
    for (const PathClass& part : path.classes) {
      EXPECT_GE(part.seconds, 0) << part.name;
      sum += part.seconds;
    }
    EXPECT_NEAR(sum, result_.seconds, 1e-12 * result_.seconds) << plan_.title;
    double at = 0;
    for (const PathStretch& stretch : path.stretches) {
      EXPECT_EQ(stretch.begin, at);
      EXPECT_GE(stretch.end, stretch.begin);
      at = stretch.end;
    }
    EXPECT_EQ(at, result_.seconds);
    EXPECT_EQ(ByClass(path).count("waiting"), 0u) << plan_.title;
  }
}

TEST_F(RecordTest, OnOneRankThePathIsAllItsCompute) {
  work_.global_batch = 4;
  Record(Layout(1, 1, 1));
  const CriticalPath path = Path();
  ASSERT_EQ(path.stretches.size(), 1u);
  EXPECT_EQ(path.classes.front().name, "GEMM");
  const std::map<std::string, double> classes = ByClass(path);
  const double compute = classes.at("GEMM") + classes.at("attention") + classes.at("memory-bound") +
                         classes.at("optimizer");
  EXPECT_NEAR(compute, result_.times[0].compute, 1e-9 * compute);
}

TEST_F(RecordTest, ThePathRunsThroughTheSlowRank) {
  perturbation_.slowdown.assign(16, 1.0);
  perturbation_.slowdown[5] = 2;
  Record(Layout(1, 1, 16));
  double on_slow = 0;
  for (const PathStretch& stretch : Path().stretches) {
    if (stretch.rank == 5) on_slow += stretch.seconds();
  }
  EXPECT_GT(on_slow, 0.5 * result_.seconds);
}

TEST_F(RecordTest, ThePathOfAPipelineVisitsItsStages) {
  Record(Layout(1, 4, 1));
  const CriticalPath path = Path();
  std::set<int> stages;
  for (const PathStretch& stretch : path.stretches) stages.insert(stretch.stage);
  EXPECT_EQ(stages, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(path.stretches.front().first, "P");
  EXPECT_GT(ByClass(path).count("pp latency") + ByClass(path).count("pp traffic"), 0u);
}

TEST_F(RecordTest, ALateHostIsOnThePath) {
  work_.global_batch = 4;
  framework_.host_forward_op = framework_.host_backward_op = Seconds(1e-3);
  Record(Layout(1, 1, 1));
  const CriticalPath path = Path();
  EXPECT_EQ(path.classes.front().name, "host");
  EXPECT_GT(path.classes.front().seconds, 0.5 * result_.seconds);
}

}  // namespace
}  // namespace orrery::sim
