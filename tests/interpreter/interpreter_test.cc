// SPDX-License-Identifier: Apache-2.0
// The interpreter on small plans written by hand: parity over ranks, and the faults that it must report.
#include "tests/interpreter/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/exec/initial.h"
#include "tests/interpreter/plan_builder.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;
using ir::BufferClass;
using ir::OpKind;
using testing::HasSubstr;
using train::InitialUnit;
using train::InitialValue;

constexpr int64_t kIn = 3, kOut = 2, kSamples = 8;
constexpr int kDp = 1;  // group and axis indices of every plan below: axis 0 stage, axis 1 data

ir::Plan EmptyPlan(int stages, int replicas, int micro_batches) {
  ir::Plan plan;
  plan.mesh.axes = {{"stage", stages}, {"data", replicas}};
  plan.groups = {{"stage", 1}, {"data", 2}, {"all", 3}};
  plan.streams = {"compute", "comm", "send", "recv"};
  plan.params = {{.name = "w0", .shape = {kOut, kIn}, .init_std = 0.5},
                 {.name = "w1", .shape = {kOut, kOut}, .init_std = 0.5}};
  plan.micro_batches = micro_batches;
  return plan;
}

ir::Attrs MatmulAttrs(int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool acc = false) {
  return {{Attr::kM, static_cast<double>(m)},
          {Attr::kN, static_cast<double>(n)},
          {Attr::kK, static_cast<double>(k)},
          {Attr::kTransA, ta},
          {Attr::kTransB, tb},
          {Attr::kAcc, acc}};
}

ir::Attrs LoadAttrs(ir::LoadWhat what, int64_t batch, int64_t h) {
  return {{Attr::kWhat, static_cast<double>(static_cast<int>(what))},
          {Attr::kBatch, static_cast<double>(batch)},
          {Attr::kSeq, 1},
          {Attr::kH, static_cast<double>(h)}};
}

struct Weights {
  ir::ViewId w, g, m, v;
};

Weights AddWeights(ProgramBuilder* b, int32_t param, int64_t elements) {
  const int32_t unit = b->AddUnit({"u", {{param, 0, elements}}, elements, elements});
  return {b->Step("W", elements, BufferClass::kParam, unit),
          b->Step("G", elements, BufferClass::kGrad, unit),
          b->Step("m", elements, BufferClass::kOptimizer, unit),
          b->Step("v", elements, BufferClass::kOptimizer, unit)};
}

// Zeroes loss and gradient; block P.
void EmitBegin(ProgramBuilder* b, const Weights& w, ir::ViewId loss, ir::ViewId norm) {
  b->Block("P");
  for (const ir::ViewId x : {w.g, loss, norm}) b->Emit(OpKind::kZero, {x}, {});
}

void EmitEnd(ProgramBuilder* b, const Weights& w, ir::ViewId loss, ir::ViewId norm, int64_t n,
             int group, bool staged) {
  const auto reduce = [&](ir::ViewId x, int in_group, int32_t tag) {
    ir::Op& op = b->Emit(OpKind::kAllReduce, {x}, {x}, {}, 1);
    op.group = static_cast<int16_t>(in_group);
    op.tag = tag;
  };
  reduce(w.g, kDp, 1);
  const ir::Attrs sum{{Attr::kElements, static_cast<double>(n)},
                      {Attr::kRep, static_cast<double>(n)},
                      {Attr::kWt, 1}};
  b->Emit(OpKind::kSumSq, {norm}, {norm, w.g}, sum);
  reduce(loss, group, 2);
  if (staged) reduce(norm, 0, 3);
  const ir::Attrs adam{{Attr::kElements, static_cast<double>(n)},
                       {Attr::kLr, 0.05},
                       {Attr::kClip, 0.5},
                       {Attr::kBeta1, 0.9},
                       {Attr::kBeta2, 0.99},
                       {Attr::kEps, 1e-8}};
  b->Emit(OpKind::kAdam, {w.w, w.m, w.v}, {w.g, w.w, w.m, w.v, norm}, adam);
}

// One linear layer over `replicas` data-parallel ranks.
ir::Plan DataParallel(int replicas, int micro_batches, ir::Dtype activation = ir::Dtype::kF32) {
  ir::Plan plan = EmptyPlan(1, replicas, micro_batches);
  ProgramBuilder b(0);
  const int64_t batch = kSamples / replicas / micro_batches, n = kIn * kOut;
  const Weights w = AddWeights(&b, 0, n);
  const ir::ViewId loss = b.Step("loss", 1, BufferClass::kScalar),
                   norm = b.Step("gnorm", 1, BufferClass::kScalar);
  const auto act = [&](const char* name, int64_t elements) {
    return b.Add({.name = name, .dtype = activation, .elements = elements});
  };
  const ir::ViewId x = act("x", batch * kIn), t = act("t", batch * kOut),
                   y = act("y", batch * kOut), dy = act("dy", batch * kOut);
  EmitBegin(&b, w, loss, norm);
  b.Block("F0");
  b.Emit(OpKind::kLoad, {x}, {}, LoadAttrs(ir::LoadWhat::kFeatures, batch, kIn)).group = kDp;
  b.Emit(OpKind::kMatmul, {y}, {x, w.w}, MatmulAttrs(batch, kOut, kIn, false, true));
  b.Block("B0");
  b.Emit(OpKind::kLoad, {t}, {}, LoadAttrs(ir::LoadWhat::kTargets, batch, kOut)).group = kDp;
  b.Emit(OpKind::kMse, {dy, loss}, {y, t, loss},
         {{Attr::kElements, static_cast<double>(batch * kOut)}, {Attr::kScale, 1.0 / kSamples}});
  b.Emit(OpKind::kMatmul, {w.g}, {dy, x, w.g}, MatmulAttrs(kOut, kIn, batch, true, false, true));
  b.Block("E");
  EmitEnd(&b, w, loss, norm, n, kDp, false);
  b.Call(0, 0);
  for (int m = 0; m < micro_batches; ++m)
    b.Call(1, m);  // all forward first: activations of several micro-batches
  for (int m = 0; m < micro_batches; ++m) b.Call(2, m);
  b.Call(3, 0);
  plan.programs = {b.Finish()};
  return plan;
}

// Two linear layers, on one rank or as two stages of a pipeline.
ir::Plan TwoLayers(int stages, int micro_batches) {
  ir::Plan plan = EmptyPlan(stages, 1, micro_batches);
  const int64_t batch = kSamples / micro_batches;
  for (int stage = 0; stage < stages; ++stage) {
    ProgramBuilder b(stage);
    const bool first = stage == 0, last = stage == stages - 1;
    // Both stages use one unit shape: w0 and w1 in one unit on one rank, one of them per stage otherwise.
    const int64_t n0 = first ? kOut * kIn : 0, n1 = last ? kOut * kOut : 0;
    ir::Unit unit{"u", {}, n0 + n1, n0 + n1};
    if (first) unit.segments.push_back({0, 0, n0});
    if (last) unit.segments.push_back({1, n0, n1});
    const int32_t u = b.AddUnit(unit);
    const Weights w{b.Step("W", n0 + n1, BufferClass::kParam, u),
                    b.Step("G", n0 + n1, BufferClass::kGrad, u),
                    b.Step("m", n0 + n1, BufferClass::kOptimizer, u),
                    b.Step("v", n0 + n1, BufferClass::kOptimizer, u)};
    const ir::ViewId loss = b.Step("loss", 1, BufferClass::kScalar),
                     norm = b.Step("gnorm", 1, BufferClass::kScalar);
    const ir::ViewId w0 = first ? b.View("W/w0", 0, 0, n0) : -1,
                     g0 = first ? b.View("G/w0", 1, 0, n0) : -1;
    const ir::ViewId w1 = last ? b.View("W/w1", 0, n0, n1) : -1,
                     g1 = last ? b.View("G/w1", 1, n0, n1) : -1;
    const ir::ViewId x = b.Act("x", batch * kIn), h = b.Act("h", batch * kOut),
                     a = b.Act("a", batch * kOut);
    const ir::ViewId y = b.Act("y", batch * kOut), t = b.Act("t", batch * kOut),
                     dy = b.Act("dy", batch * kOut);
    const ir::ViewId da = b.Act("da", batch * kOut), dh = b.Act("dh", batch * kOut);
    const ir::Attrs elements{{Attr::kElements, static_cast<double>(batch * kOut)}};
    const auto transfer = [&](OpKind kind, ir::ViewId view, int delta, int32_t tag) {
      const bool send = kind == OpKind::kSend;
      ir::Op& op = b.Emit(kind, send ? std::vector<ir::ViewId>{} : std::vector{view},
                          send ? std::vector{view} : std::vector<ir::ViewId>{}, {}, send ? 2 : 3);
      op.peer = {0, static_cast<int8_t>(delta)};
      op.tag = tag;
    };
    EmitBegin(&b, w, loss, norm);
    b.Block("F0");
    if (first) {
      b.Emit(OpKind::kLoad, {x}, {}, LoadAttrs(ir::LoadWhat::kFeatures, batch, kIn));
      b.Emit(OpKind::kMatmul, {h}, {x, w0}, MatmulAttrs(batch, kOut, kIn, false, true));
      b.Emit(OpKind::kTanh, {a}, {h}, elements);
    }
    if (first && !last) transfer(OpKind::kSend, a, 1, 10);
    if (last && !first) transfer(OpKind::kRecv, a, -1, 10);
    if (last) b.Emit(OpKind::kMatmul, {y}, {a, w1}, MatmulAttrs(batch, kOut, kOut, false, true));
    b.Block("B0");
    if (last) {
      b.Emit(OpKind::kLoad, {t}, {}, LoadAttrs(ir::LoadWhat::kTargets, batch, kOut));
      ir::Attrs mse = elements;
      mse.Set(Attr::kScale, 1.0 / kSamples);
      b.Emit(OpKind::kMse, {dy, loss}, {y, t, loss}, mse);
      b.Emit(OpKind::kMatmul, {da}, {dy, w1}, MatmulAttrs(batch, kOut, kOut, false, false));
      b.Emit(OpKind::kMatmul, {g1}, {dy, a, g1}, MatmulAttrs(kOut, kOut, batch, true, false, true));
    }
    if (last && !first) transfer(OpKind::kSend, da, -1, 11);
    if (first && !last) transfer(OpKind::kRecv, da, 1, 11);
    if (first) {
      b.Emit(OpKind::kTanhBwd, {dh}, {da, a}, elements);
      b.Emit(OpKind::kMatmul, {g0}, {dh, x, g0}, MatmulAttrs(kOut, kIn, batch, true, false, true));
    }
    b.Block("E");
    EmitEnd(&b, w, loss, norm, n0 + n1, 0, true);
    b.Call(0, 0);
    for (int m = 0; m < micro_batches; ++m) b.Call(1, m);
    for (int m = 0; m < micro_batches; ++m) b.Call(2, m);
    b.Call(3, 0);
    plan.programs.push_back(b.Finish());
  }
  return plan;
}

std::vector<StepResult> Train(const ir::Plan& plan, uint64_t order_seed = 1, int steps = 5) {
  Interpreter interpreter(plan, {.order_seed = order_seed});
  std::vector<StepResult> results;
  for (int s = 0; s < steps; ++s) results.push_back(interpreter.Step());
  return results;
}

void ExpectEqual(const std::vector<StepResult>& a, const std::vector<StepResult>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t s = 0; s < a.size(); ++s) {
    EXPECT_NEAR(a[s].loss, b[s].loss, 1e-12 * b[s].loss) << "step " << s;
    EXPECT_NEAR(a[s].gradient_norm, b[s].gradient_norm, 1e-12 * b[s].gradient_norm) << "step " << s;
  }
}

std::string FaultOf(const ir::Plan& plan) {
  try {
    Train(plan);
  } catch (const PlanFault& fault) {
    return fault.what();
  }
  return "no fault";
}

TEST(Interpreter, FirstLossEqualsADirectComputation) {
  const ir::Plan plan = DataParallel(1, 1);
  const train::DataSpec data;
  double expected = 0;
  std::vector<double> w(kIn * kOut);
  for (int64_t i = 0; i < kIn * kOut; ++i) w[i] = InitialValue(data.seed, plan.params[0], i);
  for (int64_t s = 0; s < kSamples; ++s) {
    std::vector<double> x(kIn), t(kOut);
    ir::Op load;
    load.attrs = LoadAttrs(ir::LoadWhat::kFeatures, 1, kIn);
    train::LoadSynthetic(data, load, {1, s, 0}, x);
    load.attrs = LoadAttrs(ir::LoadWhat::kTargets, 1, kOut);
    train::LoadSynthetic(data, load, {1, s, 0}, t);
    for (int64_t o = 0; o < kOut; ++o) {
      double y = 0;
      for (int64_t i = 0; i < kIn; ++i) y += w[o * kIn + i] * x[i];
      expected += (y - t[o]) * (y - t[o]) / kSamples;
    }
  }
  EXPECT_NEAR(Train(plan, 1, 1)[0].loss, expected, 1e-13);
}

TEST(Interpreter, DataParallelRanksComputeWhatOneRankComputes) {
  const auto reference = Train(DataParallel(1, 1));
  EXPECT_NE(reference[0].loss, reference[1].loss);
  for (const int replicas : {1, 2, 4})
    for (const int micro_batches : {1, 2})
      for (const uint64_t seed : {1, 2, 3})
        ExpectEqual(Train(DataParallel(replicas, micro_batches), seed), reference);
}

TEST(Interpreter, PipelineStagesComputeWhatOneRankComputes) {
  const auto reference = Train(TwoLayers(1, 1));
  for (const int micro_batches : {1, 2, 4, 8})
    for (const uint64_t seed : {1, 2, 3})
      ExpectEqual(Train(TwoLayers(2, micro_batches), seed), reference);
}

TEST(Interpreter, ElementSizesOfTheArenaDoNotChangeResults) {
  const auto reference = Train(DataParallel(2, 2));
  ExpectEqual(Train(DataParallel(2, 2, ir::Dtype::kBf16)), reference);
  ExpectEqual(Train(DataParallel(2, 2, ir::Dtype::kF64)), reference);
}

TEST(Interpreter, SameSeedsSameBits) {
  const auto a = Train(TwoLayers(2, 4), 7), b = Train(TwoLayers(2, 4), 7);
  for (size_t s = 0; s < a.size(); ++s) EXPECT_EQ(a[s].loss, b[s].loss);
}

TEST(Interpreter, ReductionLeftOutIsADisagreementBetweenRanks) {
  ir::Plan plan = DataParallel(2, 1);
  auto& ops = plan.programs[0].blocks[3].ops;
  std::erase_if(ops, [](const ir::Op& op) { return op.kind == OpKind::kAllReduce && op.tag == 2; });
  EXPECT_THAT(FaultOf(plan), HasSubstr("rank 1 has loss"));
}

TEST(Interpreter, DroppedReductionChangesTheNorm) {
  ir::Plan plan = DataParallel(2, 1);
  auto& ops = plan.programs[0].blocks[3].ops;
  std::erase_if(ops, [](const ir::Op& op) { return op.kind == OpKind::kAllReduce && op.tag == 1; });
  EXPECT_THAT(FaultOf(plan), HasSubstr("gradient norm"));
}

TEST(Interpreter, UnwrittenMemoryIsNaN) {
  ir::Plan plan = DataParallel(1, 1);
  std::erase_if(plan.programs[0].blocks[0].ops,
                [](const ir::Op& op) { return op.out[0] == 1; });  // zero of G
  EXPECT_THAT(FaultOf(plan), HasSubstr("gradient norm nan"));
}

TEST(Interpreter, FreedMemoryIsNaN) {
  // Scratch that only the first call writes: in the second its old value must be gone.
  ir::Plan plan = DataParallel(1, 2);
  ir::Program& program = plan.programs[0];
  auto& forward = program.blocks[1].ops;
  const ir::View y = program.views[forward[1].out[0]];
  program.buffers.push_back({.name = "s", .elements = y.elements});
  program.views.push_back({"s", static_cast<int32_t>(program.buffers.size() - 1), 0, y.elements});
  const auto s = static_cast<ir::ViewId>(program.views.size() - 1);
  const ir::ViewId out = forward[1].out[0];
  forward[1] = {.kind = OpKind::kZero, .out = {s}};
  forward.push_back({.kind = OpKind::kAdd, .out = {out}, .in = {s, s}});
  EXPECT_EQ(FaultOf(plan), "no fault");
  forward[1].when = ir::kWhenLast;
  std::vector<ir::Call> calls = ir::Expand(program.schedule);
  calls[1].flags = ir::kWhenLast;
  program.schedule = ir::Compress(calls);
  EXPECT_THAT(FaultOf(plan), HasSubstr("loss nan"));
}

TEST(Interpreter, DifferentCollectivesOfOneGroupAreAMismatch) {
  ir::Plan plan = TwoLayers(2, 1);
  for (ir::Op& op : plan.programs[1].blocks[3].ops)
    if (op.kind == OpKind::kAllReduce && op.tag == 3) op.tag = 4;
  EXPECT_THAT(FaultOf(plan), HasSubstr("different collectives"));
}

TEST(Interpreter, CrosswiseOrderIsADeadlockThatNamesTheHeads) {
  ir::Plan plan = TwoLayers(2, 1);
  auto& calls = plan.programs[1].schedule;  // backward before forward on the last stage
  std::vector<ir::Call> order = ir::Expand(calls);
  std::swap(order[1], order[2]);
  calls = ir::Compress(order);
  const std::string fault = FaultOf(plan);
  EXPECT_THAT(fault, testing::AnyOf(HasSubstr("deadlock"), HasSubstr("nan")));
  plan = TwoLayers(2, 1);
  for (ir::Op& op : plan.programs[1].blocks[1].ops)
    if (op.kind == OpKind::kRecv) op.tag = 99;
  EXPECT_THAT(FaultOf(plan), HasSubstr("deadlock"));
  EXPECT_THAT(FaultOf(plan),
              HasSubstr("rank 1 stream recv F0[0] op 0 recv a | waits for its partners"));
}

TEST(Interpreter, TransferOfAnotherSizeIsAMismatch) {
  ir::Plan plan = TwoLayers(2, 1);
  for (ir::Op& op : plan.programs[0].blocks[1].ops)
    if (op.kind == OpKind::kSend) op.in = {plan.programs[0].blocks[1].ops[0].out[0]};
  EXPECT_THAT(FaultOf(plan), HasSubstr("differ in size"));
}

TEST(InitialUnit, ShardsHoldTheirGlobalElements) {
  ir::Plan plan;
  plan.mesh.axes = {{"t", 2}};
  plan.params = {{.name = "a", .shape = {4, 3}, .shard_dim = 0, .shard_axis = 0, .real_rows = 3},
                 {.name = "b", .shape = {3, 4}, .shard_dim = 1, .shard_axis = 0},
                 {.name = "c", .shape = {2}, .init = ir::Init::kOnes}};
  const ir::Unit unit{"u", {{0, 0, 6}, {1, 6, 6}, {2, 12, 2}}, 16, 12};
  std::vector<double> whole(16), half(8);
  InitialUnit(1, plan, unit, {1}, 0, whole);
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(whole[i], i < 3 ? InitialValue(1, plan.params[0], 6 + i) : 0.0);
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < 2; ++c)
      EXPECT_EQ(whole[6 + r * 2 + c], InitialValue(1, plan.params[1], r * 4 + 2 + c));
  EXPECT_EQ(whole[12], 1);
  EXPECT_EQ(whole[15], 0);
  InitialUnit(1, plan, unit, {1}, 8, half);
  EXPECT_TRUE(std::equal(half.begin(), half.end(), whole.begin() + 8));
}

}  // namespace
}  // namespace orrery::interpreter
