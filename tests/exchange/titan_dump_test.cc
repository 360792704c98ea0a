// SPDX-License-Identifier: Apache-2.0
// torchtitan's configuration as it prints it: a file of JSON, and the same in a log; and its
// arguments as tyro takes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// Trainer.Config of 2026 as debug.save_config_file writes it, with sections that plans do not read left out.
std::string TitanJson(const char* recompute =
                          "{\"preserve_rng_state\": true, \"early_stop\": false,\n"
                          "  \"force_recompute_mm_shapes_by_fqns\": []}") {
  return std::string(R"({
  "hf_assets_path": "./assets",
  "training": {"max_context_length": 8192, "num_tokens_per_microbatch_per_dp_rank": 16384,
    "num_tokens_per_train_step": 1048576, "max_norm": 1.0, "dtype": "float32",
    "mixed_precision_param": "bfloat16", "mixed_precision_reduce": "float32"},
  "parallelism": {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 4,
    "fsdp_reshard_after_forward": "always", "tensor_parallel_degree": 2,
    "enable_sequence_parallel": true, "pipeline_parallel_degree": 2,
    "module_fqns_per_model_part": null, "pipeline_parallel_schedule": "1F1B",
    "pipeline_parallel_layers_per_stage": null, "context_parallel_degree": 1},
  "activation_checkpoint": )") +
         recompute + R"(,
  "compile": {"enable": true, "components": ["model", "loss"], "backend": "inductor"},
  "model_spec": {"name": "llama3", "flavor": "8B"}
})";
}

TEST(TitanDump, TheConfigurationThatItPrintsIsRead) {
  const Imported read = Read({{"config.json", TitanJson()}});
  EXPECT_THAT(read.notes, Contains("config.json: a configuration that torchtitan printed"));
  EXPECT_EQ(Text(read, "tp") + Text(read, "pp") + Text(read, "zero"), "223");
  EXPECT_EQ(Text(read, "micro_batch") + " " + Text(read, "global_batch"), "2 128");
  EXPECT_EQ(Text(read, "precision"), "bf16");
  EXPECT_EQ(Text(read, "recompute"), "op");
  ASSERT_TRUE(read.model);
  EXPECT_EQ(read.model->spec.layers, 32);
  EXPECT_EQ(read.values.at("tp").where.line, 7);
  // The same in a log, where torchrun labels each line and other ranks speak in between.
  std::string log = "[rank0]:[titan] INFO - Running with configs: ";
  for (const char c : TitanJson() + "\n[titan] INFO - {\"other\": \"text\"}\n") {
    log += c;
    if (c == '\n') log += "[rank1]:[titan] INFO - {\n[rank0]:";
  }
  const Imported logged = Read({{"train.log", log}});
  EXPECT_EQ(Text(logged, "tp") + Text(logged, "pp") + Text(logged, "global_batch"), "22128");
  EXPECT_THAT(logged.notes,
              Contains("train.log: a configuration that torchtitan printed, in its log"));
  EXPECT_EQ(Text(logged, "nodes"), "");
  // Brackets of a program's logger, on the first line of what it prints.
  EXPECT_EQ(Text(Read({{"train.log", "[rank0]:[titan] INFO - Running with configs: " + TitanJson() +
                                         "\n[rank0]:[titan] INFO - step: 1\n"}}),
                 "tp"),
            "2");
  const Values eight = {{"gpus_per_node", {"8", {SourceOf("command line", "8"), 1, 1}, ""}}};
  for (const char* mesh : {"Building 3-D device mesh with ['pp', 'dp_shard', 'tp'], [2, 4, 2]",
                           "Building device mesh with parallelism: pp=2, dp_replicate=1, "
                           "dp_shard=4, cp=1, tp=2, ep=4, etp=1"})
    EXPECT_EQ(Text(Read({{"train.log", log + "\n[rank0]:" + mesh + "\n"}}, eight), "nodes"), "2")
        << mesh;
  EXPECT_THAT(Error({{"train.log", log.substr(0, log.find("\"compile\""))}}),
              HasSubstr("ends within the configuration that torchtitan printed"));
}

// The class of a configuration is not printed: its fields tell it, or nothing does.
TEST(TitanDump, RecomputationOfAPrintedConfiguration) {
  const auto recompute = [](const char* text) {
    return Text(Read({{"config.json", TitanJson(text)}}), "recompute");
  };
  EXPECT_EQ(recompute("null"), "none");
  EXPECT_EQ(recompute("{\"save_regions\": []}"), "full");
  EXPECT_EQ(recompute("{\"save_regions\": [\"*\"]}"), "op");
  EXPECT_THAT(Error({{"config.json", TitanJson("{\"preserve_rng_state\": true}")}}),
              AllOf(HasSubstr("config.json:11"), HasSubstr("class of its configuration is not")));
  // Up to v0.2.2 a mode, next to a batch in samples.
  std::string old = TitanJson("{\"mode\": \"full\", \"selective_ac_option\": \"2\"}");
  old.replace(old.find("\"max_context"), old.find("\"max_norm") - old.find("\"max_context"),
              "\"local_batch_size\": 8, \"global_batch_size\": 64, \"seq_len\": 4096, ");
  const Imported read = Read({{"config.json", old}});
  EXPECT_EQ(Text(read, "recompute") + Text(read, "seq_len") + Text(read, "global_batch"),
            "full409664");
  // Defaults that it prints change nothing; a conversion does, and so do whole sequences.
  EXPECT_THAT(read.notes, Not(Contains(HasSubstr("not modelled"))));
  old.replace(old.find("\"enable_sequence_parallel\": true"), 32,
              "\"enable_sequence_parallel\": false, \"pipeline_parallel_schedule_csv\": \"\"");
  old.insert(old.find("\"compile\""), "\"model_converters\": {\"converters\": [{\"a\": 1}]},\n");
  EXPECT_THAT(Read({{"config.json", old}}).notes,
              AllOf(Contains(HasSubstr("not modelled: a conversion of the model")),
                    Contains(HasSubstr("not modelled: tensor parallelism without")),
                    Not(Contains(HasSubstr("a schedule of its own")))));
}

// As tyro takes arguments: '-' for '_', and "no-" behind the last dot.
TEST(ImportTitan, NegatedArgumentsSwitchKeysOff) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto read = [](const std::string& arguments) {
    return Read({{"a.toml",
                  "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[compile]\nenable = true\n"
                  "[parallelism]\nenable_async_tensor_parallel = true\n"
                  "tensor_parallel_degree = 2\n"},
                 {"run.sh",
                  "torchrun --nnodes 2 --nproc_per_node 8 -m torchtitan.train "
                  "--job.config_file a.toml " +
                      arguments + "\n"}});
  };
  const Imported on = read("");
  EXPECT_EQ(Text(on, "compile"), "on");
  EXPECT_EQ(Text(on, "tp_overlap"), "on");
  for (const char* off : {"--compile.no-enable", "--compile.no_enable", "--compile.enable=False"}) {
    const Imported made = read(off);
    EXPECT_EQ(Text(made, "compile"), "off") << off;
    EXPECT_THAT(made.notes, Contains(HasSubstr("compile.enable False replaces true of a.toml:5")))
        << off;
    EXPECT_THAT(made.notes, Not(Contains(HasSubstr("not modelled")))) << off;
  }
  for (const char* off : {"--parallelism.no-enable-async-tensor-parallel",
                          "--parallelism.no_enable_async_tensor_parallel"}) {
    const Imported made = read(off);
    EXPECT_NE(Text(made, "tp_overlap"), "on") << off;
    EXPECT_THAT(made.notes, Not(Contains(HasSubstr("not known here")))) << off;
  }
  EXPECT_EQ(Text(read("--parallelism.tensor-parallel-degree 4 --compile.no-enable"), "tp"), "4");
}

}  // namespace
}  // namespace orrery::exchange::styles
