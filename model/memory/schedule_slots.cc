// SPDX-License-Identifier: Apache-2.0
// Walks one stage's calls and keeps the peak of each kind of call.
#include "model/memory/schedule_slots.h"

#include <algorithm>
#include <utility>

#include "model/plan/lower/schedules.h"

namespace orrery {
namespace {

ChunkPlace PlaceOf(int virtual_stage, int virtual_stages) {
  if (virtual_stages == 1) return ChunkPlace::kOnly;
  if (virtual_stage == 0) return ChunkPlace::kFirst;
  return virtual_stage + 1 == virtual_stages ? ChunkPlace::kLast : ChunkPlace::kMiddle;
}

// By place of the chunk: the fullest forward, backward and weight-gradient call, by what forward keeps and by what
// waits for W.
constexpr int kMoments = 2 * kCallKinds * kPlaces;

struct Alive {
  double frames = 0, layers = 0;
};
using AliveTable = std::array<std::array<Alive, kFrameKinds>, kPlaces>;

std::vector<FrameCount> NonZero(const AliveTable& table) {
  std::vector<FrameCount> frames;
  for (int place = 0; place < kPlaces; ++place) {
    for (int kind = 0; kind < kFrameKinds; ++kind) {
      const Alive& alive = table[place][kind];
      if (alive.frames > 0) frames.push_back({place, kind, alive.frames, alive.layers});
    }
  }
  return frames;
}

class SlotWalk {
 public:
  SlotWalk(const Strategy& s, const std::vector<LayerRange>& chunks, int stage)
      : numbers_{s.vpp, SplitsBackward(s.schedule)} {
    slots_.stage = stage;
    for (int c = 0; c < s.vpp; ++c) {
      const int v = VirtualStage(s.schedule == PipelineSchedule::kZeroBubbleV, s.pp, stage, c);
      const double layers = static_cast<double>(chunks[v].count);
      const int place = static_cast<int>(PlaceOf(v, s.pp * s.vpp));
      const bool empty = layers == 0 && place == static_cast<int>(ChunkPlace::kMiddle);
      chunks_.push_back({place, layers, empty});
      if (empty) continue;
      slots_.chunks[place] += 1;
      slots_.layers[place] += layers;
      slots_.most_layers[place] = std::max(slots_.most_layers[place], layers);
    }
  }

  StageSlots Walk(const std::vector<ir::Call>& calls) {
    for (const ir::Call& call : calls) Visit(call.block);
    return Finish();
  }

  StageSlots Gpipe(double micro_batches) {
    for (const ChunkAt& chunk : chunks_) Change(chunk, FrameKind::kFB, micro_batches);
    Keep(0, chunks_[0], FrameKind::kFF);
    Keep(1, chunks_[0], FrameKind::kBB);
    return Finish();
  }

 private:
  struct ChunkAt {
    int place;
    double layers;
    bool empty;  // in the middle and without a layer: what it passes on is left out
  };

  void Change(const ChunkAt& chunk, FrameKind kind, double by) {
    if (chunk.empty) return;
    Alive& count = alive_[chunk.place][static_cast<int>(kind)];
    count.frames += by;
    count.layers += by * chunk.layers;
    if (kind == FrameKind::kFB || kind == FrameKind::kFW) kept_ += by * chunk.layers;
    if (kind == FrameKind::kBW) waiting_ += by * chunk.layers;
  }

  void Visit(int block) {
    const int chunks = numbers_.chunks;
    if (block == numbers_.Begin() || block == numbers_.End()) return;
    const int call = (block - 1) / chunks;  // 0 forward, 1 backward, 2 weight gradient
    const ChunkAt& chunk = chunks_[(block - 1) % chunks];
    if (call == 0) {
      Change(chunk, FrameKind::kFB, 1);
      if (numbers_.split_backward) Change(chunk, FrameKind::kFW, 1);
      Keep(0, chunk, FrameKind::kFF);
    } else if (call == 1) {
      if (numbers_.split_backward) Change(chunk, FrameKind::kBW, 1);
      Keep(1, chunk, FrameKind::kBB);
      Change(chunk, FrameKind::kFB, -1);
    } else {
      Keep(2, chunk, FrameKind::kWW);
      Change(chunk, FrameKind::kFW, -1);
      Change(chunk, FrameKind::kBW, -1);
    }
  }

  // The current moment, with the call's own frame, if it is the fullest of its kind of call.
  void Keep(int call, const ChunkAt& chunk, FrameKind own) {
    if (chunk.empty) return;
    KeepBest(call, {kept_, waiting_}, chunk, own, 0);
    if (numbers_.split_backward) KeepBest(call, {waiting_, kept_}, chunk, own, 1);
  }

  void KeepBest(int call, std::pair<double, double> score, const ChunkAt& chunk, FrameKind own,
                int order) {
    Fullest& fullest = fullest_[(chunk.place * kCallKinds + call) * 2 + order];
    if (score <= fullest.score) return;
    fullest.score = score;
    Change(chunk, own, 1);
    fullest.alive = alive_;
    Change(chunk, own, -1);
    fullest.call = call;
    fullest.place = chunk.place;
    fullest.layers = chunk.layers;
  }

  StageSlots Finish() {
    for (const Fullest& fullest : fullest_) {
      if (fullest.call < 0) continue;
      Moment moment{NonZero(fullest.alive), fullest.call, fullest.place, fullest.layers};
      if (!moment.frames.empty()) slots_.moments.push_back(std::move(moment));
    }
    return std::move(slots_);
  }

  struct Fullest {
    AliveTable alive{};
    std::pair<double, double> score{};
    int call = -1;  // none yet
    int place = 0;  // of its chunk
    double layers = 0;
  };

  const BlockNumbers numbers_;
  std::vector<ChunkAt> chunks_;
  AliveTable alive_{};
  std::array<Fullest, kMoments> fullest_{};
  double kept_ = 0, waiting_ = 0;  // frames times layers
  StageSlots slots_;
};

// Slack slots are added as far as there are micro-batches to fill them.
void LimitSlack(const Strategy& s, int64_t micro_batches, StageSlots* slots) {
  double most = 0;
  for (const Moment& moment : slots->moments) {
    for (const FrameCount& count : moment.frames) most = std::max(most, count.frames);
  }
  const double room = std::max(0.0, static_cast<double>(micro_batches) - most);
  const std::array<int, kSlackGroups> wanted{0, s.recv_slots, s.send_slots - 1};
  for (int g = 0; g < kSlackGroups; ++g) slots->slack[g] = std::min<double>(wanted[g], room);
}

// In plain 1F1B a stage is full again with the first forward pass behind its first backward pass. Others are as full at
// the latest after four rounds.
bool BeforeGradients(const Strategy& s, int stage, int64_t micro_batches) {
  if (s.schedule == PipelineSchedule::kGpipe) return true;
  if (s.schedule == PipelineSchedule::k1F1B && s.vpp == 1) return micro_batches <= s.pp - stage;
  return micro_batches <= int64_t{4} * s.pp;
}

// The first stage with the most layers: of equal ones it holds the most micro-batches.
int FirstWithMost(const Strategy& strategy, const std::vector<LayerRange>& chunks) {
  std::vector<int64_t> held(static_cast<std::size_t>(strategy.pp), 0);
  const bool in_a_v = strategy.schedule == PipelineSchedule::kZeroBubbleV;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const int stage = ChunkAt(in_a_v, strategy.pp, static_cast<int>(i)).stage;
    held[static_cast<std::size_t>(stage)] += chunks[i].count;
  }
  return static_cast<int>(std::ranges::max_element(held) - held.begin());
}

}  // namespace

std::vector<StageSlots> CountSlots(const Strategy& strategy, const std::vector<LayerRange>& chunks,
                                   int64_t micro_batches, bool every_stage) {
  const int pp = strategy.pp;
  int fullest = 0;
  for (int stage = 0; stage < pp; ++stage) {
    if (chunks[stage].count >= chunks[fullest].count) fullest = stage;
  }
  const int first = FirstWithMost(strategy, chunks);
  std::vector<int> stages;
  // At the turn of a V two chunks share a tensor that forms count twice.
  const int last = strategy.schedule == PipelineSchedule::kZeroBubbleV ? pp - 1 : pp;
  for (int stage = 0; stage < last; ++stage) {
    if (every_stage || stage <= 1 || stage + 2 >= pp || stage == fullest || stage == first)
      stages.push_back(stage);
  }
  const auto walked = static_cast<int>(WalkedForSlots(strategy, micro_batches));
  std::vector<StageSlots> all;
  for (const int stage : stages) {
    SlotWalk walk(strategy, chunks, stage);
    if (strategy.schedule == PipelineSchedule::kGpipe) {
      all.push_back(walk.Gpipe(static_cast<double>(micro_batches)));
    } else {
      all.push_back(walk.Walk(StageCalls(strategy, stage, walked)));
    }
  }
  return SlotsOfMore(std::move(all), strategy, micro_batches);
}

int64_t WalkedForSlots(const Strategy& strategy, int64_t micro_batches) {
  const bool repeats = strategy.schedule != PipelineSchedule::kGpipe;
  return repeats ? std::min(micro_batches, int64_t{4} * strategy.pp) : micro_batches;
}

std::vector<StageSlots> SlotsOfMore(std::vector<StageSlots> walked, const Strategy& strategy,
                                    int64_t micro_batches) {
  for (StageSlots& slots : walked) {
    LimitSlack(strategy, micro_batches, &slots);
    slots.before_gradients = BeforeGradients(strategy, slots.stage, micro_batches);
  }
  return walked;
}

}  // namespace orrery
