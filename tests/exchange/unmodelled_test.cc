// SPDX-License-Identifier: Apache-2.0
// What plans do not have of a file is named, apart from what has no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// Of a Megatron command with these flags.
std::string Refused(const std::string& flags) { return Error({{"x.sh", kGpt + flags}}); }
Imported One(const char* name, const std::string& text) { return Read({{name, text}}); }

// It was noted as other types, which nobody had named.
TEST(Megatron, ThePrecisionAwareOptimizerIsToldFromItsTypes) {
  const std::string aware = "--use-precision-aware-optimizer ",
                    zero = "--use-distributed-optimizer ";
  const auto notes = [](const std::string& arguments) {
    return One("x.sh", kGpt + arguments).notes;
  };
  const auto alone = AllOf(HasSubstr("x.sh:1: use-precision-aware-optimizer alone keeps all types"),
                           HasSubstr("2 bytes less per parameter of a shard"));
  EXPECT_THAT(notes(aware + zero + "--bf16"), Contains(alone));
  EXPECT_THAT(notes(aware + zero + "--bf16 --exp-avg-dtype fp32"), Contains(alone));
  EXPECT_THAT(notes(aware + zero + "--fp16"), Not(Contains(HasSubstr("precision-aware"))));
  EXPECT_THAT(notes(aware + zero + "--bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype fp8"),
              Contains(AllOf(HasSubstr("x.sh:1: not modelled: states of the optimizer in other"),
                             HasSubstr("(exp-avg-dtype bf16, exp-avg-sq-dtype fp8)"))));
  // As OptimizerConfig asserts.
  EXPECT_THAT(Refused(aware + "--bf16"), HasSubstr("without use-distributed-optimizer"));
  EXPECT_THAT(Refused(zero + "--bf16 --exp-avg-dtype bf16"),
              HasSubstr("exp-avg-dtype bf16 without use-precision-aware-optimizer"));
}

TEST(Megatron, WhatIsNotModelledIsNamedOnceWithItsPlaces) {
  const Imported read =
      One("x.sh", std::string(kGpt) + "--enable-cuda-graph \\\n --cuda-graph-impl local");
  EXPECT_THAT(read.notes, Contains("x.sh:1, x.sh:2: not modelled: CUDA graphs; the prediction is "
                                   "without"));
  // Defaults of what is not there.
  EXPECT_THAT(One("x.sh", std::string(kGpt) + "--moe-router-topk 2 --softmax-type vanilla "
                                              "--cuda-graph-scope full --cuda-graph-impl none")
                  .notes,
              Not(Contains(HasSubstr("not modelled"))));
}

// They were "without effect".
TEST(Megatron, WhatChangesAJobIsNotWithoutEffect) {
  for (const char* flags :
       {"--fp8-dot-product-attention", "--transformer-impl local", "--no-rope-fusion",
        "--no-bias-swiglu-fusion", "--no-gradient-accumulation-fusion", "--reset-attention-mask",
        "--ddp-num-buckets 4", "--offload-optimizer-states", "--distribute-saved-activations",
        "--cross-entropy-loss-fusion", "--use-sharp", "--spec a.b c"})
    EXPECT_THAT(One("x.sh", kGpt + std::string(flags)).notes,
                Contains(HasSubstr("x.sh:1: not modelled: ")))
        << flags;
  for (const char* flags : {"--transformer-impl transformer_engine",
                            "--deterministic-mode --no-gradient-accumulation-fusion"})
    EXPECT_THAT(One("x.sh", kGpt + std::string(flags)).notes,
                Not(Contains(HasSubstr("not modelled"))))
        << flags;
  EXPECT_THAT(Refused("--heterogeneous-layers-config-path l.json"),
              HasSubstr("layers of several shapes are not modelled"));
  // A gate in front of GELU is a third of a block's weights.
  const Imported gated = One("x.sh", std::string(kGpt) + "--quick-geglu");
  EXPECT_TRUE(gated.model->spec.gated);
  EXPECT_NE(gated.model->spec.name, "gpt2-small");
  EXPECT_EQ(One("x.sh", kGpt).model->spec.name, "gpt2-small");
}

// They fell away in silence.
TEST(Megatron, ModulesOfOtherLayersAreNamed) {
  const auto read = [](const std::string& modules) {
    return One("x.sh", std::string(kGpt) +
                           "--recompute-granularity selective \\\n --recompute-modules " + modules);
  };
  const Imported some = read("core_attn moe_act mla_up_proj moe");
  EXPECT_EQ(some.values.at("recompute").text, "selective");  // core_attn alone
  EXPECT_THAT(some.notes,
              Contains("x.sh:2: recompute-modules: the model has no layers for "
                       "moe_act (of layers with experts, without which Megatron refuses it), "
                       "mla_up_proj (of layers with latent attention, without which Megatron "
                       "refuses it), moe (of layers with experts)"));
  EXPECT_EQ(read("moe shared_experts").values.at("recompute").text, "none");
  EXPECT_THAT(read("core_attn layernorm mlp").notes, Not(Contains(HasSubstr("no layers for"))));
  EXPECT_THAT(Refused("--recompute-granularity selective --recompute-modules core_atn"),
              HasSubstr("there is no module 'core_atn'"));
  EXPECT_THAT(Refused("--recompute-granularity selective --recompute-modules mlp full"),
              AllOf(HasSubstr("there is no module 'full'"),
                    HasSubstr("core_attn, layernorm, mlp; whole layers: recompute-granularity")));
  EXPECT_THAT(Refused("--recompute-granularity selective --recompute-modules key_proj"),
              HasSubstr("there is no module 'key_proj'"));
}

// As its arguments assert; the method fell away.
TEST(Megatron, WhatGoesWithOneGranularityAlone) {
  EXPECT_THAT(Refused("--recompute-granularity selective --recompute-method block"),
              AllOf(HasSubstr("x.sh:1:"),
                    HasSubstr("recompute-method block next to recompute-granularity selective")));
  const auto notes = [](const std::string& flags) { return One("x.sh", kGpt + flags).notes; };
  EXPECT_THAT(notes("--recompute-granularity full --recompute-modules mlp"),
              Contains(AllOf(HasSubstr("without effect"), HasSubstr("recompute-modules"))));
  EXPECT_THAT(notes("--recompute-granularity selective --recompute-num-layers 4"),
              Contains(AllOf(HasSubstr("without effect"), HasSubstr("recompute-num-layers"))));
}

// The switch was named as without effect beside the layers that it offloads.
TEST(Megatron, LayersOnTheCpuAreReadWithTheirSwitch) {
  const auto notes = [](const std::string& flags) { return One("x.sh", kGpt + flags).notes; };
  const std::string four = "--cpu-offloading --cpu-offloading-num-layers 4 ";
  EXPECT_EQ(Text(One("x.sh", kGpt + four), "offload"), "activations:4");
  EXPECT_THAT(notes(four), Not(Contains(HasSubstr("cpu-offloading"))));
  EXPECT_THAT(notes(four + "--cpu-offloading-weights"),
              Contains(HasSubstr("not modelled: weights of layers that leave the GPU")));
  // Of no layers.
  EXPECT_THAT(notes("--cpu-offloading"),
              Contains(AllOf(HasSubstr("without effect"), HasSubstr("cpu-offloading"))));
  EXPECT_THAT(
      Refused(four + "--pipeline-model-parallel-size 2"),
      AllOf(HasSubstr("x.sh:1:"), HasSubstr("cpu-offloading-num-layers next to pp 2 (x.sh:1)")));
  EXPECT_THAT(Refused(four + "--recompute-activations"),
              HasSubstr("cpu-offloading-num-layers next to recomputation selective (x.sh:1)"));
}

TEST(Torchtitan, KeysAreNamedAsTheFileHasThem) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto notes = One("t.toml",
                         "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\n"
                         "local_batch_size = 1\n[float8]\nmade_up = true\n")
                         .notes;
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("not known here: "), HasSubstr("float8.made_up"),
                                    Not(HasSubstr("quantize")))));
}

}  // namespace
}  // namespace orrery::exchange::styles
