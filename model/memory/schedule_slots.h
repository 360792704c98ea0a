// SPDX-License-Identifier: Apache-2.0
// How many micro-batches each frame kind holds at the fullest moments of a stage's schedule.
//
// Counts are read from the schedule's own call list. Beyond four rounds of micro-batches a schedule repeats
// itself (GPipe grows with all of them), so that at most that many are walked.
#pragma once

#include <array>
#include <vector>

#include "model/lower/balance.h"
#include "model/memory/chunk_forms.h"

namespace orrery {

inline constexpr int kPlaces = 4;   // ChunkPlace
// The fullest forward, backward and weight-gradient call, by what forward keeps and by what waits for W.
inline constexpr int kMoments = 6;

// Frames alive at one moment by place and kind: their number, and their number times the chunk's layers.
struct FrameCount {
  double frames = 0, layers = 0;
};
using Moment = std::array<std::array<FrameCount, kFrameKinds>, kPlaces>;

struct StageSlots {
  int stage = 0;
  std::array<double, kPlaces> chunks{};      // chunks of the stage by place
  std::array<double, kPlaces> layers{};      // layers of the stage by place
  std::array<double, kPlaces> most_layers{}; // of the fullest chunk of the place
  std::array<Moment, kMoments> moments{};
  std::array<double, kSlackGroups> slack{};  // slots beyond those in use that the layout adds
};

// The stages that can be fullest: the first two, the last two and the last one with the most layers; all of
// them with `every_stage`.
std::vector<StageSlots> CountSlots(const Strategy& strategy, const std::vector<LayerRange>& chunks, int64_t micro_batches,
                                   bool every_stage);

}  // namespace orrery
