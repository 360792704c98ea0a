// SPDX-License-Identifier: Apache-2.0
// Reference optimizers by hand-computed steps, on shards, with clipping, loss scale and skipped steps.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/interpreter/op_runner.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;
using ir::Attrs;
using ir::OpKind;

constexpr double kExact = 1e-14;

// Two parameters of two elements (the second exempt from decay), padded to 6.
struct UnitOfTwo {
  ir::Unit unit{"u", {{0, 0, 2}, {1, 2, 2}}, 6, 2};
  std::vector<ir::Param> params{ir::Param{.name = "a", .shape = {2}},
                                ir::Param{.name = "b", .shape = {2}, .decay = false}};
};

TEST(Optimizer, SumOfSquaresWeightsTheReplicatedTail) {
  const Attrs attrs{
      {Attr::kElements, 2}, {Attr::kZaxis, 0}, {Attr::kRep, 3}, {Attr::kWt, 1}, {Attr::kWrep, 0.5}};
  // Second shard: elements 2 and 3 of the unit, of which 3 is replicated.
  EXPECT_DOUBLE_EQ(RunOp({OpKind::kSumSq, attrs, {{10}, {2, 4}}, {1}, {{0, 0}}, {1}})[0][0],
                   10 + 4 + 8);
}

TEST(Optimizer, SgdDecaysClipsAndUnscales) {
  const UnitOfTwo two;
  const Attrs attrs{{Attr::kElements, 6}, {Attr::kLr, 0.1}, {Attr::kWd, 0.5}, {Attr::kClip, 1}};
  const Vector g{4, 0, 4, 0, 0, 0}, w{1, 1, 1, 1, 0, 0};
  // Loss scale 2, scaled norm 20: true norm 10, factor 1/10 on g/2.
  const Vector out =
      RunOp({OpKind::kSgd, attrs, {g, w, {400}, {2}}, {6}, {}, {0}, 1, &two.unit, two.params})[0];
  const double clip = 1 / (10 + 1e-6);
  EXPECT_NEAR(out[0], 1 - 0.1 * (2 * clip + 0.5), kExact);
  EXPECT_NEAR(out[1], 1 - 0.1 * 0.5, kExact);
  EXPECT_NEAR(out[2], 1 - 0.1 * 2 * clip, kExact);  // exempt from decay
  EXPECT_EQ(out[4], 0);
}

TEST(Optimizer, AdamFollowsItsDefinitionOnAShard) {
  const UnitOfTwo two;
  for (const bool decoupled : {false, true}) {
    // Second of two shards of 3: element 3 belongs to b, 4 and 5 are padding.
    const Attrs attrs{
        {Attr::kElements, 3}, {Attr::kLr, 0.1},   {Attr::kWd, 0.5},  {Attr::kBeta1, 0.9},
        {Attr::kBeta2, 0.99}, {Attr::kEps, 1e-8}, {Attr::kZaxis, 0}, {Attr::kDecoupled, decoupled}};
    const auto run = [&](int shard) {
      const Vector g{0.5, 0, 0}, w{2, 2, 2}, m{0.1, 0, 0}, v{0.2, 0, 0};
      return RunOp({OpKind::kAdam,
                    attrs,
                    {g, w, m, v},
                    {3, 3, 3},
                    {{0, 1}, {1, 2}, {2, 3}},
                    {shard},
                    3,
                    &two.unit,
                    two.params});
    };
    const auto out = run(0);
    const double g = decoupled ? 0.5 : 0.5 + 0.5 * 2, m = 0.9 * 0.1 + 0.1 * g,
                 v = 0.99 * 0.2 + 0.01 * g * g;
    const double u = m / (1 - std::pow(0.9, 3)) / (std::sqrt(v / (1 - std::pow(0.99, 3))) + 1e-8);
    EXPECT_NEAR(out[0][0], 2 - 0.1 * (u + (decoupled ? 0.5 * 2 : 0)), kExact);
    EXPECT_NEAR(out[1][0], m, kExact);
    EXPECT_NEAR(out[2][0], v, kExact);
    EXPECT_EQ(run(1)[0][1], 2);  // padding: no gradient, no decay
  }
}

TEST(Optimizer, NonFiniteNormLeavesEverythingUnchanged) {
  const UnitOfTwo two;
  const double inf = std::numeric_limits<double>::infinity();
  const Attrs attrs{{Attr::kElements, 6}, {Attr::kLr, 0.1},   {Attr::kBeta1, 0.9},
                    {Attr::kBeta2, 0.99}, {Attr::kMaster, 1}, {Attr::kClip, 1}};
  const Vector g(6, inf), w(6, 2.0), m(6, 0.25), v(6, 0.5);
  const auto out = RunOp({OpKind::kAdam,
                          attrs,
                          {g, w, m, v, {inf}, {4}},
                          {6, 6, 6, 6},
                          {{1, 1}, {2, 2}, {3, 3}},
                          {0},
                          1,
                          &two.unit,
                          two.params});
  EXPECT_EQ(out, (std::vector<Vector>{w, w, m, v}));
}

TEST(Optimizer, LambScalesEachParameterByItsTrustRatio) {
  const UnitOfTwo two;
  const Attrs attrs{{Attr::kElements, 6}, {Attr::kLr, 0.1},   {Attr::kBeta1, 0.9},
                    {Attr::kBeta2, 0.99}, {Attr::kEps, 1e-8}, {Attr::kWd, 0.5},
                    {Attr::kRep, 2},      {Attr::kWt, 1},     {Attr::kWrep, 0.5}};
  const Vector g{1, -2, 3, -4, 0, 0}, w{3, 4, 0, 0, 0, 0}, zero(6, 0.0);
  const auto dir = RunOp({OpKind::kLambDir,
                          attrs,
                          {g, w, zero, zero},
                          {6, 6, 6, 4},
                          {{0, 2}, {1, 3}},
                          {0},
                          1,
                          &two.unit,
                          two.params});
  // After one step the Adam direction is sign(g); decay adds w/2 to the first parameter only.
  EXPECT_NEAR(dir[2][0], 1 + 1.5, 1e-7);
  EXPECT_NEAR(dir[2][3], -1, 1e-7);
  EXPECT_NEAR(dir[3][0], 25, kExact);
  EXPECT_NEAR(dir[3][1], 2.5 * 2.5 + 1, 1e-6);
  EXPECT_NEAR(dir[3][3], 0.5 * 2, 1e-6);
  const Vector out = RunOp({OpKind::kLambApply,
                            attrs,
                            {dir[2], w, dir[3]},
                            {6},
                            {{0, 1}},
                            {0},
                            1,
                            &two.unit,
                            two.params})[0];
  EXPECT_NEAR(out[0], 3 - 0.1 * 5 / std::sqrt(dir[3][1]) * dir[2][0], 1e-12);
  EXPECT_NEAR(out[3], 0.1, 1e-7);  // zero weights: ratio 1
}

TEST(Optimizer, LambNormsOfShardsAddUp) {
  const UnitOfTwo two;
  Attrs attrs{{Attr::kElements, 6},
              {Attr::kBeta1, 0.9},
              {Attr::kBeta2, 0.99},
              {Attr::kRep, 6},
              {Attr::kWt, 1}};
  const Vector g = Random(6, 1), w = Random(6, 2), zero(6, 0.0);
  const Vector whole = RunOp({OpKind::kLambDir,
                              attrs,
                              {g, w, zero, zero},
                              {6, 6, 6, 4},
                              {},
                              {0},
                              1,
                              &two.unit,
                              two.params})[3];
  attrs.Set(Attr::kElements, 3);
  attrs.Set(Attr::kZaxis, 0);
  Vector sum(4, 0.0);
  for (int k = 0; k < 2; ++k) {
    const auto part = [&](const Vector& x) {
      return Vector(x.begin() + 3 * k, x.begin() + 3 * k + 3);
    };
    sum = Sum(sum, RunOp({OpKind::kLambDir,
                          attrs,
                          {part(g), part(w), part(zero), part(zero)},
                          {3, 3, 3, 4},
                          {},
                          {k},
                          1,
                          &two.unit,
                          two.params})[3]);
  }
  EXPECT_LT(LargestDifference(sum, whole), 1e-12);
}

TEST(Optimizer, LossScaleHalvesOnOverflowAndDoublesAfterTwoThousandSteps) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto run = [](double norm, Vector state) {
    return RunOp({OpKind::kLossScale, {}, {state, {norm}}, {2}, {{0, 0}}})[0];
  };
  EXPECT_EQ(run(inf, {8, 5}), (Vector{4, 0}));
  EXPECT_EQ(run(1, {8, 5}), (Vector{8, 6}));
  EXPECT_EQ(run(1, {8, 1999}), (Vector{16, 2000}));
}

}  // namespace
}  // namespace orrery::interpreter
