// SPDX-License-Identifier: Apache-2.0
// What accelerate and the Trainer make of their settings: processes, filters of hosts, "auto" of DeepSpeed's file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "model/framework/presets.h"
#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

constexpr const char* kTrain =
    " run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --bf16 True "
    "--output_dir o\n";

std::string Counts(const Imported& read) {
  return Text(read, "nodes") + " x " + Text(read, "gpus_per_node");
}
// Files that others name lie next to them.
Imported Launched(const std::string& front, const std::vector<Named>& more = {}) {
  std::vector<SourcePtr> sources = {SourceOf("run.sh", front + kTrain)};
  const auto open = [&](const Setting& file) -> SourcePtr {
    for (const Named& one : more)
      if (file.value == one.name) return SourceOf(one.name, one.text);
    return nullptr;
  };
  return Import(sources, std::nullopt, {}, open);
}

const Named kHosts = {"hosts", "w1 slots=8\nw2 slots=8\nw3 slots=8\nw4 slots=8\n"};
constexpr const char* kFour =
    "accelerate launch --use_deepspeed --zero_stage 2 --num_machines 4 --num_processes 32 "
    "--deepspeed_hostfile hosts ";

// As logger.info(f"Training/evaluation parameters {training_args}") has them, here labelled by torchrun.
TEST(Accelerate, TrainingArgumentsOfALogAreRead) {
  for (const char* label : {"", "[default0]:", "0: "}) {
    std::string log = fmt::format("{}08/22/2026 10:00:00 - INFO - __main__ - ", label) +
                      "Training/evaluation parameters TrainingArguments(\n";
    for (const char* row :
         {"_n_gpu=1,", "accelerator_config={'split_batches': False},", "bf16=True,",
          "deepspeed=None,",
          "fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.AUTO_WRAP: 'auto_wrap'>],",
          "fsdp_config={'min_num_params': 0, 'activation_checkpointing': True, 'xla': False},",
          "gradient_accumulation_steps=8,", "gradient_checkpointing=False,", "label_names=None,",
          "learning_rate=2e-05,", "max_grad_norm=1.0,", "optim=OptimizerNames.ADAMW_TORCH_FUSED,",
          "output_dir=out,", "per_device_train_batch_size=2,", ")"})
      log += std::string(label) + row + "\n";
    log += "0%|          | 0/500 [00:00<?, ?it/s]\n";
    const Imported read =
        Read({{"train.log", log}}, Flags({{"nodes", "2"}, {"gpus_per_node", "8"}}));
    EXPECT_THAT(read.notes, Contains("train.log: TrainingArguments that a log prints")) << label;
    EXPECT_EQ(Text(read, "micro_batch") + " " + Text(read, "global_batch"), "2 256") << label;
    EXPECT_EQ(Text(read, "zero") + Text(read, "precision") + Text(read, "optimizer"), "3bf16adamw");
    EXPECT_EQ(Text(read, "recompute"), "full") << label;
    EXPECT_EQ(read.values.at("micro_batch").where.line, 15) << label;
    EXPECT_THAT(Error({{"train.log", log.substr(0, log.find("output_dir"))}}),
                HasSubstr("the log ends within the TrainingArguments"));
  }
}

// accelerate/utils/launch.py (prepare_deepspeed_cmd_env) hands a filter on in place of its own counts.
TEST(Accelerate, FiltersOfHostsAreTaken) {
  EXPECT_EQ(Counts(Launched(kFour, {kHosts})), "4 x 8");
  EXPECT_EQ(Counts(Launched(std::string(kFour) + "--deepspeed_inclusion_filter w1@w3", {kHosts})),
            "2 x 8");
  EXPECT_EQ(Counts(Launched(std::string(kFour) + "--deepspeed_exclusion_filter w2", {kHosts})),
            "3 x 8");
  EXPECT_EQ(
      Counts(Launched(std::string(kFour) + "--deepspeed_inclusion_filter=w1:0,1,2,3@w2:4,5,6,7",
                      {kHosts})),
      "2 x 4");
  // The exclusion is looked at first.
  EXPECT_EQ(Counts(Launched(std::string(kFour) + "--deepspeed_inclusion_filter w1@w2 "
                                                 "--deepspeed_exclusion_filter w4",
                            {kHosts})),
            "3 x 8");
  EXPECT_THAT(
      ErrorOf([] { Launched(std::string(kFour) + "--deepspeed_inclusion_filter w9", {kHosts}); }),
      AllOf(HasSubstr("run.sh:1:"), HasSubstr("w9 is no host of hosts")));
}

TEST(Accelerate, FiltersStandInItsFileToo) {
  const std::string config =
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 4\nnum_processes: 32\n"
      "deepspeed_config:\n  zero_stage: 2\n  deepspeed_hostfile: hosts\n";
  const auto counts = [&](const std::string& more) {
    return Launched("accelerate launch --config_file a.yaml", {kHosts, {"a.yaml", config + more}});
  };
  EXPECT_EQ(Counts(counts("  deepspeed_inclusion_filter: w1@w2\n")), "2 x 8");
  EXPECT_EQ(Counts(counts("  deepspeed_exclusion_filter: w1\n")), "3 x 8");
  EXPECT_EQ(Counts(counts("  deepspeed_exclusion_filter: null\n")), "4 x 8");
  const Imported standard =
      counts("  deepspeed_multinode_launcher: standard\n  deepspeed_inclusion_filter: w1@w2\n");
  EXPECT_EQ(Counts(standard), "4 x 8");
  EXPECT_THAT(standard.notes, Contains(HasSubstr("no effect with the launcher standard")));
}

TEST(Accelerate, FiltersThatCannotBeCountedAreNamed) {
  const Imported one = Launched(
      "accelerate launch --use_deepspeed --zero_stage 2 --num_processes 8 "
      "--deepspeed_inclusion_filter w1");
  EXPECT_EQ(Counts(one), "1 x 8");
  EXPECT_THAT(one.notes, Contains(HasSubstr("no effect on one machine")));
  const Imported unknown = Launched(std::string(kFour) + "--deepspeed_exclusion_filter w2");
  EXPECT_EQ(Counts(unknown), "4 x 8");
  EXPECT_THAT(unknown.notes, Contains(AllOf(HasSubstr("hosts, which is not found"),
                                            HasSubstr("taken as they stand"))));
}

TEST(Accelerate, GpuIdsAreTheGpusOfAMachine) {
  EXPECT_EQ(Counts(Launched("accelerate launch --multi_gpu --gpu_ids 0,1,4,5")), "1 x 4");
  EXPECT_EQ(Counts(Launched("accelerate launch --multi_gpu --num_processes 8 --gpu_ids all")),
            "1 x 8");
  EXPECT_EQ(Counts(Launched("accelerate launch --multi_gpu --num_processes 2 --gpu_ids=2,3")),
            "1 x 2");
  EXPECT_EQ(Counts(Launched("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --gpu_ids 0,1,2,3")),
            "1 x 4");
  EXPECT_EQ(Counts(Launched("accelerate launch --config_file a.yaml",
                            {{"a.yaml", "distributed_type: MULTI_GPU\ngpu_ids: 0,1\n"}})),
            "1 x 2");
  EXPECT_THAT(Launched("accelerate launch --multi_gpu --num_processes 8 --gpu_ids all").notes,
              Not(Contains(HasSubstr("gpu_ids"))));
  const auto error = [](const std::string& front) { return ErrorOf([&] { Launched(front); }); };
  EXPECT_THAT(error("accelerate launch --multi_gpu --num_processes 8 --gpu_ids 0,1"),
              AllOf(HasSubstr("run.sh:1:"), HasSubstr("8 processes on 1 machine, and gpu_ids in"),
                    HasSubstr("leaves 2 GPUs")));
  EXPECT_THAT(error("accelerate launch --multi_gpu --gpu_ids 0,x"), HasSubstr("'x' is no GPU"));
  EXPECT_THAT(error("accelerate launch --multi_gpu --gpu_ids 0,0"), HasSubstr("'0' is no GPU"));
}

// transformers/integrations/deepspeed.py (trainer_config_process) fills "auto" with the Trainer's own arguments.
TEST(Trainer, AutoOfTypesIsOffWhereItsArgumentsSayNone) {
  const Named file = {"ds.json", R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"})"};
  const auto read = [&](const std::string& arguments) {
    return Read({file,
                 {"run.sh",
                  "torchrun --nproc_per_node 8 --nnodes=2 run_clm.py --model_name_or_path gpt2 "
                  "--per_device_train_batch_size 4 --deepspeed ds.json " +
                      arguments + "\n"}});
  };
  const Imported none = read("");
  EXPECT_EQ(Text(none, "precision"), "fp32");
  EXPECT_THAT(none.notes,
              Contains(AllOf(HasSubstr("ds.json:1"), HasSubstr("bf16.enabled \"auto\" is off"))));
  EXPECT_EQ(Text(read("--bf16 False"), "precision"), "fp32");
  EXPECT_EQ(Text(read("--bf16"), "precision"), "bf16");
  EXPECT_EQ(Text(read("--fp16 True"), "precision"), "fp16");
  const Imported listed =
      Read({file, {"args.json", R"({"per_device_train_batch_size": 4, "deepspeed": "ds.json"})"}});
  EXPECT_EQ(Text(listed, "precision"), "fp32");
  // Weights that are loaded in 16 bits, arguments that only a shell knows, and no arguments at all: nobody knows.
  EXPECT_EQ(Text(read("--torch_dtype bfloat16"), "precision"), "auto");
  EXPECT_EQ(Text(read("$(cat more)"), "precision"), "auto");
  EXPECT_EQ(Text(Read({file}), "precision"), "auto");
}

TEST(Trainer, OptimizersOfOneArithmeticAreOne) {
  const auto read = [](const char* name) {
    return Text(
        Read({{"args.json",
               fmt::format(R"({{"per_device_train_batch_size": 4, "optim": "{}"}})", name)}}),
        "optimizer");
  };
  for (const char* name :
       {"adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "paged_adamw_32bit"})
    EXPECT_EQ(read(name), "adamw");
  for (const char* name : {"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"})
    EXPECT_EQ(read(name), "adam8bit");
}

// They were files of FSDP, which the prediction was not of.
TEST(Accelerate, LayoutsOfDeepSpeedGoToItsPlugin) {
  struct Layout {
    const char *zero, *offload;
  };
  for (const auto& [zero, offload] :
       {Layout{"1", "none"}, Layout{"2", "none"}, Layout{"2", "optimizer"}, Layout{"3", "none"},
        Layout{"3", "optimizer+weights"}}) {
    SCOPED_TRACE(std::string(zero) + " " + offload);
    const Resolved before = Resolve({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "2",
                                     "--framework", "huggingface", "--zero", zero, "--offload",
                                     offload, "--micro-batch", "2", "--recompute", "full"});
    const Bundle bundle = MakeBundle(CaseOf(before), kAccelerate);
    EXPECT_EQ(bundle.Get("deepspeed_config.zero_stage"), zero);
    EXPECT_EQ(bundle.Get("fsdp_config.fsdp_version"), "");
    EXPECT_EQ(bundle.Get("args.gradient_checkpointing"), "true");
    EXPECT_EQ(ReadBackAs(bundle), "huggingface");
    for (const char* field : {"framework ", "offload ", "zero ", "fp32_grads ", "recompute_unread ",
                              "bucket ", "autocast ", "fused_norm "})
      EXPECT_THAT(bundle.Missing(), Not(Contains(testing::StartsWith(field))));
    for (const File& file : FilesOf(bundle))
      if (file.name == "accelerate.yaml") {
        EXPECT_THAT(file.text, HasSubstr("deepspeed_multinode_launcher: \"standard\""));
      }
    std::vector<std::string> words = {"--model", "gpt2-xl", "--topology", "dgx-h100"};
    for (const std::string& path : Write(FilesOf(bundle)))
      words.insert(words.end(), {"--from", path});
    const Resolved after = Resolve(words);
    EXPECT_EQ(SplitReference(after.job.request.framework).name, "huggingface");
    EXPECT_EQ(after.strategy.zero, before.strategy.zero);
    EXPECT_TRUE(after.strategy.offload == before.strategy.offload);
    EXPECT_TRUE(after.strategy.recompute == before.strategy.recompute);
  }
  // Of another prediction, or with groups of shards, FSDP it stays.
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--framework", "fsdp"},
                                               {"--framework", "huggingface@fsdp"},
                                               {"--framework", "orrery"},
                                               {"--framework", "huggingface", "--dp-outer", "2"}}) {
    std::vector<std::string> words = {"--model",       "gpt2-xl", "--topology", "dgx-h100",
                                      "--nodes",       "2",       "--zero",     "3",
                                      "--micro-batch", "2"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(MakeBundle(CaseOf(Resolve(words)), kAccelerate).Get("fsdp_config.fsdp_version"), "2");
  }
}

TEST(Accelerate, StrategiesOfFsdpAreReadInAnyCase) {
  const std::string yaml =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\n"
      "fsdp_config:\n  fsdp_version: 1\n  fsdp_sharding_strategy: ";
  const std::string size = "\nnum_machines: 4\nnum_processes: 32\n";
  const auto degrees = [&](const std::string& strategy) {
    const Imported read = Read({{"a.yaml", yaml + strategy + size}});
    return Text(read, "zero") + " over " + Text(read, "dp_outer");
  };
  EXPECT_EQ(degrees("hybrid_shard"), "3 over 4");
  EXPECT_EQ(degrees("Hybrid_Shard_Zero2"), "2 over 4");
  EXPECT_EQ(degrees("_HYBRID_SHARD_ZERO2"), "2 over 4");
  EXPECT_EQ(degrees("_hybrid_shard_zero2"), "2 over 4");
  EXPECT_EQ(degrees("5"), "2 over 4");
  EXPECT_EQ(degrees("full_shard"), "3 over 1");
  EXPECT_EQ(degrees("shard_grad_op"), "2 over 1");
  EXPECT_EQ(degrees("no_shard"), "0 over 1");
  for (const char* none : {"HYBRID", "6", "full-shard"})
    EXPECT_THAT(Error({{"a.yaml", yaml + none + size}}),
                AllOf(HasSubstr("a.yaml:6:"), HasSubstr("is none that FSDP 1 has")))
        << none;
  const Named launch = {"l.sh",
                        "accelerate launch --num_machines 4 --num_processes 32 --use_fsdp "
                        "--fsdp_sharding_strategy hybrid_shard --mixed_precision bf16 t.py "
                        "--per_device_train_batch_size 1\n"};
  EXPECT_EQ(Text(Read({launch}), "zero") + " over " + Text(Read({launch}), "dp_outer"), "3 over 4");
}

}  // namespace
}  // namespace orrery::exchange::styles
