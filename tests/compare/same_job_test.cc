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
  EXPECT_THAT(ComparisonText(c), HasSubstr("its dp, micro-batch, pp, seq-len, tp, zero are"));
}

TEST(SameJob, OtherSettingsAreNamed) {
  std::string half = Prediction(4, "1");
  half.replace(half.find("bf16"), 4, "fp16");
  const Comparison c = Beside(half, kDump + LogStep(1));
  EXPECT_THAT(Words(c.told), Contains("the log says precision bf16 (line 2), the plan fp16"));
  EXPECT_THAT(ComparisonText(c), HasSubstr("note       the log says precision bf16 (line 2)"));
  EXPECT_THAT(ErrorOf(Prediction(4, "0"), kDump + LogStep(1)), HasSubstr("the log has zero 1"));
}

// As plan predict writes it: with what it can turn off and the facts of the release.
std::string WholePrediction() {
  std::string text = Prediction(4, "1");
  text.replace(
      text.find("\"zero\": 1"), 9,
      "\"zero\": 1, \"dp_outer\": 1, \"recompute\": \"none\", \"sequence_parallel\": true, "
      "\"flash_attention\": true");
  text.replace(text.find("\"workload\""), 0, R"("facts": [
  {"key": "attention", "what": "attention cudnn"}, {"key": "tp_overlap", "what": "tp_overlap off"},
  {"key": "fp32_grads", "what": "gradients in fp32"}], )");
  return text;
}

std::vector<std::string> OtherWords(const std::string& arguments) {
  std::string dump = kDump;
  dump.replace(dump.find("  swiglu"), 0,
               "  sequence_parallel ................... True\n" + arguments);
  return Words(Beside(WholePrediction(), dump + LogStep(1)).told);
}

// Every field that the import reads has a text on both sides.
TEST(SameJob, EveryFieldThatTheLogSaysIsHeldAgainstThePlan) {
  EXPECT_THAT(OtherWords(""), IsEmpty());
  const auto says = [](const char* line, const char* words) {
    EXPECT_THAT(OtherWords(fmt::format("  {}\n", line)), Contains(HasSubstr(words))) << line;
  };
  says("pipeline_model_parallel_layout ...... Et*15|t*17L",
       "layout 15,17 (line 16), the plan even");
  says("decoder_first_pipeline_num_layers ... 15", "layout 15,17 (line 16), the plan even");
  says("num_distributed_optimizer_instances .. 2", "dp-outer 2 (line 16), the plan 1");
  says("tp_comm_overlap ..................... True", "tp overlap on (line 16), the plan off");
  says("attention_backend ................... AttnBackend.flash",
       "attention kernel fa2 (line 16), the plan cudnn");
  says("window_size ......................... (512, 0)", "window 513 (line 16), the plan none");
  says(
      "recompute_granularity ............... full\n  recompute_method .................... "
      "uniform\n  recompute_num_layers ................ 1",
      "recompute full (line 16), the plan none");
  // What is as planned, or off on both sides.
  for (const char* line :
       {"tp_comm_overlap ..................... False", "fp8 ................................. None",
        "pipeline_model_parallel_layout ...... None", "optimizer_cpu_offload ............... False",
        "num_distributed_optimizer_instances .. 1", "window_size ......................... None",
        "virtual_pipeline_model_parallel_size .. None"})
    EXPECT_THAT(OtherWords(fmt::format("  {}\n", line)), IsEmpty()) << line;
}

TEST(SameJob, AnArgumentThatIsOffSaysSo) {
  std::string dump = kDump;
  dump.replace(dump.find("  swiglu"), 0,
               "  fp8 ................................. None\n"
               "  optimizer_cpu_offload ............... False\n"
               "  pipeline_model_parallel_layout ...... None\n"
               "  sequence_parallel ................... False\n");
  std::string planned = WholePrediction();
  planned.replace(planned.find("\"precision\""), 0, "\"fp8\": \"delayed\", ");
  planned.replace(planned.find("\"recompute\""), 0,
                  "\"layout\": [15, 17], \"offload\": \"optimizer\", ");
  EXPECT_THAT(
      Words(Beside(planned, dump + LogStep(1)).told),
      testing::UnorderedElementsAre("the log says fp8 off (line 15), the plan delayed",
                                    "the log says offload none (line 16), the plan optimizer",
                                    "the log says layout even (line 17), the plan 15,17",
                                    "the log says sequence-parallel off (line 18), the plan on"));
  // A log that does not print them says nothing of them.
  EXPECT_THAT(Words(Beside(planned, kDump + LogStep(1)).told), IsEmpty());
}

TEST(SameJob, AContradictionWithinALogIsNamed) {
  std::string log = kDump + LogStep(1);
  log +=
      "[2024-12-11 17:41:48,136] [INFO] [config.py:1003:print]   train_micro_batch_size_per_gpu  "
      "4\n"
      "[2024-12-11 17:41:48,136] [INFO] [config.py:1003:print]   train_batch_size .... 64\n"
      "[2024-12-11 17:41:48,136] [INFO] [config.py:1003:print]   gradient_accumulation_steps .. "
      "8\n";
  EXPECT_THAT(Words(Beside(WholePrediction(), log).told),
              Contains(AllOf(HasSubstr("the log contradicts itself (line 25)"),
                             HasSubstr("micro_batch is 4 here and 2 in measured.json:8"))));
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

// nanotron counts its batch in tokens.
TEST(SameJob, ABatchOfTokensIsHeldAgainstThePlan) {
  std::string predicted = Prediction();
  predicted.replace(predicted.find("\"step_time_s\""), 0, "\"tokens_per_s\": 131072, ");
  const auto log = [](const char* rate) {
    return fmt::format(
        "[default3]:12/21 01:40:00 [INFO|DP=0|PP=1|TP=0|node7]: iteration: 20 / 500 | "
        "consumed_tokens: 21M | time_per_iteration_ms: 500 | tokens_per_sec: {} | "
        "tokens_per_sec_per_gpu: 13.9K | global_batch_size: 1.05M | lm_loss: 7.31 | lr: 0.0001\n",
        rate);
  };
  EXPECT_EQ(ErrorOf(predicted, log("131K")), "");
  EXPECT_THAT(ErrorOf(predicted, log("262K")), HasSubstr("global batch is 128, that of the plan"));
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
  std::string many;
  for (int run = 0; run < 20; ++run) many += LogStep(1) + LogStep(2);
  EXPECT_THAT(
      Words(Beside(Prediction(), many).told),
      Contains("another run begins at lines 3, 5, 7, 9, 11, 13, 15, 17 and 11 more: 20 runs "
               "are taken as one"));
}

// Logs of ranks one behind the other; the slowest of a step is now one and now the other.
TEST(SameJob, EachRankBeginsOnce) {
  const auto rank = [](int number, const std::vector<int>& rates) {
    std::string log = fmt::format(
        "[rank{}]:[titan] 2026-02-01 09:59:00,000 - root - INFO - Building device mesh with "
        "parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1, etp=1\n",
        number);
    for (std::size_t i = 0; i < rates.size(); ++i)
      log += fmt::format(
          "[rank{}]:[titan] 2026-02-01 10:0{}:00,000 - root - INFO - step:  {}  loss:  9.8012  "
          "grad_norm:  2.1100  memory: 47.60GiB(60.17%)  tps: {}  tflops: 380.12  mfu: 38.43%\n",
          number, i, i + 1, rates[i]);
    return log;
  };
  std::string planned = Prediction();
  planned.replace(planned.find("\"step_time_s\""), 0, "\"tokens_per_s\": 131072, ");
  const Comparison c =
      Beside(planned, rank(0, {900, 8000, 8100, 8200}) + rank(1, {900, 8100, 8000, 8300}));
  EXPECT_THAT(c.told.runs, IsEmpty());
  EXPECT_EQ(c.measured_steps, 4u);
  std::string later = rank(0, {900, 8000});
  for (std::size_t at = 0; (at = later.find(" 10:0", at)) != std::string::npos;)
    later.replace(at, 5, " 11:0");
  EXPECT_THAT(Beside(planned, rank(0, {900, 8000}) + later).told.runs, ElementsAre(5));
}

// As the config.py of DeepSpeed prints itself; lines of its JSON may be missing.
std::string Dots(const char* zero, int micro, int replicas) {
  std::string log;
  const std::pair<const char*, std::string> rows[] = {
      {"bfloat16_enabled ............. ", "True"},
      {"fp16_enabled ................. ", "False"},
      {"gradient_accumulation_steps .. ", std::to_string(64 / micro / replicas)},
      {"train_batch_size ............. ", "64"},
      {"train_micro_batch_size_per_gpu  ", std::to_string(micro)},
      {"world_size ................... ", std::to_string(replicas)},
      {"zero_enabled ................. ", "True"},
      {"zero_optimization_stage ...... ", zero}};
  for (const auto& [key, value] : rows)
    log +=
        fmt::format("[2024-12-11 17:41:48,136] [INFO] [config.py:1003:print]   {}{}\n", key, value);
  return log +
         "[timer.py:264:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=120.0, "
         "CurrSamplesPerSec=128.0, MemAllocated=3.1GB, MaxMemAllocated=21.5GB\n";
}

TEST(SameJob, WhatDeepSpeedPrintsOfItselfIsHeldAgainstThePlan) {
  EXPECT_THAT(ErrorOf(Prediction(), Dots("2", 2, 4)),
              AllOf(HasSubstr("measured.json:8:1"), HasSubstr("the log has zero 2, "),
                    HasSubstr("predicted.json zero 0")));
  EXPECT_THAT(ErrorOf(Prediction(2, "2"), Dots("2", 8, 4)),
              AllOf(HasSubstr("measured.json:5:1"), HasSubstr("micro-batch 8")));
  // Its world size is that of replicas: pipelines and tensor parallelism are not in it.
  EXPECT_THAT(ErrorOf(Prediction(2, "2"), Dots("2", 2, 16)), HasSubstr("the log has dp 16"));
  const Comparison c = Beside(Prediction(2, "2"), Dots("2", 2, 4));
  EXPECT_THAT(c.told.same, ElementsAre("dp", "micro_batch", "zero"));
  EXPECT_FALSE(c.OnTrust());
  std::string half = Prediction(2, "2");
  half.replace(half.find("bf16"), 4, "fp16");
  EXPECT_THAT(Words(Beside(half, Dots("2", 2, 4)).told),
              Contains("the log says precision bf16 (line 1), the plan fp16"));
}

// The file says "auto", and what became of it stands in the lines in front of it.
TEST(SameJob, DotsOfDeepSpeedSayWhatItsFileLeavesOpen) {
  const std::string json =
      "[2024-12-11 17:41:48,136] [INFO] [config.py:989:print_user_config]   json = {\n"
      "    \"train_micro_batch_size_per_gpu\": \"auto\", \n"
      "    \"zero_optimization\": {\n        \"stage\": 2\n    }\n}\n";
  EXPECT_THAT(ErrorOf(Prediction(2, "2"), json + Dots("2", 8, 4)),
              AllOf(HasSubstr("the log has micro-batch 8"), HasSubstr("measured.json:11:1")));
}

std::string World(int gpus) {
  return fmt::format(
      "using world size: {}, data-parallel size: 4, tensor-model-parallel size: 2, "
      "pipeline-model-parallel size: 2\n",
      gpus);
}

TEST(SameJob, ARunThatSaysItsWorldAloneIsAnother) {
  const std::string first = World(16) + LogStep(1) + LogStep(2);
  const Comparison c = Beside(Prediction(), first + World(16) + LogStep(3) + LogStep(4));
  EXPECT_THAT(c.told.runs, ElementsAre(5));
  EXPECT_EQ(c.measured_steps, 3u);
  EXPECT_THAT(ErrorOf(Prediction(), first + World(8) + LogStep(3)),
              AllOf(HasSubstr("measured.json:4:1"), HasSubstr("8 GPUs, the plan of 16"),
                    HasSubstr("run 2 of the 2 in this log")));
}

TEST(SameJob, ArgumentsOfLaterRunsAreReadToo) {
  std::string later = kDump;
  later.replace(later.find("tensor_model_parallel_size .......... 4"), 39,
                "tensor_model_parallel_size .......... 2");
  later.replace(later.find("data_parallel_size .................. 2"), 39,
                "data_parallel_size .................. 4");
  EXPECT_THAT(ErrorOf(Prediction(4, "1"), kDump + LogStep(1) + later + LogStep(2)),
              AllOf(HasSubstr("the log has tp 2, dp 4"), HasSubstr("measured.json:43:1")));
  // One that took no step is none.
  EXPECT_EQ(ErrorOf(Prediction(4, "1"), later + "out of memory\n" + kDump + LogStep(1)), "");
}

TEST(SameJob, ARunMayBeginWithTheStepThatTheLastOneEndedWith) {
  std::string log;
  for (const int step : {1, 2, 3, 4, 5, 6, 7, 8, 8, 9}) log += LogStep(step);
  EXPECT_THAT(Beside(Prediction(), log).told.runs, ElementsAre(9));
  // Ranks without names say each step again.
  log.clear();
  for (const int step : {1, 1, 2, 2, 3, 3}) log += LogStep(step);
  EXPECT_THAT(Beside(Prediction(), log).told.runs, IsEmpty());
}

// Lines that programs print without being asked for their arguments.
TEST(SameJob, DegreesOfALineAreHeldAgainstThePlan) {
  const Comparison c = Beside(Prediction(), World(16) + LogStep(1));
  EXPECT_THAT(c.told.same, ElementsAre("pp", "tp"));
  EXPECT_THAT(ErrorOf(Prediction(4), World(16) + LogStep(1)),
              AllOf(HasSubstr("measured.json:1:1"), HasSubstr("the log has tp 2"),
                    HasSubstr("predicted.json tp 4"),
                    HasSubstr("hint: a prediction of this layout: --tp 2\n")));
  // A plan without context parallelism does not say that it has none, nor do old releases.
  std::string context = World(16);
  context.replace(context.find("tensor"), 0, "context-parallel size: 2, ");
  EXPECT_THAT(ErrorOf(Prediction(), context + LogStep(1)), HasSubstr("the log has cp 2"));
  std::string planned = Prediction(4, "1");
  planned.replace(planned.find("\"tp\""), 0, "\"cp\": 2, ");
  EXPECT_THAT(ErrorOf(planned, kDump + LogStep(1)), HasSubstr("the log has cp 1"));
  const auto titan = [](const char* mesh) {
    return fmt::format(
        "[rank0]:[titan] 2026-02-01 09:59:00,000 - root - INFO - Building {}\n"
        "[rank0]:[titan] 2026-02-01 10:00:10,000 - root - INFO - step: 10  loss:  9.8012  "
        "grad_norm:  2.1100  memory: 47.60GiB(60.17%)  tps: 7,123  tflops: 380.12  mfu: 38.43%\n",
        mesh);
  };
  const std::pair<const char*, std::string> rows[] = {
      {"3-D device mesh with ['pp', 'dp_shard', 'tp'], [2, 4, 2]", ""},
      {"2-D device mesh with ['pp', 'dp_shard'], [2, 8]", "the log has tp 1"},
      {"2-D device mesh with ['pp', 'dp_shard'], [2, 4]", "8 GPUs, the plan of 16"},
      {"device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1, etp=1",
       ""},
      {"device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=2, tp=1, ep=8, etp=1",
       "the log has cp 2, pp 1, tp 1"},
      {"device mesh with parallelism: pp=2, dp_replicate=2, dp_shard=4, cp=1, tp=2, ep=1, etp=1",
       "32 GPUs, the plan of 16"}};
  for (const auto& [mesh, error] : rows) {
    const std::string said = ErrorOf(Prediction(), titan(mesh));
    EXPECT_TRUE(error.empty() ? said.find("another job") == std::string::npos &&
                                    said.find("GPUs") == std::string::npos
                              : said.find(error) != std::string::npos)
        << mesh << "\n"
        << said;
  }
}

TEST(SameJob, TheHeadingOfARunSaysItsLayout) {
  const auto log = [](const char* layout) {
    return fmt::format(
        "gpt2-micro: 53.0 M parameters, 163 G FLOP a step\nOrrery plan {}\n"
        "16 ranks on vm over mpi: {}\n"
        "step    1/6  loss 10.9777     grad norm 3.332        0.50 s      131 k tokens/s  MFU 31.2 "
        "%  mem 1021 MiB  ETA 69.9 s\n",
        kOther, layout);
  };
  EXPECT_THAT(
      ErrorOf(Prediction(), log("tp 4 with sequence, pp 2 1f1b, dp 2, micro-batch 1 of 32")),
      AllOf(HasSubstr("the log's global batch is 32 (line 3)"),
            HasSubstr("the log says micro-batch 1 (line 3), the plan 2"),
            HasSubstr("the log says tp 4 (line 3), the plan 2")));
  EXPECT_THAT(
      ErrorOf(Prediction(), log("tp 2, pp 2 1f1b, dp 4, ZeRO 1, micro-batch 2 of 64, bf16")),
      HasSubstr("of plan 0123456789abcdef0123456789abcdef; the log says zero 1 (line 3)"));
  EXPECT_THAT(ErrorOf(Prediction(), log("tp 2, pp 2 1f1b, dp 4, micro-batch 2 of 64, bf16")),
              HasSubstr("nothing else that the log shows differs"));
}

TEST(SameJob, AnotherDigestSaysWhatElseDiffers) {
  const std::string plan = fmt::format("Orrery plan {}\n", kOther);
  EXPECT_THAT(ErrorOf(Prediction(2), plan + kDump + LogStep(1)),
              AllOf(HasSubstr("measured.json:1:1"), HasSubstr("another plan"),
                    HasSubstr("the log says tp 4 (line 20), the plan 2"),
                    HasSubstr("the log says zero 1 (line 22), the plan 0")));
  EXPECT_THAT(ErrorOf(Prediction(4, "1"), plan + kDump + LogStep(1)),
              HasSubstr("nothing else that the log shows differs (GPUs, dp, micro-batch, pp, "
                        "seq-len, tp, zero, model, global batch)"));
  EXPECT_THAT(ErrorOf(Prediction(), plan + World(32) + LogStep(1)),
              HasSubstr("; the log is of 32 GPUs (line 2), the plan of 16"));
  EXPECT_THAT(ErrorOf(Prediction(), plan + LogStep(1)),
              HasSubstr("; the log shows nothing else of its job"));
  std::string predicted = Prediction();
  predicted.replace(predicted.find("\"step_time_s\""), 0, "\"tokens_per_s\": 131072, ");
  const std::string step = "step 1 loss 8.1 step_time 0.5000 s tokens/s {} peak 20.00 GiB\n";
  EXPECT_THAT(ErrorOf(predicted, plan + fmt::format(fmt::runtime(step), 131072)),
              HasSubstr("nothing else that the log shows differs (global batch)"));
  EXPECT_THAT(ErrorOf(predicted, plan + fmt::format(fmt::runtime(step), 65536)),
              HasSubstr("; the log's global batch is 32 (line 2), that of the plan 64"));
}

TEST(SameJob, ArgumentsThatCannotBeReadSayWhy) {
  std::string cut = kDump;
  cut.resize(cut.find("------------------ end"));
  EXPECT_THAT(Words(Beside(Prediction(), cut + LogStep(1)).told),
              Contains(HasSubstr("own arguments are not compared")));
}

}  // namespace
}  // namespace orrery::compare
