// SPDX-License-Identifier: Apache-2.0
// Merges documents and turns their settings into fields.
#include "model/exchange/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/exchange/model_arguments.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

// The launcher's words in the target's.
void TakeLaunch(Target target, const Settings& launch, Settings* settings) {
  const auto find = [](const Settings& all, const char* key) {
    return std::ranges::find(all, key, &Setting::key);
  };
  if (target != kAccelerate) {
    for (const Setting& setting : launch) settings->push_back(setting);
    return;
  }
  const auto nodes = find(launch, "NNODES"), gpus = find(launch, "GPUS_PER_NODE");
  const auto places = find(launch, "PLACES"), world = find(launch, "WORLD");
  if (places != launch.end()) settings->push_back(*places);
  if (world != launch.end() && find(*settings, "num_processes") == settings->end())
    settings->push_back({"num_processes", world->value, world->where, "", true});
  if (nodes == launch.end()) return;
  if (find(*settings, "num_machines") == settings->end() || nodes->flag)
    settings->push_back({"num_machines", nodes->value, nodes->where, "", nodes->flag});
  const auto processes = find(*settings, "num_processes");
  if (gpus == launch.end() || (processes != settings->end() && processes->flag)) return;
  const int64_t all = std::stoll(nodes->value.substr(0, 9)) * std::stoll(gpus->value.substr(0, 9));
  settings->push_back({"num_processes", Text(all), gpus->where, "", gpus->flag});
}

std::string FrameworkOf(Target target, const Values& values) {
  const int64_t ranks = ModelRanks(values);
  const auto zero = values.find("zero");
  switch (target) {
    case kTitan:
    case kTitanToml:
      return ranks == 1 && zero != values.end() && zero->second.text == "0" ? "ddp" : "torchtitan";
    case kAccelerate:
      if (zero == values.end()) return "fsdp";
      if (zero->second.key.starts_with("deepspeed")) return "deepspeed";
      return ranks > 1 ? "orrery" : zero->second.text == "0" ? "ddp" : "fsdp";
    case kDdp:
      return zero != values.end() && zero->second.text != "0" ? "deepspeed" : "ddp";
    default:
      return InfoOf(target).framework;
  }
}

// What means nothing without tensor parallelism, stages or shards; equal stages are what happens without a layout.
void DropNoEffect(Values* values) {
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
  if (is("sequence_parallel", "on")) drop({"scatter_gather"});
  const auto recompute = values->find("recompute");
  const std::optional<Recompute> read =
      recompute == values->end() ? std::nullopt : ReadRecompute(recompute->second.text);
  if (!read || (read->modules & (kRecomputeLayer | kRecomputeMlp)) == 0) drop({"recompute_unread"});
  if (!read || (read->modules & (kRecomputeKeys | kRecomputeUp)) == 0) drop({"split_products"});
  if (is("zero", "0")) drop({"overlap_param_gather"});
  if (is("zero", "2") || is("zero", "3")) drop({"reduce_in_backward"});
  if (!is("zero", "3")) drop({"prefetch"});
}

// FrameworkWords() back: "compile off, tp_async on" as --fact takes it.
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

class Importer {
 public:
  Importer(const std::optional<LoadedModel>& model, const Values& given) : given_(given) {
    out_.model = model;
  }

  Imported Run(const std::vector<SourcePtr>& sources) {
    for (const SourcePtr& source : sources) Sort(ReadDocument(source));
    AddGiven();
    if (targets_.empty() && records_.empty() && !launch_.empty()) {
      SettingIndex launch(launch_);
      Merge({{"nodes", ValueOf(launch, "NNODES")},
             {"gpus_per_node", ValueOf(launch, "GPUS_PER_NODE")}});
      if (auto placement = PlacementOf(launch, nullptr)) Merge({{"placement", *placement}});
    }
    if (targets_.size() > 1) CheckTargets();
    for (auto& [target, settings] : targets_) TakeTarget(target, settings);
    TakeRecords();
    NoteFiles(sources);
    std::erase_if(out_.values, [&](const auto& value) {  // what a flag said
      const auto flag = given_.find(value.first);
      const Location& where = value.second.where;
      return flag != given_.end() && where.source && where.source == flag->second.where.source &&
             where.column == flag->second.where.column;
    });
    DropNoEffect(&out_.values);
    std::erase_if(out_.values, [](const auto& value) { return value.second.text.empty(); });
    return std::move(out_);
  }

 private:
  void Sort(Document document) {
    out_.notes.push_back(fmt::format("{}: {}", document.source->name, document.kind));
    if (document.target) read_.emplace(document.source->name, *document.target);
    for (std::string& note : document.notes) out_.notes.push_back(std::move(note));
    for (const Setting& file : document.files) files_.push_back(file);
    for (Setting& setting : document.settings) {
      const bool launch = setting.key == "NNODES" || setting.key == "GPUS_PER_NODE" ||
                          setting.key == "PLACES" || setting.key == "WORLD";
      if (setting.key.starts_with("field.")) {
        records_.push_back(std::move(setting));
      } else if (launch || !document.target) {
        launch_.push_back(std::move(setting));
      } else {
        targets_[*document.target].push_back(std::move(setting));
      }
    }
  }

  // Numbers of nodes and GPUs that flags say where no file does: batches follow from them.
  void AddGiven() {
    for (const auto& [field, key] :
         {std::pair{"nodes", "NNODES"}, std::pair{"gpus_per_node", "GPUS_PER_NODE"}}) {
      const auto at = given_.find(field);
      if (at == given_.end() || std::ranges::find(launch_, key, &Setting::key) != launch_.end())
        continue;
      const auto accelerate = targets_.find(kAccelerate);
      const bool own = accelerate != targets_.end() &&
                       std::ranges::find(accelerate->second, "num_processes", &Setting::key) !=
                           accelerate->second.end();
      if (!own && NumberOf(given_, field, 0) > 0 && !targets_.empty())
        launch_.push_back({key, at->second.text, at->second.where, ""});
    }
  }

  // Configurations that a command names and nobody gave.
  void NoteFiles(const std::vector<SourcePtr>& sources) {
    for (const Setting& file : files_) {
      const Target target = file.key.find("deepspeed") != std::string::npos ? kDeepSpeed
                            : file.key.starts_with("job.")                  ? kTitanToml
                                                                            : kAccelerate;
      const std::string name = file.value.substr(file.value.rfind('/') + 1);
      const bool given = std::ranges::any_of(sources, [&](const SourcePtr& source) {
        return source != file.where.source &&
               (source->name.substr(source->name.rfind('/') + 1) == name ||
                read_.contains({source->name, target}));
      });
      if (!given)
        out_.notes.push_back(fmt::format(
            "{}: {} names {}, whose settings are not known here: add --from {}", Place(file.where),
            file.key, file.unresolved.empty() ? file.value : "a file",
            name.empty() ? "FILE" : name));
    }
  }

  // Megatron-DeepSpeed takes Megatron's arguments and DeepSpeed's file, the Trainer its arguments and DeepSpeed's file;
  // others do not go together.
  void CheckTargets() const {
    if (targets_.size() == 2 && targets_.contains(kDeepSpeed) &&
        (targets_.contains(kMegatron) || targets_.contains(kAccelerate)))
      return;
    const auto first = targets_.begin(), second = std::next(first);
    throw InputError(
        {{second->second.front().where,
          fmt::format("settings of {} here and of {} in {}", InfoOf(second->first).name,
                      InfoOf(first->first).name, Place(first->second.front().where)),
          "name files of one program, and its launch script"}});
  }

  static Value ValueOf(const SettingIndex& settings, const char* key) {
    const Setting* setting = settings.Find(key);
    return setting != nullptr ? Value{setting->value, setting->where, key} : Value{};
  }

  void TakeTarget(Target target, Settings settings) {
    TakeLaunch(target, launch_, &settings);
    LetFlagsWin(target, &settings, &out_.notes);
    const auto layers = AddLayers(target, &settings);
    Respell(target, layers, &settings, &out_.notes);
    const SettingIndex index(settings);
    TakeModel(target, index);
    Values known;
    Values values = FromSettings(index, target, given_, &known);
    NameAllLayers(&values);
    TakeWorld(target, index, &values);
    CheckBatch(target, known);
    NoteUnits(index, values);
    const bool both = targets_.size() > 1;
    out_.framework = both && targets_.contains(kMegatron) ? "megatron-deepspeed"
                     : both                               ? "deepspeed"
                     : target == kMegatron && (index.Has("deepspeed") || index.Has("zero-stage"))
                         ? "megatron-deepspeed"
                         : FrameworkOf(target, values);
    Merge(std::move(values));
    Report(target, index);
  }

  // Megatron's method uniform with several layers per unit.
  void NoteUnits(const SettingIndex& index, const Values& values) {
    const auto recompute = values.find("recompute");
    if (recompute == values.end() || recompute->second.text != "full") return;
    for (const char* key : {"recompute-num-layers", "model.recompute_num_layers"}) {
      if (const Setting* layers = index.Find(key); layers != nullptr && layers->value != "1")
        out_.notes.push_back(
            fmt::format("{}: units of {} layers are predicted as units of one, which take the same "
                        "time and keep more inputs",
                        Place(layers->where), layers->value));
    }
  }

  // Activations of all layers but the last, which stay anyway.
  void NameAllLayers(Values* values) const {
    const auto at = values->find("offload");
    if (at == values->end() || !out_.model) return;
    std::optional<Offload> offload = ReadOffload(at->second.text);
    if (!offload || offload->activation_layers + 1 != out_.model->spec.layers) return;
    offload->activation_layers = 0;
    at->second.text = OffloadText(*offload);
  }

  std::optional<int64_t> AddLayers(Target target, Settings* settings) {
    if (target != kTitan && target != kTitanToml) return std::nullopt;
    const auto at = [&](const char* key) {
      const auto found = std::ranges::find(*settings, key, &Setting::key);
      return found == settings->end() ? std::string() : found->value;
    };
    const RegistryRow* row = FindFlavor(at("model.name"), at("model.flavor"));
    if (row != nullptr && !out_.model) out_.model = LoadModel(row->model);
    if (!out_.model) return std::nullopt;
    settings->push_back({"MODEL_LAYERS", Text(out_.model->spec.layers), {}, ""});
    return out_.model->spec.layers;
  }

  void TakeModel(Target target, const SettingIndex& index) {
    index.Find("MODEL_LAYERS");
    index.Find("model.name");
    index.Find("model.flavor");
    if (target != kMegatron) return;
    auto model = ModelOfMegatron(index);
    if (model && !out_.model) {
      for (const std::string& note : model->notes) out_.notes.push_back(note);
      model->notes.clear();
      out_.model = std::move(model);
    }
  }

  // A dump of Megatron's names the number of all GPUs alone, and so does mpirun -np.
  void TakeWorld(Target target, const SettingIndex& index, Values* values) {
    const auto world = index.Whole("WORLD", 1);
    if (!world || values->contains("nodes") || target == kAccelerate) return;
    out_.notes.push_back(fmt::format("{}: world size {}; how many GPUs a node has is not said",
                                     Place(index.Find("WORLD")->where), *world));
    const auto dp = *world / ModelRanks(*values);
    values->insert_or_assign("dp", Value{Text(dp), index.Find("WORLD")->where, "world_size"});
  }

  // Samples of a step are a whole number of micro-batches on every rank.
  void CheckBatch(Target target, const Values& values) const {
    const int64_t nodes = NumberOf(values, "nodes", 0), gpus = NumberOf(values, "gpus_per_node", 0);
    const int64_t batch = NumberOf(values, "global_batch", 0);
    const int64_t micro = NumberOf(values, "micro_batch", 0);
    const int64_t tp = NumberOf(values, "tp", 1), pp = NumberOf(values, "pp", 1);
    if (nodes == 0 || gpus == 0) return;
    const auto degree = values.find(pp > 1 ? "pp" : "tp");
    const int64_t cp = NumberOf(values, "cp", 1);
    if (nodes * gpus % (tp * pp * cp) != 0 && degree != values.end())
      throw InputError({{degree->second.where,
                         fmt::format("tp {} x pp {}{} does not divide {} nodes of {} GPUs", tp, pp,
                                     cp > 1 ? fmt::format(" x cp {}", cp) : "", nodes, gpus),
                         ""}});
    if (batch == 0 || micro == 0) return;
    const int64_t ranks = nodes * gpus / tp / pp / cp;
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

  // Explicit values win over defaults of a program; two explicit ones must agree.
  void Merge(Values values) {
    for (auto& [field, value] : values) {
      const auto [at, added] = out_.values.emplace(field, value);
      if (added || !value.where.source) continue;
      if (value.text == kAuto) continue;  // filled in from what is there
      if (at->second.text != kAuto && at->second.where.source && at->second.text != value.text)
        throw InputError({{value.where,
                           fmt::format("{} is {} here and {} in {}", field, value.text,
                                       at->second.text, Place(at->second.where)),
                           "keep one of them"}});
      at->second = value;
    }
  }

  void TakeRecords() {
    Values values;
    for (const Setting& setting : records_) {
      const std::string field = setting.key.substr(6);
      if (field == "framework") {
        // "megatron with compile off, tp_async on"
        const std::size_t with = setting.value.find(" with ");
        out_.framework = setting.value.substr(0, with);
        if (with != std::string::npos) out_.facts = FactWords(setting.value.substr(with + 6));
      } else if (field == "topology") {
        out_.topology = setting.value;
      } else if (field == "model") {
        out_.model_name = setting.value;
      } else {
        values.insert_or_assign(field, Value{setting.value, setting.where, field});
      }
    }
    Merge(std::move(values));
  }

  void Report(Target target, const SettingIndex& index) {
    std::vector<std::string> unused;
    for (const Setting* setting : index.Unused()) {
      if (const char* what = NotModelled(target, *setting); what != nullptr) {
        out_.notes.push_back(fmt::format("{}: {} is not modelled: the prediction is without it",
                                         Place(setting->where), what));
      } else {
        unused.push_back(setting->key);
      }
    }
    if (unused.empty()) return;
    constexpr std::size_t kShown = 60;
    const std::size_t more = unused.size() > kShown ? unused.size() - kShown : 0;
    unused.resize(std::min(unused.size(), kShown));
    out_.notes.push_back(fmt::format("without effect here, or unknown: {}{}",
                                     fmt::join(unused, ", "),
                                     more > 0 ? fmt::format(" and {} more", more) : ""));
  }

  std::map<Target, Settings> targets_;
  Settings launch_, records_, files_;
  std::set<std::pair<std::string, Target>> read_;  // names of files
  const Values& given_;
  Imported out_;
};

}  // namespace

Imported Import(const std::vector<SourcePtr>& sources, const std::optional<LoadedModel>& model,
                const Values& given) {
  return Importer(model, given).Run(sources);
}

}  // namespace orrery::exchange
