// SPDX-License-Identifier: Apache-2.0
// What a step keeps with and without fp32 copies of its weights, and losses of whole logits.
#include <gtest/gtest.h>

#include "model/plan/ir/op.h"
#include "model/plan/ir/verify.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

ModelSpec TwoLayers() {
  ModelSpec model;
  model.name = "two layers";
  model.layers = 2;
  model.hidden = 16;
  model.heads = model.kv_heads = 4;
  model.head_dim = 4;
  model.ffn = 64;
  model.vocab = 64;
  model.max_positions = 32;
  model.tied_embeddings = false;
  return model;
}

Workload FourSequences() {
  Workload work;
  work.seq_len = 8;
  work.global_batch = 4;
  return work;
}

ir::Plan PlanOf(const Strategy& strategy, const Workload& work) {
  LowerResult result = Lower(TwoLayers(), work, strategy);
  EXPECT_TRUE(std::holds_alternative<ir::Plan>(result));
  return std::get<ir::Plan>(std::move(result));
}

// Bytes of a class per element of the weights.
double PerWeight(const ir::Plan& plan, ir::BufferClass cls) {
  double bytes = 0, elements = 0;
  const ir::Program& program = plan.programs.front();
  for (const ir::Buffer& buffer : program.buffers) {
    if (buffer.life != ir::Life::kStep || buffer.cls != cls) continue;
    bytes += static_cast<double>(buffer.elements * ir::DtypeBytes(buffer.dtype));
  }
  for (const ir::Unit& unit : program.units) elements += static_cast<double>(unit.elements);
  return bytes / elements;
}

TEST(MasterWeights, AreAMatterOfTheWorkload) {
  Workload work = FourSequences();
  const ir::Plan mixed = PlanOf({}, work);
  EXPECT_EQ(PerWeight(mixed, ir::BufferClass::kParam), 2);
  EXPECT_EQ(PerWeight(mixed, ir::BufferClass::kMaster), 4);
  EXPECT_EQ(PerWeight(mixed, ir::BufferClass::kOptimizer), 8);
  work.master_weights = false;
  const ir::Plan pure = PlanOf({}, work);
  EXPECT_EQ(PerWeight(pure, ir::BufferClass::kParam), 2);
  EXPECT_EQ(PerWeight(pure, ir::BufferClass::kMaster), 0);
  EXPECT_EQ(PerWeight(pure, ir::BufferClass::kOptimizer), 4);
  EXPECT_TRUE(ir::Verify(pure).empty());
  work.precision = Precision::kFp32;
  EXPECT_EQ(PerWeight(PlanOf({}, work), ir::BufferClass::kOptimizer), 8);
}

// ZeRO 1 gathers what it updates: a shard of 16 bits then.
TEST(MasterWeights, ShardsUpdateFromACopyOfTheirType) {
  Workload work = FourSequences();
  work.master_weights = false;
  Strategy sharded;
  sharded.dp = 2, sharded.zero = 1;
  const ir::Plan plan = PlanOf(sharded, work);
  EXPECT_EQ(PerWeight(plan, ir::BufferClass::kMaster), 1);
  EXPECT_TRUE(ir::Verify(plan).empty());
}

// A byte of each weight of products, and its transposed copy; no 16 bits, and gathers of as many bytes.
TEST(WeightsInEightBits, AreAByteAndACopy) {
  Workload work = FourSequences();
  work.seq_len = 16;
  work.fp8 = Fp8::kCurrent;
  Strategy s;
  s.dp = 2, s.zero = 1;
  s.fp8_weights = true;
  const ir::Plan plan = PlanOf(s, work);
  const ir::Program& program = plan.programs.front();
  double held = 0, copies = 0, master = 0, weights = 0, gathered = 0;
  for (const ir::Unit& unit : program.units)
    if (unit.name.starts_with("q")) weights += static_cast<double>(unit.elements);
  const auto bytes = [](const ir::Buffer& b) {
    return static_cast<double>(b.elements * ir::DtypeBytes(b.dtype));
  };
  for (const ir::Buffer& buffer : program.buffers) {
    const bool of_codes = buffer.unit >= 0 && program.units[buffer.unit].name.starts_with("q");
    if (buffer.name.ends_with("@t")) copies += bytes(buffer);
    if (!of_codes || buffer.life != ir::Life::kStep) continue;
    if (buffer.cls == ir::BufferClass::kParam) held += bytes(buffer);
    if (buffer.cls == ir::BufferClass::kMaster) master += bytes(buffer);
  }
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      const ir::Buffer& to =
          program.buffers[program.views[op.out.empty() ? op.in[0] : op.out[0]].buffer];
      if (op.kind == ir::OpKind::kAllGather && to.unit >= 0 &&
          program.units[to.unit].name.starts_with("q"))
        gathered += bytes(to);
      EXPECT_FALSE(op.kind == ir::OpKind::kQuantize && op.in.size() > 1 &&
                   op.attrs.Int(ir::Attr::kFrom) == static_cast<int>(ir::CastFrom::kWeight));
    }
  }
  EXPECT_EQ(weights, 2 * (4 * 16 * 16 + 2 * 16 * 64));
  EXPECT_EQ(held, weights);
  EXPECT_EQ(copies, weights);
  EXPECT_EQ(gathered, weights);
  EXPECT_EQ(master, 2 * weights);  // a half in fp32
}

int Count(const ir::Plan& plan, ir::OpKind kind, ir::Segment segment) {
  int count = 0;
  for (const ir::Block& block : plan.programs.front().blocks) {
    for (const ir::Op& op : block.ops) count += op.kind == kind && op.segment == segment ? 1 : 0;
  }
  return count;
}

// Each tensor rank looks up all tokens in a table of its own, and computes all logits.
TEST(WholeEnds, NeedNoTensorReduction) {
  const Workload work = FourSequences();
  Strategy s;
  s.tp = 2;
  const ir::Plan parts = PlanOf(s, work);
  EXPECT_EQ(Count(parts, ir::OpKind::kAllReduce, ir::Segment::kEmbedding), 1);
  s.whole_embedding = s.whole_head = true;
  const ir::Plan whole = PlanOf(s, work);
  EXPECT_TRUE(ir::Verify(whole).empty());
  EXPECT_EQ(Count(whole, ir::OpKind::kAllReduce, ir::Segment::kEmbedding), 0);
  EXPECT_EQ(Count(whole, ir::OpKind::kAllReduce, ir::Segment::kHead), 0);
  for (const ir::Param& param : whole.params) {
    if (param.name == "wte.w" || param.name == "wlm.w") {
      EXPECT_EQ(param.shard_axis, -1) << param.name;
    }
  }
  s.sequence_parallel = true;
  EXPECT_TRUE(ir::Verify(PlanOf(s, work)).empty());
}

// The output matrix is gathered for the logits, and again behind the loss.
TEST(FreeHead, GathersTheOutputMatrixTwice) {
  const Workload work = FourSequences();
  Strategy s;
  s.dp = 2;
  s.zero = 3;
  const int once = Count(PlanOf(s, work), ir::OpKind::kAllGather, ir::Segment::kHead);
  s.free_head = true;
  const ir::Plan twice = PlanOf(s, work);
  EXPECT_TRUE(ir::Verify(twice).empty());
  EXPECT_EQ(Count(twice, ir::OpKind::kAllGather, ir::Segment::kHead), once + 1);
}

TEST(WholeLogits, AreGatheredInsteadOfReduced) {
  const Workload work = FourSequences();
  Strategy s;
  s.tp = 2;
  const ir::Plan parts = PlanOf(s, work);
  EXPECT_EQ(Count(parts, ir::OpKind::kAllReduce, ir::Segment::kHead), 3);  // maxima, sums, gradient
  EXPECT_EQ(Count(parts, ir::OpKind::kAllGather, ir::Segment::kHead), 0);
  s.whole_logits = true;
  const ir::Plan whole = PlanOf(s, work);
  EXPECT_EQ(Count(whole, ir::OpKind::kAllReduce, ir::Segment::kHead), 1);
  EXPECT_EQ(Count(whole, ir::OpKind::kAllGather, ir::Segment::kHead), 1);
  EXPECT_TRUE(ir::Verify(whole).empty());
  for (const ir::Block& block : whole.programs.front().blocks) {
    for (const ir::Op& op : block.ops) {
      if (op.kind == ir::OpKind::kXentMax) {
        EXPECT_EQ(op.attrs.Get(ir::Attr::kVl), 64);
      }
    }
  }
  // Of each rank's columns alone the gradient goes on.
  EXPECT_EQ(Count(whole, ir::OpKind::kSlice, ir::Segment::kHead), 1);
  s.tp = 1;
  EXPECT_EQ(Count(PlanOf(s, work), ir::OpKind::kRegroup, ir::Segment::kHead), 0);
}

}  // namespace
}  // namespace orrery
