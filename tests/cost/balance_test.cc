// SPDX-License-Identifier: Apache-2.0
// Splits of the layers over stages and chunks.
#include "model/plan/lower/balance.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace orrery {
namespace {

// A slowdown of 1 says nothing, but has every stage looked at for every layer.
TEST(BalancedStages, StagesThatAreAlikeAreFilledAsIfEachWereLookedAt) {
  int compared = 0;
  for (const int stages : {1, 2, 3, 4, 5, 8, 16}) {
    const std::vector<double> alike(static_cast<std::size_t>(stages), 1.0);
    for (const int chunks : {1, 2, 3}) {
      for (const int64_t layers : {1, 7, 24, 31, 96}) {
        for (const double embedding : {0.0, 0.25, 1.0, 3.4}) {
          for (const double head : {0.0, 0.7, 1.0, 5.0}) {
            if (stages == 1 && chunks == 1) continue;  // a stage without a layer
            const std::vector<int> layout =
                SpreadOverChunks(BalancedStages(layers, stages, chunks, embedding, head), chunks);
            EXPECT_EQ(layout,
                      SpreadOverChunks(
                          BalancedStages(layers, stages, chunks, embedding, head, alike), chunks))
                << layers << " layers, " << stages << " x " << chunks;
            if (layout.empty()) continue;
            EXPECT_EQ(std::accumulate(layout.begin(), layout.end(), 0), layers);
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 300);
}

TEST(BalanceLayers, ChunksAreThoseOfTheWholeList) {
  for (const int pp : {1, 2, 3, 12}) {
    for (const int vpp : {1, 2, 5}) {
      for (const int64_t layers : {1, 24, 70, 71}) {
        for (const int ends : {0, 1, 2, 3}) {
          Strategy s;
          s.pp = pp, s.vpp = vpp;
          s.count_embedding = (ends & 1) != 0, s.count_head = (ends & 2) != 0;
          const std::vector<LayerRange> all = BalanceLayers(layers, s);
          ASSERT_EQ(static_cast<int64_t>(all.size()), ChunksOf(s));
          int64_t held = 0;
          for (std::size_t i = 0; i < all.size(); ++i) {
            EXPECT_EQ(all[i].first, held);
            EXPECT_EQ(all[i].count, LayersOfChunk(layers, s, static_cast<int64_t>(i)));
            held += all[i].count;
          }
          EXPECT_EQ(held, layers);
        }
      }
    }
  }
}

// BLOOM, Le Scao et al. 2022: 70 layers, embedding and head count as one each.
TEST(BalanceLayers, TheEmbeddingAndTheHeadMayWeighAsLayers) {
  Strategy s;
  s.pp = 12;
  s.count_embedding = s.count_head = true;
  std::vector<int64_t> counts;
  for (const LayerRange& range : BalanceLayers(70, s)) counts.push_back(range.count);
  EXPECT_EQ(counts, (std::vector<int64_t>{5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5}));
}

}  // namespace
}  // namespace orrery
