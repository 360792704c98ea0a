// SPDX-License-Identifier: Apache-2.0
// What each framework offers and how it completes a strategy.
#include "model/framework/presets.h"

#include <gmock/gmock.h>

#include "model/base/diagnostics.h"
#include "model/framework/profile.h"
#include "model/hardware/nccl_release.h"

namespace orrery {
namespace {

TEST(Presets, EveryFrameworkHasACostProfile) {
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    EXPECT_NO_THROW(SelectFrameworkProfile(preset.name, "selene", true)) << preset.name;
    EXPECT_NE(preset.description, "");
    EXPECT_FALSE(preset.zero.empty());
    EXPECT_FALSE(preset.recompute.empty());
  }
}

TEST(Presets, AnUnknownNameSuggestsTheNearest) {
  try {
    FindFramework("megatrom");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("megatron"), std::string::npos) << error.what();
  }
}

// Its refusals send users of other frameworks here.
TEST(Presets, OrreryOffersEachModuleThatPlansRecompute) {
  Strategy s;
  for (const Recompute recompute :
       {Recompute::kByOp, Recompute{kRecomputeKeys}, Recompute{kRecomputeOut},
        Recompute{kRecomputeUp}, Recompute{kRecomputeCoreAttention | kRecomputeMlp}}) {
    s.recompute = recompute;
    EXPECT_EQ(FindFramework("orrery").Refuses(s), "");
  }
}

TEST(Presets, RefusalsNameTheMissingAxis) {
  Strategy s;
  s.dp = 8;
  EXPECT_EQ(FindFramework("ddp").Refuses(s), "");
  s.zero = 1;
  EXPECT_EQ(FindFramework("ddp").Refuses(s), "ddp has no ZeRO stage 1");
  EXPECT_EQ(FindFramework("megatron").Refuses(s), "");
  s.zero = 2;
  s.pp = 2;
  EXPECT_EQ(FindFramework("deepspeed").Refuses(s),
            "deepspeed runs pipelines only with ZeRO up to stage 1");
  EXPECT_EQ(FindFramework("orrery").Refuses(s), "");
  s.pp = 1;
  s.tp = 2;
  EXPECT_EQ(FindFramework("fsdp").Refuses(s), "fsdp has no tensor parallelism");
}

TEST(Presets, CompletingKeepsDegreesAndSetsKnobs) {
  Strategy s;
  s.tp = 4;
  s.micro_batch = 3;
  s.dp = 2;
  s.zero = 1;
  const Strategy megatron = FindFramework("megatron").Complete(s, Precision::kBf16);
  EXPECT_EQ(megatron.tp, 4);
  EXPECT_EQ(megatron.micro_batch, 3);
  EXPECT_TRUE(megatron.fp32_grads);
  EXPECT_TRUE(megatron.reduce_in_backward);
  EXPECT_FALSE(FindFramework("megatron").Complete(s, Precision::kFp16).fp32_grads);
  s.zero = 3;
  EXPECT_FALSE(FindFramework("deepspeed").Complete(s, Precision::kBf16).fp32_grads);
  s.zero = 1;
  EXPECT_FALSE(FindFramework("deepspeed").Complete(s, Precision::kBf16).fp32_grads);
  s.zero = 0;
  EXPECT_TRUE(FindFramework("deepspeed").Complete(s, Precision::kBf16).fp32_grads);
}

TEST(Presets, RecipesSayWhichWeightsAreHeldInEightBits) {
  const auto held = [](const char* framework, Fp8 recipe) {
    Workload work;
    work.fp8 = recipe;
    return FindFramework(framework).Complete(Strategy{}, work).fp8_weights;
  };
  EXPECT_TRUE(held("nemo", Fp8::kDelayed));
  EXPECT_TRUE(held("nemo", Fp8::kCurrent));
  EXPECT_FALSE(held("nemo", Fp8::kBlockwise));
  EXPECT_FALSE(held("nemo", Fp8::kOff));
  EXPECT_FALSE(held("nemo+fp8_weights=off", Fp8::kDelayed));
  EXPECT_FALSE(held("megatron", Fp8::kDelayed));
  Strategy copies;  // of all weights on each rank
  copies.dp = 8;
  Workload delayed;
  delayed.fp8 = Fp8::kDelayed;
  EXPECT_FALSE(FindFramework("nemo").Complete(copies, delayed).fp8_weights);
  EXPECT_EQ(FindFramework("nemo").Refuses(copies), "");
  EXPECT_THAT(FindFramework("nemo+fp8_weights=delayed").Refuses(copies),
              ::testing::HasSubstr("holds weights in 8 bits with ZeRO 1 or more alone"));
  EXPECT_TRUE(FindFramework("orrery+fp8_weights=delayed").Complete(copies, delayed).fp8_weights);
  copies.zero = 1;
  EXPECT_EQ(FindFramework("nemo+fp8_weights=delayed").Refuses(copies), "");
  EXPECT_TRUE(held("megatron+fp8_weights=blockwise,mxfp8", Fp8::kBlockwise));
  EXPECT_FALSE(held("megatron+fp8_weights=blockwise,mxfp8", Fp8::kMxfp8));  // of ZeRO 1 and 2
  Workload work;
  work.fp8 = Fp8::kMxfp8;
  Strategy sharded;
  sharded.dp = 2;
  for (sharded.zero = 0; sharded.zero <= 3; ++sharded.zero) {
    const FrameworkPreset& preset = FindFramework("megatron+fp8_weights=mxfp8");
    EXPECT_EQ(preset.Complete(sharded, work).fp8_weights, sharded.zero == 1 || sharded.zero == 2);
  }
  EXPECT_FALSE(held("torchtitan", Fp8::kCurrent));
  Workload adapters;
  adapters.fp8 = Fp8::kDelayed;
  adapters.lora = {16, 32, kLoraAll};
  EXPECT_FALSE(FindFramework("nemo").Complete(Strategy{}, adapters).fp8_weights);
}

TEST(Presets, CompletingKeepsContextAndExpertParallelism) {
  Strategy s;
  s.cp = 2;
  s.ep = 4;
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    const Strategy complete = preset.Complete(s, Precision::kBf16);
    EXPECT_EQ(complete.cp, 2) << preset.name;
    EXPECT_EQ(complete.ep, 4) << preset.name;
    EXPECT_EQ(complete.ranks(), s.ranks()) << preset.name;
  }
}

TEST(Presets, DropoutIsTheFrameworksOwnExceptForGatedModels) {
  ModelSpec gpt, llama;
  llama.gated = true;
  EXPECT_EQ(FindFramework("megatron").DropoutOf(gpt), 0.1);
  EXPECT_EQ(FindFramework("megatron").DropoutOf(llama), 0);
  EXPECT_EQ(FindFramework("fsdp").DropoutOf(gpt), 0);
}

TEST(Presets, PipelineFrameworksScatterWhatTheySend) {
  EXPECT_TRUE(FindFramework("megatron").Complete({}, Precision::kBf16).scatter_gather);
  EXPECT_TRUE(FindFramework("deepspeed").Complete({}, Precision::kBf16).scatter_gather);
  for (const char* whole : {"orrery", "nanotron", "torchtitan", "kempnerforge"})
    EXPECT_FALSE(FindFramework(whole).Complete({}, Precision::kBf16).scatter_gather) << whole;
}

// The file states the release whose search for channels is written here; the two may not drift apart.
TEST(Presets, FollowTheReleaseOfNcclWhoseSearchForChannelsIsHere) {
  EXPECT_EQ(FindFramework("megatron").nccl, nccl::kOwnRelease);
  EXPECT_EQ(FindFramework("torchtitan").nccl, nccl::kOwnRelease);
}

}  // namespace
}  // namespace orrery
