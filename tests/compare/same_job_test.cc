// SPDX-License-Identifier: Apache-2.0
// Logs of other programs are held against the plan that they are said to be of: by the digest that the script printed, and by
// the arguments that the program printed.
#include "calib/compare/same_job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/program/compare/compare_report.h"
#include "tests/compare/testing.h"

namespace orrery::compare {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kOwn = "0123456789abcdef0123456789abcdef";
constexpr const char* kOther = "ffff456789abcdef0123456789abcdef";

std::string Prediction(int tp = 2, const char* zero = "0", double parameters = 8030261248.0) {
  return fmt::format(R"({{"schema": "orrery.predict/1", "digest": "{}",
 "model": {{"name": "llama3-8b", "parameters": {}}}, "topology": {{"name": "dgx-h100", "gpus_per_node": 8}},
 "workload": {{"seq_len": 1024, "precision": "bf16", "framework": "megatron"}},
 "prediction": {{"strategy": {{"tp": {}, "pp": 2, "dp": {}, "vpp": 1, "micro_batch": 2, "zero": {}}},
  "nodes": 2, "gpus": 16, "global_batch": 64, "step_time_s": 0.5, "step_time_interval_s": [0.4, 0.6]}}}})",
                     kOwn, parameters, tp, 8 / tp, zero);
}

constexpr const char* kDump = R"(--------------------- arguments ---------------------
  bf16 ................................ True
  data_parallel_size .................. 2
  ffn_hidden_size ..................... 14336
  global_batch_size ................... 64
  group_query_attention ............... True
  hidden_size ......................... 4096
  micro_batch_size .................... 2
  num_attention_heads ................. 32
  num_layers .......................... 32
  num_query_groups .................... 8
  padded_vocab_size ................... 128256
  pipeline_model_parallel_size ........ 2
  seq_length .......................... 1024
  swiglu .............................. True
  add_bias_linear ..................... False
  normalization ....................... RMSNorm
  position_embedding_type ............. rope
  tensor_model_parallel_size .......... 4
  untie_embeddings_and_output_weights ... True
  use_distributed_optimizer ........... True
  world_size .......................... 16
------------------ end of arguments -----------------
)";

std::string LogStep(int number) {
  return fmt::format(
      " iteration {:8}/ 100 | elapsed time per iteration (ms): 500.0 | lm loss: 2 |\n", number);
}

TEST(SameJob, ALogNamesItsPlan) {
  const std::string log = fmt::format("0: Orrery plan {}\n{}{}", kOwn, LogStep(1), LogStep(2));
  const Comparison c = Beside(Prediction(), log);
  EXPECT_FALSE(c.OnTrust());
  EXPECT_EQ(c.digest, kOwn);
  EXPECT_THAT(ComparisonText(c), HasSubstr(fmt::format("plan       {}\n", kOwn)));
  // What no script prints names none.
  EXPECT_TRUE(Beside(Prediction(), "Orrery plan 0123\n" + LogStep(1)).OnTrust());
}

TEST(SameJob, AnotherPlanIsRefusedWithTheLine) {
  const std::string log = fmt::format("+ NCCL\nOrrery plan {}\n{}", kOther, LogStep(1));
  EXPECT_THAT(ErrorOf(Prediction(), log),
              AllOf(HasSubstr("measured.json:2:1"), HasSubstr(kOther), HasSubstr(kOwn)));
  // A second run in the same file, of another plan.
  EXPECT_THAT(ErrorOf(Prediction(), fmt::format("Orrery plan {}\n{}Orrery plan {}\n{}", kOwn,
                                                LogStep(1), kOther, LogStep(1))),
              HasSubstr("measured.json:3:1"));
}

TEST(SameJob, ArgumentsOfAnotherLayoutAreRefusedWithTheirLine) {
  const std::string refused = ErrorOf(Prediction(2), kDump + LogStep(1));
  EXPECT_THAT(
      refused,
      AllOf(HasSubstr("measured.json:19:1"), HasSubstr("the log has tp 4, zero 1, dp 2"),
            HasSubstr("predicted.json tp 2, zero 0, dp 4"), HasSubstr("plan predict --from")));
  // Whatever the script says of itself: arguments behind it win.
  EXPECT_THAT(ErrorOf(Prediction(2), fmt::format("Orrery plan {}\n{}{}", kOwn, kDump, LogStep(1))),
              HasSubstr("another job"));
}

TEST(SameJob, TheSameArgumentsNeedNoTrust) {
  const Comparison c = Beside(Prediction(4, "1"), kDump + LogStep(1));
  EXPECT_FALSE(c.OnTrust());
  EXPECT_THAT(c.told.same, ElementsAre("dp", "micro_batch", "pp", "seq_len", "tp", "zero"));
  EXPECT_THAT(c.told.other, IsEmpty());
  EXPECT_THAT(ComparisonText(c), HasSubstr("its dp, micro_batch, pp, seq_len, tp, zero are"));
}

TEST(SameJob, OtherSettingsAreNamed) {
  std::string half = Prediction(4, "1");
  half.replace(half.find("bf16"), 4, "fp16");
  const Comparison c = Beside(half, kDump + LogStep(1));
  EXPECT_THAT(Words(c.told), Contains("the log says precision bf16 (line 2), the plan fp16"));
  EXPECT_THAT(ComparisonText(c), HasSubstr("note       the log says precision bf16 (line 2)"));
  EXPECT_THAT(ErrorOf(Prediction(4, "0"), kDump + LogStep(1)), HasSubstr("the log has zero 1"));
}

TEST(SameJob, AnotherModelIsRefused) {
  EXPECT_THAT(ErrorOf(Prediction(4, "1", 7e10), kDump + LogStep(1)),
              AllOf(HasSubstr("another model"), HasSubstr("8.03e+09"), HasSubstr("7e+10")));
}

TEST(SameJob, OtherGpusAreRefused) {
  EXPECT_THAT(ErrorOf(Prediction(), "using world size: 32\n" + LogStep(1)),
              AllOf(HasSubstr("measured.json:1:1"), HasSubstr("32 GPUs, the plan of 16")));
}

// Exported programs print no batch, but it follows from their two figures.
TEST(SameJob, AnotherBatchFollowsFromTokensAndTime) {
  std::string predicted = Prediction();
  predicted.replace(predicted.find("\"step_time_s\""), 0, "\"tokens_per_s\": 131072, ");
  const auto log = [](int tokens) {
    std::string text;
    for (int step : {1, 2, 3})
      text += fmt::format("step {} loss 8.1 step_time 0.5000 s tokens/s {} peak 20.00 GiB\n", step,
                          tokens);
    return text;
  };
  EXPECT_EQ(ErrorOf(predicted, log(131072)), "");
  EXPECT_EQ(ErrorOf(predicted, log(129000)), "");
  EXPECT_THAT(
      ErrorOf(predicted, log(65536)),
      HasSubstr("measured.json:1:1: error: the log's global batch is 32, that of the plan 64"));
}

TEST(SameJob, RunsBehindOneAnotherAreNamed) {
  const Comparison c = Beside(Prediction(), LogStep(1) + LogStep(2) + LogStep(1) + LogStep(2));
  EXPECT_THAT(c.told.runs, ElementsAre(3));
  EXPECT_THAT(Words(c.told), Contains("another run begins at line 3: 2 runs are taken as one"));
  // One that goes on behind its snapshot; its first step warms up as that of the first run.
  const std::string resumed =
      fmt::format("{}{}Orrery plan {}\n{}{}", LogStep(1), LogStep(2), kOwn, LogStep(3), LogStep(4));
  EXPECT_THAT(Beside(Prediction(), resumed).told.runs, ElementsAre(4));
  EXPECT_EQ(Beside(Prediction(), resumed).measured_steps, 3u);
}

TEST(SameJob, ArgumentsThatCannotBeReadSayWhy) {
  std::string cut = kDump;
  cut.resize(cut.find("------------------ end"));
  EXPECT_THAT(Words(Beside(Prediction(), cut + LogStep(1)).told),
              Contains(HasSubstr("own arguments are not compared")));
}

}  // namespace
}  // namespace orrery::compare
