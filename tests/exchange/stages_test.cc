// SPDX-License-Identifier: Apache-2.0
// Layers that do not divide by the stages of a file: what its program refuses is refused, with the arguments that it takes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/exchange/import.h"
#include "model/twin/predict.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::stages {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Script(int layers, const std::string& more) {
  return fmt::format(
      "torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py --num-layers {} --hidden-size 1024 "
      "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
      "--micro-batch-size 1 --global-batch-size 64 --bf16 \\\n --pipeline-model-parallel-size 4 {}",
      layers, more);
}
std::string Refusal(const std::string& script, const Values& given = {}) {
  const Imported read = Import({SourceOf("m.sh", script)}, std::nullopt, given);
  return read.no_layout ? InputError({*read.no_layout}).what() : "";
}
std::string Layout(const std::string& script) {
  const Imported read = Import({SourceOf("m.sh", script)}, std::nullopt);
  const auto at = read.values.find("layout");
  return at == read.values.end() ? "" : at->second.text;
}

// It was predicted with 7, 8, 8, 7 layers by a rule of plans, and Megatron does not start.
TEST(UnevenStages, OfMegatronNeedTheArgumentsThatAskForThem) {
  EXPECT_THAT(Refusal(Script(30, "")),
              AllOf(HasSubstr("m.sh:2:"), HasSubstr("30 layers do not divide by 4 stages"),
                    HasSubstr("--decoder-first-pipeline-num-layers"),
                    HasSubstr("--decoder-last-pipeline-num-layers"),
                    HasSubstr("--account-for-embedding-in-pipeline-split"),
                    HasSubstr("--account-for-loss-in-pipeline-split"),
                    HasSubstr("--pipeline-model-parallel-layout")));
  EXPECT_EQ(Refusal(Script(32, "")), "");
  EXPECT_THAT(Refusal(Script(32, "--num-virtual-stages-per-pipeline-rank 3")),
              HasSubstr("32 layers do not divide by 4 stages x 3 chunks"));
  EXPECT_EQ(Refusal(Script(32, "--num-virtual-stages-per-pipeline-rank 4")), "");
  for (const char* said :
       {"--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
        "--decoder-first-pipeline-num-layers 6", "--decoder-last-pipeline-num-layers 9",
        "'--pipeline-model-parallel-layout=Ett|t*10|t*10|t*8L'"})
    EXPECT_EQ(Refusal(Script(30, said)), "") << said;
}

TEST(UnevenStages, AWrongLayoutIsNamedOnce) {
  std::string error =
      ErrorOf([] { Layout(Script(30, "'--pipeline-model-parallel-layout=Ett|t*10'")); });
  const std::string what = "it ends with the one loss";
  const std::size_t at = error.find(what);
  ASSERT_NE(at, std::string::npos) << error;
  EXPECT_EQ(error.find(what, at + 1), std::string::npos) << error;
}

TEST(UnevenStages, OfFlagsAreThoseOfTheirDegrees) {
  const SourcePtr line = SourceOf("command line", "--pp 4 --layout 2x8,2x7");
  const auto flag = [&](const char* text, const char* key) {
    return Value{text, {line, 1, 1}, key};
  };
  EXPECT_EQ(Refusal(Script(30, ""), {{"layout", flag("2x8,2x7", "--layout")}}), "");
  EXPECT_EQ(Refusal(Script(30, ""), {{"pp", flag("2", "--pp")}}), "");
  EXPECT_THAT(Refusal(Script(28, ""), {{"pp", flag("8", "--pp")}}), HasSubstr("by 8 stages"));
}

// Its engine cuts pipelines by the weights of layers: BLOOM has 70 on 12 stages.
TEST(UnevenStages, OfDeepSpeedStartWithoutArguments) {
  EXPECT_EQ(Refusal(Script(30, "--deepspeed --deepspeed_config none.json --zero-stage 0")), "");
}

// Members of the configuration have names of their own, and were without effect.
TEST(UnevenStages, OfBridgeAreReadAndAskedFor) {
  const std::string front =
      "torchrun --nproc-per-node 8 --nnodes 3 run_recipe.py --recipe llama3_8b_pretrain_config "
      "model.pipeline_model_parallel_size=3 train.global_batch_size=96 train.micro_batch_size=1 ";
  EXPECT_THAT(Refusal(front), AllOf(HasSubstr("32 layers do not divide by 3 stages"),
                                    HasSubstr("model.num_layers_in_first_pipeline_stage")));
  EXPECT_EQ(Layout(front + "model.num_layers_in_first_pipeline_stage=10"), "10,2x11");
  EXPECT_EQ(Layout(front + "model.num_layers_in_last_pipeline_stage=8"), "2x12,8");
  EXPECT_EQ(Layout(front + "model.account_for_loss_in_pipeline_split=true"), "2x11,10");
  EXPECT_EQ(Layout(front + "model.account_for_loss_in_pipeline_split=false"), "");
}

// Of a layout by the rule of plans, too.
TEST(UnevenStages, AreShownByStage) {
  const auto shares = [](const char* pp, const char* nodes) {
    const Resolved read =
        Resolve({"--model", "llama2-7b", "--topology", "dgx-h100", "--nodes", nodes,
                 "--global-batch", "48", "--micro-batch", "1", "--pp", pp});
    return PredictionOf(JobOf(read.job.request, read.job.profiles), read.strategy, StepTime{})
        .shares;
  };
  EXPECT_THAT(shares("3", "3"), testing::ElementsAre(10, 11, 11));
  EXPECT_THAT(shares("4", "4"), testing::IsEmpty());
}

}  // namespace
}  // namespace orrery::exchange::stages
