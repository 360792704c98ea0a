// SPDX-License-Identifier: Apache-2.0
// Merges documents and turns their settings into fields.
#include "model/exchange/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "model/exchange/command_settings.h"
#include "model/exchange/import_accelerate.h"
#include "model/exchange/import_files.h"
#include "model/exchange/import_steps.h"
#include "model/exchange/model_arguments.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/exchange/training_settings.h"
#include "model/framework/presets.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

class Importer {
 public:
  Importer(const std::optional<LoadedModel>& model, const Values& given, bool trains)
      : given_(given), trains_(trains) {
    out_.model = model;
  }

  Imported Run(std::vector<SourcePtr> sources, const OpenNamed& open) {
    in_ = Collect(std::move(sources), given_, open);
    out_.notes = std::move(in_.notes);
    out_.gpus = std::move(in_.gpus);
    out_.no_nodes = UnknownNodes(in_.counts, in_.launch, in_.records, in_.targets);
    AddGiven();
    const bool counted = std::ranges::any_of(
        in_.records, [](const Setting& one) { return one.key == "field.nodes"; });
    if (in_.targets.empty() && !counted && !in_.launch.empty()) {
      SettingIndex launch(in_.launch);
      Merge({{"nodes", ValueOf(launch, "NNODES")},
             {"gpus_per_node", ValueOf(launch, "GPUS_PER_NODE")}});
      if (auto placement = PlacementOf(launch, nullptr)) Merge({{"placement", *placement}});
    }
    if (in_.targets.size() > 1) CheckTargets();
    if (in_.unread.empty()) FillPrecision(&in_.targets, &out_.notes);
    for (auto& [target, settings] : in_.targets) TakeTarget(target, settings);
    TakeRecords();
    if (!out_.no_layout && in_.unread.empty())  // it may stand in words that only a shell knows
      out_.no_layout = NoMicroBatch(in_.targets, out_.values, given_);
    AskForBatch();
    if (std::string note = PrecisionNote(in_.targets, out_.values, given_); !note.empty())
      out_.notes.push_back(std::move(note));
    if (!out_.model && out_.model_name.empty())
      out_.no_model = NoModel(flavor_.get(), hub_.get(), in_.records, in_.unread);
    std::erase_if(out_.values, [&](const auto& value) {  // what a flag said
      const auto flag = given_.find(value.first);
      const Location& where = value.second.where;
      return flag != given_.end() && where.source && where.source == flag->second.where.source &&
             where.column == flag->second.where.column;
    });
    DropNoEffect(given_, &out_.values);
    std::erase_if(out_.values, [](const auto& value) { return value.second.text.empty(); });
    SayOnce();
    return std::move(out_);
  }

 private:
  // Two programs' settings may be read by one rule.
  void SayOnce() {
    std::vector<std::string> once;
    for (std::string& note : out_.notes) {
      if (std::ranges::find(once, note) == once.end()) once.push_back(std::move(note));
    }
    out_.notes = std::move(once);
  }

  // Numbers of nodes and GPUs that flags say where no file does: batches follow from them.
  void AddGiven() {
    for (const auto& [field, key] :
         {std::pair{"nodes", "NNODES"}, std::pair{"gpus_per_node", "GPUS_PER_NODE"}}) {
      const auto at = given_.find(field);
      if (at == given_.end() ||
          std::ranges::find(in_.launch, key, &Setting::key) != in_.launch.end())
        continue;
      const auto accelerate = in_.targets.find(kAccelerate);
      const bool own = accelerate != in_.targets.end() &&
                       std::ranges::find(accelerate->second, "num_processes", &Setting::key) !=
                           accelerate->second.end();
      if (!own && NumberOf(given_, field, 0) > 0 && !in_.targets.empty())
        in_.launch.push_back({key, at->second.text, at->second.where, ""});
    }
    // A record of this project next to files of others says them, too.
    for (const auto& [field, key] :
         {std::pair{"field.nodes", "NNODES"}, std::pair{"field.gpus_per_node", "GPUS_PER_NODE"}}) {
      const auto at = std::ranges::find(in_.records, field, &Setting::key);
      if (at == in_.records.end() || in_.targets.empty() || in_.targets.contains(kAccelerate) ||
          std::ranges::find(in_.launch, key, &Setting::key) != in_.launch.end())
        continue;
      in_.launch.push_back({key, at->value, at->where, ""});
    }
    CountMachines(in_.launch, given_, &in_.targets);
  }

  // Megatron-DeepSpeed takes Megatron's arguments and DeepSpeed's file, the Trainer its arguments and DeepSpeed's file;
  // others do not go together.
  void CheckTargets() const {
    if (in_.targets.size() == 2 && in_.targets.contains(kDeepSpeed) &&
        (in_.targets.contains(kMegatron) || in_.targets.contains(kAccelerate)))
      return;
    const auto first = in_.targets.begin(), second = std::next(first);
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
    TakeLaunch(target, in_.launch, &settings);
    if (target != kAccelerate) FitWorld(given_, &settings, &out_.notes);
    LetFlagsWin(target, &settings, &out_.notes);
    const auto layers = AddLayers(target, &settings);
    const std::string release = ReleaseOf(target, settings);
    if (const Location* adapters = Adapters(); target == kAccelerate && adapters != nullptr)
      settings.push_back({"ADAPTERS", PackedBase(), *adapters, ""});
    Respell(target, layers, &settings, &out_.notes);
    const SettingIndex index(settings);
    TakeModel(target, index);
    if (target == kAccelerate) NameModelOfTrainer(index);
    Values known;
    if (target == kAccelerate) CheckMachines(index, given_);
    const Values degrees = DegreesOf(target);
    Values given = given_;
    given.insert(degrees.begin(), degrees.end());
    Values values = FromSettings(index, target, given, &known);
    for (const auto& [field, value] : degrees)
      if (!values[field].where.source) values[field] = value;
    if (target == kAccelerate) steps_ = StepsWithoutBatch(index, known);
    if (target == kDeepSpeed) TakeOpen(DeepSpeedOpenBatch(index, known));
    if (target == kMegatron) TakeOpen(MegatronOpenBatch(index, known));
    if (target == kDeepSpeed && in_.targets.size() > 1) LetOthersSay(index, &values);
    if (target == kTitanToml && !known.contains("global_batch")) steps_ = LocalBatchAlone(settings);
    if (out_.model) NameAllLayers(out_.model->spec.layers, &values);
    TakeWorld(target, index, given_, &values, &out_.notes);
    // Of two programs the one with degrees of models knows the ranks.
    if (target != kDeepSpeed || !in_.targets.contains(kMegatron)) CheckBatch(target, known);
    if (target == kTitanToml && !given_.contains("global_batch"))
      out_.no_layout = PassesOfPipeline(index, known);
    if (target == kMegatron) CheckMegatron(index, values, given_);
    const bool megatron = target == kMegatron || target == kBridge;
    for (std::string note : {UnitsNote(index, values), megatron ? MomentumNote(index, values) : "",
                             megatron ? StatesNote(target == kBridge, index, values, given_) : "",
                             megatron ? OtherModulesNote(index, target == kBridge) : "",
                             megatron ? OwnLayersNote(index) : "",
                             target == kDeepSpeed ? ReductionNote(index, values) : ""}) {
      if (!note.empty()) out_.notes.push_back(std::move(note));
    }
    const bool titan = target == kTitan || target == kTitanToml;
    if (std::string note = titan && release != "@2024" ? FilterNote(index, values) : "";
        !note.empty())
      out_.notes.push_back(std::move(note));
    out_.framework = FrameworkOf(target, in_.targets, index, values);
    // DeepSpeed's engine cuts a pipeline by weights, whatever divides.
    if (megatron && out_.model && in_.unread.empty() && out_.framework != "megatron-deepspeed")
      out_.no_layout = UnevenStages(index, out_.model->spec.layers, known, target == kBridge);
    if (out_.framework == "torchtitan") out_.framework += release;
    // Of these the release itself says how.
    if (!release.empty()) values.erase("recompute_unread");
    if (release == "@2024") values.erase("compile_loss");
    Merge(std::move(values));
    if (trains_) TakeTraining(TrainingOf(index, target));
    for (std::string& note : UnusedNotes(target, index, in_.files))
      out_.notes.push_back(std::move(note));
  }

  // Where a file of adapters, or a flag, says that they are trained; null: none does.
  const Location* Adapters() const {
    const auto file = std::ranges::find(in_.records, "field.lora", &Setting::key);
    if (file != in_.records.end()) return &file->where;
    const auto flag = given_.find("lora");
    return flag == given_.end() ? nullptr : &flag->second.where;
  }

  // The type of frozen weights in few bits, that a flag or a program says; "": none does.
  std::string PackedBase() const {
    if (const auto flag = given_.find("lora_base"); flag != given_.end()) return flag->second.text;
    const auto said = std::ranges::find(in_.records, "field.lora_base", &Setting::key);
    return said == in_.records.end() ? "" : said->value;
  }

  // Of models, which Megatron's arguments say: batches of DeepSpeed's file are those of the ranks that these leave.
  Values DegreesOf(Target target) const {
    Values degrees;
    if (target != kDeepSpeed || !in_.targets.contains(kMegatron)) return degrees;
    for (const char* field : {"tp", "pp", "cp"}) {
      const auto at = out_.values.find(field);
      if (at != out_.values.end() && !at->second.key.empty()) degrees.insert(*at);
    }
    return degrees;
  }

  // The first, which is of the program that has the batch in its own words.
  void TakeOpen(std::optional<OpenBatch> open) {
    if (!steps_) steps_ = std::move(open);
  }

  // A note where a plan chooses micro-batches, or several numbers of GPUs are compared.
  void AskForBatch() {
    const char* const field = steps_ && steps_->micro ? "micro_batch" : "global_batch";
    if (!steps_ || out_.values.contains(field) || given_.contains(field)) return;
    if (steps_->searched || !given_.contains("gpus_per_node")) {
      out_.notes.push_back(
          fmt::format("{}: {}: the {}batch{} is not taken from it; give {}", Place(steps_->where),
                      steps_->what, steps_->micro ? "micro-" : "",
                      steps_->searched ? "" : " of one number of GPUs", steps_->hint));
      return;
    }
    throw InputError({{steps_->where, steps_->what, steps_->hint}});
  }

  std::optional<int64_t> AddLayers(Target target, Settings* settings) {
    const bool titan = target == kTitan || target == kTitanToml;
    if (!titan && target != kBridge) return std::nullopt;
    const RegistryRow* row = RegistryIn(*settings);
    if (const auto flavor = std::ranges::find(*settings, "model.flavor", &Setting::key);
        row == nullptr && flavor != settings->end())
      flavor_ = std::make_unique<Setting>(*flavor);
    if (row != nullptr && !out_.model) out_.model = LoadModel(row->model);
    if (!out_.model) return std::nullopt;
    settings->push_back({"MODEL_LAYERS", Text(out_.model->spec.layers), {}, ""});
    return titan ? std::optional(out_.model->spec.layers) : std::nullopt;
  }

  void TakeModel(Target target, const SettingIndex& index) {
    for (const char* key : {"MODEL_LAYERS", "model.name", "model.flavor", "module", "config",
                            "recipe"}) {  // of a value that nobody knows nothing follows
      if (!index.Peek(key).empty() && (target != kBridge || out_.model)) index.Find(key);
    }
    if (target != kMegatron) return;
    auto model = ModelOfMegatron(index);
    if (model && !out_.model) {
      for (const std::string& note : model->notes) out_.notes.push_back(note);
      model->notes.clear();
      out_.model = std::move(model);
    }
  }

  // That of the catalogue, unless a flag says another.
  void NameModelOfTrainer(const SettingIndex& index) {
    if (index.Peek("args.model_name_or_path").empty()) return;
    const Setting& named = *index.Find("args.model_name_or_path");
    const std::string model = CatalogueModel(named.value);
    const std::string last = named.value.substr(named.value.rfind('/') + 1);
    if (!out_.model) {
      out_.model_name = model;
      if (model.empty()) hub_ = std::make_unique<Setting>(named);
    } else if (const std::string& name = out_.model->spec.name;
               name != model && FoldedName(name) != FoldedName(last)) {
      out_.notes.push_back(fmt::format("{}: --model {} is predicted in the place of {}",
                                       Place(named.where), name, named.value));
    }
  }

  // Explicit values win over defaults of a program; two explicit ones must agree.
  void Merge(Values values) {
    for (auto& [field, value] : values) {
      const auto [at, added] = out_.values.emplace(field, value);
      if (added || !value.where.source) continue;
      if (value.text == kAuto || value.text.empty()) continue;  // filled in from what is there
      if (at->second.text != kAuto && !at->second.text.empty() && at->second.where.source &&
          !SameValue(at->second.text, value.text))
        throw InputError({{value.where,
                           fmt::format("{} is {} here and {} in {}", field, value.text,
                                       at->second.text, Place(at->second.where)),
                           "keep one of them"}});
      at->second = value;
    }
  }

  void TakeTraining(Values values) {
    for (auto& [flag, value] : values) {
      const auto [at, added] = out_.training.emplace(flag, value);
      if (!added && !SameValue(at->second.text, value.text))
        throw InputError({{value.where,
                           fmt::format("{} is {} here and {} in {}", value.key, value.text,
                                       at->second.text, Place(at->second.where)),
                           "keep one of them, or give " + flag}});
    }
  }

  void TakeRecords() {
    Values values;
    for (const Setting& setting : in_.records) {
      const std::string field = setting.key.substr(6);
      if (!setting.unresolved.empty()) {
        if (!given_.contains(field))
          throw InputError({{setting.where, setting.unresolved, "or --from a file that says it"}});
      } else if (field == "framework") {
        // "megatron with compile off, tp_async on"
        const std::size_t with = setting.value.find(" with ");
        out_.framework = setting.value.substr(0, with);
        if (with != std::string::npos) out_.facts = FactWords(setting.value.substr(with + 6));
      } else if (field == "topology") {
        out_.topology = setting.value;
      } else if (field == "model") {
        out_.model_name = setting.value;
      } else if (field == "base_model") {
        continue;  // NoModel() names it
      } else {
        values.insert_or_assign(field, Value{setting.value, setting.where, field});
      }
    }
    Merge(std::move(values));
  }

  Collected in_;
  std::unique_ptr<Setting> flavor_;  // that no registry has
  std::unique_ptr<Setting> hub_;     // a model's name that is not in the catalogue
  std::optional<OpenBatch> steps_;
  const Values& given_;
  const bool trains_;
  Imported out_;
};

}  // namespace

Imported Import(const std::vector<SourcePtr>& sources, const std::optional<LoadedModel>& model,
                const Values& given, const OpenNamed& open, bool trains) {
  return Importer(model, given, trains).Run(sources, open);
}

}  // namespace orrery::exchange
