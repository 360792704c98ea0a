// SPDX-License-Identifier: Apache-2.0
// Recomputation by module and by layer: its text, which ops a plan repeats, what the forward pass keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/plan/ir/op.h"
#include "model/plan/ir/usage.h"
#include "model/plan/ir/verify.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/micro_batch.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

ModelSpec EightLayers() {
  ModelSpec model;
  model.name = "small";
  model.layers = 8;
  model.hidden = 16;
  model.heads = model.kv_heads = 4;
  model.head_dim = 4;
  model.ffn = 32;
  model.gated = true;
  model.activation = Activation::kSwiglu;
  model.norm = Norm::kRmsNorm;
  model.positions = Positions::kRotary;
  model.vocab = 64;
  model.tied_embeddings = false;
  return model;
}

Workload EightTokens() {
  Workload work;
  work.seq_len = 8;
  work.global_batch = 8;
  return work;
}

ir::Plan LoweredWith(const std::string& recompute, Strategy strategy = {}) {
  strategy.recompute = *ReadRecompute(recompute);
  LowerResult result = Lower(EightLayers(), EightTokens(), strategy);
  EXPECT_TRUE(std::holds_alternative<ir::Plan>(result)) << recompute;
  return std::get<ir::Plan>(std::move(result));
}

// Ops of a kind that are repeated, by the layers they belong to.
std::multiset<int> Repeated(const ir::Plan& plan, ir::OpKind kind) {
  std::multiset<int> layers;
  for (const ir::Program& program : plan.programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops) {
        if (op.phase == ir::Phase::kRecompute && op.kind == kind) layers.insert(op.layer);
      }
    }
  }
  return layers;
}

// Bytes of layers that a micro-batch holds from its forward to its backward pass.
int64_t Kept(const ir::Plan& plan) {
  int64_t bytes = 0;
  for (const ir::Program& program : plan.programs) {
    const ir::Usage usage = ir::AnalyseUsage(program);
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const ir::Buffer& buffer = program.buffers[b];
      if (buffer.life != ir::Life::kStep && usage.blocks_of[b].size() > 1)
        bytes += ir::BufferBytes(buffer);
    }
  }
  return bytes;
}

TEST(RecomputeText, ComesBack) {
  for (const char* text : {"none", "selective", "full", "layernorm", "mlp", "mlp_act", "full:5",
                           "full/2", "core_attn+layernorm+mlp", "selective:3", "layernorm+mlp_act",
                           "full:6/2", "op", "op/2", "key_proj+attn_proj", "layernorm+mlp_up"}) {
    const auto read = ReadRecompute(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(RecomputeText(*read), text);
  }
  EXPECT_EQ(ReadRecompute("core_attn"), Recompute::kSelective);
  EXPECT_EQ(ReadRecompute("mlp+layernorm"), ReadRecompute("layernorm+mlp"));
  for (const char* text : {"", "ful", "full:0", "full:", "full/x", "full:-1", "none:2", "mlp+",
                           "mlp,act", "full:5:6", "full:99999999999"})
    EXPECT_FALSE(ReadRecompute(text)) << text;
}

TEST(Recompute, RepeatsWhatTheModulesName) {
  using ir::OpKind;
  using testing::SizeIs;
  const std::map<std::string, std::array<std::size_t, 4>> expected = {
      // norms, attentions, activations, products
      {"none", {0, 0, 0, 0}},    {"selective", {0, 8, 0, 0}}, {"layernorm", {16, 0, 0, 0}},
      {"mlp_act", {0, 0, 8, 0}}, {"mlp", {0, 0, 8, 8}},       {"layernorm+mlp", {16, 0, 8, 8}},
      {"full", {16, 8, 8, 24}},  {"full:3", {6, 3, 3, 9}},    {"full/2", {8, 4, 4, 12}},
      {"mlp:2", {0, 0, 2, 2}},   {"full:5/2", {4, 2, 2, 6}}};
  for (const auto& [text, count] : expected) {
    SCOPED_TRACE(text);
    const ir::Plan plan = LoweredWith(text);
    EXPECT_THAT(Repeated(plan, OpKind::kRmsNorm), SizeIs(count[0]));
    EXPECT_THAT(Repeated(plan, OpKind::kAttn), SizeIs(count[1]));
    EXPECT_THAT(Repeated(plan, OpKind::kSwiglu), SizeIs(count[2]));
    EXPECT_THAT(Repeated(plan, OpKind::kMatmul), SizeIs(count[3]));
    EXPECT_TRUE(ir::Verify(plan).empty());
  }
}

TEST(Recompute, WholeMlpsOfSoftwareThatDoesNotStopEarly) {
  Strategy reruns;
  reruns.recompute_unread = true;
  EXPECT_EQ(Repeated(LoweredWith("mlp", reruns), ir::OpKind::kMatmul).size(), 16u);
  reruns.tp = 2;
  EXPECT_EQ(Repeated(LoweredWith("mlp", reruns), ir::OpKind::kAllReduce).size(), 8u);
}

Strategy Split() {
  Strategy s;
  s.split_products = true;
  return s;
}

// torchtitan's choice by operation: of wq wk wv wo w1 w3 w2 every second product runs again, with norms, activations,
// positions and the sum behind attention.
TEST(Recompute, EverySecondProductByOp) {
  using ir::OpKind;
  using testing::SizeIs;
  const ir::Plan plan = LoweredWith("op", Split());
  EXPECT_TRUE(ir::Verify(plan).empty());
  EXPECT_THAT(Repeated(plan, OpKind::kMatmul), SizeIs(3 * 8));
  EXPECT_THAT(Repeated(plan, OpKind::kRmsNorm), SizeIs(2 * 8));
  EXPECT_THAT(Repeated(plan, OpKind::kRope), SizeIs(8));
  EXPECT_THAT(Repeated(plan, OpKind::kBiasResidual), SizeIs(8));
  EXPECT_THAT(Repeated(plan, OpKind::kSwiglu), SizeIs(8));
  EXPECT_THAT(Repeated(plan, OpKind::kAttn), SizeIs(0));
  EXPECT_THAT(Repeated(LoweredWith("op/2", Split()), OpKind::kMatmul), SizeIs(3 * 4));
  // What ranks have reduced is kept: the output projection does not run again.
  Strategy ranks = Split();
  ranks.tp = 2, ranks.sequence_parallel = true;
  const ir::Plan shared = LoweredWith("op", ranks);
  EXPECT_TRUE(ir::Verify(shared).empty());
  EXPECT_THAT(Repeated(shared, OpKind::kMatmul), SizeIs(2 * 8));
  EXPECT_THAT(Repeated(shared, OpKind::kReduceScatter), SizeIs(0));
}

// Of a layer's two gathers for products, Megatron makes each a second time for the gradients of the weights; software
// that keeps them has none there, and one of each where the backward pass makes the products again.
TEST(Recompute, GatheredSequencesAreKeptOrGatheredAgain) {
  const auto gathers = [](const char* recompute, bool kept) {
    Strategy s = Split();
    s.tp = 2, s.sequence_parallel = true, s.gathers_kept = kept;
    const ir::Plan plan = LoweredWith(recompute, s);
    EXPECT_TRUE(ir::Verify(plan).empty());
    int count = 0;
    for (const ir::Block& block : plan.programs.front().blocks)
      count += static_cast<int>(std::ranges::count_if(block.ops, [](const ir::Op& op) {
        return op.kind == ir::OpKind::kAllGather && op.layer >= 0 &&
               op.phase != ir::Phase::kForward;
      }));
    return count;
  };
  constexpr int kLayers = 8, kOfGradients = 2 * kLayers;
  for (const char* none : {"none", "core_attn", "full", "op"}) {
    const int again = std::string(none) == "full" || std::string(none) == "op" ? 2 * kLayers : 0;
    EXPECT_EQ(gathers(none, false), kOfGradients + again + 2 * kLayers) << none;
    EXPECT_EQ(gathers(none, true), kOfGradients + again) << none;
  }
  // Norms alone run again: what was gathered of them is gone.
  EXPECT_EQ(gathers("layernorm", true), kOfGradients + 2 * kLayers);
}

// Of queries, keys and values, and of gate and up: the gradient of what they read, by themselves or as their sum.
TEST(Recompute, GradientsOfAnInputAreReducedOnceOrByProduct) {
  const auto reductions = [](bool sequence, bool apart) {
    Strategy s = Split();
    s.tp = 2, s.sequence_parallel = sequence, s.reduces_apart = apart;
    const ir::Plan plan = LoweredWith("none", s);
    EXPECT_TRUE(ir::Verify(plan).empty());
    const auto kind = sequence ? ir::OpKind::kReduceScatter : ir::OpKind::kAllReduce;
    int count = 0;
    for (const ir::Block& block : plan.programs.front().blocks)
      count += static_cast<int>(std::ranges::count_if(block.ops, [&](const ir::Op& op) {
        return op.kind == kind && op.layer >= 0 && op.phase == ir::Phase::kBackward;
      }));
    return count;
  };
  for (const bool sequence : {false, true}) {
    EXPECT_EQ(reductions(sequence, false), 2 * 8);
    EXPECT_EQ(reductions(sequence, true), 5 * 8);
  }
}

TEST(Recompute, TakesTheFirstLayersOfEachChunk) {
  Strategy chunks;
  chunks.pp = 2, chunks.vpp = 2, chunks.schedule = PipelineSchedule::kInterleaved;
  EXPECT_THAT(Repeated(LoweredWith("full:1", chunks), ir::OpKind::kSwiglu),
              testing::ElementsAre(0, 2, 4, 6));
  chunks.vpp = 1, chunks.schedule = PipelineSchedule::k1F1B;
  EXPECT_THAT(Repeated(LoweredWith("full:1", chunks), ir::OpKind::kSwiglu),
              testing::ElementsAre(0, 4));
  EXPECT_THAT(Repeated(LoweredWith("full/3", chunks), ir::OpKind::kSwiglu),
              testing::ElementsAre(2, 6));
}

// Per layer in bf16, by hand: rows x width x 2 bytes, statistics in fp32.
TEST(Recompute, ForwardKeepsWhatItDoesNotRepeat) {
  constexpr int64_t kRows = 8, kH = 16, kF = 32, kHeads = 4, kLayers = 8;
  constexpr int64_t norms = 2 * kRows * (2 * kH + 4), act = kRows * 2 * kF,
                    inner = kRows * 2 * 2 * kF, attention = kRows * (2 * kH + 4 * kHeads),
                    qkv = kRows * 2 * 3 * kH, middle = kRows * 2 * kH;
  const int64_t all = Kept(LoweredWith("none"));
  const auto dropped = [&](const std::string& text) { return all - Kept(LoweredWith(text)); };
  EXPECT_EQ(dropped("layernorm"), kLayers * norms);
  EXPECT_EQ(dropped("mlp_act"), kLayers * act);
  EXPECT_EQ(dropped("mlp"), kLayers * (act + inner));
  EXPECT_EQ(dropped("selective"), kLayers * attention);
  EXPECT_EQ(dropped("core_attn+layernorm+mlp"), kLayers * (norms + act + inner + attention));
  const int64_t layer = norms + act + inner + attention + qkv + middle;
  EXPECT_EQ(dropped("full"), kLayers * layer);
  EXPECT_EQ(dropped("full:3"), 3 * layer);
  EXPECT_EQ(dropped("full/2"), 4 * layer);
  // Products of their own keep as much; by op, keys, the stream behind attention and up are gone, too.
  EXPECT_EQ(Kept(LoweredWith("none", Split())), all);
  EXPECT_EQ(all - Kept(LoweredWith("op", Split())),
            kLayers * (norms + act + qkv / 3 + middle + inner / 2));
}

TEST(Recompute, WhatMeansNothingIsRefused) {
  const auto reason = [](ModelSpec model, const std::string& text) {
    Strategy s;
    s.recompute = *ReadRecompute(text);
    const auto refused = CheckStrategy(model, EightTokens(), s);
    return refused ? refused->reason : "";
  };
  EXPECT_EQ(reason(EightLayers(), "layernorm+mlp"), "");
  EXPECT_THAT(reason(EightLayers(), "mlp+mlp_act"), testing::HasSubstr("a part of it"));
  EXPECT_THAT(reason(EightLayers(), "full+mlp"), testing::HasSubstr("single modules"));
  EXPECT_EQ(reason(EightLayers(), "attn_proj"), "");
  EXPECT_THAT(reason(EightLayers(), "op"), testing::HasSubstr("splits products"));
  EXPECT_THAT(reason(EightLayers(), "core_attn+attn_proj"),
              testing::HasSubstr("what core_attn does not keep"));
  ModelSpec parallel = EightLayers();
  parallel.parallel = true;
  EXPECT_THAT(reason(parallel, "attn_proj"), testing::HasSubstr("in front of the MLP"));
  ModelSpec post = EightLayers();
  post.input_norm = false;
  EXPECT_THAT(reason(post, "layernorm"), testing::HasSubstr("no norms in front"));
}

// Prices of some layers: of both kinds, by their number.
TEST(Recompute, MicroBatchesKnowHowManyLayersAreTaken) {
  ModelSpec model = EightLayers();
  Strategy s;
  s.pp = 2;
  s.recompute = *ReadRecompute("full:3");
  const MicroBatchKey key = KeyOf(model, s);
  EXPECT_EQ(key.recomputed, 6);
  const auto lowered = LowerMicroBatch(model, EightTokens(), key);
  const auto& micro = std::get<MicroBatchPlan>(lowered);
  ASSERT_EQ(micro.kinds.size(), 2u);
  EXPECT_DOUBLE_EQ(micro.kinds[0].count, 6);
  EXPECT_DOUBLE_EQ(micro.kinds[1].count, 2);
  EXPECT_THAT(Repeated(micro.plan, ir::OpKind::kSwiglu), testing::ElementsAre(0));
  s.pp = 1;
  s.recompute = *ReadRecompute("full/3");
  EXPECT_EQ(KeyOf(model, s).recomputed, 2);
}

}  // namespace
}  // namespace orrery
