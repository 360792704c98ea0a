// SPDX-License-Identifier: Apache-2.0
// Files of TrainingArguments, TRL, LLaMA-Factory and Accelerate: types of weights, parts in files of their own, models, kinds that are
// not read, and which keys are known to have no effect.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/arch/catalogue.h"
#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

constexpr const char* kYaml =
    "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\noutput_dir: o\n";
constexpr const char* kFactory = "stage: sft\ncutoff_len: 2048\n";

Imported OfYaml(const std::string& more, const Values& given = {}) {
  return Read({{"sft.yaml", kYaml + more}}, given);
}
std::string YamlError(const std::string& more) {
  return ErrorOf([&] { OfYaml(more); });
}

// They were refused ("no map '...' takes adapters"): a list was three dots.
TEST(TrainerAdapters, TargetsMayBeAList) {
  const std::string peft = "bf16: true\nuse_peft: true\nlora_r: 16\n";
  for (const char* targets :
       {"lora_target_modules: [q_proj, v_proj]\n", "lora_target_modules:\n- q_proj\n- v_proj\n",
        "lora_target_modules: q_proj v_proj\n"})
    EXPECT_EQ(Text(OfYaml(peft + targets), "lora_targets"), "q_proj,v_proj") << targets;
  EXPECT_EQ(Text(OfYaml(peft + "lora_target_modules: [all-linear]\n"), "lora_targets"),
            "all-linear");
  EXPECT_EQ(Text(OfYaml(peft + "lora_target_modules: []\n"), "lora_targets"), "peft");
  EXPECT_EQ(Text(OfYaml(peft + "lora_modules_to_save: []\n"), "lora"), "16");
  EXPECT_THAT(YamlError(peft + "lora_modules_to_save: [lm_head]\n"),
              HasSubstr("modules that are trained whole"));
  const Imported json = Read({{"a.json",
                               R"({"per_device_train_batch_size": 4, "bf16": true, "use_peft": true,
      "lora_target_modules": ["q_proj", "v_proj"]})"}});
  EXPECT_EQ(Text(json, "lora_targets"), "q_proj,v_proj");
}

// They were full fine-tunings.
TEST(LlamaFactory, OtherKindsOfTuningAreRefused) {
  const std::string factory = kFactory;
  EXPECT_THAT(YamlError(factory + "finetuning_type: freeze\nfreeze_trainable_layers: 2\n"),
              AllOf(HasSubstr("sft.yaml:6"), HasSubstr("finetuning_type freeze is not modelled")));
  EXPECT_THAT(YamlError(factory + "finetuning_type: oft\n"),
              HasSubstr("finetuning_type oft is not modelled"));
  EXPECT_EQ(Text(OfYaml(factory + "finetuning_type: full\n"), "lora"), "");
  const Imported silent = OfYaml(factory);
  EXPECT_EQ(Text(silent, "lora"), "8");
  EXPECT_THAT(silent.notes, Contains("sft.yaml:4: finetuning_type lora, LLaMA-Factory's default"));
  EXPECT_THAT(YamlError(factory + "finetuning_type: full\npipeline_model_parallel_size: 4\n"),
              HasSubstr("training with Megatron is not read"));
  EXPECT_THAT(OfYaml("stage: dpo\ncutoff_len: 2048\nfinetuning_type: full\n").notes,
              Contains(HasSubstr("not modelled: training on preferences")));
}

TEST(LlamaFactory, ItsCommandTakesArgumentsAsOptionsOrAFile) {
  const Imported options =
      Read({{"run.sh",
             "llamafactory-cli train --stage sft --finetuning_type full --cutoff_len 1024 --bf16 "
             "--per_device_train_batch_size 2 --gradient_accumulation_steps 8\n"}},
           Flags({{"nodes", "1"}, {"gpus_per_node", "8"}}));
  EXPECT_EQ(Text(options, "micro_batch") + " " + Text(options, "global_batch"), "2 128");
  EXPECT_EQ(Text(options, "recompute"), "full");
  const Imported file = Read({{"run.sh", "llamafactory-cli train conf/sft.yaml\n"},
                              {"sft.yaml", std::string(kYaml) + kFactory + "bf16: true\n"}});
  EXPECT_EQ(Text(file, "micro_batch") + " " + Text(file, "lora"), "1 8");
}

// Activations were all kept.
TEST(LlamaFactory, RecomputesUnlessItIsToldNotTo) {
  const std::string full = std::string(kFactory) + "finetuning_type: full\nbf16: true\n";
  const Imported own = OfYaml(full);
  EXPECT_EQ(Text(own, "recompute"), "full");
  EXPECT_THAT(own.notes, Contains(HasSubstr("unless disable_gradient_checkpointing is true")));
  EXPECT_EQ(Text(OfYaml(full + "disable_gradient_checkpointing: true\n"), "recompute"), "none");
  EXPECT_EQ(Text(own, "recompute_unread") +
                Text(OfYaml(full + "use_reentrant_gc: false\n"), "recompute_unread"),
            "onoff");
  EXPECT_EQ(Text(OfYaml("bf16: true\n"), "recompute"), "none");
}

// Scores were left to a fused kernel, whatever it said.
TEST(TrainerAttention, IsTheModelsOwn) {
  const auto attention = [](const std::string& line) {
    return Text(OfYaml(line), "flash_attention");
  };
  EXPECT_EQ(attention("attn_implementation: eager\n"), "off");
  EXPECT_EQ(attention("attn_implementation: flash_attention_2\n"), "on");
  EXPECT_EQ(attention("attn_implementation: sdpa\n"), "on");
  EXPECT_EQ(attention("flash_attn: disabled\n"), "off");
  EXPECT_EQ(attention("flash_attn: auto\n"), "");
}

// Products in 16 bits over weights in fp32, whatever they said.
TEST(TrainerTypes, OfWeightsIn16BitsAreWithoutCopies) {
  const auto facts = [](const Imported& read) {
    return Text(read, "precision") + " " + Text(read, "autocast") + " " +
           Text(read, "master_weights") + " " + Text(read, "fp32_grads");
  };
  EXPECT_EQ(facts(OfYaml("bf16: true\n")), "bf16  on ");
  for (const char* type :
       {"torch_dtype: bfloat16\nbf16: true\n", "dtype: torch.bfloat16\n", "pure_bf16: true\n"}) {
    const Imported pure = OfYaml(type);
    EXPECT_EQ(facts(pure), "bf16 off off off") << type;
    EXPECT_THAT(pure.notes, Contains(HasSubstr("weights, gradients and states all in bf16")))
        << type;
  }
  EXPECT_EQ(facts(OfYaml("torch_dtype: float32\nbf16: true\n")), "bf16  on ");
  EXPECT_EQ(facts(OfYaml("pure_bf16: false\nbf16: true\n")), "bf16  on ");
  EXPECT_EQ(facts(OfYaml("torch_dtype: float32\n")), "fp32  on ");
  // Accelerate casts weights to fp32 under FSDP with mixed precision, and leaves them without.
  EXPECT_EQ(facts(OfYaml("torch_dtype: bfloat16\nbf16: true\nfsdp: full_shard\n")), "bf16  on ");
  EXPECT_EQ(facts(OfYaml("torch_dtype: bfloat16\nfsdp: full_shard\n")), "bf16 off off off");
  // Of adapters the frozen weights alone.
  EXPECT_EQ(facts(OfYaml("torch_dtype: bfloat16\nbf16: true\nuse_peft: true\n")), "bf16 off on ");
  EXPECT_EQ(facts(OfYaml(std::string(kFactory) + "bf16: true\nfinetuning_type: lora\n")),
            "bf16 off on ");
  const Resolved job = Predict({{"sft.yaml", kYaml + std::string("torch_dtype: bfloat16\n")}},
                               {"--model", "llama2-7b", "--topology", "dgx-h100", "--nodes", "1"});
  EXPECT_EQ(job.job.request.framework, "ddp+fp32_grads=never,master_weights=off,autocast=off");
}

TEST(TrainerTypes, OfTheProgramGoBeforeThoseOfTheLauncher) {
  const auto read = [](const std::string& front, const std::string& program) {
    return Read({{"run.sh", "accelerate launch --num_processes 8 " + front +
                                " run_clm_no_trainer.py --per_device_train_batch_size 4 " +
                                program + "\n"}});
  };
  const Imported own = read("", "--mixed_precision=bf16");
  EXPECT_EQ(Text(own, "precision"), "bf16");
  EXPECT_THAT(own.notes, Not(Contains(HasSubstr("nothing says bf16"))));
  const Imported both = read("--mixed_precision no", "--mixed_precision fp16");
  EXPECT_EQ(Text(both, "precision"), "fp16");
  EXPECT_THAT(both.notes, Contains(HasSubstr("mixed_precision fp16 of the program replaces no")));
}

// Another file's activation checkpointing and strategy were lost.
TEST(TrainerFsdp, ItsPartMayBeAFileOfItsOwn) {
  const std::string args = std::string(kYaml) + "bf16: true\nfsdp: full_shard auto_wrap\n";
  const Named part = {"fsdp.json",
                      R"({"fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
      "activation_checkpointing": true, "fsdp_version": 2, "reshard_after_forward": false})"};
  const Imported given = Read({{"sft.yaml", args + "fsdp_config: fsdp.json\n"}, part});
  EXPECT_EQ(Text(given, "zero") + Text(given, "recompute"), "2full");
  const auto open = [&](const Setting& file) -> SourcePtr {
    return file.value == part.name ? SourceOf(part.name, part.text) : nullptr;
  };
  const Imported found =
      Import({SourceOf("sft.yaml", args + "fsdp_config: fsdp.json\n")}, std::nullopt, {}, open);
  EXPECT_EQ(Text(found, "zero") + Text(found, "recompute"), "2full");
  EXPECT_THAT(found.notes, Contains("sft.yaml:6: fsdp_config names fsdp.json"));
  EXPECT_THAT(Error({{"sft.yaml", args + "fsdp_config: fsdp.json\n"}}),
              AllOf(HasSubstr("sft.yaml:6"), HasSubstr("fsdp_config names fsdp.json"),
                    HasSubstr("not found"), HasSubstr("--from fsdp.json")));
  // Arguments with an old key of that part are no such part.
  EXPECT_EQ(Text(OfYaml("bf16: true\nfsdp: full_shard\n"
                        "fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"),
                 "micro_batch"),
            "1");
  const Imported text =
      Read({{"run.sh",
             "torchrun --nnodes 1 --nproc_per_node 8 t.py --per_device_train_batch_size 1 --bf16 "
             "--fsdp full_shard --fsdp_config '{\"activation_checkpointing\": true}'\n"}});
  EXPECT_EQ(Text(text, "zero") + Text(text, "recompute"), "3full");
}

// They were TrainingArguments with their defaults.
TEST(OtherPrograms, ConfigurationsAreRefusedByName) {
  EXPECT_THAT(Error({{"a.yml",
                      "base_model: m\nsequence_len: 4096\nmicro_batch_size: 1\n"
                      "gradient_accumulation_steps: 8\noutput_dir: o\nfsdp: [full_shard]\n"}}),
              AllOf(HasSubstr("a.yml:1"), HasSubstr("Axolotl"), HasSubstr("--micro-batch")));
  EXPECT_THAT(Error({{"b.yaml",
                      "model: m\nmodel_class: llm\ndist_config:\n  name: fsdp2\noutput_dir: o\n"
                      "micro_batch_size: 1\ngradient_accumulation_steps: 2\n"}}),
              HasSubstr("LLaMA-Factory's release 1"));
  EXPECT_THAT(Error({{"c.yaml",
                      "output_dir: o\nmodel:\n  _component_: torchtune.models.llama3.llama3_8b\n"
                      "batch_size: 2\ngradient_accumulation_steps: 8\n"}}),
              HasSubstr("torchtune"));
}

TEST(AccelerateKinds, ThatAreNoDataParallelismOnGpusAreRefusedInWords) {
  EXPECT_THAT(Error({{"a.yaml", "distributed_type: MEGATRON_LM\nnum_processes: 8\n"}}),
              AllOf(HasSubstr("megatron_lm_config"), HasSubstr("--framework megatron")));
  for (const char* type : {"MULTI_CPU", "TPU", "MULTI_XPU"})
    EXPECT_THAT(Error({{"a.yaml", fmt::format("distributed_type: {}\nnum_processes: 8\n", type)}}),
                AllOf(HasSubstr("a.yaml:1"), HasSubstr("not modelled"), HasSubstr("MULTI_GPU")));
  EXPECT_THAT(Error({{"a.yaml", "distributed_type: MULTI_GPU\nuse_cpu: true\nnum_processes: 8\n"}}),
              HasSubstr("a job without GPUs"));
}

TEST(TrainerModels, AreThoseOfTheCatalogueUnlessAFlagSaysAnother) {
  EXPECT_EQ(OfYaml("model_name_or_path: gpt2-xl\n").model_name, "gpt2-xl");
  const Imported unknown = OfYaml("model_name_or_path: someone/Other-9B\n");
  ASSERT_TRUE(unknown.no_model.has_value());
  EXPECT_THAT(unknown.no_model->message, HasSubstr("someone/Other-9B is not in the catalogue"));
  const auto replaced =
      Contains("sft.yaml:4: --model llama2-7b is predicted in the place of gpt2-xl");
  const auto with = [](const char* model) {
    return Import({SourceOf("sft.yaml", kYaml + std::string("model_name_or_path: gpt2-xl\n"))},
                  LoadModel(model), {})
        .notes;
  };
  EXPECT_THAT(with("llama2-7b"), replaced);
  EXPECT_THAT(with("gpt2-xl"), Not(Contains(HasSubstr("in the place of"))));
}

TEST(TrainerKeys, ThatHaveNoEffectAreToldFromUnknownOnes) {
  const Imported read = OfYaml("bf16: true\nlearning_rate: 1.0e-5\nmade_up_key: 3\nseed: 4\n");
  EXPECT_THAT(read.notes,
              Contains("without effect on time and memory: args.output_dir, args.learning_rate, "
                       "args.seed"));
  EXPECT_THAT(read.notes, Contains("not known here: args.made_up_key"));
}

}  // namespace
}  // namespace orrery::exchange::styles
