// SPDX-License-Identifier: Apache-2.0
// The rules of torchtitan and Accelerate.
#include <fmt/format.h>

#include <algorithm>

#include "model/exchange/fields.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/framework/presets.h"

namespace orrery::exchange {
namespace {

constexpr const char* kShard = "parallelism.data_parallel_shard_degree";
constexpr const char* kReplicate = "parallelism.data_parallel_replicate_degree";
constexpr const char* kPerStage = "parallelism.pipeline_parallel_layers_per_stage";
constexpr const char* kFirstLess = "parallelism.pipeline_parallel_first_stage_less_layers";
constexpr const char* kLastLess = "parallelism.pipeline_parallel_last_stage_less_layers";
constexpr const char* kNames = "parallelism.module_fqns_per_model_part";
constexpr const char* kMicroSize = "parallelism.pipeline_parallel_microbatch_size";

// The modules of each chunk, which torchtitan takes where the chunks differ.
std::string ModuleNames(const std::vector<int>& layers, const char* head) {
  std::string text = "[";
  int next = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::string part = i == 0 ? "\"tok_embeddings\"" : "";
    for (int layer = 0; layer < layers[i]; ++layer)
      part += fmt::format("{}\"layers.{}\"", part.empty() ? "" : ", ", next++);
    if (i + 1 == layers.size())
      part += fmt::format("{}\"norm\", \"{}\"", part.empty() ? "" : ", ", head);
    text += fmt::format("{}[{}]", i > 0 ? ", " : "", part);
  }
  return text + "]";
}

std::vector<int> LayersOfNames(const Setting& setting) {
  std::vector<int> layers;
  int depth = 0;
  for (std::size_t at = 0; at < setting.value.size(); ++at) {
    const char c = setting.value[at];
    if (c == '[' && ++depth == 2) layers.push_back(0);
    if (c == ']') --depth;
    if (setting.value.compare(at, 7, "layers.") == 0 && !layers.empty()) ++layers.back();
    if (layers.size() > 4096 || depth < 0 || depth > 2) break;
  }
  if (depth != 0 || layers.empty())
    throw InputError({{setting.where, fmt::format("{} is no list of lists of names", setting.key),
                       "[[\"tok_embeddings\", \"layers.0\"], [\"layers.1\", \"norm\"]]"}});
  return layers;
}

// torchtitan (distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part; generate_split_points of 2025): the embedding
// and the output count as so many layers, one each unless a file says otherwise, and what is left over goes to the first
// chunks. nullopt: the chunks are equal, or nothing says how many layers there are.
std::optional<Value> LayersByWeights(const SettingIndex& settings, const Values& values) {
  constexpr int64_t kMostParts = 4096;
  const Setting* said = settings.Find(kFirstLess);
  if (const Setting* last = settings.Find(kLastLess); said == nullptr) said = last;
  const int64_t first = settings.Whole(kFirstLess).value_or(1);
  const int64_t last = settings.Whole(kLastLess).value_or(1);
  const int64_t layers = settings.Whole("MODEL_LAYERS", 1).value_or(0);
  const int64_t chunks = NumberOf(values, "pp", 1) * NumberOf(values, "vpp", 1);
  if (layers == 0 || chunks < 2 || chunks > std::min(kMostParts, layers) ||
      std::max(first, last) > layers)
    return std::nullopt;
  const int64_t each = (layers + first + last) / chunks, more = (layers + first + last) % chunks;
  if (first > each || last > each) return std::nullopt;
  std::vector<int> list;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    list.push_back(static_cast<int>(each + (chunk < more ? 1 : 0)));
  list.front() -= static_cast<int>(first);
  list.back() -= static_cast<int>(last);
  const bool even = std::ranges::count(list, list.front()) == chunks;
  if (even && (said == nullptr || (layers + 2) % chunks == 0)) return std::nullopt;
  return said != nullptr ? From(said, ListText(list)) : Value{ListText(list), {}, ""};
}

constexpr int64_t kLocalBatch = 8;  // torchtitan's default

// Data-parallel ranks that the degrees name; 0: the rest of the GPUs (-1).
int64_t TitanDataParallel(const SettingIndex& settings, const Values& values) {
  const Setting* copies = settings.Find(kReplicate);
  const bool rest = copies != nullptr && copies->value == "-1";
  const int64_t replicate = rest ? 1 : settings.Whole(kReplicate, 1).value_or(1);
  const Setting* shard = settings.Find(kShard);
  if (shard != nullptr && shard->value != "-1" && !rest)
    return replicate * settings.Whole(kShard, 1).value_or(1);
  const auto nodes = settings.Whole("NNODES", 1), gpus = settings.Whole("GPUS_PER_NODE", 1);
  if (!nodes || !gpus) return 0;
  return *nodes * *gpus / ModelRanks(values);
}

}  // namespace

Cell TitanVirtualStages() {
  return Rule(
      [](const Case& c) {
        if (c.strategy.vpp == 1) return Written{Status::kFollows, {}, "one chunk per stage"};
        return Written{Status::kFollows, {}, "the number of chunks, see layout"};
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const int64_t pp = NumberOf(values, "pp", 1);
        if (const Setting* names = settings.Find(kNames)) {
          const auto chunks = static_cast<int64_t>(LayersOfNames(*names).size());
          if (chunks % pp != 0)
            throw InputError(
                {{names->where, fmt::format("{} parts for {} stages", chunks, pp), ""}});
          return From(names, Text(chunks / pp));
        }
        const Setting* per = settings.Find(kPerStage);
        const auto layers = settings.Whole("MODEL_LAYERS", 1);
        if (per == nullptr || !layers) {
          const bool looped =
              values.count("schedule") != 0 && (values.at("schedule").text == "interleaved" ||
                                                values.at("schedule").text == "zero-bubble-v");
          return Value{looped ? "2" : "1", {}, ""};  // torchtitan's default of looped schedules
        }
        // torchtitan counts the embedding and the output as so many layers.
        const int64_t ends =
            settings.Whole(kFirstLess).value_or(1) + settings.Whole(kLastLess).value_or(1);
        const int64_t each = *settings.Whole(kPerStage, 1);
        const int64_t chunks = (*layers + ends + each - 1) / each;
        if (chunks % pp != 0)
          throw InputError({{per->where,
                             fmt::format("{} layers per stage make {} chunks, which {} stages do "
                                         "not divide",
                                         each, chunks, pp),
                             "a number of layers that fills the stages"}});
        return From(per, Text(chunks / pp));
      });
}

Cell TitanLayout(const char* head) {
  return Rule(
      [head](const Case& c) {
        const std::vector<int> layers = LayersByChunk(c);
        // torchtitan counts the ends as a layer each where it is told nothing.
        const auto chunks = static_cast<int64_t>(layers.size());
        if (!EvenStages(c) || (c.model.layers + 2) % chunks != 0)
          return Say({Set(kNames, ModuleNames(layers, head))});
        return Say({Set(kPerStage, layers.front()), Set(kFirstLess, int64_t{0}),
                    Set(kLastLess, int64_t{0})});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* names = settings.Find(kNames);
        if (names != nullptr) return From(names, ListText(LayersOfNames(*names)));
        if (auto stages = LayersByWeights(settings, values)) return stages;
        return Value{"even", {}, ""};
      });
}

// torchtitan (distributed/parallel_dims.py, fsdp_enabled) shards over data_parallel_shard_degree times
// context_parallel_degree, so a shard degree of 1 is no sharding only without context parallelism.
constexpr char kShardsOverContext[] = "shards over context-parallel ranks";
bool ShardsNothing(const Setting* shard, const Values& values) {
  return shard != nullptr && shard->value == "1" && NumberOf(values, "cp", 1) == 1;
}

Cell TitanShards() {
  return Rule(
      [](const Case& c) {
        const bool replicas = c.strategy.zero == 0;
        return Say({Set(kReplicate, replicas ? c.strategy.data_parallel() : c.strategy.dp_outer),
                    Set(kShard, replicas ? 1 : c.strategy.dp)});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const int64_t all = TitanDataParallel(settings, values);
        const Setting* shard = settings.Find(kShard);
        if (all == 0 || shard == nullptr) return std::nullopt;
        return From(shard, Text(all));
      });
}

// torchtitan asserts torch.compile of asynchronous tensor parallelism.
Cell TitanAsync(const char* key) {
  return Rule(
      [key](const Case& c) {
        if (!c.tp_overlap) return Default("default");
        if (!FindFramework(c.framework).compile) return No("asserts compile.enable");
        return Say({Set(key, "true"), Set("compile.enable", "true")});
      },
      [key](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* setting = settings.Find(key);
        if (setting == nullptr) return Value{"off", {}, ""};
        return From(setting, setting->value == "true" ? "on" : "off");
      });
}

Cell TitanReplicas() {
  return Rule(
      [](const Case& c) {
        if (c.strategy.zero == 0 && c.strategy.cp > 1) return No(kShardsOverContext);
        return Written{Status::kFollows, {}, "see dp"};
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* shard = settings.Find(kShard);
        const Setting* replicate = settings.Find(kReplicate);
        if (replicate == nullptr || shard == nullptr || ShardsNothing(shard, values))
          return Value{"1", {}, ""};
        return From(replicate, replicate->value);
      });
}

Cell TitanZero() {
  return Rule(
      [](const Case& c) {
        switch (c.strategy.zero) {
          case 0:
            if (c.strategy.cp > 1) return No(kShardsOverContext);
            return Written{Status::kFollows, {}, "data_parallel_shard_degree 1"};
          case 2:
            return Say({Set("parallelism.fsdp_reshard_after_forward", "never")});
          case 3:
            return Say({Set("parallelism.fsdp_reshard_after_forward", "always")});
          default:
            return No("shards weights and gradients with the optimizer, or nothing");
        }
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* shard = settings.Find(kShard);
        const Setting* reshard = settings.Find("parallelism.fsdp_reshard_after_forward");
        if (ShardsNothing(shard, values)) return From(shard, "0");
        if (reshard == nullptr || reshard->value == "default")  // torchtitan: not with pipelines
          return Value{NumberOf(values, "pp", 1) > 1 ? "2" : "3", {}, ""};
        if (reshard->value == "never") return From(reshard, "2");
        if (reshard->value == "always") return From(reshard, "3");
        throw InputError({{reshard->where, fmt::format("'{}' is no known choice", reshard->value),
                           "known: default, always, never"}});
      });
}

Cell TitanTokens() {
  return Rule(
      [](const Case& c) {
        return Say({Set("training.num_tokens_per_microbatch_per_dp_rank",
                        c.strategy.micro_batch * c.work.seq_len)});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const auto tokens = settings.Whole("training.num_tokens_per_microbatch_per_dp_rank", 1);
        const auto length = settings.Whole("training.max_context_length", 1);
        if (!tokens || !length || *tokens % *length != 0) return std::nullopt;
        return From(settings.Find("training.num_tokens_per_microbatch_per_dp_rank"),
                    Text(*tokens / *length));
      });
}

Cell TitanGlobalTokens() {
  return Rule(
      [](const Case& c) {
        Settings settings = {
            Set("training.num_tokens_per_train_step", c.work.global_batch * c.work.seq_len)};
        if (c.strategy.pp > 1)
          settings.push_back(Set("parallelism.num_pp_microbatches", c.micro_batches()));
        return Say(std::move(settings));
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        settings.Find("parallelism.num_pp_microbatches");
        const auto tokens = settings.Whole("training.num_tokens_per_train_step", 1);
        const auto length = settings.Whole("training.max_context_length", 1);
        if (!tokens || !length || *tokens % *length != 0) return std::nullopt;
        return From(settings.Find("training.num_tokens_per_train_step"), Text(*tokens / *length));
      });
}

Cell TomlLocalBatch() {
  return Rule(
      [](const Case& c) {
        if (c.strategy.pp == 1)
          return Say({Set("training.local_batch_size", c.strategy.micro_batch)});
        return Say({Set(kMicroSize, c.strategy.micro_batch),
                    Set("training.local_batch_size", c.strategy.micro_batch * c.micro_batches())});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const bool stages = NumberOf(values, "pp", 1) > 1;
        const Setting* size = settings.Find(stages ? kMicroSize : "training.local_batch_size");
        if (size != nullptr) return From(size, size->value);
        return Value{stages ? "1" : Text(kLocalBatch), {}, ""};  // torchtitan's defaults
      });
}

std::optional<Diagnostic> PassesOfPipeline(const SettingIndex& settings, const Values& values) {
  const Setting* global = settings.Find("training.global_batch_size");
  if (global == nullptr || NumberOf(values, "pp", 1) == 1) return std::nullopt;
  const Setting* size = settings.Find("training.local_batch_size");
  const auto all = settings.Whole("training.global_batch_size", 1);
  const auto local = size == nullptr ? kLocalBatch : settings.Whole("training.local_batch_size", 1);
  if (!local || !all || global->value == "-1") return std::nullopt;
  const int64_t ranks = TitanDataParallel(settings, values);
  if (ranks == 0)
    return Diagnostic{global->where,
                      "passes of the pipeline per step depend on the GPUs, which nothing says",
                      "--nodes N, or data_parallel_shard_degree"};
  const int64_t pass = *local * ranks;
  if (*all <= pass || *all % pass != 0) return std::nullopt;  // torchtitan refuses the latter
  return Diagnostic{
      global->where,
      fmt::format(
          "a step of {} sequences is {} passes of the pipeline, each of {} sequences for {} "
          "data-parallel ranks: not modelled",
          *all, *all / pass, *local, ranks),
      fmt::format("one pass is faster: local_batch_size = {}; or predict a pass: --global-batch {}",
                  *all / ranks, pass)};
}

Cell TomlGlobalBatch() {
  return Rule(
      [](const Case& c) { return Say({Set("training.global_batch_size", c.work.global_batch)}); },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* batch = settings.Find("training.global_batch_size");
        if (batch != nullptr && batch->value != "-1") return From(batch, batch->value);
        const int64_t all = TitanDataParallel(settings, values);
        const Setting* size = settings.Find("training.local_batch_size");
        const int64_t local = settings.Whole("training.local_batch_size", 1).value_or(kLocalBatch);
        if (all == 0) return std::nullopt;
        return size == nullptr ? Value{Text(all * local), {}, ""} : From(size, Text(all * local));
      });
}

Cell AccelerateShards() {
  return Rule(
      [](const Case& c) {
        const bool whole = c.strategy.tp == 1 && c.strategy.dp_outer == 1;
        if (c.strategy.zero < 2 || whole)
          return Written{Status::kFollows, {}, "num_processes / tp"};
        return Say({Set("parallelism_config.parallelism_config_dp_shard_size", c.strategy.dp)});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const auto shard = settings.Whole("parallelism_config.parallelism_config_dp_shard_size", 1);
        if (!shard) return std::nullopt;
        return From(settings.Find("parallelism_config.parallelism_config_dp_shard_size"),
                    Text(*shard * NumberOf(values, "dp_outer", 1)));
      });
}

// HYBRID_SHARD of FSDP 1 shards in a node, and each node holds a copy (PyTorch, fully_sharded_data_parallel.py: process groups
// of one node's devices unless the program makes its own).
Cell AccelerateReplicas() {
  constexpr const char* kReplicas = "parallelism_config.parallelism_config_dp_replicate_size";
  return Rule(
      [](const Case& c) {
        return c.strategy.dp_outer == 1 ? Default("default")
                                        : Say({Set(kReplicas, c.strategy.dp_outer)});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        if (const Setting* named = settings.Find(kReplicas)) return From(named, named->value);
        const Setting* strategy = settings.Find("fsdp_config.fsdp_sharding_strategy");
        if (strategy == nullptr || !(strategy->value.starts_with("HYBRID_SHARD") ||
                                     strategy->value == "4" || strategy->value == "5"))
          return Value{"1", {}, ""};
        // A flag wins over the file, and changes what follows from it.
        const auto machines = settings.Whole("num_machines", 1);
        const int64_t nodes = NumberOf(values, "nodes", machines.value_or(0));
        if (nodes == 0)
          throw InputError({{strategy->where,
                             fmt::format("{} shards in a node, and nothing says how many nodes "
                                         "there are",
                                         strategy->value),
                             "--nodes N, or --dp-outer N copies"}});
        return From(strategy, Text(nodes));
      });
}

Cell AccumulationOf(const char* micro, const char* accumulation) {
  return Rule(
      [accumulation](const Case& c) { return Say({Set(accumulation, c.micro_batches())}); },
      [micro, accumulation](const SettingIndex& settings,
                            const Values& values) -> std::optional<Value> {
        const int64_t each = NumberOf(values, micro, 0);
        const char* const file = "deepspeed_config.gradient_accumulation_steps";
        const std::string said = settings.Peek(file);  // "": not at all, or by what a shell knows
        const bool by_file = settings.Peek(accumulation).empty() && !said.empty() && said != "auto";
        const std::string key = by_file ? file : accumulation;
        const auto steps = settings.Whole(key, 1);
        const auto processes = settings.Whole("num_processes", 1);
        if (each == 0 || !steps || !processes) return std::nullopt;
        return From(settings.Find(key), Text(each * *steps * *processes / ModelRanks(values)));
      });
}

Cell AccelerateRecompute() {
  return Rule(
      [](const Case& c) {
        const bool fsdp = c.strategy.zero >= 2 && !ByDeepSpeed(c);
        const char* key =
            fsdp ? "fsdp_config.fsdp_activation_checkpointing" : "args.gradient_checkpointing";
        if (c.strategy.recompute != Recompute::kFull && c.strategy.recompute != Recompute::kNone)
          return No("recomputes all layers whole, or nothing");
        return Say({Set(key, c.strategy.recompute == Recompute::kFull ? "true" : "false")});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        // Accelerate's file has it in front, the Trainer's part of its arguments does not.
        const Setting* fsdp = settings.Find("fsdp_config.fsdp_activation_checkpointing");
        for (const char* key : {"args.fsdp_config.activation_checkpointing",
                                "args.fsdp_config.fsdp_activation_checkpointing"}) {
          const Setting* own = settings.Find(key);
          if (own != nullptr && (fsdp == nullptr || Off(fsdp->value))) fsdp = own;
        }
        const Setting* trainer = settings.Find("args.gradient_checkpointing");
        const bool by_fsdp = fsdp != nullptr && !Off(fsdp->value);
        const bool by_trainer = trainer != nullptr && trainer->value == "true";
        if (by_fsdp && by_trainer)
          throw InputError(
              {{trainer->where,
                fmt::format("gradient_checkpointing repeats what {} in {} recomputes, "
                            "and the Trainer refuses both",
                            fsdp->key.substr(fsdp->key.rfind('.') + 1), Place(fsdp->where)),
                "keep one of them"}});
        if (by_fsdp) return From(fsdp, "full");
        if (by_trainer) return From(trainer, "full");
        return Value{"none", {}, ""};
      });
}

Cell AccelerateUnread() {
  return Rule(
      [](const Case& c) {
        const bool fsdp = c.strategy.zero >= 2 && !ByDeepSpeed(c);
        const char* const why = fsdp ? "a checkpoint of FSDP ends where it may"
                                     : "a checkpoint of the Trainer repeats the whole forward pass";
        return c.strategy.recompute_unread == fsdp ? No(why) : Default(why);
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const auto recompute = values.find("recompute");
        if (recompute == values.end() || recompute->second.key.empty()) return std::nullopt;
        const Setting* reentrant =
            settings.Find("args.gradient_checkpointing_kwargs.use_reentrant");
        if (reentrant != nullptr && recompute->second.key == "args.gradient_checkpointing")
          return From(reentrant, OnOff(!Off(reentrant->value)));
        return Value{OnOff(recompute->second.key.find("fsdp_config") == std::string::npos), {}, ""};
      });
}

}  // namespace orrery::exchange
