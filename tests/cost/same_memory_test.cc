// SPDX-License-Identifier: Apache-2.0
// One memory for one job: `plan`, for every framework, says the bytes that `plan validate` compares with printed ones.
#include <gtest/gtest.h>

#include "calib/validate/validate.h"
#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/twin/search.h"

namespace orrery {
namespace {

constexpr double kGib = 1073741824.0;

struct Job {
  const char *name, *model, *topology, *framework;
  int nodes, micro_batch;
  int64_t global_batch;
  int tp, pp, vpp, dp, zero;
};

constexpr Job kJobs[] = {
    {"MegatronPipeline", "sc21-7.5b", "selene", "megatron", 2, 1, 64, 4, 2, 1, 2, 0},
    {"MegatronInterleaved", "sc21-3.6b", "selene", "megatron", 1, 2, 128, 2, 2, 3, 2, 1},
    {"MegatronOverNodes", "sc21-18.4b", "selene", "megatron", 4, 2, 256, 8, 4, 1, 1, 0},
    {"DeepSpeed", "gpt2-xl", "aws-p4d", "deepspeed", 2, 4, 128, 1, 1, 1, 16, 1},
    {"DeepSpeedOnGaudi", "bert-1.5b", "aws-dl1", "deepspeed", 1, 8, 512, 1, 1, 1, 8, 1},
    {"Fsdp", "llama2-7b", "mosaic-h100", "fsdp", 2, 2, 64, 1, 1, 1, 16, 3},
    {"Ddp", "gpt2-medium", "aws-p4d", "ddp", 1, 8, 64, 1, 1, 1, 8, 0},
    {"Orrery", "gpt2-xl", "aws-p4d", "orrery", 1, 2, 64, 1, 2, 1, 4, 1},
};

CaseRow RowOf(const Job& job) {
  CaseRow row;
  row.name = job.name;
  row.topology = job.topology;
  row.framework = job.framework;
  row.nodes = job.nodes;
  row.model = LoadModel(job.model).spec;
  row.gpus_per_node = LoadTopology(job.topology).node.gpus;
  row.work.seq_len = 512;
  row.work.global_batch = job.global_batch;
  row.work.precision = Precision::kBf16;
  row.work.optimizer = Optimizer::kAdam;
  Strategy s;
  s.tp = job.tp, s.pp = job.pp, s.vpp = job.vpp, s.dp = job.dp, s.zero = job.zero;
  s.schedule = job.vpp > 1 ? PipelineSchedule::kInterleaved : PipelineSchedule::k1F1B;
  s.micro_batch = job.micro_batch;
  row.strategy = FindFramework(job.framework).Complete(s, row.work.precision);
  row.measured_step_s = 1;
  return row;
}

SearchRequest RequestOf(const CaseRow& row) {
  SearchRequest request;
  request.model = row.model;
  request.work = row.work;
  request.topology = LoadTopology(row.topology);
  request.nodes = {row.nodes};
  request.framework = row.framework;
  return request;
}

class SameMemory : public testing::TestWithParam<Job> {};

TEST_P(SameMemory, PlanAndValidateAgreeToTheByte) {
  const CasePrediction validated = PredictCases({RowOf(GetParam())}).front();
  ASSERT_FALSE(validated.row.refused) << *validated.row.refused;
  const SearchRequest request = RequestOf(validated.row);
  const Profiles profiles = LoadProfiles(request);
  const auto assessed = Predict(JobOf(request, profiles), validated.row.strategy);
  ASSERT_TRUE(std::holds_alternative<Prediction>(assessed)) << std::get<Refusal>(assessed).reason;
  const MemoryReport& memory = *std::get<Prediction>(assessed).memory;
  EXPECT_EQ((memory.peak().allocated() + memory.workspaces).value,
            *validated.predicted_allocator_gib * kGib);
  // nvidia-smi is read on the first node; where it holds all stages, it shows the fullest.
  if (GetParam().nodes == 1 || GetParam().pp == 1) {
    EXPECT_EQ(memory.total.value, *validated.predicted_mem_gib * kGib);
  }
  EXPECT_EQ(memory.peak().allocated() == memory.arena, profiles.framework.static_layout);
  double live = 0;
  for (const Bytes& bytes : memory.peak().by_class) live += bytes.value;
  EXPECT_EQ(live, memory.live.value);
}

INSTANTIATE_TEST_SUITE_P(Frameworks, SameMemory, testing::ValuesIn(kJobs),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace orrery
