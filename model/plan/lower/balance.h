// SPDX-License-Identifier: Apache-2.0
// Which layers each model chunk of each pipeline stage holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/plan/lower/strategy.h"

namespace orrery {

struct LayerRange {
  int64_t first = 0;
  int64_t count = 0;
};

// One range per virtual stage (chunk * pp + stage). With count_embedding / count_head the embedding and the head
// weigh as one layer each (BLOOM: 70 layers + 2 on 12 stages = 5, 6 x 10, 5). What is left over goes one each to the
// stages after the first, so that the first (most micro-batches in flight) and the last (head) are filled last.
// An explicit layout stands for itself.
std::vector<LayerRange> BalanceLayers(int64_t layers, const Strategy& strategy);
// Layers of one of them, and how many there are.
int64_t LayersOfChunk(int64_t layers, const Strategy& strategy, int64_t virtual_stage);
int64_t ChunksOf(const Strategy& strategy);

// The same of all of them, one after the other: what they have in common is computed once.
class ChunkSplit {
 public:
  ChunkSplit(int64_t layers, const Strategy& strategy);

  int64_t chunks() const { return chunks_; }
  int64_t Layers(int64_t virtual_stage) const {
    if (layout_ != nullptr) return layout_[virtual_stage];
    const bool one_more = virtual_stage > 0 && virtual_stage <= left_over_;
    return each_ + (one_more ? 1 : 0) - (virtual_stage == 0 ? embedding_ : 0) -
           (virtual_stage + 1 == chunks_ ? head_ : 0);
  }

 private:
  const int* layout_;  // of the strategy; null: by the rule
  int64_t chunks_, embedding_, head_;
  int64_t each_ = 0, left_over_ = 0;
};

// The layers of each stage under which the slowest one is as fast as it can be, where the embedding takes `embedding`
// and the head `head` times the time of a layer: one layer after the other goes to the stage with the least work, of
// several to the last, which holds the fewest micro-batches. Layers are alike, so no other split has a faster slowest
// stage. Only the chunks of the embedding and of the head may stay without a layer. Empty: there are too few layers.
// `slowdown`: of kernels, by stage; empty: all are alike. `most`: layers that a stage may have at most; empty: any.
std::vector<int64_t> BalancedStages(int64_t layers, int stages, int chunks, double embedding,
                                    double head, const std::vector<double>& slowdown = {},
                                    const std::vector<int64_t>& most = {});
// The layers of each chunk of stages that hold so many; empty for none.
std::vector<int> SpreadOverChunks(const std::vector<int64_t>& held, int chunks);
// Of two chunks in a V (PipelineSchedule::kZeroBubbleV).
std::vector<int> SpreadInAV(const std::vector<int64_t>& held);

// "7, 14 x 8, 7"
std::string LayoutWords(const std::vector<int>& layout);

}  // namespace orrery
