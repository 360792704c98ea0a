// SPDX-License-Identifier: Apache-2.0
// The strategies of one (nodes, global batch): degrees, then micro-batches, then choices.
#pragma once

#include <cstdint>
#include <vector>

#include "model/hardware/summary.h"
#include "model/twin/search.h"

namespace orrery {

std::vector<int64_t> Divisors(int64_t n);  // ascending

// Sequences per step, from and to.
struct BatchSpan {
  int64_t least = 1, most = 1;
};

// Micro-batches, ascending, that a search over a range of batches looks at: all up to 16, then products of 2, 3 and 5, in
// which kernels gain with size until they hold 2^18 tokens.
std::vector<int> MicroBatchSizes(int64_t seq_len);

// One unit of work of the search: all choices under these degrees and this micro-batch.
struct Split {
  int job = 0;  // which (nodes, global batch)
  int tp = 1, pp = 1;
  int cp = 1;
  int data = 1;  // dp x dp_outer
  int micro_batch = 1;
  int64_t micro_batches = 1;

  int64_t global_batch() const { return int64_t{1} * data * micro_batch * micro_batches; }
};

// How layers are split over the chunks of a pipeline.
enum class LayerSplit {
  kRule,      // as the framework does without being told
  kBalanced,  // BalancedStages() with the times of embedding and head
  kLighter,   // the same with a layer less on the first stage, which holds the most micro-batches
  kFitted,    // balanced as far as each stage's memory allows, where kBalanced does not fit
  kGiven,     // FixedAxes::layout
};

struct ScheduleChoice {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  int vpp = 1;
  LayerSplit split = LayerSplit::kRule;
};

// Of all layers that a choice is for, or of so many quarters of each chunk, from its first layer on.
struct RecomputeChoice {
  Recompute recompute;
  int quarters = 4;
};

struct ShardChoice {
  int zero = 0;
  int dp = 1, dp_outer = 1;
};

// Sequences from which on a search looks at cp unless it is fixed: Llama 3 used it from 8,192 tokens to 131,072 at the
// last stage alone (Grattafiori et al. 2024, section 3.3.2); Megatron-Bridge's recipes from 32,768.
inline constexpr int64_t kLongSequence = 32768;
// Tokens of such a sequence that each of its ranks has at least, there: with fewer no link hides the keys that go round (Liu et
// al. 2023, arXiv:2310.01889, table 2: blocks of 1.0 k on NVLink, more elsewhere), and published runs have 8,192.
inline constexpr int64_t kLeastShare = 1024;
// Of one search. DeepNet's 1,000 layers (Wang et al. 2022, arXiv:2203.00555) are the most that anyone trained.
inline constexpr int64_t kMostSearchedLayers = 1000;
// Chunks of a stage: every number up to here, which is all of a model of up to 254 layers; powers of two beyond.
inline constexpr int64_t kMostChunks = 128;

// What the framework offers and the request leaves open.
class Space {
 public:
  Space(const SearchRequest& request, const FrameworkPreset& preset)
      : request_(request), preset_(preset) {}

  // Degrees with tp x pp x data = ranks under which the fixed axes mean something: ZeRO with data-parallel ranks, chunks
  // with stages, sequence parallelism with tensor-parallel ranks. Tensor parallelism beyond a domain comes last.
  std::vector<Split> Degrees(int64_t ranks, int domain_gpus) const;
  // Micro-batches that divide the samples of a data-parallel rank; empty: the batch does not divide.
  std::vector<Split> Splits(const Split& degrees, int64_t global_batch) const;
  // Of all batches of the range: each micro-batch of MicroBatchSizes(), with as many of them as the largest batch takes.
  std::vector<Split> Splits(const Split& degrees, const BatchSpan& batches) const;
  // The next fewer micro-batches at which a layout of the split may be faster per sequence or fit where it did not; 0: none
  // of a batch in the range. What a step does once is shared by fewer sequences then, so only memory can speak for it:
  // whole rounds of the stages and halves of one are looked at, not every number.
  int64_t FewerMicroBatches(const Split& split, const BatchSpan& batches) const;
  // How the ranks of cp share sequences; `domain_gpus` bounds the inner level of a2a_ring.
  std::vector<ContextLayout> Contexts(int tp, int cp, int domain_gpus) const;
  std::vector<bool> SequenceParallel(int tp, int pp) const;
  std::vector<RecomputeChoice> Recomputes() const;
  // Of a pipeline of so many chunks; nullopt: chunks are so small that fewer quarters or all layers mean the same.
  std::optional<Recompute> Recomputation(const RecomputeChoice& choice, int chunks) const;
  std::vector<ScheduleChoice> Schedules(int pp) const;
  std::vector<ShardChoice> Shards(int pp, int data, int cp = 1) const;
  // Strategies under one split.
  int64_t Choices(const Split& split, int domain_gpus) const;

 private:
  bool LooksAtContext(int64_t cp) const;
  bool LooksAt(const Split& degrees, int64_t micro_batch) const;
  const SearchRequest& request_;
  const FrameworkPreset& preset_;
};

}  // namespace orrery
