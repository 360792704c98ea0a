// SPDX-License-Identifier: Apache-2.0
// Layers that products in 8 bits skip, adapters of parts of products: to the files of other programs and back.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/exchange/import.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kJob = {"--model",       "llama3-8b", "--topology",  "dgx-h100",
                                       "--nodes",       "2",         "--framework", "orrery",
                                       "--micro-batch", "1"};

std::vector<std::string> With(std::vector<std::string> words) {
  words.insert(words.begin(), kJob.begin(), kJob.end());
  return words;
}

std::string SkipOf(const std::string& name, const std::string& text) {
  const Imported read = Import({SourceOf(name, text)}, std::nullopt);
  const auto at = read.values.find("fp8_skip");
  return at == read.values.end() ? "" : at->second.text;
}

const FieldReport& FieldOf(const Bundle& bundle, const std::string& name) {
  return *std::ranges::find(bundle.settings.fields, name, &FieldReport::field);
}

TEST(SkippedLayers, GoOutAndComeBack) {
  const std::vector<std::pair<Target, const char*>> targets = {{kMegatron, "current"},
                                                               {kMegatron, "blockwise"},
                                                               {kBridge, "current"},
                                                               {kTitanToml, "current"}};
  for (const auto& [target, recipe] : targets) {
    for (const char* skip : {"1,1", "0,2", "3,0", "2,4"}) {
      const Case before = CaseOf(Resolve(
          With({"--fp8", recipe, "--fp8-skip", skip, "--zero", target == kTitanToml ? "3" : "1"})));
      const Bundle bundle = MakeBundle(before, target);
      EXPECT_FALSE(Differs(FieldOf(bundle, "fp8_skip").status)) << skip;
      std::vector<std::string> words = {"--topology", "dgx-h100",    "--model",
                                        "llama3-8b",  "--framework", "orrery"};
      for (const std::string& path : Write(FilesOf(bundle)))
        if (!path.ends_with(".py")) words.insert(words.end(), {"--from", path});
      const Case after = CaseOf(Resolve(words));
      EXPECT_EQ(after.work.fp8, before.work.fp8) << InfoOf(target).name;
      EXPECT_TRUE(after.work.fp8_skip == before.work.fp8_skip) << InfoOf(target).name << skip;
    }
  }
}

// Megatron-LM megatron/core/transformer/transformer_config.py and fp8_utils.py.
TEST(SkippedLayers, WhatMegatronRefusesIsNotExpressed) {
  const auto why = [](std::vector<std::string> words) {
    const Bundle bundle = MakeBundle(CaseOf(Resolve(With(std::move(words)))), kMegatron);
    const FieldReport& field = FieldOf(bundle, "fp8_skip");
    return field.status == Status::kNotExpressed ? field.how : "";
  };
  EXPECT_EQ(why({"--fp8", "current", "--fp8-skip", "1,1"}), "");
  EXPECT_EQ(why({"--fp8", "delayed", "--fp8-skip", "1,1"}),
            "layers in 16 bits are refused with delayed scaling");
  EXPECT_EQ(why({"--fp8", "current", "--fp8-skip", "9,1", "--pp", "4"}),
            "at most as many layers in 16 bits at an end as a stage has");
}

TEST(SkippedLayers, MegatronTakesOneOfEachUnlessToldOtherwise) {
  const auto skip = [](const std::string& more) {
    return SkipOf("x.sh",
                  "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
                  "--num-attention-heads 12 --micro-batch-size 4 --bf16 " +
                      more);
  };
  const std::string fp8 = "--fp8-format hybrid --fp8-recipe tensorwise ";
  EXPECT_EQ(skip(fp8 + "--first-last-layers-bf16"), "1,1");
  EXPECT_EQ(skip(fp8 + "--first-last-layers-bf16 --num-layers-at-start-in-bf16 2"), "2,1");
  EXPECT_EQ(skip(fp8 + "--first-last-layers-bf16 --num-layers-at-end-in-bf16 0"), "1,0");
  EXPECT_EQ(skip(fp8 + "--num-layers-at-start-in-bf16 2"), "");
  EXPECT_EQ(skip("--first-last-layers-bf16"), "");
}

TEST(SkippedLayers, TorchtitanNamesThemInItsFilters) {
  const auto read = [](const std::string& filters) {
    return Import({SourceOf("t.toml",
                            "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = "
                            "[\"quantize.linear.float8\"]\n[quantize.linear.float8]\nfilter_fqns = "
                            "[\"output\", " +
                                filters + "]\n")},
                  std::nullopt);
  };
  const auto skip = [&](const std::string& filters) {
    const Imported imported = read(filters);
    const auto at = imported.values.find("fp8_skip");
    return at == imported.values.end() ? "" : at->second.text;
  };
  const Imported probe = read("\"layers.0.\"");
  if (probe.values.empty()) GTEST_SKIP() << "no TOML";
  EXPECT_EQ(skip("\"layers.0.\", \"layers.31\""), "1,1");
  EXPECT_EQ(skip("\"layers.30.\", \"layers.31.\""), "0,2");
  EXPECT_EQ(skip("\"layers.0.attention\""), "");
  // "layers.1" is a part of the names of layers 10 to 19, too.
  EXPECT_EQ(skip("\"layers.0.\", \"layers.1\""), "");
  EXPECT_THAT(read("\"layers.0.\", \"layers.1\"").notes,
              Contains(HasSubstr("filter_fqns keeps layers.0., layers.1 in 16 bits")));
  EXPECT_THAT(read("\"layers.0.\"").notes, Not(Contains(HasSubstr("filter_fqns"))));
}

// toml++ writes lists of ten and more over several lines.
TEST(SkippedLayers, ListsOfAnyLengthAreRead) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  for (const int layers : {7, 8, 30}) {
    std::string list;
    for (int layer = 0; layer < layers; ++layer) list += fmt::format(", \"layers.{}.\"", layer);
    const auto read = [&](const std::string& head) {
      return Import({SourceOf("t.toml",
                              "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = "
                              "[\"quantize.linear.float8\"]\n[quantize.linear.float8]\n"
                              "filter_fqns = [" +
                                  head + list + "]\n")},
                    std::nullopt);
    };
    const Imported imported = read("\"output\", \"lm_head\"");
    ASSERT_TRUE(imported.values.contains("fp8_skip")) << layers;
    EXPECT_EQ(imported.values.at("fp8_skip").text, fmt::format("{},0", layers));
    EXPECT_THAT(imported.notes, Not(Contains(HasSubstr("8 bits"))));
    // What is not understood is named, next to a head in 8 bits, too.
    EXPECT_THAT(read("\"attention.wk\"").notes,
                Contains(AllOf(HasSubstr("the head is converted"),
                               HasSubstr("filter_fqns keeps attention.wk in 16 bits"))));
  }
}

// As formatters of Python break them.
TEST(Python, ListsGoOnInTheNextLines) {
  const Document read = ReadPython(SourceOf("c.py",
                                            "def run() -> Trainer.Config:\n"
                                            "    config.parallelism.names = [\n"
                                            "        ['a', \"layers.0\"],  # first [\n"
                                            "        [\"layers.1\", \"norm\",],\n    ]\n"
                                            "    config.training.steps = 50\n"));
  ASSERT_EQ(read.settings.size(), 2U);
  EXPECT_EQ(read.settings[0].value, "[[\"a\", \"layers.0\"], [\"layers.1\", \"norm\"]]");
  EXPECT_EQ(read.settings[1].where.line, 6);
}

TEST(SkippedLayers, AreRefusedByTheirFlag) {
  const auto error = [](std::vector<std::string> words) {
    return ErrorOf([&] { Resolve(With(std::move(words))); });
  };
  EXPECT_EQ(error({"--fp8", "current", "--fp8-skip", "1,1"}), "");
  EXPECT_THAT(
      error({"--fp8", "current", "--fp8-skip", "1"}),
      AllOf(HasSubstr("--fp8-skip: '1' is no number of layers"), HasSubstr("--fp8-skip 1,1")));
  EXPECT_THAT(error({"--fp8", "current", "--fp8-skip", "-1,1"}), HasSubstr("is no number"));
  EXPECT_THAT(error({"--fp8-skip", "1,1"}), HasSubstr("need products in 8 bits in the others"));
  EXPECT_THAT(error({"--fp8", "current", "--fp8-skip", "16,16"}),
              HasSubstr("skip the first 16 and the last 16 of 32 layers"));
}

// Megatron-Bridge's configuration of mixed precision replaces what overrides set of the model (training/config.py, setup()).
TEST(Bridge, ProductsInEightBitsAreMembersOfItsPrecision) {
  const std::vector<File> files = FilesOf(
      MakeBundle(CaseOf(Resolve(With({"--fp8", "current", "--fp8-skip", "1,2"}))), kBridge));
  const auto text = [&](const std::string& name) {
    const auto at = std::ranges::find(files, name, &File::name);
    return at == files.end() ? "" : at->text;
  };
  EXPECT_THAT(text("train.sh"),
              AllOf(HasSubstr("mixed_precision.fp8=hybrid"),
                    HasSubstr("mixed_precision.num_layers_at_end_in_bf16=2"),
                    HasSubstr("\"$here/run_orrery.py\""), Not(HasSubstr("model.fp8")),
                    Not(HasSubstr("mixed_precision=bf16_mixed"))));
  EXPECT_THAT(text("run_orrery.py"),
              HasSubstr("config.mixed_precision = get_mixed_precision_config(\"bf16_mixed\")"));
}

TEST(Bridge, NamesOfItsPrecisionsAreRead) {
  const auto read = [](const std::string& name) {
    const Imported imported =
        Import({SourceOf("x.sh",
                         "torchrun --nproc-per-node 8 run_recipe.py --recipe llama3_8b "
                         "model.tensor_model_parallel_size=2 train.micro_batch_size=1 "
                         "mixed_precision=" +
                             name + "\n")},
               std::nullopt);
    std::string all;
    for (const char* field : {"precision", "fp8", "fp8_skip", "fp8_weights"}) {
      const auto at = imported.values.find(field);
      all += (all.empty() ? "" : " ") + (at == imported.values.end() ? "-" : at->second.text);
    }
    return all;
  };
  EXPECT_EQ(read("bf16_with_fp8_current_scaling_mixed"), "bf16 current 1,1 on");
  EXPECT_EQ(read("fp16-with-fp8-delayed-scaling-mixed"), "fp16 delayed - on");
  EXPECT_EQ(read("bf16_with_fp8_subchannel_scaling_mixed"), "bf16 blockwise - off");
  EXPECT_EQ(read("bf16_mixed"), "bf16 - - -");
}

// Megatron-Bridge's LoRA has whole products, CanonicalLoRA their parts (peft/lora.py, peft/canonical_lora.py).
TEST(BridgeAdapters, PartsOfProductsAreCanonicalLoras) {
  const auto files = [](const char* targets) {
    return FilesOf(MakeBundle(
        CaseOf(Resolve(With({"--lora-rank", "16", "--lora-targets", targets}))), kBridge));
  };
  const auto text = [](const std::vector<File>& all, const std::string& name) {
    const auto at = std::ranges::find(all, name, &File::name);
    return at == all.end() ? "" : at->text;
  };
  const std::vector<File> parts = files("q_proj,v_proj");
  EXPECT_THAT(text(parts, "run_orrery.py"), HasSubstr("config.peft = CanonicalLoRA()"));
  EXPECT_THAT(text(parts, "train.sh"),
              AllOf(HasSubstr("\"$here/run_orrery.py\""), HasSubstr("--mode lora"),
                    HasSubstr("peft.target_modules=[linear_q,linear_v]"),
                    HasSubstr("llama3_8b_peft_config"), HasSubstr("PRETRAINED:?"),
                    Not(HasSubstr("a2a_experimental"))));
  const std::vector<File> whole = files("linear_qkv,linear_proj");
  EXPECT_EQ(text(whole, "run_orrery.py"), "");
  EXPECT_THAT(text(whole, "train.sh"),
              AllOf(HasSubstr("scripts/training/run_recipe.py"), HasSubstr("--mode lora"),
                    Not(HasSubstr("--dataset mock"))));
}

TEST(BridgeAdapters, PartsBesideWholeProductsAreNotExpressed) {
  const Bundle bundle = MakeBundle(
      CaseOf(Resolve(With({"--lora-rank", "16", "--lora-targets", "q_proj,linear_fc1"}))), kBridge);
  EXPECT_EQ(FieldOf(bundle, "lora_targets").status, Status::kNotExpressed);
}

TEST(BridgeAdapters, PartsComeBack) {
  const Case before =
      CaseOf(Resolve(With({"--lora-rank", "8", "--lora-targets", "q_proj,k_proj,gate_proj"})));
  std::vector<std::string> words = {"--topology", "dgx-h100", "--model", "llama3-8b"};
  for (const std::string& path : Write(FilesOf(MakeBundle(before, kBridge))))
    if (path.ends_with("train.sh")) words.insert(words.end(), {"--from", path});
  EXPECT_EQ(CaseOf(Resolve(words)).work.lora.targets, before.work.lora.targets);
}

// calib/profiles/framework: models of HuggingFace under DeepSpeed or FSDP, which are other kernels than Megatron's under these.
TEST(Frameworks, ATrainerTrainsModelsOfHuggingFace) {
  const auto framework = [](const std::string& more) {
    return Import(
               {SourceOf("args.json",
                         R"({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, )"
                         R"("bf16": true)" +
                             more + "}")},
               std::nullopt)
        .framework;
  };
  EXPECT_EQ(framework(R"(, "fsdp": "full_shard auto_wrap")"), "huggingface@fsdp");
  EXPECT_EQ(framework(R"(, "deepspeed": {"zero_optimization": {"stage": 3}})"), "huggingface");
  EXPECT_EQ(framework(""), "ddp");
}

// What nothing says is the program's default, and said as that (transformers: TrainingArguments.bf16 and fp16; Megatron: bf16 and
// fp16 of arguments.py).
TEST(Precisions, OfTrainersIsFp32ByDefault) {
  const std::string size = "\"per_device_train_batch_size\": 2, \"num_train_epochs\": 1";
  const auto read = [](const std::string& text) {
    return Import({SourceOf("t.json", text)}, std::nullopt, {});
  };
  const auto precision = [](const Imported& imported) {
    return imported.values.contains("precision") ? imported.values.at("precision").text : "";
  };
  const auto said = Contains(HasSubstr("t.json:1: precision fp32, the Trainer's default"));
  const Imported plain = read("{" + size + "}");
  EXPECT_EQ(precision(plain), "fp32");
  EXPECT_THAT(plain.notes, said);
  for (const char* type : {"bf16", "fp16"}) {
    const Imported half = read("{" + size + ", \"" + type + "\": true}");
    EXPECT_EQ(precision(half), type);
    EXPECT_THAT(half.notes, Not(said));
  }
  EXPECT_EQ(precision(read("{" + size + ", \"torch_dtype\": \"bfloat16\"}")), "bf16");
  const auto call = [](const std::string& name) {
    return Import({SourceOf("t.py", "from x import y\na = " + name +
                                        "(output_dir='o', per_device_train_batch_size=2)\n")},
                  std::nullopt, {});
  };
  EXPECT_EQ(precision(call("TrainingArguments")), "fp32");
  EXPECT_EQ(precision(call("SFTConfig")), "");  // bf16 or fp32, by TRL's release
}

TEST(Precisions, OfMegatronIsFp32ByDefault) {
  const auto notes = [](const std::string& more) {
    return Import({SourceOf("m.sh",
                            "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 "
                            "--hidden-size 64 --num-attention-heads 2 --seq-length 64 "
                            "--max-position-embeddings 64 --micro-batch-size 1 "
                            "--global-batch-size 8 " +
                                more + "\n")},
                  std::nullopt, {})
        .notes;
  };
  const auto said = Contains(HasSubstr("m.sh:1: precision fp32, Megatron's default"));
  EXPECT_THAT(notes(""), said);
  EXPECT_THAT(notes("--bf16"), Not(said));
}

}  // namespace
}  // namespace orrery::exchange
