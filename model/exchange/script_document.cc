// SPDX-License-Identifier: Apache-2.0
// Finds the training command of a script, and what its launcher says of nodes and GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "model/base/host_list.h"
#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/document.h"
#include "model/exchange/launch_words.h"
#include "model/exchange/shell.h"
#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_effects.h"

namespace orrery::exchange {
namespace {

constexpr std::size_t kMostHosts = 65536;

class ScriptReader {
 public:
  ScriptReader(const SourcePtr& source, const OpenNamed& open)
      : script_(ReadShell(source, Opener(open))) {
    document_.source = source;
    document_.kind = "a script";
  }

  Document Read() {
    document_.notes = SourcedNotes(script_);
    FindCommand();
    for (const Word& comment : script_.comments) Directive(comment);
    CountHosts();
    CountTasks();
    CountGpus();
    // As many tasks as GPUs, where nothing else counts those.
    if (tasks_ && !Has(document_.settings, {"GPUS_PER_NODE", "num_processes"}))
      Add("GPUS_PER_NODE", tasks_->value, tasks_->where);
    TakeTasks();
    for (const char* name : kCountVariables)
      Variable(name, std::string_view(name).ends_with("NODES") ? "NNODES" : "GPUS_PER_NODE");
    // torchrun and deepspeed start one node unless they are told otherwise.
    if (one_ && Has(document_.settings, {"GPUS_PER_NODE"}) &&
        !Has(document_.settings, {"NNODES", "num_machines"}) && !unknown_.contains("NNODES"))
      Add("NNODES", "1", *one_);
    if (const auto places = script_.variables.find("PLACES"); places != script_.variables.end()) {
      for (const Word& word : places->second.words)
        if (word.unresolved.empty()) Add("PLACES", word.text, word.where);
    }
    for (const Word& branch : document_.target ? script_.branches : Words())
      document_.notes.push_back(fmt::format(
          "{}: what this branch adds to {} is ignored, since the branch may not be taken",
          Place(branch.where), branch.text));
    for (const auto& [key, setting] : unknown_) {
      if (Has(document_.settings, {key.c_str()})) continue;
      if (key == "NNODES" || key.starts_with("num_"))
        document_.counts.push_back(setting);
      else
        Lost({"", setting.where, setting.unresolved});
    }
    if (script_.end)
      document_.notes.push_back(fmt::format(
          "{}: the script ends here: what stands behind is not read", Place(*script_.end)));
    if (!document_.target) NameScript();
    if (document_.settings.empty() && document_.counts.empty() && document_.files.empty()) {
      RefuseClusterFile(document_.source);
      if (script_.end)
        throw InputError({{*script_.end, "the script ends here, before any training command",
                           "a script that trains with the variables that it sets itself"}});
      throw InputError({{{document_.source, 1, 1},
                         fmt::format("{}: no training command and no size of a job is found",
                                     document_.source->name),
                         "a script that starts pretrain_gpt.py, torchrun, accelerate or deepspeed, "
                         "or that holds #SBATCH or #PBS lines"}});
    }
    for (Setting& setting : document_.settings) ExplainUnset(script_, &setting);
    // Their layout stands in the program, which is not run.
    if (program_ && !Has(document_.files, {"script"}))
      document_.files.push_back(
          {"program", program_->text, program_->where, program_->unresolved, true});
    return std::move(document_);
  }

 private:
  static OpenSourced Opener(const OpenNamed& open) {
    if (!open) return nullptr;
    return [&open](const Word& file) {
      return open({"source", file.text, file.where, file.unresolved, true});
    };
  }
  // The last script that is started, which may hold the training command; null: none is.
  const Word* Started() {
    const std::string& own = document_.source->name;
    for (std::size_t i = script_.commands.size(); i-- > 0;) {
      const Words& command = script_.commands[i];
      if (command.front().text == "source" || command.front().text == ".") continue;
      const auto script = std::ranges::find_if(command, [&](const Word& word) {
        return word.unresolved.empty() && word.text.ends_with(".sh") && word.text != own &&
               !IsOption(word.text);
      });
      if (script == command.end()) continue;
      command_ = i;
      return &*script;
    }
    return nullptr;
  }

  // Without a training command: the script that this one starts, which may hold it.
  void NameScript() {
    if (program_ && program_->text.ends_with(".py")) return;
    if (const Word* script = Started()) {
      document_.files.push_back({"script", script->text, script->where, "", true});
      return;
    }
    // Those of plan export that hand the folder's other files on.
    if (IsAroundTrainScript(*document_.source))
      document_.files.push_back({"script", "train.sh", {document_.source, 1, 1}, "", true});
  }

  // The command with the most settings; arguments of tools before it are fewer.
  void FindCommand() {
    const Words* best = nullptr;
    std::size_t program = 0, others = 0;
    Settings most;
    Words lost;
    for (const Words& words : script_.commands) {
      const std::size_t at = ProgramOf(words);
      if (at == words.size()) continue;
      Words unknown;
      Settings settings = SettingsOf(words, at, &unknown);
      others += TargetOf(settings) ? 1 : 0;
      if (best != nullptr && settings.size() <= most.size()) continue;
      best = &words;
      command_ = static_cast<std::size_t>(&words - script_.commands.data());
      program = at;
      most = std::move(settings);
      lost = std::move(unknown);
    }
    if (best == nullptr) return (void)Started();  // it finds variables
    if (others > 1)
      document_.notes.push_back(
          fmt::format("{}: of {} training commands this one is read, which says most",
                      Place((*best)[program].where), others));
    document_.target = TargetOf(most);
    Launch(std::span(*best).subspan(0, program));
    if (!document_.target) program_ = (*best)[program];
    if (document_.target)
      document_.kind = fmt::format("a script with settings of {}", InfoOf(*document_.target).name);
    for (const Word& word : lost) Lost(word, true);
    // HfArgumentParser takes one as the first word behind the program.
    if (document_.target == kAccelerate && program + 1 < best->size() &&
        IsArgumentsFile((*best)[program + 1].text)) {
      const Word& word = (*best)[program + 1];
      document_.files.push_back({"arguments", word.text, word.where, word.unresolved, true});
    }
    for (Setting& setting : most) {
      if (document_.target == kAccelerate && !setting.key.starts_with("num_"))
        setting.key = "args." + setting.key;
      document_.settings.push_back(std::move(setting));
    }
    NameFiles();
  }

  // A variable that surely holds words, nobody knows which. What a branch alone sets may be empty.
  static bool Decides(const std::string& reason) {
    return reason.ends_with("in a loop") || reason.ends_with("is set by read") ||
           reason.ends_with("is set in a branch after another value") ||
           reason.ends_with("after a value") || reason.find(" is set through ") != reason.npos ||
           reason.ends_with("is set by printf");
  }

  // What only a shell knows, and what that means here. Each once. `options`: the word may hold options.
  void Lost(const Word& word, bool options = false) {
    const bool unset = IsUnset(word.unresolved);
    if (options && Decides(word.unresolved))
      throw InputError(
          {{word.where,
            fmt::format("{}, and arguments of the training command stand in it", word.unresolved),
            "write these words into the command"}});
    if (!unset && !options && !word.unresolved.ends_with("is set in a branch") &&
        !word.unresolved.ends_with("in a loop"))
      return;
    if (!unset) document_.unread.push_back({"", "", word.where, word.unresolved});
    std::string note = fmt::format("{}: {}: {}", Place(word.where), word.unresolved,
                                   unset ? "taken as empty" : "what it holds is not read");
    if (std::ranges::find(document_.notes, note) == document_.notes.end())
      document_.notes.push_back(std::move(note));
  }

  void Launch(std::span<const Word> words) {
    LaunchSays says = LaunchOf(words);
    if (says.accelerate && !document_.target) document_.target = kAccelerate;
    agents_ = says.torch || says.accelerate || says.deepspeed;
    spread_ = !words.empty() && words.front().text == "srun" &&
              !Has(says.settings, {"GPUS_PER_NODE", "RANKS", "WORLD"});
    document_.hostfiles = std::move(says.hostfiles);
    const bool hosts = std::ranges::any_of(
        words, [](const Word& word) { return word.text.starts_with("--hostfile"); });
    if ((says.torch || (says.deepspeed && !hosts)) && !words.empty()) one_ = words.back().where;
    for (Setting& setting : says.settings) {
      if (!setting.unresolved.empty() && !NamesConfiguration(setting.key)) {
        unknown_.emplace(setting.key, setting);  // another line may know it
      } else {
        document_.settings.push_back(std::move(setting));
      }
    }
    if (document_.target == kAccelerate && !says.accelerate)
      document_.settings.push_back({"LAUNCHER", says.deepspeed ? "deepspeed" : "torchrun",
                                    words.empty() ? Location{} : words.back().where, "", true});
  }

  void NameFiles() {
    for (const Setting& setting : document_.settings) {
      if (NamesConfiguration(setting.key) &&
          (!setting.value.empty() || !setting.unresolved.empty()))
        document_.files.push_back(setting);
      // A module is a file on PYTHONPATH; torchtitan's own are none here.
      if (document_.target == kTitan && setting.key == "module") {
        Setting& file = document_.files.emplace_back(setting);
        std::ranges::replace(file.value, '.', '/');
        if (file.unresolved.empty()) file.value += ".py";
      }
    }
    const auto folder = script_.folders.find(command_);
    for (Setting& file : document_.files) {
      const bool here = !file.value.starts_with("./") &&
                        !file.value.starts_with(FolderOf(document_.source->name) + "/");
      if (folder != script_.folders.end() && file.unresolved.empty() && here)
        file.value = (std::filesystem::path(folder->second) / file.value).string();
      TakeWritten(&file);
    }
  }

  // What the script writes is what runs, not what lies there from a run before. Its text keeps its lines.
  void TakeWritten(Setting* named) {
    const WrittenFile* file =
        FindWritten(script_, command_, *named, FolderOf(document_.source->name));
    if (file == nullptr) return;
    if (file->unresolved.empty() && !file->copy.empty()) {
      document_.notes.push_back(fmt::format("{}: {} is a copy of {} ({})", Place(named->where),
                                            named->value, file->copy, Place(file->name.where)));
      named->value = file->copy;
      named->unresolved.clear();
      return;
    }
    if (!file->unresolved.empty() || file->text.find_first_not_of(" \t\n") == std::string::npos) {
      named->unresolved = file->unresolved.empty() ? "its text is empty" : file->unresolved;
      return;
    }
    if (named->value.empty()) named->value = "the file of " + Place(file->where);
    named->unresolved.clear();
    const auto lines = static_cast<std::size_t>(std::max(1, file->where.line) - 1);
    document_.written[named->value] = std::make_shared<const Source>(
        Source{file->where.source->name, std::string(lines, '\n') + file->text});
  }

  void Add(const std::string& key, const std::string& value, const Location& where) {
    document_.settings.push_back({key, value, where, "", true});
  }

  void Variable(const char* name, const char* key) {
    const ShellVariable* variable = VariableAt(script_, command_, name);
    if (variable == nullptr || variable->words.size() != 1) return;
    const Word& word = variable->words[0];
    if (Has(document_.settings, {key})) return;
    if (!word.unresolved.empty()) {
      unknown_.emplace(key, Setting{key, "", word.where, word.unresolved});
    } else if (IsWhole(word.text)) {
      Add(key, word.text, word.where);
    } else if (std::string_view(key) == "NNODES" && !word.text.empty()) {
      Nodes(word.text, word.where);
    }
  }

  void Nodes(const std::string& count, const Location& where) {
    Setting setting = CountedNodes({"NNODES", count, where, ""});
    if (setting.unresolved.empty())
      Add("NNODES", setting.value, where);
    else
      unknown_.emplace("NNODES", std::move(setting));
  }

  // "SBATCH --nodes=4" and "PBS -l select=4:ncpus=8:ngpus=8".
  void Directive(const Word& comment) {
    const std::string name = comment.text.substr(0, comment.text.find_first_of(" \t"));
    const bool slurm = name == "SBATCH";
    if (name == "BSUB" || name == "COBALT" || name == "PJM" || name == "flux:" || name == "$")
      return OtherScheduler(comment, name);
    if ((!slurm && name != "PBS") || name.size() == comment.text.size()) return;
    if (!comment.unresolved.empty()) {
      document_.notes.push_back(fmt::format("{}: #{} {}: {} does not read it", Place(comment.where),
                                            comment.text, comment.unresolved,
                                            slurm ? "Slurm" : "PBS"));
      return;
    }
    const Words words = DirectiveWords(comment, name.size());
    if (slurm && !words.empty() && (words[0].text == "hetjob" || words[0].text == "packjob"))
      throw InputError(
          {{comment.where, "a job of several components: which of them trains is not known",
            "leave the directives of that component alone"}});
    for (const Setting& setting : OptionsOf(words)) {
      if (slurm) {
        Slurm(setting);
      } else if (setting.key == "l" &&
                 (setting.value.starts_with("select=") || setting.value.starts_with("nodes="))) {
        for (const Setting& count : PbsCounts(setting)) {
          if (count.key == "NNODES")
            Nodes(count.value, count.where);
          else
            Add(count.key, count.value, count.where);
        }
      }
    }
  }

  void OtherScheduler(const Word& comment, const std::string& name) {
    if (name == "$" && !comment.text.starts_with("$ -")) return;  // a comment of people
    if (const std::string count = name == "BSUB" ? BsubNodes(comment) : ""; !count.empty())
      return Nodes(count, comment.where);
    const std::string what = fmt::format("#{}: directives of this scheduler are not read", name);
    const bool said = std::ranges::any_of(document_.notes, [&](const std::string& note) {
      return note.find(what) != std::string::npos;
    });
    if (!said)
      document_.notes.push_back(fmt::format("{}: {}{}", Place(comment.where), what,
                                            name == "BSUB" ? " but -nnodes" : ": give --nodes"));
  }

  void Slurm(const Setting& setting) {
    if (setting.key == "nodes" || setting.key == "N") {
      Nodes(setting.value, setting.where);
    } else if (setting.key == "nodelist" || setting.key == "w") {
      hosts_ = setting;
    } else if (setting.key == "gpus" || setting.key == "G") {
      gpus_ = setting;
    } else if (setting.key == "ntasks" || setting.key == "n") {
      if (IsWhole(setting.value)) all_ = setting;
    } else if (setting.key == "ntasks-per-node") {
      if (IsWhole(setting.value)) each_ = setting;
      if (IsWhole(setting.value) && setting.value != "1") tasks_ = setting;
    } else if (setting.key == "gpus-per-node" || setting.key == "gres") {
      std::string type;
      const std::string count = GpusIn(setting.value, setting.key == "gres", &type);
      if (!count.empty()) Add("GPUS_PER_NODE", count, setting.where);
      if (!type.empty())
        document_.notes.push_back(fmt::format("{} requests {} GPUs", Place(setting.where), type));
    } else if (setting.key == "gpus-per-task") {
      per_task_ = setting;
      per_task_->value = GpusIn(setting.value, false);
    }
  }

  // Where no line has a number of nodes: the hosts of a list, and all GPUs of the job ("40", "h100:40").
  void CountHosts() {
    if (Has(document_.settings, {"NNODES", "WORLD", "num_machines"}) || unknown_.contains("NNODES"))
      return;
    if (hosts_) {
      const std::size_t hosts = ExpandHosts(hosts_->value, kMostHosts + 1).size();
      const bool known = hosts > 0 && hosts <= kMostHosts;
      Nodes(known ? std::to_string(hosts) : hosts_->value, hosts_->where);
    } else if (gpus_) {
      const std::string count = gpus_->value.substr(gpus_->value.rfind(':') + 1);
      if (IsWhole(count)) Add("WORLD", count, gpus_->where);
    }
  }

  // Slurm's tasks of the whole job, where no line has a number of nodes: with those of a node, or as ranks on its GPUs.
  void CountTasks() {
    if (!all_ || Has(document_.settings, {"NNODES", "WORLD", "num_machines"})) return;
    const auto gpus = std::ranges::find(document_.settings, "GPUS_PER_NODE", &Setting::key);
    const Setting* each = each_                                         ? &*each_
                          : agents_ || gpus == document_.settings.end() ? nullptr
                                                                        : &*gpus;
    int64_t all = 0, one = 0;
    (void)ParseInteger(all_->value, &all);
    if (each == nullptr || ParseInteger(each->value, &one) != NumberFault::kNone || one <= 0 ||
        all % one != 0) {
      if (!agents_ && all > 1) Add("WORLD", all_->value, all_->where);
      return;
    }
    const int64_t nodes = all / one;
    if (const auto range = unknown_.find("NNODES"); range != unknown_.end()) {
      const std::string& text = range->second.value;
      const std::size_t sign = text.find('-');
      int64_t least = 0, most = 0;
      if (sign != std::string::npos &&
          ParseInteger(text.substr(0, sign), &least) == NumberFault::kNone &&
          ParseInteger(text.substr(sign + 1), &most) == NumberFault::kNone &&
          (nodes < least || nodes > most))
        throw InputError({{range->second.where,
                           fmt::format("{} to {} nodes here, and {} tasks with {} on each node are "
                                       "{} nodes ({})",
                                       least, most, all, one, nodes, Place(all_->where)),
                           "keep one of them"}});
    }
    Add("NNODES", std::to_string(nodes), all_->where);
  }

  // Where no line has the GPUs of a node: those of its tasks, or tasks of the job as ranks on its nodes.
  void CountGpus() {
    const auto nodes = std::ranges::find(document_.settings, "NNODES", &Setting::key);
    if (nodes == document_.settings.end() || tasks_ || Has(document_.settings, {"GPUS_PER_NODE"}))
      return;
    int64_t all = 0, each = 0, count = 0, gpus = 1;
    if (each_) (void)ParseInteger(each_->value, &each);
    if (all_) (void)ParseInteger(all_->value, &all);
    (void)ParseInteger(nodes->value, &count);
    if (each == 0 && count > 0 && all % count == 0) each = all / count;
    if (per_task_ && ParseInteger(per_task_->value, &gpus) != NumberFault::kNone) return;
    if (!per_task_ && (agents_ || each < 2)) return;
    if (each * gpus > 0)
      Add("GPUS_PER_NODE", std::to_string(each * gpus), per_task_ ? per_task_->where : all_->where);
  }

  // Tasks that srun starts are ranks with a GPU each, where none is an agent: a node's other GPUs are idle.
  void TakeTasks() {
    const auto gpus = std::ranges::find(document_.settings, "GPUS_PER_NODE", &Setting::key);
    if (!tasks_ || agents_ || !spread_ || per_task_ || gpus == document_.settings.end()) return;
    int64_t tasks = 0, all = 0;
    if (ParseInteger(tasks_->value, &tasks) != NumberFault::kNone ||
        ParseInteger(gpus->value, &all) != NumberFault::kNone || tasks >= all)
      return;
    document_.notes.push_back(
        fmt::format("{}: {} tasks on a node of {} GPUs ({}) are {} ranks: the others are idle",
                    Place(tasks_->where), tasks, all, Place(gpus->where), tasks));
    *gpus = {"GPUS_PER_NODE", tasks_->value, tasks_->where, "", true};
  }

  ShellScript script_;
  std::size_t command_ = 0;      // the place of the training command
  std::optional<Word> program_;  // that it starts, of no known target
  Document document_;
  std::map<std::string, Setting> unknown_;  // of launchers: by key, with the reason
  std::optional<Setting> tasks_;            // of Slurm, on each node: ranks
  std::optional<Setting> hosts_, gpus_;     // of Slurm, of the job: a list, all GPUs
  std::optional<Setting> per_task_;         // of Slurm: GPUs
  std::optional<Setting> all_, each_;       // likewise: of the job, and on each node if it is one
  bool agents_ = false;                     // a task starts the ranks of its node
  bool spread_ = false;                     // srun starts it, as often as the directives say
  std::optional<Location>
      one_;  // where a launcher starts ranks, of one node unless others are named
};

}  // namespace

Document ReadScript(const SourcePtr& source, const OpenNamed& open) {
  return ScriptReader(source, open).Read();
}

}  // namespace orrery::exchange
