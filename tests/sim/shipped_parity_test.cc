// SPDX-License-Identifier: Apache-2.0
// The executor against the closed form with profiles as they are shipped: real jobs on real
// clusters, laid out as frameworks do, host and software terms included.
#include "model/framework/presets.h"
#include "tests/sim/setting.h"

namespace orrery::sim {
namespace {

struct Job {
  const char* name;
  const char* model;
  const char* topology;
  int nodes;
  const char* framework;
  int tp, pp, dp, micro_batch;
  int64_t global_batch;
  int zero;
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;
  int vpp = 1;
  double tolerance = 0.02;
};

class ShippedParity : public SimTest, public testing::WithParamInterface<Job> {
 protected:
  Strategy Use(const Job& job) {
    model_ = LoadModel(job.model).spec;
    work_.seq_len = std::min<int64_t>(model_.max_positions, 2048);
    work_.global_batch = job.global_batch;
    work_.clip_norm = 1;
    const TopologySpec topology = LoadTopology(job.topology);
    cluster_ = BuildCluster(topology, job.nodes);
    gpu_ = LoadGpuProfile(topology.gpu);
    framework_ = SelectFrameworkProfile(job.framework, job.topology, true);
    Strategy strategy = Layout(job.tp, job.pp, job.dp, job.micro_batch);
    strategy.zero = job.zero, strategy.recompute = job.recompute;
    strategy.sequence_parallel = job.sequence_parallel;
    strategy.vpp = job.vpp;
    if (job.vpp > 1) strategy.schedule = PipelineSchedule::kInterleaved;
    strategy = FindFramework(job.framework).Complete(strategy, work_.precision);
    FollowFramework(framework_, &strategy);
    return strategy;
  }
};

TEST_P(ShippedParity, TheTwoEnginesAgree) {
  const Strategy strategy = Use(GetParam());
  const StepTime closed = ClosedForm(strategy);
  const ir::Plan plan = Build(strategy);
  StepOptions options;
  options.communicators.merged = Replicas(plan);
  const double simulated = Simulate(plan, options).seconds + closed.fixed;
  EXPECT_NEAR(simulated, closed.total, GetParam().tolerance * closed.total)
      << "closed form: compute " << closed.compute << " host " << closed.host << " tensor "
      << closed.tensor << " data " << closed.data << " pipeline " << closed.pipeline << " bubble "
      << closed.bubble << " optimizer " << closed.optimizer;
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, ShippedParity,
    testing::Values(
        Job{"Gpt2SmallDdp", "gpt2-small", "dgx-a100-80", 1, "ddp", 1, 1, 8, 4, 128, 0},
        Job{"Gpt2SmallHostBound", "gpt2-small", "dgx-a100-80", 1, "ddp", 1, 1, 8, 1, 64, 0},
        Job{"BertLargeMegatron", "bert-large", "selene", 2, "megatron", 1, 1, 16, 8, 256, 0,
            Recompute::kNone, false, 1, 0.03},  // each bucket pays its own latency
        Job{"Gpt2XlZero1", "gpt2-xl", "selene", 2, "megatron", 1, 1, 16, 4, 512, 1},
        Job{"Gpt2XlFsdp", "gpt2-xl", "mosaic-a100-40", 2, "fsdp", 1, 1, 16, 4, 64, 3,
            Recompute::kNone, false, 1, 0.03},  // gathers and passes take a smooth maximum
        Job{"Llama13bFsdp", "llama2-13b", "mosaic-h100", 1, "fsdp", 1, 1, 8, 2, 16, 3,
            Recompute::kNone, false, 1,
            0.03},  // reductions nearly as long as the passes beside them
        Job{"Llama7bTensor", "llama2-7b", "selene", 1, "megatron", 8, 1, 1, 2, 32, 0},
        Job{"Llama7bSequence", "llama2-7b", "selene", 2, "megatron", 8, 1, 2, 2, 64, 1,
            Recompute::kSelective, true, 1, 0.03},
        Job{"Gpt175bPipeline", "gpt3-175b", "selene", 64, "megatron", 8, 8, 8, 1, 512, 1,
            Recompute::kFull},
        Job{"Gpt175bInterleaved", "gpt3-175b", "selene", 16, "megatron", 8, 16, 1, 1, 128, 0,
            Recompute::kSelective, true, 2},
        Job{"Gpt175bVtrain", "gpt3-175b", "vtrain-a100", 64, "megatron", 8, 8, 8, 1, 512, 0,
            Recompute::kFull}),
    [](const auto& job) { return job.param.name; });

}  // namespace
}  // namespace orrery::sim
