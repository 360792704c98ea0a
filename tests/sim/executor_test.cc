// SPDX-License-Identifier: Apache-2.0
// The executor on whole steps: accounts, rendezvous, both backends, merged replicas, errors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "model/base/diagnostics.h"
#include "tests/sim/setting.h"

namespace orrery::sim {
namespace {

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_F(SimTest, OneRankTakesTheSumOfItsOps) {
  work_.global_batch = 4;
  const Strategy strategy = Layout(1, 1, 1);
  UseRanks(1);
  const ir::Plan plan = Build(strategy);
  const OpPrices prices(Setting(), Precision::kBf16);
  const ir::Program& program = plan.programs.front();
  double expected = 0;
  for (const ir::Instance& at : ir::Unfold(plan, program, ir::ComputeLayout(plan, program))) {
    expected += prices.Price(plan, program, program.blocks[at.block].ops[at.op], true).device;
  }
  const StepResult result = Simulate(plan);
  EXPECT_GT(expected, 0.01);
  EXPECT_NEAR(result.seconds, expected, 1e-9 * expected);
  EXPECT_NEAR(result.times[0].compute, expected, 1e-9 * expected);
}

TEST_F(SimTest, EachRanksTimesAddUpToTheStep) {
  const StepResult result = Simulate(Layout(2, 4, 2));
  ASSERT_EQ(result.times.size(), 16u);
  for (const RankTime& time : result.times) {
    EXPECT_NEAR(time.total(), result.seconds, 1e-9 * result.seconds);
    EXPECT_GT(time.compute, 0);
    EXPECT_GT(time.exposed, 0);
    EXPECT_GT(time.idle, 0);
  }
}

TEST_F(SimTest, ALateHostDelaysTheDevice) {
  work_.global_batch = 4;
  UseRanks(1);
  const ir::Plan plan = Build(Layout(1, 1, 1));
  const double fast = Simulate(plan).seconds;
  framework_.host_forward_op = framework_.host_backward_op = Seconds(1e-3);
  const StepResult slow = Simulate(plan);
  double issuing = 0;
  const OpPrices prices(Setting(), Precision::kBf16);
  const ir::Program& program = plan.programs.front();
  for (const ir::Instance& at : ir::Unfold(plan, program, ir::ComputeLayout(plan, program))) {
    issuing += prices.Price(plan, program, program.blocks[at.block].ops[at.op], true).host;
  }
  EXPECT_GT(issuing, fast);
  EXPECT_GT(slow.seconds, issuing);
  EXPECT_LT(slow.seconds, issuing + fast);
}

TEST_F(SimTest, ComputeIsSlowerBesideCommunication) {
  Strategy strategy = Layout(1, 1, 16);
  strategy.zero = 3;
  strategy.overlap_grad_reduce = strategy.overlap_param_gather = true;
  gpu_.overlap_slowdown = 0;
  const StepResult without = Simulate(strategy);
  gpu_.overlap_slowdown = 0.3;
  const StepResult with = Simulate(strategy);
  EXPECT_GT(without.times[0].overlapped, 0);
  EXPECT_GT(with.seconds, without.seconds);
  EXPECT_LT(with.seconds, without.seconds + 0.5 * with.times[0].overlapped);
}

TEST_F(SimTest, OverlapHidesCommunication) {
  Strategy strategy = Layout(1, 1, 16);
  strategy.zero = 3;
  const double exposed = Simulate(strategy).seconds;
  strategy.overlap_grad_reduce = strategy.overlap_param_gather = true;
  EXPECT_LT(Simulate(strategy).seconds, exposed);
}

std::vector<Strategy> Layouts() {
  std::vector<Strategy> layouts;
  for (const auto& [tp, pp, dp] :
       std::vector<std::array<int, 3>>{{1, 1, 16}, {8, 1, 2}, {2, 4, 2}, {1, 4, 4}, {4, 2, 4}}) {
    Strategy strategy;
    strategy.tp = tp, strategy.pp = pp, strategy.dp = dp;
    strategy.sequence_parallel = tp > 1;
    strategy.zero = pp == 1 ? 3 : 1;
    layouts.push_back(strategy);
  }
  layouts[2].vpp = 2, layouts[2].schedule = PipelineSchedule::kInterleaved;
  layouts[3].schedule = PipelineSchedule::kGpipe, layouts[3].zero = 0;
  layouts[4].schedule = PipelineSchedule::kZeroBubble;
  return layouts;
}

// Eight NICs per node serve the GPUs next to them, so that replicas see the same network.
TEST_F(SimTest, MergedReplicasTakeTheSameTimeToTheLastBit) {
  for (const Strategy& strategy : Layouts()) {
    UseRanks(strategy.ranks());
    const ir::Plan plan = Build(strategy);
    StepOptions merged;
    merged.communicators.merged = Replicas(plan);
    const StepResult all = Simulate(plan), one = Simulate(plan, merged);
    EXPECT_EQ(one.ranks.size() * static_cast<std::size_t>(strategy.dp), all.ranks.size());
    EXPECT_EQ(fmt::format("{:.12g}", one.seconds), fmt::format("{:.12g}", all.seconds))
        << plan.title;
  }
}

TEST_F(SimTest, SettingTrafficApartChangesNothing) {
  for (const Strategy& strategy : Layouts()) {
    UseRanks(strategy.ranks());
    const ir::Plan plan = Build(strategy);
    StepOptions simulated;
    simulated.communicators.set_apart = false;
    const double expected = Simulate(plan, simulated).seconds;
    EXPECT_NEAR(Simulate(plan).seconds, expected, 1e-9 * expected) << plan.title;
  }
}

TEST_F(SimTest, BothBackendsAgree) {
  if (!net::HasSimGrid()) GTEST_SKIP() << "libsimgrid was not found when this was built";
  for (const Strategy& strategy : Layouts()) {
    UseRanks(strategy.ranks());
    const ir::Plan plan = Build(strategy);
    StepOptions reference;
    reference.communicators.backend = net::Backend::kSimGrid;
    StepOptions whole;
    whole.communicators.whole_weights = true;
    const double expected = Simulate(plan, reference).seconds;
    EXPECT_NEAR(Simulate(plan, whole).seconds, expected, 1e-3 * expected) << plan.title;
    EXPECT_LE(Simulate(plan).seconds, expected * (1 + 1e-3)) << plan.title;
  }
}

TEST_F(SimTest, SameInputSameResultToTheBit) {
  const ir::Plan plan = Build(Layout(2, 4, 2));
  UseRanks(16);
  EXPECT_EQ(Simulate(plan).seconds, Simulate(plan).seconds);
}

TEST_F(SimTest, AMissingReceiveIsReportedWithBothRanks) {
  ir::Plan plan = Build(Layout(1, 2, 1));
  UseRanks(2);
  std::vector<ir::Op>& ops = plan.programs[1].blocks[1].ops;
  const auto receive =
      std::ranges::find_if(ops, [](const ir::Op& op) { return op.kind == ir::OpKind::kRecv; });
  ASSERT_NE(receive, ops.end());
  ops.erase(receive);
  const std::string message = MessageOf([&] { Simulate(plan); });
  EXPECT_NE(message.find("deadlock"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 0, stage 0"), std::string::npos) << message;
  EXPECT_NE(message.find("waits for rank 1"), std::string::npos) << message;
}

TEST_F(SimTest, PartnersThatDisagreeAreReported) {
  ir::Plan plan = Build(Layout(1, 2, 1));
  UseRanks(2);
  for (ir::Op& op : plan.programs[1].blocks[1].ops) {
    if (op.kind == ir::OpKind::kRecv) {
      ir::View half = plan.programs[1].views[op.out[0]];
      half.elements /= 2;
      plan.programs[1].views.push_back(half);
      op.out[0] = static_cast<ir::ViewId>(plan.programs[1].views.size() - 1);
    }
  }
  const std::string message = MessageOf([&] { Simulate(plan); });
  EXPECT_NE(message.find("another kind or size"), std::string::npos) << message;
}

TEST_F(SimTest, ADeadLinkIsReportedWithRanksAndLink) {
  const ir::Plan plan = Build(Layout(1, 1, 16));
  UseRanks(16);
  net::Wires wires = net::WiresOf(cluster_);
  const std::vector<LinkId> route = cluster_.Route(7, 15);
  const auto dead = std::ranges::find_if(route, [&](LinkId link) {
    return cluster_.links[static_cast<std::size_t>(link)].kind == LinkKind::kNicPort;
  });
  wires.capacity[static_cast<std::size_t>(*dead)] = BytesPerSecond(0);
  const std::string message =
      MessageOf([&] { SimulateStep(plan, cluster_, wires, Setting(), {}); });
  EXPECT_NE(message.find("ranks 0 to 15"), std::string::npos) << message;
  EXPECT_NE(message.find(net::LinkName(cluster_, *dead)), std::string::npos) << message;
}

TEST_F(SimTest, AClusterThatIsTooSmallIsRefused) {
  const ir::Plan plan = Build(Layout(1, 1, 16));
  UseRanks(8);
  EXPECT_NE(MessageOf([&] { Simulate(plan); }).find("wants 16 ranks"), std::string::npos);
}

TEST_F(SimTest, ADegradedLinkSlowsTheStep) {
  const ir::Plan plan = Build(Layout(1, 1, 16));
  UseRanks(16);
  net::Wires wires = net::WiresOf(cluster_);
  const double before = Simulate(plan).seconds;
  for (std::size_t i = 0; i < wires.capacity.size(); ++i) {
    if (cluster_.links[i].kind == LinkKind::kNicPort) wires.capacity[i] *= 0.5;
  }
  EXPECT_GT(SimulateStep(plan, cluster_, wires, Setting(), {}).seconds, before * 1.02);
}

TEST_F(SimTest, OneSlowRankHoldsUpTheOthers) {
  const ir::Plan plan = Build(Layout(1, 1, 16));
  UseRanks(16);
  const StepResult before = Simulate(plan);
  StepOptions options;
  options.perturbation.slowdown.assign(16, 1.0);
  options.perturbation.slowdown[5] = 1.5;
  const StepResult after = Simulate(plan, options);
  EXPECT_NEAR(after.seconds - before.seconds, 0.5 * before.times[5].compute,
              0.05 * before.times[5].compute);
  EXPECT_GT(after.times[4].idle, 0.3 * before.times[5].compute);
  EXPECT_LT(after.times[5].idle, 0.05 * before.times[5].compute);
  options.perturbation.slowdown[5] = 0;
  EXPECT_THROW(Simulate(plan, options), InputError);
}

// Other nodes of a cluster may have faster GPUs than the one that prices are of.
TEST_F(SimTest, FasterRanksWaitForNoKernelOfTheOthersPace) {
  const ir::Plan plan = Build(Layout(1, 1, 16));
  UseRanks(16);
  const StepResult before = Simulate(plan);
  StepOptions options;
  options.perturbation.slowdown.assign(16, 0.5);
  const StepResult after = Simulate(plan, options);
  EXPECT_NEAR(before.seconds - after.seconds, 0.5 * before.times[5].compute,
              0.05 * before.times[5].compute);
  options.perturbation.slowdown.assign(16, 1.0);
  EXPECT_EQ(Simulate(plan, options).seconds, before.seconds);
}

TEST_F(SimTest, JitterIsRepeatableAndCostsTime) {
  const ir::Plan plan = Build(Layout(2, 2, 4));
  UseRanks(16);
  StepOptions options;
  options.perturbation.jitter = 0.05;
  const double first = Simulate(plan, options).seconds;
  EXPECT_EQ(first, Simulate(plan, options).seconds);
  EXPECT_GT(first, Simulate(plan).seconds);
  options.perturbation.seed = 2;
  EXPECT_NE(first, Simulate(plan, options).seconds);
}

// Strategy lives in model/plan/lower alone.
}  // namespace
}  // namespace orrery::sim
