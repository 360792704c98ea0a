// SPDX-License-Identifier: Apache-2.0
// The op table: names, attribute storage, operation counts against their sources.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "model/plan/ir/op.h"

namespace orrery::ir {
namespace {

TEST(OpTable, EveryKindHasItsOwnNameAndSaneOperandCounts) {
  ASSERT_EQ(OpTable().size(), std::size_t{kOpKinds});
  std::set<std::string> names;
  for (int i = 0; i < kOpKinds; ++i) {
    const OpInfo& info = Info(static_cast<OpKind>(i));
    EXPECT_EQ(static_cast<int>(info.kind), i);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_LE(info.min_in, info.max_in) << info.name;
    EXPECT_LE(info.min_out, info.max_out) << info.name;
    EXPECT_GT(info.max_in + info.max_out, 0) << info.name;
  }
}

TEST(OpTable, AttributeNamesAreUnique) {
  std::set<std::string_view> names = {"tag", "yields", "when"};  // words of the text form
  for (int i = 0; i < kAttrs; ++i) {
    EXPECT_TRUE(names.insert(AttrName(static_cast<Attr>(i))).second) << i;
  }
}

TEST(Attrs, DefaultsAreNotStored) {
  Attrs attrs = {{Attr::kWt, 1}, {Attr::kAxis, -1}, {Attr::kN, 0}};
  EXPECT_TRUE(attrs.entries().empty());
  EXPECT_EQ(attrs.Get(Attr::kWt), 1);
  EXPECT_EQ(attrs.Get(Attr::kAxis), -1);
  EXPECT_EQ(attrs.Get(Attr::kScale), 0);
}

TEST(Attrs, OrderOfSettingDoesNotMatter) {
  Attrs one = {{Attr::kM, 2}, {Attr::kLr, 0.5}, {Attr::kK, 3}};
  Attrs two = {{Attr::kK, 4}, {Attr::kLr, 0.5}, {Attr::kK, 3}, {Attr::kM, 2}};
  EXPECT_EQ(one, two);
  two.Set(Attr::kK, 0);
  EXPECT_NE(one, two);
  EXPECT_EQ(two.Get(Attr::kK), 0);
  EXPECT_EQ(two.entries().size(), 2u);
}

Op Make(OpKind kind, Attrs attrs) {
  Op op;
  op.kind = kind;
  op.attrs = std::move(attrs);
  return op;
}

TEST(OpFlops, ProductCountsTwoPerMultiplyAdd) {
  const Attrs attrs = {{Attr::kM, 3}, {Attr::kN, 5}, {Attr::kK, 7}};
  EXPECT_EQ(OpFlops(Make(OpKind::kMatmul, attrs)), 2 * 3 * 5 * 7);
  Attrs with_bias = attrs;
  with_bias.Set(Attr::kBias, 1);
  EXPECT_EQ(OpFlops(Make(OpKind::kMatmul, with_bias)), 2 * 3 * 5 * 7 + 3 * 5);
}

TEST(OpFlops, AttentionBackwardIsTwiceForwardAndRecomputesWithFlash) {
  Attrs attrs = {{Attr::kBatch, 2}, {Attr::kSeq, 128}, {Attr::kNh, 4}, {Attr::kHd, 16}};
  const double forward = OpFlops(Make(OpKind::kAttn, attrs));
  EXPECT_EQ(forward, 4.0 * 2 * 4 * 128 * 128 * 16);
  EXPECT_EQ(OpFlops(Make(OpKind::kAttnBwd, attrs)), 2 * forward);
  attrs.Set(Attr::kFlash, 1);
  EXPECT_EQ(OpFlops(Make(OpKind::kAttn, attrs)), forward);
  EXPECT_EQ(OpFlops(Make(OpKind::kAttnBwd, attrs)), 2.5 * forward);
  attrs.Set(Attr::kCausal, 1);
  EXPECT_EQ(OpFlops(Make(OpKind::kAttn, attrs)), forward / 2);
}

// One GPT layer: 24 B s h^2 (1 + s / 6h) forward (Narayanan et al. 2021, appendix), full attention.
TEST(OpFlops, LayerSumsToThePublishedFormula) {
  const double batch = 2, seq = 64, h = 96, heads = 8, rows = batch * seq;
  const auto product = [&](double n, double k) {
    return OpFlops(Make(OpKind::kMatmul, {{Attr::kM, rows}, {Attr::kN, n}, {Attr::kK, k}}));
  };
  const double attention = OpFlops(
      Make(OpKind::kAttn,
           {{Attr::kBatch, batch}, {Attr::kSeq, seq}, {Attr::kNh, heads}, {Attr::kHd, h / heads}}));
  const double layer =
      product(3 * h, h) + product(h, h) + product(4 * h, h) + product(h, 4 * h) + attention;
  EXPECT_DOUBLE_EQ(layer, 24 * batch * seq * h * h * (1 + seq / (6 * h)));
}

TEST(OpFlops, CrossAttentionUsesBothLengths) {
  const Attrs attrs = {
      {Attr::kBatch, 2}, {Attr::kSeq, 10}, {Attr::kSeqKv, 30}, {Attr::kNh, 4}, {Attr::kHd, 16}};
  EXPECT_EQ(OpFlops(Make(OpKind::kCrossAttn, attrs)), 4.0 * 2 * 4 * 10 * 30 * 16);
}

TEST(OpFlops, CommunicationComputesNothing) {
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter,
                            OpKind::kSend, OpKind::kRecv}) {
    EXPECT_EQ(OpFlops(Make(kind, {{Attr::kElements, 100}})), 0);
  }
  EXPECT_GT(OpFlops(Make(OpKind::kAdam, {{Attr::kElements, 100}})), 0);
}

}  // namespace
}  // namespace orrery::ir
