// SPDX-License-Identifier: Apache-2.0
// Follows files to those that they name.
#include "model/exchange/import_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "model/exchange/command_settings.h"
#include "model/exchange/import_accelerate.h"
#include "model/exchange/import_steps.h"
#include "model/exchange/spellings.h"
#include "model/exchange/train_script.h"

namespace orrery::exchange {
namespace {

constexpr const char* kInline = "args.deepspeed.";

class Collector {
 public:
  explicit Collector(const Values& given) : given_(given) {}

  Collected Run(std::vector<SourcePtr> sources, const OpenNamed& open) {
    for (const SourcePtr& source : sources) {
      Sort(ReadDocument(source, open));
      if (HasArgumentDump(source->text) && HasLoggedSettings(source->text)) SortSecond(source);
    }
    CheckOff();
    TakeFiles(&sources, open);
    TakeMachines(open);
    TakeHostfiles(open);
    return std::move(out_);
  }

 private:
  void Sort(Document document) {
    out_.notes.push_back(fmt::format("{}: {}", document.source->name, document.kind));
    // TrainingArguments are no configuration of Accelerate's.
    if (document.target && !document.kind.starts_with("TrainingArguments"))
      read_.emplace(document.source->name, *document.target);
    for (std::string& note : document.notes) out_.notes.push_back(std::move(note));
    for (const Setting& file : document.files) out_.files.push_back(file);
    written_.merge(document.written);
    for (Hostfile& use : document.hostfiles) hostfiles_.push_back(std::move(use));
    for (Setting& word : document.unread) out_.unread.push_back(std::move(word));
    for (Setting& kind : document.gpus) out_.gpus.push_back(std::move(kind));
    for (Setting& setting : document.off) off_.push_back(std::move(setting));
    for (Setting& count : document.counts) out_.counts.push_back(std::move(count));
    for (Setting& setting : document.settings) {
      const bool launch = setting.key == "NNODES" || setting.key == "GPUS_PER_NODE" ||
                          setting.key == "PLACES" || setting.key == "WORLD";
      if (setting.key.starts_with("field.")) {
        out_.records.push_back(std::move(setting));
      } else if (setting.key.starts_with(kInline)) {
        TakeInline(std::move(setting));
      } else if (launch || !document.target) {
        out_.launch.push_back(std::move(setting));
      } else {
        out_.targets[*document.target].push_back(std::move(setting));
      }
    }
  }

  // A script that asks for what the log of its job says to be off is that of another job.
  void CheckOff() const {
    const auto megatron = out_.targets.find(kMegatron);
    if (megatron == out_.targets.end()) return;
    for (const Setting& off : off_) {
      const auto on = std::ranges::find(megatron->second, off.key, &Setting::key);
      if (on == megatron->second.end() || !on->unresolved.empty() || Off(on->value)) continue;
      throw InputError(
          {{on->where,
            fmt::format("{}{} here, and {} in {}", on->key,
                        on->value.empty() ? "" : " " + on->value, off.value, Place(off.where)),
            "keep one of them"}});
    }
  }

  // The file that Megatron-DeepSpeed's log holds next to its arguments. DeepSpeed counts replicas there, not ranks.
  void SortSecond(const SourcePtr& source) {
    Document document = ReadLoggedSettings(source);
    std::erase_if(document.settings, [](const Setting& setting) { return setting.key == "WORLD"; });
    Sort(std::move(document));
  }

  // DeepSpeed's file as a value of the Trainer's, which is then told so.
  void TakeInline(Setting setting) {
    Settings& trainer = out_.targets[kAccelerate];
    if (std::ranges::find(trainer, "args.deepspeed", &Setting::key) == trainer.end())
      trainer.push_back({"args.deepspeed", "", setting.where, ""});
    setting.key.erase(0, std::string_view(kInline).size());
    out_.targets[kDeepSpeed].push_back(std::move(setting));
  }

  // Configurations that files name: found, or a note; what they found may name others.
  void TakeFiles(std::vector<SourcePtr>* sources, const OpenNamed& open) {
    constexpr std::size_t kMostFiles = 32;
    std::vector<std::pair<Setting, Target>> missing;
    for (std::size_t i = 0; i < out_.files.size() && i < kMostFiles; ++i) {
      const Setting file = out_.files[i];
      if (file.key == "script" || file.key == "program") {
        file.key == "script" ? TakeScript(file, sources, open) : TakeProgram(file, sources, open);
        continue;
      }
      if (file.key == "args.fsdp_config") {
        TakeFsdpPart(file, sources, open);
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

  // The Trainer's part for FSDP: a file, or its text in the command.
  void TakeFsdpPart(const Setting& file, std::vector<SourcePtr>* sources, const OpenNamed& open) {
    if (!file.value.empty() && file.value[0] == '{') {
      const Document part =
          ReadFsdpPart(std::make_shared<const Source>(Source{file.where.source->name, file.value}));
      for (Setting setting : part.settings) {
        setting.where = file.where;
        setting.flag = file.flag;
        out_.targets[kAccelerate].push_back(std::move(setting));
      }
      return;
    }
    const std::string name = file.value.substr(file.value.rfind('/') + 1);
    if (file.unresolved.empty() && IsGiven(*sources, name)) return;
    if (const auto own = written_.find(file.value); own != written_.end())
      return Sort(ReadFsdpPart(own->second));
    if (const SourcePtr found = open && file.unresolved.empty() ? open(file) : nullptr) {
      out_.notes.push_back(fmt::format("{}: fsdp_config names {}", Place(file.where), found->name));
      sources->push_back(found);
      return Sort(ReadFsdpPart(found));
    }
    if (given_.contains("zero") && given_.contains("recompute")) return;
    throw InputError(
        {{file.where,
          file.unresolved.empty()
              ? fmt::format("fsdp_config names {}, which is not found: it says how FSDP shards and "
                            "what it recomputes",
                            file.value)
              : fmt::format("fsdp_config: {}: it says how FSDP shards and what it recomputes",
                            file.unresolved),
          fmt::format("--from {}, or --zero N and --recompute full or none in its place",
                      name.empty() ? "FILE" : name)}});
  }

  static bool IsGiven(const std::vector<SourcePtr>& sources, const std::string& name) {
    return std::ranges::any_of(sources, [&](const SourcePtr& source) {
      return source->name.substr(source->name.rfind('/') + 1) == name;
    });
  }

  // The script that another one starts.
  void TakeScript(const Setting& file, std::vector<SourcePtr>* sources, const OpenNamed& open) {
    const std::string name = file.value.substr(file.value.rfind('/') + 1);
    if (IsGiven(*sources, name) || !out_.targets.empty()) return;
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
    const bool sought = open && file.unresolved.empty() && out_.targets.empty();
    if (const SourcePtr found = sought ? open(file) : nullptr;
        found && IsOwnProgram(*found) && LooksLikePython(found->text)) {
      out_.notes.push_back(fmt::format("{} starts {}", Place(file.where), found->name));
      sources->push_back(found);
      return Sort(ReadDocument(found));
    }
    if (file.said.empty())
      out_.notes.push_back(fmt::format(
          "{}: the program's own settings are in Python and not read: what no flag says "
          "is a default",
          Place(file.where)));
    else
      out_.notes.push_back(fmt::format(
          "{}: {} is no program that is known here: neither its arguments ({}) nor its settings in "
          "Python are read. What no flag of this command says is a default: --framework, --zero, "
          "--tp, --pp, --micro-batch, --global-batch",
          Place(file.where), file.value, file.said));
  }

  // It may be any: what prepares a job holds none.
  void TakeStarted(const SourcePtr& script, const OpenNamed& open) {
    std::optional<Document> document;
    try {
      document = ReadDocument(script, open);
    } catch (const InputError& error) {
      if (out_.launch.empty()) throw;
      out_.notes.push_back(
          fmt::format("{} is not read: {}", script->name, error.diagnostics().front().message));
    }
    if (document) Sort(std::move(*document));
  }

  // accelerate hands filters on, and not its own counts; processes of one machine are those of the GPUs that it leaves.
  void TakeMachines(const OpenNamed& open) {
    const auto own = out_.targets.find(kAccelerate);
    if (own == out_.targets.end()) return;
    TakeGpuIds(&own->second, &out_.notes);
    const auto use = FilterOfAccelerate(&own->second, hostfiles_, &out_.notes);
    if (!use) return;
    const std::size_t known = out_.counts.size();
    const int64_t gpus = NumberOf(given_, "gpus_per_node", 0);
    ReplaceMachines(NodesOf(*use, open, gpus, &out_.counts, &out_.notes), &own->second);
    if (out_.counts.size() > known)
      out_.notes.push_back(
          fmt::format("{}: {}: num_machines and num_processes are taken as they stand",
                      Place(use->filter.where), out_.counts.back().unresolved));
  }

  // Nodes of hostfiles, where nothing else counts them; filters choose some of the job's.
  void TakeHostfiles(const OpenNamed& open) {
    for (const Hostfile& use : hostfiles_) {
      const auto own = out_.targets.find(kAccelerate);
      const bool counted = Has(out_.launch, {"NNODES"}) ||
                           (own != out_.targets.end() && Has(own->second, {"num_machines"}));
      if (counted && !use.filters()) return;
      const std::size_t known = out_.counts.size();
      const int64_t gpus = NumberOf(given_, "gpus_per_node", 0);
      Settings made = NodesOf(use, open, gpus, &out_.counts, &out_.notes);
      if (out_.counts.size() > known && Has(out_.launch, {"WORLD"}))
        out_.notes.push_back(fmt::format("{}: {}: nodes are counted as those of the cluster",
                                         Place(use.file.where), out_.counts.back().unresolved));
      for (Setting& setting : made) {
        if (use.filters())
          std::erase_if(out_.launch, [&](const Setting& one) { return one.key == setting.key; });
        if (!Has(out_.launch, {setting.key.c_str()})) out_.launch.push_back(std::move(setting));
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
    const bool alone = target == kDeepSpeed    ? !out_.targets.contains(kMegatron)
                       : target == kAccelerate ? !SaysSharding(out_.targets[kAccelerate])
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

  Settings off_;  // of logs
  std::vector<Hostfile> hostfiles_;
  std::map<std::string, SourcePtr> written_;  // by scripts, under the names that they have there
  std::set<std::pair<std::string, Target>> read_;  // names of files
  const Values& given_;
  Collected out_;
};

}  // namespace

Collected Collect(std::vector<SourcePtr> sources, const Values& given, const OpenNamed& open) {
  return Collector(given).Run(std::move(sources), open);
}

}  // namespace orrery::exchange
