// SPDX-License-Identifier: Apache-2.0
// A small job on A100 nodes that the simulation tests share.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "model/arch/catalogue.h"
#include "model/engine/event/executor.h"
#include "model/engine/event/simulation.h"
#include "model/hardware/catalog.h"
#include "model/plan/lower/lower.h"
#include "model/twin/step_predictor.h"

namespace orrery::sim {

struct StepOptions {
  CommunicatorOptions communicators;
  Precision precision = Precision::kBf16;
  Perturbation perturbation;
};

inline StepResult SimulateStep(const ir::Plan& plan, const Cluster& cluster,
                               const net::Wires& wires, const CostSetting& setting,
                               const StepOptions& options) {
  const Pricer pricer(setting, options.precision);
  const PlanTasks tasks = MakeTasks(plan, pricer);
  CommunicatorTable communicators =
      MakeCommunicators(plan, tasks, cluster, wires, pricer.messages, options.communicators);
  return Execute(plan, tasks, &communicators, options.perturbation);
}

class SimTest : public testing::Test {
 protected:
  SimTest() {
    work_.seq_len = 1024;
    work_.global_batch = 64;
    work_.clip_norm = 0;
    model_ = LoadModel("gpt2-xl").spec;
    model_.layers = 8, model_.hidden = 2048, model_.heads = model_.kv_heads = 16,
    model_.head_dim = 128;
    model_.ffn = 8192;
    Quiet(&framework_);
  }

  // Leaves out what software adds to the hardware's times: the closed form spreads it over a step
  // by fitted shares.
  static void Quiet(FrameworkProfile* framework) {
    framework->host_forward_op = framework->host_backward_op = framework->host_collective =
        framework->host_unfused_softmax = Seconds(0);
    framework->head_fixed = framework->embedding_fixed = Seconds(0);
    framework->step_fixed = framework->step_per_layer = framework->step_per_doubling = Seconds(0);
    framework->tensor_overlap = framework->sequence_overlap = 0;
    framework->data_exposed = 1;
  }

  static Strategy Layout(int tp, int pp, int dp, int micro_batch = 1) {
    Strategy strategy;
    strategy.tp = tp, strategy.pp = pp, strategy.dp = dp, strategy.micro_batch = micro_batch;
    strategy.overlap_grad_reduce = strategy.overlap_param_gather = false;
    return strategy;
  }

  ir::Plan Build(const Strategy& strategy) const {
    LowerResult lowered = Lower(model_, work_, strategy);
    if (const auto* refusal = std::get_if<Refusal>(&lowered)) ADD_FAILURE() << refusal->reason;
    return std::get<ir::Plan>(std::move(lowered));
  }

  void UseRanks(int64_t ranks) {
    cluster_ = BuildCluster(LoadTopology("selene"), (ranks + 7) / 8,
                            ranks < 8 ? static_cast<int>(ranks) : 8);
  }

  CostSetting Setting() const { return {&gpu_, &fabric_, &framework_, &cluster_.summary}; }

  StepResult Simulate(const ir::Plan& plan, const StepOptions& options = {}) const {
    return SimulateStep(plan, cluster_, net::WiresOf(cluster_), Setting(), options);
  }
  StepResult Simulate(const Strategy& strategy, const StepOptions& options = {}) {
    UseRanks(strategy.ranks());
    return Simulate(Build(strategy), options);
  }

  StepTime ClosedForm(const Strategy& strategy) const {
    StepPredictor predictor({model_, work_, Setting()});
    return std::get<StepTime>(predictor.Predict(strategy));
  }

  // Axes along which all ranks do the same: replicas of the data.
  static AxisMask Replicas(const ir::Plan& plan) {
    return static_cast<AxisMask>(1 << plan.mesh.AxisIndex("dp") | 1 << plan.mesh.AxisIndex("dpo"));
  }

  ModelSpec model_;
  Workload work_;
  GpuProfile gpu_ = LoadGpuProfile("a100-sxm4-80gb");
  FabricProfile fabric_ = LoadFabricProfile("infiniband");
  FrameworkProfile framework_ = LoadFrameworkProfile("megatron");
  Cluster cluster_;
};

}  // namespace orrery::sim
