// SPDX-License-Identifier: Apache-2.0
// Axes of a layout from flags: fixed ones for a search, all of them for one strategy.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <sstream>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/exchange/rules.h"
#include "model/hardware/host_order.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/names.h"
#include "model/twin/default_shares.h"

namespace orrery::cli {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostChunks = 4096;

std::optional<int> Small(const Flag& flag, int64_t min, int64_t max, Diagnostics* diagnostics) {
  const std::optional<int64_t> number = ReadInteger(flag, min, max, diagnostics);
  if (!number) return std::nullopt;
  return static_cast<int>(*number);
}

bool Whole(std::string_view text, int64_t least, int64_t* value) {
  return ParseInteger(Trim(text), value) == NumberFault::kNone && *value >= least &&
         *value <= kMostChunks;
}

// "7,14x8,7": 7 layers, 14 times 8, 7; or Megatron's "Et*7|(t*8|)*14t*7L". Throws InputError: no such text of Megatron.
std::shared_ptr<const std::vector<int>> ReadLayout(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return nullptr;
  if (flag.text.find_first_of("|EtL") != std::string::npos) {
    return std::make_shared<const std::vector<int>>(
        exchange::LayersOfMegatronLayout({"--layout", flag.text, flag.where, ""}));
  }
  std::vector<int> chunks;
  std::istringstream pieces(flag.text + ",");
  for (std::string piece; std::getline(pieces, piece, ',');) {
    const std::size_t times = piece.find('x');
    const std::string_view text = piece;
    int64_t count = 1, layers = 0;
    if ((times != std::string::npos && !Whole(text.substr(0, times), 1, &count)) ||
        !Whole(text.substr(times == std::string::npos ? 0 : times + 1), 0, &layers) ||
        static_cast<int64_t>(chunks.size()) + count > kMostChunks) {
      diagnostics->Error(
          flag.where, fmt::format("'{}' is no number of layers", piece),
          fmt::format("numbers from 0 to {}, 14 chunks of 8 as 14x8: 7,14x8,7; or Megatron's "
                      "Et*7|(t*8|)*14t*7L",
                      kMostChunks));
      return nullptr;
    }
    chunks.insert(chunks.end(), static_cast<std::size_t>(count), static_cast<int>(layers));
  }
  return std::make_shared<const std::vector<int>>(std::move(chunks));
}

std::optional<Recompute> ReadRecomputation(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  std::optional<Recompute> read = ReadRecompute(flag.text);
  if (!read) {
    diagnostics->Error(flag.where, fmt::format("there is no recomputation '{}'", flag.text),
                       kRecomputeForms);
  } else if ((read->modules & kRecomputeLayer) != 0 && read->modules != kRecomputeLayer) {
    Recompute parts = *read;
    parts.modules &= static_cast<unsigned char>(~kRecomputeLayer);
    diagnostics->Error(
        flag.where,
        fmt::format("recomputation '{}': full recomputes whole layers, and {} with "
                    "them",
                    flag.text, RecomputeText({parts.modules})),
        fmt::format("{} full, or {} and the rest is kept", flag.name, RecomputeText(parts)));
    return std::nullopt;
  }
  return read;
}

// The flag to point at: the first of them that was given.
const Flag& FirstGiven(std::initializer_list<const Flag*> flags) {
  for (const Flag* flag : flags) {
    if (flag->given) return *flag;
  }
  return **flags.begin();
}

// Which pipelines a layout of so many chunks is of.
std::string FittingStages(int64_t chunks) {
  std::string fits = fmt::format("pp {}", chunks);
  for (int64_t pp = chunks / 2; pp > 1; --pp)
    if (chunks % pp == 0) fits += fmt::format(", pp {} x vpp {}", pp, chunks / pp);
  return fits;
}

// Chunks per stage of a layout that fills them evenly; else 1, and CheckStrategy() says what is wrong.
int ChunksOf(const std::shared_ptr<const std::vector<int>>& layout, int pp) {
  if (!layout || layout->size() % static_cast<std::size_t>(pp) != 0) return 1;
  return std::max(1, static_cast<int>(layout->size()) / pp);
}

ContextLayout ContextLayoutOf(const FixedAxes& axes, const FrameworkPreset& preset) {
  ContextLayout context = preset.DefaultContext();
  if (axes.cp_inner) context = ContextOf(CpMethod::kA2aRing);
  if (axes.cp_method) context = ContextOf(*axes.cp_method);
  context.inner = axes.cp_inner.value_or(1);
  context.zigzag = axes.zigzag.value_or(context.zigzag);
  return context;
}

// Null: the plain one, or it is searched.
std::shared_ptr<const Placement> ReadOrder(const Flag& flag, bool searched,
                                           const FabricSpec* fabric, Diagnostics* diagnostics) {
  if (!flag.given || searched) return nullptr;
  std::optional<std::string> text = flag.text;
  if (fabric != nullptr) {
    NamedNodes reader(*fabric);
    text = reader.InNumbers(flag.text);
    if (!text) {
      diagnostics->Error(flag.where, reader.why, reader.hint);
      return nullptr;
    }
  }
  const std::optional<Placement> read = ReadPlacement(*text);
  if (!read)
    diagnostics->Error(flag.where, fmt::format("there is no placement '{}'", flag.text),
                       fmt::format("search, or {}", kPlacementForms));
  return read && !read->plain() ? std::make_shared<const Placement>(*read) : nullptr;
}

// Published schedules by other names, and those that no plan has, with the reason.
struct OtherSchedule {
  std::string_view name;
  const char *why, *hint;
};
constexpr const char* kNoOverlapOfSteps =
    "is not lowered: its bubble is gone only where stages begin the next step while others end "
    "this one, and here all stages meet at the end of a step (loss, gradient norm, clipping); one "
    "such step alone takes about as long as one of zero-bubble and keeps 2 pp - 1 micro-batches";
constexpr OtherSchedule kOtherSchedules[] = {
    {"zb-h1", "is called zero-bubble here", "--schedule zero-bubble"},
    {"zero-bubble-h1", "is called zero-bubble here", "--schedule zero-bubble"},
    {"zb-v", "is called zero-bubble-v here", "--schedule zero-bubble-v"},
    {"zbv", "is called zero-bubble-v here", "--schedule zero-bubble-v"},
    {"interleaved1f1b", "is called interleaved here", "--schedule interleaved"},  // torchtitan's
    {"zbvzerobubble", "is called zero-bubble-v here", "--schedule zero-bubble-v"},
    {"zb-h2", kNoOverlapOfSteps, "--schedule zero-bubble-v: less bubble than zero-bubble"},
    {"zero-bubble-h2", kNoOverlapOfSteps, "--schedule zero-bubble-v: less bubble than zero-bubble"},
    {"dualpipe", "is not lowered: every stage would hold two parts of the model",
     "--schedule zero-bubble-v"},
    {"dualpipe-v",
     "is not lowered: it weaves the passes of two micro-batches to hide the messages "
     "of experts, which are refused",
     "--schedule zero-bubble-v: the same placement of the layers"},
};

// By the names of TransformerEngine and Megatron (--cp-comm-type).
std::optional<CpMethod> ReadCpMethod(const Flag& flag, Diagnostics* diagnostics) {
  constexpr std::pair<std::string_view, CpMethod> kOthers[] = {{"p2p", CpMethod::kRing},
                                                               {"all_gather", CpMethod::kAllGather},
                                                               {"all-gather", CpMethod::kAllGather},
                                                               {"a2a", CpMethod::kUlysses},
                                                               {"a2a+p2p", CpMethod::kA2aRing}};
  const auto* other = std::ranges::find(kOthers, std::string_view(flag.text),
                                        [](const auto& one) { return one.first; });
  if (!flag.given || other == std::end(kOthers))
    return ReadChoice<CpMethod>(flag, kCpMethodNames, diagnostics);
  const char* const name = NameIn(kCpMethodNames, other->second);
  diagnostics->Error(flag.where,
                     fmt::format("{}: '{}' is called {} here", flag.name, flag.text, name),
                     fmt::format("{} {}", flag.name, name));
  return std::nullopt;
}

std::optional<PipelineSchedule> ReadSchedule(const Flag& flag, Diagnostics* diagnostics) {
  std::string name = flag.text;
  for (char& letter : name)
    letter =
        letter == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const auto* other = std::ranges::find(kOtherSchedules, name, &OtherSchedule::name);
  if (!flag.given || other == std::end(kOtherSchedules))
    return ReadChoice<PipelineSchedule>(flag, report::kScheduleNames, diagnostics);
  diagnostics->Error(flag.where, fmt::format("schedule '{}' {}", flag.text, other->why),
                     other->hint);
  return std::nullopt;
}

}  // namespace

void LayoutFlags::Declare(FlagSet* flags, const char* group) {
  flags->Group(group);
  flags->Value(&tp, "--tp", "N", "tensor parallelism: GPUs that share each layer");
  flags->Value(&pp, "--pp", "N", "pipeline stages");
  flags->Value(&dp, "--dp", "N", "data parallelism: ranks that split the batch");
  flags->Value(&dp_outer, "--dp-outer", "N",
               "hybrid sharding: groups that each hold a full copy of the ZeRO shards");
  flags->Value(&cp, "--cp", "N", "context parallelism: GPUs that share each sequence");
  flags->Value(&cp_method, "--cp-method", "NAME",
               "how they meet each other's keys: allgather, ring, ulysses or a2a_ring",
               Words::kList, NamesOf<CpMethod>(kCpMethodNames));
  flags->Value(&cp_inner, "--cp-inner", "N",
               "a2a_ring: neighbours that change heads for positions, a ring between them");
  flags->Value(&zigzag, "--zigzag", "[on|off]",
               "two chunks of the sequence per GPU, which balances causal attention", Words::kList,
               {"on", "off"});
  flags->Value(&zero, "--zero", "0..3",
               "ZeRO stage: 1 shards the optimizer, 2 also gradients, 3 also weights", Words::kList,
               {"0", "1", "2", "3"});
  flags->Value(&micro_batch, "--micro-batch", "N", "sequences per GPU in one forward pass");
  flags->Value(&schedule, "--schedule", "NAME",
               "pipeline schedule: gpipe, 1f1b, interleaved, zero-bubble or zero-bubble-v (two "
               "chunks per stage, there and back)",
               Words::kList, NamesOf<PipelineSchedule>(report::kScheduleNames));
  flags->Value(&vpp, "--vpp", "N", "model chunks per pipeline stage (interleaved)");
  flags->Value(
      &layout, "--layout", "LIST",
      "layers of each pipeline stage, or of each chunk in the order chunk x stages + "
      "stage: 7,14x8,7, or Megatron's Et*7|(t*8|)*14t*7L; unless told, as the framework does, and "
      "where layers do not divide by chunks the fastest place of the fuller ones; a search moves "
      "layers");
  flags->Value(
      &recompute, "--recompute", "HOW",
      "recompute activations in the backward pass: none, selective, full, op (torchtitan's "
      "choice by operation), modules as core_attn+layernorm+mlp; of the first 5 layers of "
      "each chunk full:5",
      Words::kList, NamesOf<Recompute>(report::kRecomputeNames));
  flags->Value(
      &offload, "--offload", "WHAT",
      "in memory of the host: optimizer (states, and the CPU updates), optimizer:0.5 of "
      "half of the parameters, weights (with ZeRO 3 and the states), activations (activations:20 "
      "of 20 layers); joined by +, as optimizer+weights",
      Words::kList,
      {"none", "optimizer", "activations", "optimizer+activations", "optimizer+weights"});
  flags->Value(
      &sequence_parallel, "--sequence-parallel", "[on|off]",
      "split norms and residuals along the sequence; unless told, as the framework does by itself",
      Words::kList, {"on", "off"});
  flags->Value(
      &placement, "--placement", "ORDER|search",
      "where ranks are: axes from the innermost (tp-cp-dp-pp, the default, or "
      "tp-cp-pp-dp), nodes in the order of ranks (0..3,8..11,4..7), or both with a colon "
      "between them (tp-cp-pp-dp:0..3,8..11,4..7); search: the fastest. Nodes are numbered "
      "as `plan topo` prints them (topologies/README.md), and hosts with names go by "
      "these, too (gpu-b,gpu-a,2..3)",
      Words::kList, {"search", "tp-cp-dp-pp", "tp-cp-pp-dp"});
}

std::vector<Flag*> LayoutFlags::All() {
  return {&tp,      &pp,          &dp,        &dp_outer,          &vpp,
          &zero,    &micro_batch, &recompute, &sequence_parallel, &schedule,
          &layout,  &cp,          &cp_method, &cp_inner,          &zigzag,
          &offload, &placement};
}

bool LayoutFlags::any() const {
  LayoutFlags self = *this;
  const std::vector<Flag*> all = self.All();
  return std::any_of(all.begin(), all.end(), [](const Flag* flag) { return flag->given; });
}

FixedAxes LayoutFlags::Read(const FabricSpec* fabric) const {
  Diagnostics diagnostics;
  FixedAxes axes;
  axes.tp = Small(tp, 1, kMostRanks, &diagnostics);
  axes.pp = Small(pp, 1, kMostRanks, &diagnostics);
  axes.dp = Small(dp, 1, kMostRanks, &diagnostics);
  axes.dp_outer = Small(dp_outer, 1, kMostRanks, &diagnostics);
  axes.cp = Small(cp, 1, kMostRanks, &diagnostics);
  axes.cp_inner = Small(cp_inner, 1, kMostRanks, &diagnostics);
  axes.cp_method = ReadCpMethod(cp_method, &diagnostics);
  axes.zigzag = ReadOnOff(zigzag, &diagnostics);
  axes.vpp = Small(vpp, 1, 1024, &diagnostics);
  axes.zero = Small(zero, 0, 3, &diagnostics);
  axes.micro_batch = Small(micro_batch, 1, 1 << 30, &diagnostics);
  axes.recompute = ReadRecomputation(recompute, &diagnostics);
  if (offload.given) {
    axes.offload = ReadOffload(offload.text);
    if (!axes.offload)
      diagnostics.Error(offload.where, fmt::format("there is no offload '{}'", offload.text),
                        kOffloadForms);
  }
  axes.schedule = ReadSchedule(schedule, &diagnostics);
  axes.sequence_parallel = ReadOnOff(sequence_parallel, &diagnostics);
  axes.layout = ReadLayout(layout, &diagnostics);
  axes.placement = ReadOrder(placement, searches_placement(), fabric, &diagnostics);
  if (axes.layout && axes.pp) {
    const auto chunks = static_cast<int64_t>(axes.layout->size());
    const int64_t known = int64_t{1} * *axes.pp * axes.vpp.value_or(1);
    if (axes.vpp ? chunks != known : chunks % known != 0 || (*axes.pp == 1 && chunks > 1)) {
      diagnostics.Error(
          layout.where,
          fmt::format("the layout names {} chunks, which pp {}{} does not make up; they fit {}",
                      chunks, *axes.pp, axes.vpp ? fmt::format(" x vpp {}", *axes.vpp) : "",
                      FittingStages(chunks)),
          "one number of layers per chunk, in the order chunk x stages + stage; 2x9: two chunks of "
          "nine layers");
    }
  }
  for (const Flag* flag : {&cp_method, &cp_inner, &zigzag}) {
    if (flag->given && axes.cp.value_or(1) == 1 && (axes.cp || flag != &cp_method))
      diagnostics.Error(flag->where, "says how GPUs share sequences, and cp is 1",
                        "--cp N, GPUs that share each sequence");
  }
  if (cp_inner.given && axes.cp_method.value_or(CpMethod::kA2aRing) != CpMethod::kA2aRing)
    diagnostics.Error(cp_inner.where, "--cp-inner belongs to --cp-method a2a_ring");
  diagnostics.ThrowIfAny();
  return axes;
}

void CheckLayersHeld(const LayoutFlags& flags, const FixedAxes& axes, const ModelSpec& model) {
  if (!axes.layout || model.decoder_layers > 0) return;
  const int64_t held = std::accumulate(axes.layout->begin(), axes.layout->end(), int64_t{0});
  if (held != model.layers)
    throw InputError(
        {{flags.layout.where,
          fmt::format("the layout holds {} layers, the model has {}", held, model.layers),
          "one number of layers per chunk; together they are the model's"}});
}

void CheckStatedFacts(const LayoutFlags& flags, const FixedAxes& axes, const report::Job& job) {
  const auto stated = [&](const std::string& key, const char* value) {
    return std::any_of(job.facts.begin(), job.facts.end(), [&](const auto& fact) {
      return fact.stated && fact.key == key && fact.what == key + " " + value;
    });
  };
  const std::string sequence = flags.sequence_parallel.given ? "sequence_parallel" : "";
  if (const bool on = axes.sequence_parallel.value_or(false);
      !sequence.empty() && stated(sequence, on ? "off" : "on"))
    throw InputError({{flags.sequence_parallel.where,
                       fmt::format("--sequence-parallel {} contradicts --fact sequence_parallel={}",
                                   on ? "on" : "off", on ? "off" : "on"),
                       "leave one of them out"}});
  if (!stated("tp_overlap", "on")) return;
  if (axes.tp && *axes.tp == 1) {
    throw InputError({{flags.tp.where, "tp_overlap=on overlaps tensor parallelism, and tp is 1",
                       "omit it in --fact, or --tp 2 or more"}});
  }
  if (axes.sequence_parallel && !*axes.sequence_parallel) {
    throw InputError({{flags.sequence_parallel.where,
                       "tp_overlap=on overlaps the gathers and scatters of sequence parallelism, "
                       "which is off",
                       "--sequence-parallel on, or omit it in --fact"}});
  }
}

Strategy OneStrategy(const LayoutFlags& flags, const report::Job& job,
                     std::optional<PlacementChoice>* choice, Engine engine) {
  FixedAxes axes = flags.Read(&job.request.topology.fabric);
  if (!axes.tp) axes.tp = 1;
  const FrameworkPreset& preset = FindFramework(job.request.framework);
  if (!axes.sequence_parallel)
    axes.sequence_parallel = preset.DefaultSequence(*axes.tp, axes.pp.value_or(1));
  CheckStatedFacts(flags, axes, job);
  Strategy strategy = preset.defaults;
  strategy.tp = *axes.tp;
  strategy.pp = axes.pp.value_or(1);
  strategy.dp_outer = axes.dp_outer.value_or(1);
  const int64_t gpus = job.cluster.ranks();
  strategy.cp = axes.cp.value_or(1);
  if (strategy.cp == 1 && axes.cp_method)
    throw InputError({{flags.cp_method.where, "says how GPUs share sequences, and cp is 1",
                       "--cp N, GPUs that share each sequence"}});
  strategy.context = ContextLayoutOf(axes, preset);
  if (ContextLayout& context = strategy.context;
      strategy.cp > 1 && context.method == CpMethod::kA2aRing && !axes.cp_inner) {
    // As the search: the part inside a scale-up domain changes heads.
    context.inner = std::clamp(job.cluster.domain_gpus() / strategy.tp, 1, strategy.cp);
    if (context.inner == 1 || context.inner == strategy.cp || strategy.cp % context.inner != 0)
      throw InputError(
          {{flags.cp_method.where,
            fmt::format("a2a_ring has two levels, and of cp {} with tp {} a scale-up "
                        "domain of {} GPUs holds {}",
                        strategy.cp, strategy.tp, job.cluster.domain_gpus(), context.inner),
            "--cp-inner N, a divisor of cp between 1 and cp, or another --cp-method"}});
  }
  const int64_t whole = int64_t{1} * strategy.tp * strategy.pp * strategy.cp;  // ranks of a replica
  const int64_t inner = whole * strategy.dp_outer;
  const std::string shared = strategy.cp > 1 ? fmt::format(" x cp {}", strategy.cp) : "";
  if (!axes.dp && gpus % inner != 0) {
    throw InputError(
        {{FirstGiven({&flags.tp, &flags.pp, &flags.cp, &flags.dp_outer}).where,
          fmt::format("tp {} x pp {}{} = {} GPUs per replica do not divide {} GPUs", strategy.tp,
                      strategy.pp, shared, inner, gpus),
          "choose degrees whose product divides the number of GPUs, or another --nodes"}});
  }
  strategy.dp = axes.dp.value_or(static_cast<int>(gpus / whole)) / strategy.dp_outer;
  if (strategy.ranks() != gpus) {
    const int64_t asked = whole * axes.dp.value_or(0), per_node = job.cluster.gpus_per_node;
    const std::string more =
        asked % per_node == 0 ? fmt::format("--nodes {}, or ", asked / per_node) : "";
    throw InputError(
        {{flags.dp.where,
          fmt::format("tp {} x pp {}{} x dp {} = {} GPUs, but the cluster has {}", strategy.tp,
                      strategy.pp, shared, axes.dp.value_or(0), asked, gpus),
          (flags.counted.source ? fmt::format("{} says {} node{}; ", exchange::Place(flags.counted),
                                              job.cluster.nodes, job.cluster.nodes == 1 ? "" : "s")
                                : "") +
              more +
              (gpus % inner == 0 ? fmt::format("--dp {}, or omit --dp", gpus / whole)
                                 : "omit --dp and choose --tp and --pp that divide it")}});
  }
  strategy.micro_batch = axes.micro_batch.value_or(1);
  strategy.zero = axes.zero.value_or(preset.DefaultZero(axes.offload.value_or(Offload{})));
  strategy.layout = axes.layout;
  const bool in_a_v = axes.schedule == PipelineSchedule::kZeroBubbleV;
  strategy.vpp = axes.vpp.value_or(in_a_v ? 2 : ChunksOf(axes.layout, strategy.pp));
  strategy.recompute = axes.recompute.value_or(strategy.recompute);
  strategy.offload = axes.offload.value_or(strategy.offload);
  const int64_t layers = std::max(job.request.model.layers, job.request.model.decoder_layers);
  if (strategy.recompute.partial() && strategy.recompute.Taken(layers) == 0)
    throw InputError(
        {{flags.recompute.where,
          fmt::format("of the model's {} layers, '{}' takes none", layers, flags.recompute.text),
          "/N takes each N-th layer: a smaller N"}});
  const int64_t chunks = int64_t{1} * strategy.pp * strategy.vpp;
  if (const int64_t most = (layers + chunks - 1) / chunks;
      !axes.layout && strategy.recompute.first > most)
    throw InputError({{flags.recompute.where,
                       fmt::format("'{}': a chunk of the model's {} layers has at most {}",
                                   flags.recompute.text, layers, most),
                       fmt::format("at most {}, or no number for all layers", most)}});
  CheckLayersHeld(flags, axes, job.request.model);
  strategy.sequence_parallel = *axes.sequence_parallel;
  if (axes.schedule) {
    strategy.schedule = *axes.schedule;
  } else if (strategy.vpp > 1) {
    strategy.schedule = PipelineSchedule::kInterleaved;
  }
  strategy.flash_attention = job.request.flash_attention;
  CheckFramework(flags, preset, strategy);
  strategy = preset.Complete(strategy, job.request.work);
  FollowFramework(job.profiles.framework, &strategy);
  if (axes.placement) {
    AtFlag(flags.placement, [&] {
      CheckNodeOrder(axes.placement->nodes, job.cluster.nodes, job.cluster.domain_nodes,
                     job.request.topology.fabric);
    });
    strategy.placement = axes.placement;
  }
  if (auto shares = DefaultShares(JobOf(job.request, job.profiles), strategy))
    strategy.layout = std::move(shares);
  if (flags.searches_placement()) {
    PlacementOptions options;
    options.layers = axes.layout == nullptr;
    options.engine = engine;
    const Job one = JobOf(job.request, job.profiles);
    PlacementChoice found = ChoosePlacement(job.request, job.profiles, one.cluster.nodes,
                                            one.work.global_batch, strategy, options);
    strategy = found.strategy;
    if (choice != nullptr) *choice = std::move(found);
  }
  return strategy;
}

}  // namespace orrery::cli
