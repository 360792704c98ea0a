// SPDX-License-Identifier: Apache-2.0
// Enumerates legal strategies and draws their options.
#include "tests/parity/grid.h"

#include <algorithm>
#include <random>

namespace orrery::parity {
namespace {

constexpr Recompute kRecomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};

void DrawOptions(std::mt19937_64* random, Case* c) {
  const auto below = [&](uint64_t n) { return static_cast<int>((*random)() % n); };
  Strategy& s = c->strategy;
  s.overlap_grad_reduce = below(2) != 0;
  s.overlap_param_gather = below(2) != 0;
  s.reduce_in_backward = below(2) != 0;
  s.tp_async = below(2) != 0;
  s.scatter_gather = below(2) != 0;
  s.bucket_layers = 1 + below(2);
  s.prefetch = below(3);
  s.rings = below(2) != 0;
  s.recv_slots = s.vpp > 1 ? 1 + below(2) : below(3);
  s.send_slots = 1 + below(3);
  s.frame_pool = below(2) != 0;
  s.flash_attention = below(2) != 0;
  s.fp32_grads = below(2) != 0;
  s.recompute_unread = below(2) != 0;
  s.whole_logits = below(3) == 0;
  s.whole_embedding = below(3) == 0;
  s.whole_head = below(3) == 0;
  s.free_head = s.zero == 3 && below(3) == 0;
  if (s.recompute != Recompute::kNone && below(2) != 0) {
    // Any set of modules that can be named, of some of the layers.
    constexpr int kSets[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16};
    s.recompute.modules = static_cast<unsigned char>(kSets[below(12)]);
    s.recompute.first = below(3);
    s.recompute.every = 1 + below(2);
  }
  s.split_products = c->job->split_products;
  if (s.split_products && below(2) != 0) {
    constexpr int kSets[] = {kRecomputeKeys,
                             kRecomputeOut,
                             kRecomputeUp,
                             Recompute::kByOp.modules,
                             kRecomputeNorms | kRecomputeUp,
                             kRecomputeCoreAttention | kRecomputeKeys};
    s.recompute.modules = static_cast<unsigned char>(kSets[below(6)]);
  }
  if (c->job->work.lora.on() && s.tp > 1 && c->job->work.lora.rank % s.tp == 0) {
    s.adapter_split = static_cast<AdapterSplit>(below(3));
    s.adapter_gathers = s.adapter_split != AdapterSplit::kRows && below(2) != 0;
  }
  c->uniform_dtype = below(4) != 0;  // mixed element sizes cost twice the time
  c->order_seed = (*random)();
  s.reduce_once = s.zero >= 2 && below(3) == 0;
  s.gathers_kept = below(2) != 0;
  s.reduces_apart = below(2) != 0;
}

std::vector<Strategy> Degrees(int ranks) {
  std::vector<Strategy> all;
  for (int tp = 1; tp <= ranks; ++tp) {
    for (int pp = 1; tp * pp <= ranks; ++pp) {
      if (ranks % (tp * pp) != 0) continue;
      const int data = ranks / (tp * pp);
      for (int outer = 1; outer <= data; ++outer) {
        if (data % outer != 0) continue;
        Strategy s;
        s.tp = tp;
        s.pp = pp;
        s.dp_outer = outer;
        s.dp = data / outer;
        if (outer == 1 || s.dp > 1) all.push_back(s);  // hybrid sharding shards over something
      }
    }
  }
  return all;
}

// The choices that stand beside the degrees; illegal combinations are sieved out by CheckStrategy.
std::vector<Strategy> WithChoices(const Strategy& degrees) {
  std::vector<Strategy> all;
  for (int zero = 0; zero <= (degrees.shards() > 1 ? 3 : 0); ++zero) {
    for (const bool sequence : {false, true}) {
      for (int schedule = 0; schedule < 5; ++schedule) {
        for (int recompute = 0; recompute < 3; ++recompute) {
          Strategy s = degrees;
          s.zero = zero;
          s.sequence_parallel = sequence;
          s.schedule = static_cast<PipelineSchedule>(schedule);
          const bool chunks = s.schedule == PipelineSchedule::kInterleaved ||
                              s.schedule == PipelineSchedule::kZeroBubbleV;
          s.vpp = chunks ? 2 : 1;
          s.recompute = kRecomputes[recompute];
          const bool distinct = s.pp > 1 || s.schedule == PipelineSchedule::k1F1B;
          if (distinct) all.push_back(s);
        }
      }
    }
  }
  return all;
}

// With some of the replicas turned into ranks that share sequences.
std::vector<Strategy> SharedDegrees(int ranks) {
  std::vector<Strategy> all;
  for (const Strategy& whole : Degrees(ranks)) {
    for (int cp = 2; cp <= whole.dp; ++cp) {
      if (whole.dp % cp != 0) continue;
      for (const CpMethod method :
           {CpMethod::kAllGather, CpMethod::kRing, CpMethod::kUlysses, CpMethod::kA2aRing}) {
        for (int inner = 1; inner <= (method == CpMethod::kA2aRing ? cp : 1); ++inner) {
          for (const bool zigzag : {false, true}) {
            Strategy s = whole;
            s.dp /= cp;
            s.cp = cp;
            s.context = {method, inner, zigzag};
            all.push_back(s);
          }
        }
      }
    }
  }
  return all;
}

std::vector<Case> GridOver(const std::vector<Strategy>& all, const Job& job, int ranks,
                           uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + static_cast<uint64_t>(ranks));
  std::vector<Case> cases;
  for (const Strategy& degrees : all) {
    for (const Strategy& choice : WithChoices(degrees)) {
      for (const int64_t micro_batches : {1, 2, 3, 4, 6}) {
        const int64_t samples = job.work.global_batch / choice.data_parallel();
        if (job.work.global_batch % choice.data_parallel() != 0 || samples % micro_batches != 0)
          continue;
        Case c{&job, choice};
        c.strategy.micro_batch = static_cast<int>(samples / micro_batches);
        DrawOptions(&random, &c);
        if (choice.cp > 1) c.strategy.flash_attention = true;
        if (!CheckStrategy(job.model, job.work, c.strategy)) cases.push_back(c);
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<Case> Grid(const Job& job, int ranks, uint64_t seed) {
  return GridOver(Degrees(ranks), job, ranks, seed);
}

std::vector<Case> ContextGrid(const Job& job, int ranks, uint64_t seed) {
  return GridOver(SharedDegrees(ranks), job, ranks, seed);
}

std::vector<Case> Sample(const std::vector<Case>& cases, size_t count, uint64_t seed) {
  std::vector<Case> chosen = cases;
  std::mt19937_64 random(seed);
  std::shuffle(chosen.begin(), chosen.end(), random);
  if (chosen.size() > count) chosen.resize(count);
  return chosen;
}

}  // namespace orrery::parity
