// SPDX-License-Identifier: Apache-2.0
// Files of DeepSpeed: its defaults, its old spellings, and what of them plans do not have.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// A file of two nodes' job with `more` in it.
Imported File(const std::string& more) {
  return Read({{"ds.json", "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4,\n" +
                               more + "}"}});
}

TEST(DeepSpeed, KeysThatItDoesNotKnowAreApartFromThoseWithoutEffect) {
  const std::string text =
      "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1, \"train_micro_batch\": 4,\n"
      "\"zero_optimization\": {\"stage\": 1}, \"steps_per_print\": 10, \"dump_state\": false}";
  const auto notes = Read({{"ds.json", text}}).notes;
  EXPECT_THAT(notes, Contains("unknown to DeepSpeed, which ignores them: train_micro_batch"));
  EXPECT_THAT(notes, Contains("without effect here: steps_per_print, dump_state"));
}

// As DeepSpeed prints its file, here labelled by its launcher.
TEST(DeepSpeed, TheFileThatALogPrintsIsRead) {
  for (const char* label : {"", "worker-0: ", "[default0]:", "0: "}) {
    std::string log;
    for (const char* row :
         {"[2026-02-20 02:13:50,590] [INFO] [config.py:1003:print]   world_size "
          "................... 16",
          "[2026-02-20 02:13:50,590] [INFO] [config.py:1003:print]   zero_enabled "
          "................. True",
          "[2026-02-20 02:13:50,591] [INFO] [config.py:989:print_user_config]   json = {",
          "    \"train_batch_size\": 128, ", "    \"train_micro_batch_size_per_gpu\": 4, ",
          "    \"zero_optimization\": {", "        \"stage\": 2, ",
          "        \"offload_optimizer\": {", "            \"device\": \"none\", ",
          "            \"nvme_path\": null", "        }", "    }, ",
          "    \"steps_per_print\": inf, ", "    \"bf16\": {", "        \"enabled\": true", "    }",
          "}", "[2026-02-20 02:13:50,952] [INFO] [logging.py:128:log_dist] [Rank 0] {DeepSpeed}"})
      log += std::string(label) + row + "\n";
    const Imported read = Read({{"train.log", log}}, Flags({{"gpus_per_node", "8"}}));
    EXPECT_THAT(read.notes, Contains("train.log: a DeepSpeed configuration, in its log")) << label;
    EXPECT_EQ(Text(read, "zero") + " " + Text(read, "micro_batch") + " " +
                  Text(read, "global_batch") + " " + Text(read, "precision"),
              "2 4 128 bf16");
    EXPECT_EQ(Text(read, "nodes"), "2") << label;
    EXPECT_EQ(read.values.at("zero").where.line, 7) << label;
  }
}

// Their values stand for what the file leaves out or to "auto"; a log may have them alone. Ranks of a sequence share a batch, so
// the world size there is a quotient.
TEST(DeepSpeed, TheLinesThatItPrintsOfItselfAreRead) {
  const auto dots = [](const char* rows) {
    std::string log;
    std::istringstream lines(rows);
    for (std::string row; std::getline(lines, row);)
      log += "0: [2024-12-11 17:41:48,136] [INFO] [config.py:999:print]   " + row + "\n";
    return log;
  };
  const std::string own = dots(
      "gradient_accumulation_steps .. 4\ntrain_batch_size ............. 128\n"
      "train_micro_batch_size_per_gpu  4\nworld_size ................... 8.0\n"
      "zero_optimization_stage ...... 2");
  const auto read = [](const std::string& log) {
    const Imported made = Read({{"train.log", log}}, Flags({{"gpus_per_node", "8"}}));
    return fmt::format("{} {} {} {} {}", Text(made, "zero"), Text(made, "micro_batch"),
                       Text(made, "global_batch"), Text(made, "precision"), Text(made, "nodes"));
  };
  EXPECT_EQ(read(dots("bfloat16_enabled ............. True") + own), "2 4 128 bf16 1");
  EXPECT_EQ(
      read(dots("bfloat16_config .............. enabled=True immediate_grad_update=True") + own),
      "2 4 128 bf16 1");
  const std::string json =
      "0: [2024-12-11 17:41:48,136] [INFO] [config.py:989:print_user_config]   json = {\n"
      "0:     \"train_micro_batch_size_per_gpu\": \"auto\", \n"
      "0:     \"sequence_parallel_size\": 2, \n"
      "0:     \"fp16\": {\n0:         \"enabled\": true\n0:     }\n0: }\n";
  EXPECT_EQ(read(own + json), "2 4 128 fp16 2");
}

// The class of that section takes no other key; fields of stage 3 have two names.
TEST(DeepSpeed, KeysThatItsZeroDoesNotKnowStopIt) {
  const auto notes =
      File(
          "\"zero_optimization\": {\"stage\": 3, \"overlap_com\": true, \"prefetch\": 1,\n"
          "\"stage3_prefetch_bucket_size\": 5e7, \"max_live_parameters\": 1e9}")
          .notes;
  EXPECT_THAT(notes, Contains("unknown to DeepSpeed, which does not start with them: "
                              "zero_optimization.overlap_com, zero_optimization.prefetch"));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("without effect here: "),
                                    HasSubstr("stage3_prefetch_bucket_size"),
                                    HasSubstr("zero_optimization.max_live_parameters"))));
}

// runtime/zero/config.py: overlap_comm is on with stage 3 unless told, off with 1 and 2; a part of the states needs stage 3.
TEST(DeepSpeed, WhatAFileLeavesOutHasItsOwnDefaults) {
  const auto read = [](const std::string& zero) {
    return Import(
        {SourceOf("ds.json", "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {" +
                                 zero + "}, \"bf16\": {\"enabled\": true}}")},
        std::nullopt);
  };
  const auto overlap = [&](const std::string& zero) {
    const Imported made = read(zero);
    const auto at = made.values.find("overlap_grad_reduce");
    return at == made.values.end() ? "" : at->second.text;
  };
  EXPECT_EQ(overlap("\"stage\": 1"), "off");
  EXPECT_EQ(overlap("\"stage\": 2"), "off");
  EXPECT_EQ(overlap("\"stage\": 2, \"overlap_comm\": true"), "on");
  EXPECT_NE(overlap("\"stage\": 3"), "off");
  EXPECT_EQ(overlap("\"stage\": 3, \"overlap_comm\": false"), "off");
  const std::string part = "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.5}";
  EXPECT_THAT(ErrorOf([&] { read("\"stage\": 2, " + part); }),
              AllOf(HasSubstr("ds.json:1:"), HasSubstr("ratio 0.5 without ZeRO 3")));
  EXPECT_EQ(read("\"stage\": 3, " + part).values.at("offload").text, "optimizer:0.5");
}

TEST(DeepSpeed, WeightsLeaveTheGpuWithStage3Alone) {
  const auto notes = [](const char* stage) {
    return Read({{"ds.json",
                  fmt::format("{{\"train_batch_size\": 8, \"zero_optimization\": {{\"stage\": {},"
                              " \"offload_param\": {{\"device\": \"cpu\"}}}}}}",
                              stage)}})
        .notes;
  };
  EXPECT_THAT(notes("1"), AllOf(Contains(HasSubstr("without effect here: "
                                                   "zero_optimization.offload_param.device")),
                                Not(Contains(HasSubstr("not modelled")))));
  EXPECT_THAT(notes("3"),
              Contains(HasSubstr("not modelled: weights on NVMe, or on the CPU without all")));
}

// runtime/zero/config.py renames them: they were named as without effect.
TEST(DeepSpeed, TheFirstSpellingsOfOffloadAreRead) {
  const auto offload = [](const std::string& zero) {
    return Text(File("\"zero_optimization\": {" + zero + "}"), "offload");
  };
  EXPECT_EQ(offload("\"stage\": 2, \"cpu_offload\": true"), "optimizer");
  EXPECT_EQ(offload("\"stage\": 2, \"cpu_offload\": false"), "");
  for (const char* key : {"cpu_offload_param", "cpu_offload_params"})
    EXPECT_EQ(offload(fmt::format("\"stage\": 3, \"cpu_offload\": true, \"{}\": true", key)),
              "optimizer+weights");
}

// The job was predicted in fp32.
TEST(DeepSpeed, AutocastIsInSixteenBits) {
  const auto read = [](const std::string& more) {
    const Imported file = File(more);
    return Text(file, "precision") + " " + Text(file, "autocast");
  };
  EXPECT_EQ(read("\"torch_autocast\": {\"enabled\": true}"), "bf16 on");
  EXPECT_EQ(read("\"torch_autocast\": {\"enabled\": true, \"dtype\": \"float16\"}"), "fp16 on");
  EXPECT_EQ(read("\"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"}"), "bf16 on");
  EXPECT_EQ(read("\"torch_autocast\": {\"enabled\": false}"), "fp32 ");
  EXPECT_EQ(read("\"amp\": {\"enabled\": true, \"opt_level\": \"O1\"}"), "fp16 on");
  EXPECT_EQ(read("\"amp\": {\"enabled\": true, \"opt_level\": \"O2\"}"), "fp16 ");
  EXPECT_EQ(read("\"bf16\": {\"enabled\": true}"), "bf16 ");
}

TEST(DeepSpeed, WhatChangesAJobIsNotWithoutEffect) {
  const auto not_modelled = [](const char* what) {
    return Contains(AllOf(HasSubstr("ds.json:2: not modelled: "), HasSubstr(what)));
  };
  const std::string half = "\"bf16\": {\"enabled\": true}, ";
  EXPECT_THAT(File(half + "\"elasticity\": {\"enabled\": true}").notes,
              not_modelled("a batch that follows the number of GPUs"));
  EXPECT_THAT(File(half + "\"elasticity\": {\"enabled\": false}").notes,
              Not(not_modelled("a batch")));
  for (const char* value : {"true", "false"}) {
    const auto notes =
        File(fmt::format("\"zero_optimization\": {{\"stage\": 2, \"reduce_scatter\": {}}}", value))
            .notes;
    const auto whole = not_modelled("gradients reduced whole");
    const testing::Matcher<const std::vector<std::string>&> said = whole, silent = Not(whole);
    EXPECT_THAT(notes, std::string(value) == "true" ? silent : said);
  }
  EXPECT_THAT(File("\"curriculum_learning\": {\"enabled\": true}").notes,
              not_modelled("sequences that grow"));
  EXPECT_THAT(File("\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}").notes,
              not_modelled("weights or states of the optimizer in bf16"));
}

TEST(DeepSpeed, TheTypeOfReductionsIsComparedWithThatOfGradients) {
  const auto notes = [](const std::string& more) { return File(more).notes; };
  const auto in = [](const char* type) {
    return Contains(
        HasSubstr(fmt::format("ds.json:2: not modelled: gradients reduced in {}", type)));
  };
  const std::string half = "\"bf16\": {\"enabled\": true}, ";
  EXPECT_THAT(notes(half + "\"communication_data_type\": \"fp32\""), in("fp32"));
  EXPECT_THAT(notes(half + "\"communication_data_type\": \"bfp16\""), Not(in("")));
  EXPECT_THAT(notes(half + "\"communication_data_type\": \"fp32\", "
                           "\"data_types\": {\"grad_accum_dtype\": \"fp32\"}"),
              Not(in("")));
  EXPECT_THAT(notes("\"fp16\": {\"enabled\": true}, \"fp32_allreduce\": true"), in("fp32"));
  EXPECT_THAT(notes("\"fp32_allreduce\": true"), Not(in("")));
}

}  // namespace
}  // namespace orrery::exchange::styles
