// SPDX-License-Identifier: Apache-2.0
// Merges documents and turns their settings into fields.
#include "model/exchange/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "model/exchange/command_settings.h"
#include "model/exchange/import_steps.h"
#include "model/exchange/model_arguments.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/exchange/training_settings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

constexpr const char* kInline = "args.deepspeed.";

class Importer {
 public:
  Importer(const std::optional<LoadedModel>& model, const Values& given, bool trains)
      : given_(given), trains_(trains) {
    out_.model = model;
  }

  Imported Run(std::vector<SourcePtr> sources, const OpenNamed& open) {
    for (const SourcePtr& source : sources) Sort(ReadDocument(source, open));
    TakeFiles(&sources, open);
    TakeHostfiles(open);
    out_.no_nodes = UnknownNodes(counts_, launch_, records_, targets_);
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
    if (!out_.no_layout && unread_.empty())  // it may stand in words that only a shell knows
      out_.no_layout = NoMicroBatch(targets_, out_.values, given_);
    AskForBatch();
    if (std::string note = PrecisionNote(targets_, out_.values, given_); !note.empty())
      out_.notes.push_back(std::move(note));
    if (!out_.model && out_.model_name.empty()) out_.no_model = NoModel(flavor_.get(), unread_);
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
    // TrainingArguments are no configuration of Accelerate's.
    if (document.target && !document.kind.starts_with("TrainingArguments"))
      read_.emplace(document.source->name, *document.target);
    for (std::string& note : document.notes) out_.notes.push_back(std::move(note));
    for (const Setting& file : document.files) files_.push_back(file);
    written_.merge(document.written);
    for (Hostfile& use : document.hostfiles) hostfiles_.push_back(std::move(use));
    for (Setting& word : document.unread) unread_.push_back(std::move(word));
    for (Setting& count : document.counts) counts_.push_back(std::move(count));
    for (Setting& setting : document.settings) {
      const bool launch = setting.key == "NNODES" || setting.key == "GPUS_PER_NODE" ||
                          setting.key == "PLACES" || setting.key == "WORLD";
      if (setting.key.starts_with("field.")) {
        records_.push_back(std::move(setting));
      } else if (setting.key.starts_with(kInline)) {
        TakeInline(std::move(setting));
      } else if (launch || !document.target) {
        launch_.push_back(std::move(setting));
      } else {
        targets_[*document.target].push_back(std::move(setting));
      }
    }
  }

  // DeepSpeed's file as a value of the Trainer's, which is then told so.
  void TakeInline(Setting setting) {
    Settings& trainer = targets_[kAccelerate];
    if (std::ranges::find(trainer, "args.deepspeed", &Setting::key) == trainer.end())
      trainer.push_back({"args.deepspeed", "", setting.where, ""});
    setting.key.erase(0, std::string_view(kInline).size());
    targets_[kDeepSpeed].push_back(std::move(setting));
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
    CountMachines(launch_, given_, &targets_);
  }

  // Configurations that files name: found, or a note; what they found may name others.
  void TakeFiles(std::vector<SourcePtr>* sources, const OpenNamed& open) {
    constexpr std::size_t kMostFiles = 32;
    std::vector<std::pair<Setting, Target>> missing;
    for (std::size_t i = 0; i < files_.size() && i < kMostFiles; ++i) {
      const Setting file = files_[i];
      if (file.key == "script" || file.key == "program") {
        file.key == "script" ? TakeScript(file, sources, open) : TakeProgram(file, sources, open);
        continue;
      }
      const Target target = TargetOfNamed(file.key);
      const std::string name = file.value.substr(file.value.rfind('/') + 1);
      const bool given = std::ranges::any_of(*sources, [&](const SourcePtr& source) {
        return source != file.where.source &&
               (source->name.substr(source->name.rfind('/') + 1) == name ||
                read_.contains({source->name, target}));
      });
      if (given) continue;
      if (const auto own = written_.find(file.value); own != written_.end()) {
        out_.notes.push_back(fmt::format("{}: {} names {}, which the script itself writes",
                                         Place(file.where), file.key, file.value));
        TakeNamed(file, target, SourcePtr(own->second), file.value);
        continue;
      }
      const SourcePtr found = open && file.unresolved.empty() ? open(file) : nullptr;
      if (found && (target != kTitan || LooksLikePython(found->text))) {
        out_.notes.push_back(
            fmt::format("{}: {} names {}", Place(file.where), file.key, found->name));
        sources->push_back(found);
        TakeNamed(file, target, found, found->name);
      } else {
        missing.emplace_back(file, target);
      }
    }
    for (const auto& [file, target] : missing) {
      const std::string name = file.value.substr(file.value.rfind('/') + 1);
      Missing(file, target, name.empty() ? "FILE" : name);
    }
  }

  static bool IsGiven(const std::vector<SourcePtr>& sources, const std::string& name) {
    return std::ranges::any_of(sources, [&](const SourcePtr& source) {
      return source->name.substr(source->name.rfind('/') + 1) == name;
    });
  }

  // The script that another one starts.
  void TakeScript(const Setting& file, std::vector<SourcePtr>* sources, const OpenNamed& open) {
    const std::string name = file.value.substr(file.value.rfind('/') + 1);
    if (IsGiven(*sources, name) || !targets_.empty()) return;
    if (const SourcePtr found = open ? open(file) : nullptr) {
      out_.notes.push_back(fmt::format("{} starts {}", Place(file.where), found->name));
      sources->push_back(found);
      TakeStarted(found, open);
    } else if (IsAroundTrainScript(*file.where.source)) {
      RefuseAroundTrainScript(file.where.source);
    } else {
      out_.notes.push_back(fmt::format("{}: starts {}, which is not found: add --from {}",
                                       Place(file.where), file.value, name));
    }
  }

  // The Python program that a script starts: its settings stand as literals in those of plan export.
  void TakeProgram(const Setting& file, std::vector<SourcePtr>* sources, const OpenNamed& open) {
    if (IsGiven(*sources, file.value.substr(file.value.rfind('/') + 1))) return;
    const bool sought = open && file.unresolved.empty() && targets_.empty();
    if (const SourcePtr found = sought ? open(file) : nullptr;
        found && IsOwnProgram(*found) && LooksLikePython(found->text)) {
      out_.notes.push_back(fmt::format("{} starts {}", Place(file.where), found->name));
      sources->push_back(found);
      return Sort(ReadDocument(found));
    }
    out_.notes.push_back(
        fmt::format("{}: the program's own settings are in Python and not read: what no flag says "
                    "is a default",
                    Place(file.where)));
  }

  // It may be any: what prepares a job holds none.
  void TakeStarted(const SourcePtr& script, const OpenNamed& open) {
    std::optional<Document> document;
    try {
      document = ReadDocument(script, open);
    } catch (const InputError& error) {
      if (launch_.empty()) throw;
      out_.notes.push_back(
          fmt::format("{} is not read: {}", script->name, error.diagnostics().front().message));
    }
    if (document) Sort(std::move(*document));
  }

  // Nodes of hostfiles, where nothing else counts them; filters choose some of the job's.
  void TakeHostfiles(const OpenNamed& open) {
    for (const Hostfile& use : hostfiles_) {
      const auto own = targets_.find(kAccelerate);
      const bool counted =
          Has(launch_, {"NNODES"}) || (own != targets_.end() && Has(own->second, {"num_machines"}));
      if (counted && !use.filters()) return;
      const std::size_t known = counts_.size();
      const int64_t gpus = NumberOf(given_, "gpus_per_node", 0);
      Settings made = NodesOf(use, open, gpus, &counts_, &out_.notes);
      if (counts_.size() > known && Has(launch_, {"WORLD"}))
        out_.notes.push_back(fmt::format("{}: {}: nodes are counted as those of the cluster",
                                         Place(use.file.where), counts_.back().unresolved));
      for (Setting& setting : made) {
        if (use.filters())
          std::erase_if(launch_, [&](const Setting& one) { return one.key == setting.key; });
        if (!Has(launch_, {setting.key.c_str()})) launch_.push_back(std::move(setting));
      }
    }
  }

  void TakeNamed(const Setting& file, Target target, const SourcePtr& source,
                 const std::string& name) {
    Document document = ReadDocument(source);
    if (document.target && *document.target != target)
      throw InputError(
          {{file.where, fmt::format("{} names {}, which is {}", file.key, name, document.kind),
            fmt::format("a file of {}", InfoOf(target).name)}});
    Sort(std::move(document));
  }

  // A Trainer's stage of ZeRO, and more, stands in DeepSpeed's file alone, and whether a job of Accelerate shards in that of
  // Accelerate unless its command line says so.
  void Missing(const Setting& file, Target target, const std::string& name) {
    const char* const what = file.unresolved.empty() ? file.value.c_str() : "a file";
    // Megatron-DeepSpeed has a stage on its command line.
    const bool alone = target == kDeepSpeed    ? !targets_.contains(kMegatron)
                       : target == kAccelerate ? !SaysSharding(targets_[kAccelerate])
                                               : false;
    if (alone && !given_.contains("zero"))
      throw InputError(
          {{file.where,
            file.unresolved.empty()
                ? fmt::format("{} names {}, which is not found: it says how states are sharded",
                              file.key, what)
                : fmt::format("{}: {}: it says how states are sharded", file.key, file.unresolved),
            fmt::format("--from {}, or --zero N in its place{}", name,
                        target == kAccelerate ? " and --framework NAME" : "")}});
    const std::string words =
        target == kTitan ? fmt::format(
                               "the program's own settings are in Python and not read: what "
                               "no flag says is a default; {} names",
                               file.key)
                         : file.key + " names";
    out_.notes.push_back(fmt::format(
        "{}: {} {}, whose settings are not known here{}: add --from {}", Place(file.where), words,
        what, file.unresolved.empty() ? "" : " (" + file.unresolved + ")", name));
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
    const std::string release = ReleaseOf(target, settings);
    Respell(target, layers, &settings, &out_.notes);
    const SettingIndex index(settings);
    TakeModel(target, index);
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
    if (target == kDeepSpeed && targets_.size() > 1) LetOthersSay(index, &values);
    if (target == kTitanToml && !known.contains("global_batch")) steps_ = LocalBatchAlone(settings);
    if (out_.model) NameAllLayers(out_.model->spec.layers, &values);
    TakeWorld(target, index, given_, &values, &out_.notes);
    // Of two programs the one with degrees of models knows the ranks.
    if (target != kDeepSpeed || !targets_.contains(kMegatron)) CheckBatch(target, known);
    if (target == kTitanToml && !given_.contains("global_batch"))
      out_.no_layout = PassesOfPipeline(index, known);
    if (target == kMegatron) CheckMegatron(index, values, given_);
    const bool megatron = target == kMegatron || target == kBridge;
    for (std::string note :
         {UnitsNote(index, values), megatron ? MomentumNote(index, values) : ""}) {
      if (!note.empty()) out_.notes.push_back(std::move(note));
    }
    const bool titan = target == kTitan || target == kTitanToml;
    if (std::string note = titan && release != "@2024" ? FilterNote(index, values) : "";
        !note.empty())
      out_.notes.push_back(std::move(note));
    out_.framework = FrameworkOf(target, targets_, index, values);
    if (out_.framework == "torchtitan") out_.framework += release;
    // Of these the release itself says how.
    if (!release.empty()) values.erase("recompute_unread");
    if (release == "@2024") values.erase("compile_loss");
    Merge(std::move(values));
    if (trains_) TakeTraining(TrainingOf(index, target));
    for (std::string& note : UnusedNotes(target, index, files_))
      out_.notes.push_back(std::move(note));
  }

  // Of models, which Megatron's arguments say: batches of DeepSpeed's file are those of the ranks that these leave.
  Values DegreesOf(Target target) const {
    Values degrees;
    if (target != kDeepSpeed || !targets_.contains(kMegatron)) return degrees;
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
    if (!titan || !out_.model) return std::nullopt;
    settings->push_back({"MODEL_LAYERS", Text(out_.model->spec.layers), {}, ""});
    return out_.model->spec.layers;
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

  std::map<Target, Settings> targets_;
  Settings launch_, records_, files_, unread_, counts_;
  std::vector<Hostfile> hostfiles_;
  std::map<std::string, SourcePtr> written_;  // by scripts, under the names that they have there
  std::unique_ptr<Setting> flavor_;           // that no registry has
  std::optional<OpenBatch> steps_;
  std::set<std::pair<std::string, Target>> read_;  // names of files
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
