// SPDX-License-Identifier: Apache-2.0
// How many micro-batches each frame kind holds at the fullest moments of a stage's schedule.
//
// Counts are read from the schedule's own call list. Beyond four rounds of micro-batches a schedule repeats
// itself (GPipe grows with all of them), so that at most that many are walked.
#pragma once

#include <array>
#include <vector>

#include "model/memory/chunk_forms.h"
#include "model/plan/lower/balance.h"

namespace orrery {

inline constexpr int kPlaces = 4;  // ChunkPlace

// Frames of one place and kind alive at one moment: their number, and their number times the chunk's layers.
struct FrameCount {
  int place = 0, kind = 0;
  double frames = 0, layers = 0;
};
struct Moment {
  std::vector<FrameCount> frames;
  int call = 0;       // kind of the call that runs: forward, backward, weight gradient
  int place = 0;      // of its chunk
  double layers = 0;  // of its chunk
};

struct StageSlots {
  int stage = 0;
  // The fullest moments may be before the first backward pass has made its gradients. Where more micro-batches follow,
  // moments as full come again behind it.
  bool before_gradients = false;
  std::array<double, kPlaces> chunks{};       // chunks of the stage by place
  std::array<double, kPlaces> layers{};       // layers of the stage by place
  std::array<double, kPlaces> most_layers{};  // of the fullest chunk of the place
  std::vector<Moment> moments;
  std::array<double, kSlackGroups> slack{};  // slots beyond those in use that the layout adds
};

// The stages that can be fullest: the first two, the last two, the last one with the most layers in its first chunk and the first
// one with the most in all of its chunks; all of them with `every_stage`.
std::vector<StageSlots> CountSlots(const Strategy& strategy, const std::vector<LayerRange>& chunks,
                                   int64_t micro_batches, bool every_stage);

// Micro-batches after which a schedule repeats itself: those of any more follow from those of so many.
int64_t WalkedForSlots(const Strategy& strategy, int64_t micro_batches);
std::vector<StageSlots> SlotsOfMore(std::vector<StageSlots> walked, const Strategy& strategy,
                                    int64_t micro_batches);

}  // namespace orrery
