// SPDX-License-Identifier: Apache-2.0
// Whole training steps: tp 8 x pp 4 on DGX H100 nodes, 48 layers, one reduction per layer beside
// the backward pass.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "bench/twin/figures.h"
#include "model/arch/catalogue.h"
#include "model/engine/event/executor.h"
#include "model/hardware/catalog.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

ModelSpec Model() {
  ModelSpec model = LoadModel("gpt2-xl").spec;
  model.layers = 48, model.hidden = 8192, model.heads = model.kv_heads = 64, model.head_dim = 128;
  model.ffn = 4 * model.hidden, model.max_positions = 2048;
  return model;
}

ir::Plan Build(int dp, int micro_batches) {
  Workload work;
  work.seq_len = 2048;
  work.global_batch = int64_t{dp} * micro_batches;
  Strategy strategy;
  strategy.tp = 8, strategy.pp = 4, strategy.dp = dp;
  strategy.sequence_parallel = true;
  strategy.reduce_in_backward = true;
  LowerResult lowered = Lower(Model(), work, strategy);
  if (const auto* refusal = std::get_if<Refusal>(&lowered)) {
    fmt::print(stderr, "refused: {}\n", refusal->reason);
    std::exit(1);
  }
  return std::get<ir::Plan>(std::move(lowered));
}

struct Case {
  std::string name;
  int dp = 8, micro_batches = 8;
  bool merged = false;
  net::Backend backend = net::Backend::kFluid;
  int rounds = 3;
  double jitter = 0;
};

double PeakGibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1048576.0;
}

void Run(const Case& which) {
  const ir::Plan plan = Build(which.dp, which.micro_batches);
  const Cluster cluster = BuildCluster(LoadTopology("dgx-h100"), plan.mesh.ranks() / 8);
  const GpuProfile gpu = LoadGpuProfile("h100-sxm5-80gb");
  const FabricProfile fabric = LoadFabricProfile("infiniband");
  const FrameworkProfile framework = LoadFrameworkProfile("megatron");
  const CostSetting setting{&gpu, &fabric, &framework, &cluster.summary};
  const Pricer pricer(setting, Precision::kBf16);
  sim::CommunicatorOptions options;
  options.backend = which.backend;
  if (which.merged) options.merged = static_cast<sim::AxisMask>(1 << plan.mesh.AxisIndex("dp"));
  double tasks_cpu = 1e300, communicators_cpu = 1e300, run_cpu = 1e300;
  sim::StepResult result;
  for (int round = 0; round < which.rounds; ++round) {
    const Stopwatch tasks_watch;
    const sim::PlanTasks tasks = sim::MakeTasks(plan, pricer);
    tasks_cpu = std::min(tasks_cpu, tasks_watch.Cpu());
    const Stopwatch communicators_watch;
    sim::CommunicatorTable communicators = sim::MakeCommunicators(
        plan, tasks, cluster, net::WiresOf(cluster), pricer.messages, options);
    communicators_cpu = std::min(communicators_cpu, communicators_watch.Cpu());
    const Stopwatch run_watch;
    result = sim::Execute(plan, tasks, &communicators, {.jitter = which.jitter});
    run_cpu = std::min(run_cpu, run_watch.Cpu());
  }
  const auto print = [&](const char* figure, double value, const char* unit) {
    Print(fmt::format("step_{}_{}", which.name, figure), value, unit);
  };
  print("unfold_cpu", tasks_cpu, "s");
  print("route_cpu", communicators_cpu, "s");
  print("run_cpu", run_cpu, "s");
  print("total_cpu", tasks_cpu + communicators_cpu + run_cpu, "s");
  print("ops", static_cast<double>(result.ops), "ops");
  print("tasks", static_cast<double>(result.tasks), "tasks");
  print("rate", static_cast<double>(result.ops) / run_cpu, "ops/s");
  print("task_rate", static_cast<double>(result.tasks) / run_cpu, "tasks/s");
  print("simulated_paths", static_cast<double>(result.paths), "paths");
  print("memory_peak_so_far", PeakGibibytes(), "GiB");
  Print(fmt::format("step_{}_seconds", which.name), result.seconds, "s");
}

}  // namespace

void StepFigures() {
  Run({"256_ranks_8_micro_batches_fluid"});
  Run({"256_ranks_8_micro_batches_merged", 8, 8, true});
  // No two ranks in step.
  Run({"256_ranks_8_micro_batches_jitter", 8, 8, false, net::Backend::kFluid, 3, 0.02});
  if (net::HasSimGrid())
    Run({"256_ranks_8_micro_batches_simgrid", 8, 8, false, net::Backend::kSimGrid});
  Run({"4096_ranks_merged", 128, 8, true});
  Run({"256_ranks_192_micro_batches_fluid", 8, 192, false, net::Backend::kFluid, 1});
  Run({"4096_ranks_fluid", 128, 8, false, net::Backend::kFluid, 1});
}

}  // namespace orrery
