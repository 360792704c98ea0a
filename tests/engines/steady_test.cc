// SPDX-License-Identifier: Apache-2.0
// Steps of many micro-batches that follow from a cycle are those simulated op by op.
#include "model/twin/steady.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/plan/ir/verify.h"
#include "model/twin/predict.h"
#include "model/twin/search.h"

namespace orrery {
namespace {

constexpr double kEqual = 1e-12;       // of the step: total
constexpr double kEqualTerms = 1e-10;  // of the step: terms are sums of differences of dates

struct Layout {
  const char* name;
  const char* framework;
  const char* topology;
  const char* model;
  int64_t nodes;
  Strategy strategy;
  int64_t micro_batches;
  bool repeats;  // whether a cycle is expected
};

Strategy Make(int tp, int pp, int dp, int zero, int vpp = 1) {
  Strategy s;
  s.tp = tp;
  s.pp = pp;
  s.dp = dp;
  s.zero = zero;
  s.vpp = vpp;
  if (vpp > 1) s.schedule = PipelineSchedule::kInterleaved;
  return s;
}

Strategy With(Strategy s, PipelineSchedule schedule) {
  s.schedule = schedule;
  return s;
}

const Layout kLayouts[] = {
    {"one_gpu", "ddp", "dgx-a100-40", "gpt2-medium", 1, Make(1, 1, 8, 0), 96, true},
    {"tensor", "megatron", "dgx-h100", "gpt2-medium", 1, Make(8, 1, 1, 0), 128, true},
    {"fsdp", "fsdp", "aws-p4d", "gpt2-xl", 2, Make(1, 1, 16, 3), 64, true},
    {"deepspeed_3", "deepspeed", "aws-p4d", "gpt2-xl", 2, Make(1, 1, 16, 3), 50, true},
    {"gathers_first", "megatron", "dgx-h100", "gpt2-medium", 1, Make(1, 1, 8, 1), 96, true},
    {"host_ahead", "deepspeed", "aws-dl1", "gpt2-medium", 1, Make(1, 1, 8, 1), 60, true},
    {"host_behind", "deepspeed", "aws-dl1", "gpt2-small", 1, Make(1, 1, 8, 0), 90, true},
    {"one_f_one_b", "megatron", "dgx-a100-80", "gpt2-medium", 2, Make(2, 4, 2, 1), 131, true},
    {"interleaved", "megatron", "dgx-a100-80", "gpt2-medium", 2, Make(2, 4, 2, 1, 3), 128, true},
    {"eight_stages", "megatron", "selene", "gpt3-175b", 8, Make(8, 8, 1, 0), 220, true},
    {"zero_bubble", "orrery", "dgx-a100-80", "gpt2-medium", 2,
     With(Make(2, 4, 2, 1), PipelineSchedule::kZeroBubble), 140, true},
    {"tcp", "megatron", "aws-g5-1gpu", "gpt2-medium", 2, Make(1, 2, 1, 0), 64, true},
    {"gpipe", "orrery", "dgx-a100-80", "gpt2-medium", 2,
     With(Make(2, 4, 2, 1), PipelineSchedule::kGpipe), 96, false},
    {"few", "megatron", "dgx-a100-80", "gpt2-medium", 2, Make(2, 4, 2, 1), 16, false},
};

class Steady : public testing::TestWithParam<Layout> {};

struct Setting {
  explicit Setting(const Layout& at);
  SearchRequest request;
  Profiles profiles;
  Job job;
  Strategy layout;
};

Setting::Setting(const Layout& at) {
  const LoadedModel loaded = LoadModel(at.model);
  request.model = loaded.spec;
  request.topology = LoadTopology(at.topology);
  request.nodes = {at.nodes};
  request.framework = at.framework;
  request.work.seq_len = loaded.defaults.seq_len.value_or(1024);
  request.work.precision = Precision::kBf16;
  request.work.optimizer = Optimizer::kAdam;
  const int64_t batch = at.micro_batches * at.strategy.data_parallel() * at.strategy.micro_batch;
  request.work.global_batch = batch;
  const int gpus = static_cast<int>(at.strategy.ranks() / at.nodes);
  request.gpus_per_node = gpus;
  profiles = LoadProfiles(request);
  job = JobOf(request, profiles, at.nodes, batch);
  layout = FindFramework(at.framework).Complete(at.strategy, request.work.precision);
}

TEST_P(Steady, NeedsTheMemoryOfTheWholeStep) {
  const Layout& at = GetParam();
  const Setting setting(at);
  const ir::Plan plan = LowerLegal(setting.job, setting.layout);
  const auto shorter = ShorterPlan(setting.job, setting.layout, plan);
  if (!shorter) GTEST_SKIP() << "no short steps";
  ASSERT_LT(shorter->micro_batches, at.micro_batches);
  Prediction whole = PredictionOf(setting.job, setting.layout, {}), few = whole;
  AddMemory(setting.job, plan, &whole);
  AddMemoryOfLayout(setting.job, plan, &few);
  EXPECT_EQ(few.memory->total, whole.memory->total);
  EXPECT_EQ(few.memory->arena, whole.memory->arena);
  EXPECT_EQ(few.memory->live, whole.memory->live);
  EXPECT_EQ(few.memory->summary, whole.memory->summary);
  EXPECT_EQ(ir::Verify(*shorter).size(), ir::Verify(plan).size());
}

// All but the scale of the loss, which follows from the batch.
TEST_P(Steady, HasTheSchedulesOfAPlanOfItsOwn) {
  const Layout& at = GetParam();
  const Setting setting(at);
  const ir::Plan plan = LowerLegal(setting.job, setting.layout);
  const auto shorter = ShorterPlan(setting.job, setting.layout, plan);
  if (!shorter) GTEST_SKIP() << "no short steps";
  Job job = setting.job;
  job.work.global_batch = shorter->micro_batches * at.strategy.data_parallel();
  const ir::Plan own = LowerLegal(job, setting.layout);
  ASSERT_EQ(own.programs.size(), shorter->programs.size());
  for (std::size_t stage = 0; stage < own.programs.size(); ++stage)
    EXPECT_EQ(own.programs[stage].schedule, shorter->programs[stage].schedule);
  const Cluster cluster = ClusterOf(job);
  EXPECT_EQ(SimulateStep(*shorter, cluster, job.prices()).total,
            SimulateStep(own, cluster, job.prices()).total);
}

TEST_P(Steady, EqualsTheWholeStep) {
  const Layout& at = GetParam();
  const Setting setting(at);
  const Job& job = setting.job;
  const Strategy& layout = setting.layout;
  const ir::Plan plan = LowerLegal(job, layout);
  ASSERT_EQ(plan.micro_batches, at.micro_batches);
  const Cluster cluster = ClusterOf(job);

  SimulatedStep whole_step, step;
  const StepTime whole = SimulateStep(plan, cluster, job.prices(), &whole_step);
  const StepTime time = SimulateLayout(job, layout, plan, cluster, &step);
  EXPECT_EQ(step.repeated, at.repeats);
  EXPECT_NEAR(time.total, whole.total, kEqual * whole.total);
  EXPECT_NEAR(SimulateTotal(job, layout, plan, cluster), whole.total, kEqual * whole.total);
  EXPECT_EQ(step.ops, whole_step.ops);
  for (const BreakdownTerm& term : BreakdownTerms())
    EXPECT_NEAR(time.*term.seconds, whole.*term.seconds, kEqualTerms * whole.total) << term.key;
  for (const CommAxis axis : {CommAxis::kTensor, CommAxis::kData, CommAxis::kPipeline})
    EXPECT_NEAR(time.*HiddenOf(axis), whole.*HiddenOf(axis), kEqualTerms * whole.total)
        << AxisWords(axis);
  EXPECT_EQ(step.shared.size(), whole_step.shared.size());
}

// Longer pairs for cycles that settle late, as long as both steps are shorter than the whole one.
TEST(ShortSteps, GrowWhileTheyPay) {
  const Strategy layout = Make(1, 16, 1, 0, 2);
  const auto many = ShortStepsOf(layout, 1024);
  ASSERT_EQ(many.size(), 3u);
  for (std::size_t i = 0; i < many.size(); ++i) {
    EXPECT_EQ(many[i].more - many[i].fewer, 16);
    EXPECT_LT(many[i].fewer + many[i].more, 1024);
    if (i > 0) {
      EXPECT_GT(many[i].fewer, many[i - 1].more);
    }
  }
  EXPECT_EQ(ShortStepsOf(layout, 256).size(), 1u);
  EXPECT_TRUE(ShortStepsOf(layout, 128).empty());
  EXPECT_TRUE(ShortStepsOf(With(layout, PipelineSchedule::kGpipe), 1024).empty());
}

// What a command may simulate follows from a plan's structure, not from the number of its micro-batches.
TEST(ShortSteps, ManyMicroBatchesAreSimulated) {
  double before = 0, effort = 0;
  for (const int micro_batches : {1 << 10, 1 << 19}) {
    const Setting setting({"many", "megatron", "dgx-a100-80", "gpt2-medium", 2, Make(2, 4, 2, 1, 3),
                           micro_batches, true});
    const auto answer = Predict(setting.job, setting.layout);
    ASSERT_TRUE(std::holds_alternative<Prediction>(answer)) << std::get<Refusal>(answer).reason;
    const Prediction& prediction = std::get<Prediction>(answer);
    EXPECT_EQ(prediction.not_simulated, "");
    ASSERT_TRUE(prediction.simulated.has_value());
    EXPECT_TRUE(prediction.simulated->repeated);
    const double of_one = prediction.time.total / micro_batches;
    const double needed = SimulationEffort(LowerLegal(setting.job, setting.layout), setting.layout);
    if (before > 0) {
      EXPECT_NEAR(of_one, before, 0.02 * before);
      EXPECT_NEAR(needed, effort, 1e-3 * effort);
    }
    before = of_one;
    effort = needed;
  }
}

// Stages of six GPUs on nodes of eight: some replicas send inside a node, others between them.
TEST(Replicas, ThatLieOtherwiseAreExecutedThemselves) {
  Setting setting({"six", "megatron", "aws-p4d", "gpt2-medium", 6,
                   With(Make(1, 8, 6, 1), PipelineSchedule::k1F1B), 64, true});
  const ir::Plan plan = LowerLegal(setting.job, setting.layout);
  const Cluster cluster = ClusterOf(setting.job);
  EXPECT_FALSE(sim::MergesReplicas(plan, cluster));
  sim::SimulationOptions each;
  each.merge_replicas = false;
  const double seconds = sim::Simulation(plan, cluster, setting.job.prices(), each).Run();
  EXPECT_NEAR(SimulateTotal(setting.job, setting.layout, plan, cluster), seconds, 1e-4 * seconds);
  const Setting whole({"eight", "megatron", "aws-p4d", "gpt2-medium", 6,
                       With(Make(1, 6, 8, 1), PipelineSchedule::k1F1B), 64, true});
  EXPECT_TRUE(sim::MergesReplicas(LowerLegal(whole.job, whole.layout), ClusterOf(whole.job)));
}

// A schedule without a cycle has to be simulated whole, or not at all.
TEST(ShortSteps, WithoutACycleTheWholeStepCounts) {
  Setting setting({"gpipe", "orrery", "dgx-a100-80", "gpt2-medium", 2,
                   With(Make(2, 4, 2, 1), PipelineSchedule::kGpipe), 96, false});
  const ir::Plan plan = LowerLegal(setting.job, setting.layout);
  EXPECT_EQ(SimulationEffort(plan, setting.layout), SimulationEffort(plan));
  setting.job.most_effort = 0.9 * SimulationEffort(plan);
  const auto answer = Predict(setting.job, setting.layout);
  EXPECT_FALSE(std::get<Prediction>(answer).simulated.has_value());
  EXPECT_TRUE(std::get<Prediction>(answer).not_simulated.starts_with("too large"));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Steady, testing::ValuesIn(kLayouts),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace orrery
