// SPDX-License-Identifier: Apache-2.0
// Draws jobs, and drops those that contradict themselves.
#include "bench/engines/random_jobs.h"

#include <algorithm>
#include <array>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/hardware/summary.h"
#include "model/price/host_prices.h"
#include "model/twin/predict.h"
#include "model/twin/space.h"

namespace orrery {
namespace {

constexpr int kTries = 400;
constexpr int64_t kMostNodes = 16, kMostStages = 16, kMostTokens = 4096;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t n) { return random_() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  template <class List>
  const auto& Of(const List& list) {
    return list[Below(std::size(list))];
  }

 private:
  std::mt19937_64 random_;
};

Recompute DrawRecompute(Draw& draw, const FrameworkPreset& preset) {
  Recompute recompute = draw.Of(preset.recompute);
  if (recompute == Recompute::kNone || !draw.OneIn(4)) return recompute;
  if (preset.recompute_first) {
    recompute.first = 1 + static_cast<int>(draw.Below(6));
  } else if (preset.recompute_every) {
    recompute.every = 2;
  }
  return recompute;
}

Offload DrawOffload(Draw& draw, const FrameworkPreset& preset) {
  std::vector<Offload> offered;
  if (preset.offload_optimizer) offered.push_back({1});
  if (preset.offload_share) offered.push_back({0.5});
  if (preset.offload_activations) offered.push_back({0, true});
  if (preset.offload_weights) offered.push_back({1, false, true});
  return offered.empty() || !draw.OneIn(5) ? Offload{} : draw.Of(offered);
}

// Ranks that share sequences, and groups that shard: both out of the data-parallel ranks.
void SplitData(Draw& draw, const FrameworkPreset& preset, Strategy* s) {
  const auto data = static_cast<int>(s->dp);
  const std::vector<int64_t> parts = Divisors(data);
  if (!preset.context.empty() && draw.OneIn(6)) {
    s->cp = static_cast<int>(draw.Of(parts));
    const CpMethod method = draw.Of(preset.context);
    s->context = ContextOf(method, method == CpMethod::kA2aRing && s->cp % 2 == 0 ? 2 : 1);
    s->dp = data / s->cp;
  } else if (preset.hybrid && draw.OneIn(5)) {
    s->dp_outer = static_cast<int>(draw.Of(parts));
    s->dp = data / s->dp_outer;
  }
}

Strategy DrawLayout(Draw& draw, const FrameworkPreset& preset, const ClusterSummary& cluster) {
  Strategy s;
  const int64_t ranks = cluster.ranks();
  std::vector<int64_t> tp = Divisors(ranks);
  std::erase_if(tp,
                [&](int64_t d) { return d > cluster.domain_gpus() || (d > 1 && !preset.tensor); });
  s.tp = static_cast<int>(draw.Of(tp));
  std::vector<int64_t> pp = preset.pipeline() ? Divisors(ranks / s.tp) : std::vector<int64_t>{1};
  std::erase_if(pp, [](int64_t d) { return d > kMostStages; });
  s.pp = static_cast<int>(draw.Of(pp));
  s.dp = static_cast<int>(ranks / s.tp / s.pp);
  SplitData(draw, preset, &s);
  s.zero = s.shards() > 1 ? draw.Of(preset.zero) : 0;
  if (s.pp > 1) s.schedule = draw.Of(preset.schedules);
  if (s.schedule == PipelineSchedule::kInterleaved) s.vpp = 2 + static_cast<int>(draw.Below(2));
  if (s.schedule == PipelineSchedule::kZeroBubbleV) s.vpp = 2;
  s.sequence_parallel = s.tp > 1 && preset.sequence && draw.OneIn(2);
  s.recompute = DrawRecompute(draw, preset);
  s.offload = DrawOffload(draw, preset);
  s.micro_batch = 1 << draw.Below(4);
  return s;
}

void DrawWork(Draw& draw, const FrameworkPreset& preset, const GpuProfile& gpu, Workload* work) {
  std::vector<Precision> precisions;
  for (const Precision p :
       {Precision::kBf16, Precision::kBf16, Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    if (gpu.Peak(p).value > 0) precisions.push_back(p);
  }
  work->precision = draw.Of(precisions);
  constexpr std::array kOptimizers = {Optimizer::kAdam, Optimizer::kAdam, Optimizer::kAdamW,
                                      Optimizer::kLamb, Optimizer::kSgd};
  work->optimizer = draw.Of(kOptimizers);
  if (work->precision == Precision::kBf16 && !preset.fp8.empty() && draw.OneIn(8)) {
    const Fp8 recipe = draw.Of(preset.fp8);
    std::string hint;
    if (gpu.WhyNo(recipe, &hint).empty()) work->fp8 = recipe;
  }
}

void DrawFabric(Draw& draw, TopologySpec* topology) {
  constexpr std::array kFabrics = {"efa", "tcp"};
  if (draw.OneIn(6)) topology->fabric_profile = draw.Of(kFabrics);
}

// Raffel et al. 2020, table 14.
ModelSpec T5Large() {
  ModelSpec model = LoadModel("t5-small").spec;
  model.name = "t5-large";
  model.layers = model.decoder_layers = 24;
  model.hidden = 1024;
  model.ffn = 4096;
  model.heads = model.kv_heads = 16;
  return model;
}

// But for one: another name in the list changes every plan that is drawn, and those that were found with errors before would
// be out of sight.
std::vector<std::string> DrawnTopologies() {
  std::vector<std::string> names = TopologyNames();
  std::erase(names, "pcie-h200-8");
  return names;
}

LoadedModel DrawModel(Draw& draw, DrawnJobs kind) {
  static const std::vector<std::string> all = ModelNames();
  if (kind == DrawnJobs::kCatalogue) return LoadModel(draw.Of(all));
  constexpr std::array kFirst = {"gpt2-small", "gpt2-medium", "gpt2-xl",  "bert-large",
                                 "llama2-7b",  "llama3-8b",   "t5-small", "t5-large"};
  const std::string name = draw.Of(kFirst);
  if (name != "t5-large") return LoadModel(name);
  LoadedModel loaded = LoadModel("t5-small");
  loaded.spec = T5Large();
  return loaded;
}

void DrawNodes(Draw& draw, DrawnJobs kind, SearchRequest* request) {
  const bool any = kind == DrawnJobs::kUsers;
  const int64_t nodes =
      any && draw.OneIn(2) ? 1 + static_cast<int64_t>(draw.Below(16)) : int64_t{1} << draw.Below(5);
  request->nodes = {std::min({kMostNodes, request->topology.max_nodes, nodes})};
  if (any && draw.OneIn(2)) {
    const int most = Summarise(request->topology, 1).gpus_per_node;
    request->gpus_per_node =
        1 + static_cast<int>(draw.Below(static_cast<uint64_t>(std::min(most, 8))));
  }
}

std::string GpusOf(const SearchRequest& request) {
  return request.gpus_per_node == 0 ? "" : "-" + std::to_string(request.gpus_per_node) + "gpus";
}

// False: what was drawn contradicts itself.
bool DrawInto(Draw& draw, DrawnJobs kind, RandomJob* drawn) {
  static const std::vector<std::string> topologies = DrawnTopologies(),
                                        frameworks = FrameworkNames();
  SearchRequest& request = drawn->request;
  const LoadedModel loaded = DrawModel(draw, kind);
  request.model = loaded.spec;
  request.topology = LoadTopology(draw.Of(topologies));
  DrawFabric(draw, &request.topology);
  request.framework = draw.Of(frameworks);
  DrawNodes(draw, kind, &request);
  request.work.seq_len = std::min(loaded.defaults.seq_len.value_or(1024), kMostTokens);
  drawn->profiles = LoadProfiles(request);
  const GpuProfile& gpu = drawn->profiles.gpu;
  const FrameworkPreset& preset = FindFramework(request.framework);
  DrawWork(draw, preset, gpu, &request.work);
  FollowFramework(drawn->profiles.framework, &request.work);
  request.flash_attention =
      request.work.precision != Precision::kFp32 && preset.FusedAttention(gpu).has_value();
  const ClusterSummary cluster =
      Summarise(request.topology, request.nodes[0], request.gpus_per_node);
  Strategy layout = DrawLayout(draw, preset, cluster);
  if (!preset.Refuses(layout).empty()) return false;
  layout.flash_attention = request.flash_attention;
  layout = preset.Complete(layout, request.work);
  FollowFramework(drawn->profiles.framework, &layout);
  // Any number, which interleaved schedules refuse, and rounds of all stages.
  const int64_t micro_batches = draw.OneIn(3)
                                    ? 1 + static_cast<int64_t>(draw.Below(9))
                                    : layout.pp * (1 + static_cast<int64_t>(draw.Below(6)));
  request.work.global_batch = micro_batches * layout.micro_batch * layout.data_parallel();
  if (CheckStrategy(request.model, request.work, layout)) return false;
  drawn->job = JobOf(request, drawn->profiles, request.nodes[0], request.work.global_batch);
  if (layout.offload.on()) RequireHostPrices(drawn->job.prices(), layout.offload.optimizer > 0);
  drawn->layout = layout;
  drawn->name = request.model.name + " on " + std::to_string(request.nodes[0]) + " x " +
                request.topology.name + GpusOf(request) + " (" + request.topology.fabric_profile +
                "), " + request.framework + ", " +
                DescribeLayout(layout, MicroBatches(request.work, layout)) + ", " +
                NameIn(kPrecisionNames, request.work.precision) + ", " +
                NameIn(kOptimizerNames, request.work.optimizer) +
                (request.work.fp8 == Fp8::kOff
                     ? ""
                     : std::string(", fp8 ") + NameIn(kFp8Names, request.work.fp8)) +
                ", sequences of " + std::to_string(request.work.seq_len);
  return true;
}

}  // namespace

std::unique_ptr<RandomJob> DrawJob(uint64_t seed, uint64_t number, DrawnJobs kind) {
  Draw draw(seed * 1000003 + number);
  for (int tries = 0; tries < kTries; ++tries) {
    auto drawn = std::make_unique<RandomJob>();
    try {
      if (DrawInto(draw, kind, drawn.get())) return drawn;
    } catch (const InputError&) {  // no such GPU profile, an attention that the chip lacks
    }
  }
  return nullptr;
}

}  // namespace orrery
