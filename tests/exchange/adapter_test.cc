// SPDX-License-Identifier: Apache-2.0
// PEFT's adapter_config.json is the flags of a fine-tuning, and what else it says is refused or named.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/arch/catalogue.h"
#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// As PEFT 0.15 saves it, with these keys in the place of its own or behind them.
std::string Adapters(const std::string& more = "", const char* base = "meta-llama/Meta-Llama-3-8B",
                     const char* targets = "[\"q_proj\", \"v_proj\"]") {
  return fmt::format(R"({{
  "alpha_pattern": {{}}, "auto_mapping": null,
  "base_model_name_or_path": "{}",
  "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true,
  "layer_replication": null, "loftq_config": {{}},
  "megatron_core": "megatron.core", "peft_type": "LORA", "rank_pattern": {{}}, "revision": null,
  "r": 16,
  "lora_alpha": 32,
  "target_modules": {},
  "task_type": "CAUSAL_LM"{}{}
}})",
                     base, targets, more.empty() ? "" : ",\n  ", more);
}
Imported OfAdapters(const std::string& text) { return Read({{"adapter_config.json", text}}); }
std::string AdapterError(const std::string& text) { return Error({{"adapter_config.json", text}}); }

TEST(AdapterConfig, IsTheFlagsOfAFineTuning) {
  const Imported read = OfAdapters(Adapters());
  EXPECT_EQ(Text(read, "lora"), "16");
  EXPECT_EQ(Text(read, "lora_alpha"), "32");
  EXPECT_EQ(Text(read, "lora_targets"), "q_proj,v_proj");
  EXPECT_EQ(read.model_name, "llama3-8b");
  EXPECT_THAT(read.notes, testing::ElementsAre("adapter_config.json: adapters of PEFT"));
  const Resolved job = Predict({{"adapter_config.json", Adapters()}},
                               {"--topology", "dgx-h100", "--nodes", "1", "--global-batch", "32"});
  EXPECT_EQ(job.job.model.spec.name, "llama3-8b");
  EXPECT_EQ(job.job.request.work.lora.rank, 16);
  EXPECT_EQ(job.job.request.work.lora.targets, kLoraQ | kLoraV);
  // A scale of alpha / sqrt(rank).
  EXPECT_EQ(Text(OfAdapters(Adapters("\"use_rslora\": true")), "lora_alpha"), "128");
  EXPECT_EQ(Text(OfAdapters(Adapters("", "m", "\"all-linear\"")), "lora_targets"), "all-linear");
}

TEST(AdapterConfig, NamesWhatIsNotPricedAndRefusesWhatIsTrainedBesides) {
  EXPECT_THAT(OfAdapters(Adapters("\"lora_dropout\": 0.05")).notes,
              Contains("adapter_config.json:11: not modelled: dropout in front of adapters "
                       "(lora_dropout 0.05); the prediction is without"));
  EXPECT_THAT(OfAdapters(Adapters("\"bias\": \"lora_only\"")).notes,
              Contains(HasSubstr("biases that are trained (bias lora_only)")));
  EXPECT_THAT(OfAdapters(Adapters("\"made_up\": 3")).notes,
              Contains(HasSubstr("not known here, and not priced: made_up")));
  for (const char* plain : {"\"lora_dropout\": 0.0", "\"bias\": \"none\"", "\"use_dora\": false",
                            "\"modules_to_save\": null", "\"exclude_modules\": []",
                            "\"trainable_token_indices\": null"})
    EXPECT_EQ(OfAdapters(Adapters(plain)).notes.size(), 1U) << plain;
  for (const char* besides :
       {"\"use_dora\": true", "\"modules_to_save\": [\"lm_head\"]", "\"use_qalora\": true",
        "\"layers_to_transform\": [0]", "\"exclude_modules\": [\"k_proj\"]",
        "\"trainable_token_indices\": [1]", "\"target_parameters\": [\"w\"]"}) {
    const std::string text = besides, key = text.substr(1, text.find('"', 1) - 1);
    EXPECT_THAT(AdapterError(Adapters(text)), AllOf(HasSubstr(key), HasSubstr("are not modelled")))
        << text;
  }
  std::string other = Adapters();
  other.replace(other.find("LORA"), 4, "IA3");
  EXPECT_THAT(AdapterError(other), HasSubstr("adapters of the kind IA3 are not modelled"));
  EXPECT_THAT(AdapterError(Adapters("", "m", "\".*_proj\"")), HasSubstr("is a pattern of names"));
  EXPECT_THAT(AdapterError(Adapters("", "m", "[[\"q_proj\"]]")), HasSubstr("no list of names"));
}

// All four maps were taken, or the file refused.
TEST(AdapterConfig, WithoutModulesTakesThoseOfPeft) {
  const std::vector<std::string> words = {"--topology", "dgx-h100",       "--nodes",
                                          "1",          "--global-batch", "32"};
  const auto targets = [&](const std::string& model) {
    return Predict({{"adapter_config.json", Adapters("", model.c_str(), "null")}}, words)
        .job.request.work.lora.targets;
  };
  EXPECT_EQ(targets("meta-llama/Llama-2-7b-hf"), kLoraQ | kLoraV);
  EXPECT_EQ(targets("gpt2-medium"), kLoraQkv);
  EXPECT_THAT(ErrorOf([&] { targets("t5-small"); }),
              AllOf(HasSubstr("adapter_config.json:"),
                    HasSubstr("which maps PEFT adapts by itself is not known")));
}

TEST(AdapterConfig, AsksForAModelThatNobodyKnows) {
  const std::string unknown = Adapters("", "someone/Other-9B");
  const std::vector<std::string> words = {"--topology", "dgx-h100",       "--nodes",
                                          "1",          "--global-batch", "32"};
  EXPECT_THAT(ErrorOf([&] {
                Predict({{"adapter_config.json", unknown}}, words);
              }),
              AllOf(HasSubstr("adapter_config.json:3:"), HasSubstr("someone/Other-9B"),
                    HasSubstr("--model and its config.json")));
  std::vector<std::string> with = words;
  with.insert(with.end(), {"--model", "llama2-7b"});
  EXPECT_EQ(Predict({{"adapter_config.json", unknown}}, with).job.request.work.lora.rank, 16);
  EXPECT_EQ(OfAdapters(Adapters("", "meta-llama/Llama-2-7b-hf")).model_name, "llama2-7b");
  EXPECT_EQ(OfAdapters(Adapters("", "gpt2-medium")).model_name, "gpt2-medium");
  EXPECT_EQ(OfAdapters(Adapters("", "meta-llama/Llama-3.1-8B")).model_name, "");
}

// Next to a launch script, which says how many GPUs there are.
TEST(AdapterConfig, GoesWithWhatStartsTheTraining) {
  const Imported read =
      Read({{"run.sh", "torchrun --nnodes 2 --nproc-per-node 8 train.py --config c.yaml\n"},
            {"adapter_config.json", Adapters()}});
  EXPECT_EQ(Text(read, "nodes"), "2");
  EXPECT_EQ(Text(read, "lora"), "16");
}

// They were full fine-tunings, with the flags of adapters as without effect.
TEST(AdapterFlags, OfTrlAndLlamaFactoryAreRead) {
  const std::string trl =
      "torchrun --nproc_per_node 8 --nnodes 1 sft.py --per_device_train_batch_size 2 --bf16 "
      "--gradient_accumulation_steps 4 --use_peft ";
  const Imported plain = Read({{"sft.sh", trl}});
  EXPECT_EQ(Text(plain, "lora"), "16");
  EXPECT_EQ(Text(plain, "lora_alpha"), "32");
  EXPECT_EQ(Text(plain, "lora_targets"), "peft");
  const Imported said = Read({{"sft.sh", trl + "--lora_r 64 --lora_alpha 16 --lora_dropout 0.05 "
                                               "--lora_target_modules q_proj v_proj "
                                               "--load_in_4bit"}});
  EXPECT_EQ(Text(said, "lora"), "64");
  EXPECT_EQ(Text(said, "lora_alpha"), "16");
  EXPECT_EQ(Text(said, "lora_targets"), "q_proj,v_proj");
  EXPECT_EQ(Text(said, "lora_base"), "nf4");
  EXPECT_THAT(said.notes, Contains(HasSubstr("not modelled: dropout in front of adapters")));
  EXPECT_EQ(Text(Read({{"sft.sh", trl + "--use_rslora"}}), "lora_alpha"), "128");
  EXPECT_THAT(Error({{"sft.sh", trl + "--use_dora"}}), HasSubstr("DoRA's magnitudes"));
  EXPECT_THAT(Error({{"sft.sh", trl + "--lora_modules_to_save lm_head"}}),
              HasSubstr("modules that are trained whole (args.lora_modules_to_save)"));
  const std::string factory =
      "stage: sft\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\n"
      "output_dir: out\nfinetuning_type: ";
  const Imported all = Read({{"lora.yaml", factory + "lora\nlora_target: all\n"}});
  EXPECT_EQ(Text(all, "lora"), "8");
  EXPECT_EQ(Text(all, "lora_alpha"), "16");
  EXPECT_EQ(Text(all, "lora_targets"), "all-linear");
  const Imported some = Read({{"lora.yaml", factory + "lora\nlora_rank: 32\nquantization_bit: 4\n"
                                                      "lora_target: q_proj,v_proj\n"}});
  EXPECT_EQ(Text(some, "lora_targets"), "q_proj,v_proj");
  EXPECT_EQ(Text(some, "lora_base"), "nf4");
  EXPECT_EQ(Text(Read({{"full.yaml", factory + "full\n"}}), "lora"), "");
}

// It was a full fine-tuning unless the command named the rank.
TEST(AdapterFlags, ARecipeOfBridgeForFineTuningHasItsOwn) {
  const auto lora = [](const std::string& recipe, const std::string& more, const char* field) {
    return Text(
        Read({{"b.sh", "torchrun --nproc-per-node 8 --nnodes 4 run_recipe.py --recipe " + recipe +
                           " train.global_batch_size=96 train.micro_batch_size=1 " + more}}),
        field);
  };
  EXPECT_EQ(lora("llama3_8b_peft_config", "", "lora"), "8");
  EXPECT_EQ(lora("llama3_8b_peft_config", "", "lora_alpha"), "16");
  EXPECT_EQ(lora("llama3_70b_peft_config", "--peft_scheme lora", "lora"), "16");
  EXPECT_EQ(lora("llama3_8b_peft_config", "peft.dim=32", "lora"), "32");
  EXPECT_EQ(lora("llama3_8b_peft_config", "--peft_scheme none", "lora"), "");
  EXPECT_EQ(lora("llama3_8b_pretrain_config", "", "lora"), "");
  EXPECT_THAT(ErrorOf([&] { lora("llama3_8b_peft_config", "--peft_scheme dora", "lora"); }),
              HasSubstr("adapters of the kind dora are not modelled"));
}

TEST(AdapterConfig, InAnotherPlaceNamesTheRightFlag) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "adapters";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "adapter_config.json").string();
  std::ofstream(path) << Adapters();
  const auto error = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--topology", "dgx-h100", "--nodes", "1", "--global-batch", "32"});
    return ErrorOf([&] { Resolve(words); });
  };
  for (const std::string& model : {path, folder.string()})
    EXPECT_THAT(error({"--model", model}),
                AllOf(HasSubstr("adapters of PEFT, not a model"), HasSubstr("--from this file")));
  EXPECT_THAT(error({"--model", "llama3-8b", "--lora-rank", path}),
              AllOf(HasSubstr("--lora-rank takes no file"), HasSubstr("--from " + path)));
  EXPECT_THAT(error({"--model", "llama3-8b", "--lora-rank", "8", "--lora-targets", path}),
              AllOf(HasSubstr("--lora-targets takes no file"), HasSubstr("--from " + path)));
  EXPECT_EQ(error({"--from", folder.string()}), "");
}

}  // namespace
}  // namespace orrery::exchange::styles
