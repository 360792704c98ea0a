// SPDX-License-Identifier: Apache-2.0
// The list of shapes that GPUs are measured at is that of the catalogue's models.
#include "calib/measure/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace orrery {
namespace {

const ModelShape* Find(const std::vector<ModelShape>& shapes, const std::string& op, int64_t m,
                       int64_t n, int64_t k, const std::string& epilogue) {
  const auto at = std::find_if(shapes.begin(), shapes.end(), [&](const ModelShape& row) {
    const DeviceShape& s = row.shape;
    return !s.attention && s.op == op && s.m == m && s.n == n && s.k == k && s.epilogue == epilogue;
  });
  return at == shapes.end() ? nullptr : &*at;
}

TEST(Shapes, CommittedListIsThatOfTheCatalogue) {
  const SourcePtr committed = ReadSource(ORRERY_SOURCE_DIR "/calib/measure/shapes.csv");
  EXPECT_TRUE(committed->text == ShapesCsv(CatalogueShapes()))
      << "make it anew: plan-shapes > calib/measure/shapes.csv";
}

// 8 sequences of 1024 tokens through GPT-2: 12 layers, hidden 768.
TEST(Shapes, ProductsOfGpt2Small) {
  const auto shapes = ShapesOf(LoadModel("gpt2-small"), "gpt2-small");
  for (const auto& [n, k, epilogue] : {std::tuple{2304, 768, "bias"},
                                       {3072, 768, "bias+gelu"},
                                       {768, 3072, "none"},
                                       {768, 768, "none"}}) {
    const ModelShape* row = Find(shapes, "nt", 8192, n, k, epilogue);
    ASSERT_NE(row, nullptr) << n << " " << k << " " << epilogue;
    EXPECT_EQ(row->calls, 12);
  }
  EXPECT_NE(Find(shapes, "nt", 8192, 50257, 768, "none"), nullptr);       // head
  EXPECT_NE(Find(shapes, "tn", 2304, 768, 8192, "accumulate"), nullptr);  // gradient of a weight
  const auto attention = std::count_if(shapes.begin(), shapes.end(), [](const ModelShape& row) {
    return row.shape.attention && row.shape.heads == 12 && row.shape.causal && row.calls == 12;
  });
  EXPECT_EQ(attention, 2);  // forward and backward
}

TEST(Shapes, LargeModelsAreShared) {
  const auto shapes = ShapesOf(LoadModel("gpt3-175b"), "gpt3-175b");
  for (const ModelShape& row : shapes) {
    if (!row.shape.attention) continue;
    EXPECT_EQ(row.shape.heads, 12);  // of 96
  }
}

}  // namespace
}  // namespace orrery
