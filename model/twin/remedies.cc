// SPDX-License-Identifier: Apache-2.0
// When nothing fits: single changes to the request, smallest first, each proved by a search of its own.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/text.h"
#include "model/plan/lower/names.h"
#include "model/twin/evaluator.h"
#include "model/twin/explain.h"
#include "model/twin/space.h"

namespace orrery {
namespace {

constexpr std::size_t kEnough = 2;        // suggestions
constexpr int64_t kFarthestBatch = 4096;  // sequences up or down

class RemedyFinder {
 public:
  RemedyFinder(const SearchRequest& request, const Profiles& profiles)
      : request_(request), profiles_(profiles) {
    request_.top = 1;
    request_.run = nullptr;  // that is of its own nodes; the first that fits is wanted
  }

  std::vector<Remedy> Find() {
    FreeAxes();
    if (!GlobalBatch()) {
      Nodes();
      ToTheHost();
    }
    SequenceLength();
    Precision16();
    // The largest change, and the longest search: where the others say enough it is not looked at.
    if (remedies_.size() < kEnough) Framework();
    return std::move(remedies_);
  }

 private:
  using Edit = void (*)(FixedAxes&);

  bool Try(const SearchRequest& changed, const Profiles& profiles, const std::string& change,
           const std::string& flag) {
    try {
      if (!StatesFit(changed, profiles)) return false;
      SearchResult result = SearchOnly(changed, profiles);
      if (!result.feasible()) return false;
      remedies_.push_back({change, flag, std::move(result.ranked.front())});
      return true;
    } catch (const InputError&) {
      return false;  // the change contradicts the rest of the request
    }
  }

  // What the fullest stage holds all through a step takes no search. False: nothing can fit, whatever else a layout chooses.
  static bool StatesFit(const SearchRequest& changed, const Profiles& profiles) {
    const FrameworkPreset& preset = FindFramework(changed.framework);
    MemoryLimits limits = LimitsOf(profiles.gpu, profiles.framework);
    if (changed.memory_limit) limits.capacity = *changed.memory_limit;
    MemoryModel memory(changed.model, changed.work, limits.allocation);
    const Space space(changed, preset);
    const int64_t batch =
        changed.global_batches.empty() ? changed.work.global_batch : changed.global_batches.front();
    for (const int64_t nodes :
         changed.nodes.empty() ? std::vector<int64_t>{changed.topology.nodes} : changed.nodes) {
      const Job job = JobOf(changed, profiles, nodes, batch);
      Evaluator evaluator(changed, preset, limits, job, memory);
      for (Split split : space.Degrees(job.cluster.ranks(), job.cluster.domain_gpus())) {
        split.micro_batch = split.micro_batches = 1;
        if (evaluator.LeastMemory(split) <= limits.capacity.value) return true;
      }
    }
    return false;
  }

  void Free(const char* change, const char* flag, Edit edit) {
    SearchRequest changed = request_;
    edit(changed.fixed);
    if (!Try(changed, profiles_, "", "")) return;
    Remedy& remedy = remedies_.back();
    const Strategy& s = remedy.candidate.strategy;
    const std::string_view axis = flag;
    if (axis == "--micro-batch") remedy.flag = fmt::format("{} {}", flag, s.micro_batch);
    if (axis == "--zero") remedy.flag = fmt::format("{} {}", flag, s.zero);
    if (axis == "--recompute") remedy.flag = fmt::format("{} {}", flag, RecomputeText(s.recompute));
    if (axis == "--tp") remedy.flag = fmt::format("--tp {} --pp {}", s.tp, s.pp);
    remedy.change = change;
  }

  void FreeAxes() {
    const FixedAxes& fixed = request_.fixed;
    if (fixed.micro_batch) {
      Free("a smaller micro-batch", "--micro-batch", [](FixedAxes& f) { f.micro_batch.reset(); });
    }
    if (fixed.recompute)
      Free("more recomputation", "--recompute", [](FixedAxes& f) { f.recompute.reset(); });
    if (fixed.zero) Free("a higher ZeRO stage", "--zero", [](FixedAxes& f) { f.zero.reset(); });
    if (fixed.tp || fixed.pp || fixed.dp) {
      Free("other degrees of parallelism", "--tp", [](FixedAxes& f) {
        f.tp.reset();
        f.pp.reset();
        f.dp.reset();
        f.dp_outer.reset();
        f.vpp.reset();
        f.schedule.reset();
        f.layout = nullptr;
      });
    }
  }

  // A batch that no legal data-parallel degree divides: the nearest one that some degree does.
  bool GlobalBatch() {
    const int64_t now = request_.global_batches.empty() ? request_.work.global_batch
                                                        : request_.global_batches.front();
    if (AnyLegal(now)) return false;
    for (int64_t delta = 1; delta <= kFarthestBatch; ++delta) {
      for (const int64_t batch : {now + delta, now - delta}) {
        if (batch < 1 || !AnyLegal(batch)) continue;
        SearchRequest changed = request_;
        changed.global_batches = {batch};
        if (Try(changed, profiles_, fmt::format("a global batch of {} instead of {}", batch, now),
                fmt::format("--global-batch {}", batch))) {
          return true;
        }
      }
    }
    return false;
  }

  // Degrees alone, with the simplest schedule and micro-batch.
  bool AnyLegal(int64_t batch) {
    const FrameworkPreset& preset = FindFramework(request_.framework);
    const Space space(request_, preset);
    Workload work = request_.work;
    work.global_batch = batch;
    for (const int64_t nodes :
         request_.nodes.empty() ? std::vector<int64_t>{request_.topology.nodes} : request_.nodes) {
      const ClusterSummary cluster = Summarise(request_.topology, nodes, request_.gpus_per_node);
      for (const Split& split : space.Degrees(cluster.ranks(), cluster.domain_gpus())) {
        Strategy s;
        s.tp = split.tp;
        s.pp = split.pp;
        s.cp = split.cp;
        if (s.cp > 1) s.context = preset.DefaultContext();
        s.dp = split.data;
        s.offload = request_.fixed.offload.value_or(Offload{});
        s.micro_batch = request_.fixed.micro_batch.value_or(1);
        if (!CheckStrategy(request_.model, work, s)) return true;
      }
    }
    return false;
  }

  // What the framework can keep in memory of the host, the least that will do.
  void ToTheHost() {
    const FrameworkPreset& preset = FindFramework(request_.framework);
    if (request_.fixed.offload && request_.fixed.offload->on()) return;
    struct Choice {
      bool offered;
      Offload offload;
      const char* what;
    };
    for (const Choice& choice :
         {Choice{preset.offload_optimizer, {.optimizer = 1}, "optimizer states"},
          {preset.offload_activations, {.activations = true}, "activations"},
          {preset.offload_optimizer && preset.offload_activations,
           {.optimizer = 1, .activations = true},
           "optimizer states and activations"},
          {preset.offload_weights,
           {.optimizer = 1, .weights = true},
           "optimizer states and weights"}}) {
      if (!choice.offered) continue;
      SearchRequest changed = request_;
      changed.fixed.offload = choice.offload;
      if (!Try(changed, profiles_, "", "--offload " + OffloadText(choice.offload))) continue;
      Remedy& remedy = remedies_.back();
      const Bytes of_node = remedy.candidate.memory ? remedy.candidate.memory->host_node : Bytes();
      const int64_t ranks = std::min<int64_t>(
          remedy.candidate.strategy.ranks(),
          request_.gpus_per_node > 0 ? request_.gpus_per_node : request_.topology.node.gpus);
      remedy.change = fmt::format("{} in memory of the host, {} of each GPU's", choice.what,
                                  Format(of_node / static_cast<double>(ranks)));
      return;
    }
  }

  void Nodes() {
    const int64_t now = request_.nodes.empty()
                            ? request_.topology.nodes
                            : *std::max_element(request_.nodes.begin(), request_.nodes.end());
    for (const int64_t more : MoreNodes(now)) {
      SearchRequest changed = request_;
      changed.nodes = {more};
      changed.fixed.dp.reset();
      if (Try(changed, profiles_, fmt::format("{} nodes instead of {}", more, now),
              fmt::format("--nodes {}", more)))
        return;
    }
  }

  // One node more up to eight, then doubling up to 64 times as many.
  std::vector<int64_t> MoreNodes(int64_t now) const {
    std::vector<int64_t> counts;
    for (int64_t n = now; n < request_.topology.max_nodes && n < now * 64 && counts.size() < 24;) {
      n = n < 8 ? n + 1 : n * 2;
      if (n <= request_.topology.max_nodes) counts.push_back(n);
    }
    return counts;
  }

  void SequenceLength() {
    for (int64_t length = request_.work.seq_len / 2; length >= 16; length /= 2) {
      SearchRequest changed = request_;
      changed.work.seq_len = length;
      changed.work.masked_positions =
          request_.work.masked_positions * length / request_.work.seq_len;
      if (Try(changed, profiles_,
              fmt::format("sequences of {} tokens instead of {}", length, request_.work.seq_len),
              fmt::format("--seq-len {}", length))) {
        return;
      }
    }
  }

  void Precision16() {
    if (request_.work.precision != Precision::kFp32 && request_.work.precision != Precision::kTf32)
      return;
    const bool bf16 = profiles_.gpu.peak_bf16.value > 0;
    if (!bf16 && profiles_.gpu.peak_fp16.value <= 0) return;
    SearchRequest changed = request_;
    changed.work.precision = bf16 ? Precision::kBf16 : Precision::kFp16;
    Try(changed, profiles_, bf16 ? "bf16 arithmetic" : "fp16 arithmetic",
        bf16 ? "--precision bf16" : "--precision fp16");
  }

  void Framework() {
    for (const char* name : {"deepspeed", "megatron", "orrery"}) {
      if (request_.framework == name || request_.framework == "orrery") continue;
      SearchRequest changed = request_;
      changed.framework = name;
      if (Try(changed, LoadProfiles(changed),
              fmt::format("{} instead of {}", name, request_.framework),
              fmt::format("--framework {}", name))) {
        return;
      }
    }
  }

  SearchRequest request_;
  const Profiles& profiles_;
  std::vector<Remedy> remedies_;
};

}  // namespace

std::vector<Remedy> FindRemedies(const SearchRequest& request, const Profiles& profiles) {
  return RemedyFinder(request, profiles).Find();
}

}  // namespace orrery
