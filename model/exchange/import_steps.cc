// SPDX-License-Identifier: Apache-2.0
// Launchers, frameworks and what has no effect, for an import.
#include "model/exchange/import_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/base/edit_distance.h"
#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/model_arguments.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {

namespace {

// "5,6x4,3" as "5,4,4,4,4,4,4,3".
std::string WithoutRuns(const std::string& list) {
  constexpr int64_t kMostInRun = 4096;
  std::string text;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string one = list.substr(begin, end - begin);
    begin = end + 1;
    int64_t count = 1;
    const std::size_t cross = one.find('x');
    if (cross != std::string::npos &&
        ParseInteger(one.substr(0, cross), &count) == NumberFault::kNone && count > 0 &&
        count <= kMostInRun)
      one.erase(0, cross + 1);
    else
      count = 1;
    for (int64_t i = 0; i < count; ++i) text += one + ",";
  }
  return text;
}

}  // namespace

bool SameValue(const std::string& a, const std::string& b) {
  double one = 0, other = 0;
  if (a.find(',') != std::string::npos || b.find(',') != std::string::npos)
    return a == b || WithoutRuns(a) == WithoutRuns(b);
  return a == b || (ParseNumber(a, &one) == NumberFault::kNone &&
                    ParseNumber(b, &other) == NumberFault::kNone && one == other);
}

void TakeLaunch(Target target, const Settings& launch, Settings* settings) {
  const auto find = [](const Settings& all, const char* key) {
    return std::ranges::find(all, key, &Setting::key);
  };
  if (target != kAccelerate) {
    for (const Setting& setting : launch) settings->push_back(setting);
    return;
  }
  (void)SettingIndex(launch);  // throws where one is said twice, and not alike
  const auto nodes = find(launch, "NNODES"), gpus = find(launch, "GPUS_PER_NODE");
  const auto places = find(launch, "PLACES"), world = find(launch, "WORLD");
  if (places != launch.end()) settings->push_back(*places);
  if (world != launch.end() && find(*settings, "num_processes") == settings->end())
    settings->push_back({"num_processes", world->value, world->where, "", true});
  if (nodes == launch.end()) return;
  if (find(*settings, "num_machines") == settings->end() || nodes->flag)
    settings->push_back({"num_machines", nodes->value, nodes->where, "", nodes->flag});
  const auto processes = find(*settings, "num_processes");
  if (gpus == launch.end()) return;
  const int64_t all = std::stoll(nodes->value.substr(0, 9)) * std::stoll(gpus->value.substr(0, 9));
  if (processes != settings->end() && processes->flag) {
    int64_t started = 0;
    if (ParseInteger(processes->value, &started) == NumberFault::kNone && started > all)
      throw InputError({{processes->where,
                         fmt::format("{} processes here, and {} nodes of {} GPUs in {}", started,
                                     nodes->value, gpus->value, Place(gpus->where)),
                         "a GPU for each process: keep one of them"}});
    return;
  }
  settings->push_back({"num_processes", Text(all), gpus->where, "", gpus->flag});
}

std::string FrameworkAlone(Target target, const Values& values) {
  const int64_t ranks = ModelRanks(values);
  const auto zero = values.find("zero");
  switch (target) {
    case kTitan:
    case kTitanToml:
      return ranks == 1 && zero != values.end() && zero->second.text == "0" ? "ddp" : "torchtitan";
    case kAccelerate:
      // Models of HuggingFace, as the aliases of these frameworks have it; of whole replicas there is no profile.
      if (zero == values.end()) return "huggingface@fsdp";
      if (zero->second.key.starts_with("deepspeed") || zero->second.text.empty() ||
          zero->second.text == "1")  // which FSDP has not
        return "huggingface";        // without a stage where its own file has that
      return ranks > 1 ? "orrery" : zero->second.text == "0" ? "ddp" : "huggingface@fsdp";
    case kDdp:
      return zero != values.end() && zero->second.text != "0" ? "deepspeed" : "ddp";
    case kMegatron:
    case kBridge: {
      const bool sharded = zero != values.end() && zero->second.text >= "2";
      return sharded || NumberOf(values, "dp_outer", 1) > 1 ? "megatron@sharded" : "megatron";
    }
    default:
      return InfoOf(target).framework;
  }
}

namespace {

// Facts of a release that the arguments show hold without fused attention, too.
std::string MegatronReleaseOf(Target target, const SettingIndex& index, const Values& values) {
  if (FrameworkAlone(target, values) != "megatron") return "";
  const bool recent = index.Has(kRecentMegatron) || index.Has("overlap-grad-reduce") ||
                      index.Has("context-parallel-size") || index.Has("attention-backend");
  return target == kBridge || recent ? "@2024" : "";
}

}  // namespace

std::string FrameworkOf(Target target, const std::map<Target, Settings>& targets,
                        const SettingIndex& index, const Values& values) {
  const bool deepspeed = target == kMegatron && (index.Has("deepspeed") || index.Has("zero-stage"));
  if (targets.size() > 1) return targets.contains(kMegatron) ? "megatron-deepspeed" : "huggingface";
  if (deepspeed) return "megatron-deepspeed";
  // Its file may be missing, and the stage given by a flag.
  const std::string file = target == kAccelerate ? index.Peek("args.deepspeed") : "";
  if (!file.empty() && !Off(file)) return "huggingface";
  if (target != kMegatron || !index.Has("deterministic-mode"))
    return FrameworkAlone(target, values) + MegatronReleaseOf(target, index, values);
  (void)index.Find("no-gradient-accumulation-fusion");  // that framework is without it
  return "megatron@deterministic";
}

std::optional<Diagnostic> NoMicroBatch(const std::map<Target, Settings>& targets,
                                       const Values& values, const Values& given) {
  const auto megatron = targets.find(kMegatron);
  if (megatron == targets.end() || values.contains("micro_batch") || given.contains("micro_batch"))
    return std::nullopt;
  return Diagnostic{megatron->second.front().where,
                    "--micro-batch-size is missing, and Megatron has no default for it",
                    "add it to the command, or give --micro-batch N"};
}

std::optional<Diagnostic> NoModel(const Setting* flavor, const Setting* hub,
                                  const Settings& records, const Settings& unread) {
  constexpr const char* kHint = "--model NAME, a YAML file or a HuggingFace config.json";
  if (flavor != nullptr)
    return Diagnostic{flavor->where,
                      fmt::format("which model? torchtitan's {} '{}' is not known here",
                                  flavor->key, flavor->value),
                      fmt::format("known: {}; or {}", FlavorNames(), kHint)};
  if (hub != nullptr)
    return Diagnostic{hub->where,
                      fmt::format("which model? {} is not in the catalogue", hub->value),
                      "--model and its config.json; --model NAME or a YAML file"};
  if (const auto base = std::ranges::find(records, "field.base_model", &Setting::key);
      base != records.end())
    return Diagnostic{base->where,
                      fmt::format("which model? that of these adapters, {}, is not in the "
                                  "catalogue",
                                  base->value),
                      "--model and its config.json; --model NAME or a YAML file"};
  if (unread.empty()) return std::nullopt;
  return Diagnostic{unread.front().where,
                    fmt::format("which model? {}, and no other argument names its dimensions",
                                unread.front().unresolved),
                    fmt::format("{}; or write these words into the command", kHint)};
}

void LetOthersSay(const SettingIndex& index, Values* values) {
  const auto follows = [&](const char* field, const char* key) {
    const auto at = values->find(field);
    if (at != values->end() && !index.Has(key)) at->second.where = {};
  };
  follows("micro_batch", "train_micro_batch_size_per_gpu");
  if (!index.Has("gradient_accumulation_steps")) follows("global_batch", "train_batch_size");
}

// [parallelism] and local batches are of 2025 (v0.1.0), [compile] and [quantize] of v0.2.0.
std::string ReleaseOf(Target target, const Settings& settings) {
  if (target != kTitanToml) return "";
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(settings, [&](const Setting& setting) {
      return std::ranges::any_of(keys, [&](const char* key) { return setting.key == key; });
    });
  };
  if (has({"training.data_parallel_type", "training.data_parallel_degree",
           "training.data_parallel_shard_degree", "training.data_parallel_replicate_degree",
           "training.tensor_parallel_degree", "experimental.pipeline_parallel_degree",
           "experimental.context_parallel_degree", "training.enable_float8_linear",
           "training.fp8_linear", "float8.enable_float8_linear"}))
    return "@2024";
  return has({"training.batch_size", "training.compile"}) ? "@2025" : "";
}

std::string MeantBy(const std::string& key, const std::vector<std::string>& asked) {
  constexpr std::size_t kShortest = 8;   // short names are near to many
  constexpr std::size_t kHalfEdits = 2;  // one letter
  if (key.size() < kShortest || key.size() > 80) return "";
  const auto near = std::ranges::find_if(asked, [&](const std::string& name) {
    return name.starts_with(key) || HalfEdits(key, name) <= kHalfEdits;
  });
  return near == asked.end() ? "" : *near;
}

void DropNoEffect(const Values& given, Values* values) {
  const auto is = [&](const char* field, const char* text) {
    const auto at = values->find(field);
    return at != values->end() && at->second.text == text;
  };
  const auto drop = [&](std::initializer_list<const char*> fields) {
    for (const char* field : fields) values->erase(field);
  };
  if (is("layout", "even")) drop({"layout"});
  if (NumberOf(*values, "tp", 1) == 1)
    drop({"sequence_parallel", "tp_overlap", "tp_async", "scatter_gather"});
  if (NumberOf(*values, "cp", 1) == 1) drop({"context", "cp_inner", "zigzag"});
  if (NumberOf(*values, "pp", 1) == 1) drop({"schedule", "vpp", "layout", "scatter_gather"});
  const auto sequence = given.find("sequence_parallel");  // by a flag, which goes before the file
  const bool off = sequence != given.end() && sequence->second.text == "off";
  if (is("sequence_parallel", "on") && !off) drop({"scatter_gather"});
  const auto recompute = values->find("recompute");
  const std::optional<Recompute> read =
      recompute == values->end() ? std::nullopt : ReadRecompute(recompute->second.text);
  if (!read || (read->modules & (kRecomputeLayer | kRecomputeMlp)) == 0) drop({"recompute_unread"});
  if (!read || (read->modules & (kRecomputeKeys | kRecomputeUp)) == 0) drop({"split_products"});
  if (is("zero", "0")) drop({"overlap_param_gather"});
  if (is("zero", "2") || is("zero", "3")) drop({"reduce_in_backward"});
  if (!is("zero", "3")) drop({"prefetch"});
}

std::string UnitsNote(const SettingIndex& index, const Values& values) {
  const auto recompute = values.find("recompute");
  if (recompute == values.end() || recompute->second.text != "full") return "";
  for (const char* key : {"recompute-num-layers", "model.recompute_num_layers"}) {
    // A unit keeps its input, and all that its layers make once they are repeated (core/recompute.py, uniform).
    if (const auto layers = index.Whole(key, 1); layers.value_or(1) > 1)
      return fmt::format(
          "{}: units of {} layers are predicted as units of one: the time is the same, but the job "
          "needs more memory than predicted, the activations of {} more layer{} while a unit runs "
          "backward, less the inputs of layers within units",
          Place(index.Find(key)->where), *layers, *layers - 1, *layers == 2 ? "" : "s");
  }
  return "";
}

std::string OwnLayersNote(const SettingIndex& index) {
  constexpr const char* kKey = "transformer-impl";
  if (index.Peek(kKey) != "local") return "";
  const Setting* own = index.Find(kKey);
  return fmt::format("{}: not modelled: {}; the prediction is without", Place(own->where),
                     NotModelled(kMegatron, *own));
}

std::string PrecisionNote(const std::map<Target, Settings>& targets, const Values& values,
                          const Values& given) {
  const auto precision = values.find("precision");
  if (precision == values.end() || precision->second.where.source || given.contains("precision") ||
      precision->second.text != "fp32")
    return "";
  for (const auto& [target, says] :
       {std::pair{kMegatron, "Megatron's default: no --bf16 or --fp16"},
        std::pair{kDeepSpeed, "DeepSpeed's default: neither bf16 nor fp16 is enabled"}}) {
    const auto at = targets.find(target);
    if (at != targets.end() && !at->second.empty())
      return fmt::format("{}: precision fp32, {}", Place(at->second.front().where), says);
  }
  return "";
}

std::string MomentumNote(const SettingIndex& index, const Values& values) {
  const auto optimizer = values.find("optimizer");
  if (optimizer == values.end() || optimizer->second.text != "sgd") return "";
  const bool bridge = optimizer->second.key.starts_with("optimizer.");
  const std::string key = bridge ? "optimizer.sgd_momentum" : "sgd-momentum";
  const double momentum = index.Number(key).value_or(0.9);  // OptimizerConfig
  if (momentum == 0) return "";
  const Setting* said = index.Find(key);
  return fmt::format(
      "{}: sgd is predicted without momentum; {} is {:g}{}: the job holds 4 more bytes per "
      "parameter",
      Place((said != nullptr ? *said : *index.Find(optimizer->second.key)).where), key, momentum,
      said != nullptr ? "" : " unless the file says otherwise");
}

std::string FilterNote(const SettingIndex& index, const Values& values) {
  const auto recipe = values.find("fp8");
  if (recipe == values.end()) return "";
  const bool scaled = recipe->second.text == "current", blocks = recipe->second.text == "mxfp8";
  if (!scaled && !blocks) return "";
  const Setting* filter =
      index.Find(fmt::format("quantize.linear.{}.filter_fqns", scaled ? "float8" : "mx"));
  if (filter == nullptr && blocks) return "";  // the head is its default
  const Location& where = filter == nullptr ? recipe->second.where : filter->where;
  const Filtered filtered =
      ReadFilters(filter == nullptr ? "" : filter->value, index.Whole("MODEL_LAYERS").value_or(0));
  std::string note;
  if (!filtered.head)
    note =
        "the head is converted to 8 bits here (filter_fqns without \"output\" and \"lm_head\"); "
        "it is predicted in 16 bits";
  if (!filtered.others.empty())
    note += fmt::format("{}filter_fqns keeps {} in 16 bits; these are predicted in 8 bits",
                        note.empty() ? "" : "; ", fmt::join(filtered.others, ", "));
  return note.empty() ? "" : fmt::format("{}: {}", Place(where), note);
}

std::string FactWords(std::string words) {
  std::string facts;
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(", ", begin), words.size());
    std::string fact = words.substr(begin, end - begin);
    if (const std::size_t blank = fact.find(' '); blank != std::string::npos) fact[blank] = '=';
    facts += (facts.empty() ? "" : ",") + fact;
    begin = end + 2;
  }
  return facts;
}

std::optional<Setting> UnknownNodes(const Settings& counts, const Settings& launch,
                                    const Settings& records,
                                    const std::map<Target, Settings>& targets) {
  const auto own = targets.find(kAccelerate);
  if (counts.empty() || Has(launch, {"NNODES", "WORLD"}) || Has(records, {"field.nodes"}) ||
      (own != targets.end() && Has(own->second, {"num_machines"})))
    return std::nullopt;
  return counts.front();
}

OpenBatch LocalBatchAlone(const Settings& settings) {
  const auto size = std::ranges::find(settings, "training.local_batch_size", &Setting::key);
  const bool said = size != settings.end();
  return {(said ? *size : settings.front()).where,
          fmt::format("local_batch_size{} x data-parallel ranks is the global batch, and nothing "
                      "says how many GPUs there are",
                      said ? " " + size->value : ""),
          "--nodes N, the launch script (--from train.sh), or --global-batch N"};
}

void NameAllLayers(int layers, Values* values) {
  const auto at = values->find("offload");
  if (at == values->end()) return;
  std::optional<Offload> offload = ReadOffload(at->second.text);
  if (!offload || offload->activation_layers + 1 != layers) return;
  offload->activation_layers = 0;
  at->second.text = OffloadText(*offload);
}

Target TargetOfNamed(const std::string& key) {
  if (key.find("deepspeed") != std::string::npos) return kDeepSpeed;
  return key == "module" ? kTitan : key.starts_with("job.") ? kTitanToml : kAccelerate;
}

void CheckBatch(Target target, const Values& values) {
  const int64_t nodes = NumberOf(values, "nodes", 0), gpus = NumberOf(values, "gpus_per_node", 0);
  const int64_t batch = NumberOf(values, "global_batch", 0);
  const int64_t micro = NumberOf(values, "micro_batch", 0);
  const int64_t tp = NumberOf(values, "tp", 1), pp = NumberOf(values, "pp", 1);
  if (nodes == 0 || gpus == 0) return;
  const int64_t cp = NumberOf(values, "cp", 1);
  const auto degree = [&] {
    for (const char* field : {"pp", "tp", "cp"}) {
      const auto at = values.find(field);
      if (at != values.end() && at->second.where.source && at->second.text != "1")
        return at->second.where;
    }
    return Location{};
  };
  if (nodes * gpus % (tp * pp * cp) != 0)
    throw InputError({{degree(),
                       fmt::format("tp {} x pp {}{} does not divide {} node{} of {} GPUs", tp, pp,
                                   cp > 1 ? fmt::format(" x cp {}", cp) : "", nodes,
                                   nodes == 1 ? "" : "s", gpus),
                       ""}});
  const int64_t ranks = nodes * gpus / tp / pp / cp;
  if (batch == 0 || micro == 0) return;
  if (NumberOf(values, "dp", ranks) != ranks) return;  // degrees of another cluster
  if (batch % (micro * ranks) == 0) return;
  throw InputError(
      {{values.at("global_batch").where,
        fmt::format("a global batch of {} is no multiple of micro-batch {} x {} "
                    "data-parallel ranks ({})",
                    batch, micro, ranks, InfoOf(target).name),
        values.at("micro_batch").where.source
            ? fmt::format("the micro-batch is of {}", Place(values.at("micro_batch").where))
            : ""}});
}

void CheckMegatron(const SettingIndex& index, const Values& values, const Values& given) {
  const auto tp = values.find("tp");
  if (tp == values.end() || !tp->second.where.source || given.contains("tp")) return;
  const int64_t degree = NumberOf(values, "tp", 1);
  const Setting* groups =
      index.Has("group-query-attention") ? index.Find("num-query-groups") : nullptr;
  if (const int64_t heads = groups != nullptr ? *index.Whole("num-query-groups", 1) : degree;
      heads % degree != 0)
    throw InputError(
        {{tp->second.where,
          fmt::format("tp {} does not divide {} key-value heads (num-query-groups, {})", degree,
                      heads, Place(groups->where)),
          "a divisor of them; Megatron asserts it"}});
  const auto overlap = values.find("tp_overlap"), sequence = values.find("sequence_parallel");
  if (degree > 1 && overlap != values.end() && overlap->second.text == "on" &&
      overlap->second.where.source && !given.contains("sequence_parallel") &&
      sequence != values.end() && sequence->second.text == "off")
    throw InputError({{overlap->second.where,
                       fmt::format("{} overlaps the gathers and scatters of sequence parallelism, "
                                   "which is off",
                                   overlap->second.key),
                       "add --sequence-parallel, as Megatron asserts, or omit it"}});
}

}  // namespace orrery::exchange
