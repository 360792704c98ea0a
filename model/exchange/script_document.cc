// SPDX-License-Identifier: Apache-2.0
// Finds the training command of a script, and what its launcher says of nodes and GPUs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/document.h"
#include "model/exchange/launch_options.h"
#include "model/exchange/launch_words.h"
#include "model/exchange/pbs_counts.h"
#include "model/exchange/shell.h"
#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_effects.h"
#include "model/exchange/slurm_counts.h"

namespace orrery::exchange {
namespace {

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
    for (const Setting& option : job_) slurm_.Take(option, &counts_);
    for (const Word& comment : script_.comments) Directive(comment);
    pbs_.Count(&counts_);
    slurm_.Count(&counts_);
    if (VariableAt(script_, command_, kAgentNodes) == nullptr) counts_.CheckOneNode();
    if (const ShellVariable* world = VariableAt(script_, command_, kWorldSize);
        world != nullptr && world->words.size() == 1 && world->words[0].unresolved.empty())
      counts_.CheckWorldSize(world->words[0].text, world->words[0].where);
    for (const char* name : kCountVariables)
      Variable(name, std::string_view(name).ends_with("NODES") ? "NNODES" : "GPUS_PER_NODE");
    // torchrun and deepspeed start one node unless they are told otherwise.
    if (one_ && Has(document_.settings, {"GPUS_PER_NODE"}) &&
        !Has(document_.settings, {"NNODES", "num_machines"}) && !counts_.unknown.contains("NNODES"))
      Add("NNODES", "1", *one_);
    if (const auto places = script_.variables.find("PLACES"); places != script_.variables.end()) {
      for (const Word& word : places->second.words)
        if (word.unresolved.empty()) Add("PLACES", word.text, word.where);
    }
    for (const Word& branch : document_.target ? script_.branches : Words())
      document_.notes.push_back(fmt::format(
          "{}: what this branch adds to {} is ignored, since the branch may not be taken",
          Place(branch.where), branch.text));
    for (const auto& [key, setting] : counts_.unknown) {
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
          {"program", program_->text, program_->where, program_->unresolved, true, arguments_});
    if (!program_ && !document_.target && document_.files.empty())
      document_.notes.push_back(
          fmt::format("{}: no training command that is known here: only the nodes and GPUs of the "
                      "job are read; layout and batch are defaults",
                      document_.source->name));
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
               word.text.find_first_of(" \t\n") == std::string::npos && !IsOption(word.text);
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
      if (OtherThanTraining(words[at].text) != nullptr) {
        other_ = words[at];
        continue;
      }
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
    if (other_ && (best == nullptr || !TargetOf(most)))
      throw InputError(
          {{other_->where, fmt::format("{} {}", other_->text, OtherThanTraining(other_->text)),
            "a script that trains a language model, such as by pretrain_gpt.py"}});
    if (best == nullptr) return (void)Started();  // it finds variables
    if (others > 1)
      document_.notes.push_back(
          fmt::format("{}: of {} training commands this one is read, which says most",
                      Place((*best)[program].where), others));
    document_.target = TargetOf(most);
    if (program > 0 && StartsLlamaFactory((*best)[program - 1].text))
      document_.target = kAccelerate;
    Launch(std::span(*best).subspan(0, program));
    if (!document_.target) {
      program_ = (*best)[program];
      arguments_ = ArgumentWords(most);
    }
    if (document_.target)
      document_.kind = fmt::format("a script with settings of {}", InfoOf(*document_.target).name);
    for (const Word& word : lost) Lost(word, true);
    const Word& started = (*best)[program];
    if (document_.target == kMegatron)  // it knows the model's family
      most.push_back(
          {"PROGRAM", started.text.substr(started.text.rfind('/') + 1), started.where, "", true});
    if (IsNemo(most)) most = ArgumentsOfNemo(most, &document_.notes);
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

  // What is said to a program that is not known, for people.
  static std::string ArgumentWords(const Settings& settings) {
    constexpr std::size_t kMost = 16;
    std::vector<std::string> words;
    for (const Setting& setting : std::span(settings).first(std::min(settings.size(), kMost)))
      words.push_back(setting.key + (setting.value.empty() ? "" : " " + setting.value));
    if (settings.size() > kMost) words.push_back(fmt::format("{} more", settings.size() - kMost));
    return fmt::format("{}", fmt::join(words, ", "));
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
    counts_.agents = says.torch || says.accelerate || says.deepspeed;
    // Options may stand in it: of how many nodes nobody knows.
    const std::vector<bool> values = ValuesIn(words);
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i].text.empty() && !values[i] && says.srun) Lost(words[i]);
    counts_.spread = says.srun && !Has(says.settings, {"GPUS_PER_NODE", "RANKS", "WORLD"});
    counts_.srun = says.srun;
    counts_.of_srun = std::move(says.step);
    counts_.of_agent = std::move(says.agents);
    counts_.one_node = std::move(says.one_node);
    counts_.fills = std::move(says.fills);
    counts_.ranks = std::move(says.processes);
    counts_.step =
        counts_.of_srun.contains("NNODES") || (counts_.agents && counts_.of_srun.contains("TASKS"));
    if (says.steps)
      document_.notes.push_back(fmt::format("{}: a step of one task is taken as one of {}",
                                            Place(says.steps->where), says.steps->value));
    job_ = std::move(says.job);
    for (const Setting& option : says.gpus) TakeKind(option, &document_);
    SayUnknown(true, says.unknown);
    const bool hosts = !says.hostfiles.empty();
    if ((says.torch || (says.deepspeed && !hosts)) && !words.empty()) one_ = words.back().where;
    TakeVisible(words, &says);
    document_.hostfiles = std::move(says.hostfiles);
    for (Setting& setting : says.settings) {
      if (!setting.unresolved.empty() && !NamesConfiguration(setting.key)) {
        counts_.unknown.emplace(setting.key, setting);  // another line may know it
      } else {
        document_.settings.push_back(std::move(setting));
      }
    }
    if (document_.target == kAccelerate && !says.accelerate)
      document_.settings.push_back({"LAUNCHER", says.deepspeed ? "deepspeed" : "torchrun",
                                    words.empty() ? Location{} : words.back().where, "", true});
    counts_.of_command = document_.settings.size();
  }

  // "python", "env NAME=... python -u": what it starts is one process.
  static bool StartsAlone(std::span<const Word> words) {
    return std::ranges::all_of(words, [](const Word& word) {
      const std::string name = word.text.substr(word.text.rfind('/') + 1);
      return word.unresolved.empty() &&
             (name.starts_with("python") || name == "env" || name == "nohup" || IsOption(name) ||
              word.text.find('=') != std::string::npos);
    });
  }

  // GPUs that CUDA_VISIBLE_DEVICES leaves, where a launcher starts a rank on each that it finds: DeepSpeed without a hostfile
  // and flags (launcher/runner.py), torchrun with --nproc-per-node gpu, Accelerate without a number of processes.
  void TakeVisible(std::span<const Word> words, LaunchSays* says) {
    const bool deepspeed = says->deepspeed && says->hostfiles.empty() &&
                           !Has(says->settings, {"NNODES", "GPUS_PER_NODE"});
    const bool accelerate =
        says->accelerate &&
        !Has(says->settings, {"num_processes", "num_machines", "config_file", "gpu_ids"});
    // The Trainer without a launcher takes all that it sees.
    const bool alone = document_.target == kAccelerate && StartsAlone(words);
    if (!deepspeed && !accelerate && !alone && !(says->torch && says->all_gpus)) return;
    Word devices;
    if (const ShellVariable* variable = VariableAt(script_, command_, kVisibleDevices);
        variable != nullptr && variable->words.size() == 1)
      devices = variable->words[0];
    const std::string assigned = std::string(kVisibleDevices) + "=";  // env NAME=... command
    for (const Word& word : words) {
      if (!word.text.starts_with(assigned)) continue;
      devices = word;
      devices.text.erase(0, assigned.size());
    }
    if (!devices.unresolved.empty() || devices.text.empty() || devices.text[0] == '-') return;
    const auto count = std::ranges::count(devices.text, ',') + 1;
    says->settings.push_back({accelerate ? "num_processes" : "GPUS_PER_NODE", std::to_string(count),
                              devices.where, "", true});
    if (alone) says->settings.push_back({"NNODES", "1", devices.where, "", true});
    document_.notes.push_back(fmt::format("{}: {} {}: {} GPU{} of a node", Place(devices.where),
                                          kVisibleDevices, devices.text, count,
                                          count == 1 ? "" : "s"));
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
    counts_.Add(key, value, where);
  }

  void Variable(const char* name, const char* key) {
    const ShellVariable* variable = VariableAt(script_, command_, name);
    if (variable == nullptr || variable->words.size() != 1) return;
    const Word& word = variable->words[0];
    if (Has(document_.settings, {key})) return;
    if (!word.unresolved.empty()) {
      counts_.unknown.emplace(key, Setting{key, "", word.where, word.unresolved});
    } else if (IsWhole(word.text)) {
      Add(key, word.text, word.where);
    } else if (std::string_view(key) == "NNODES" && !word.text.empty()) {
      Nodes(word.text, word.where);
    }
  }

  void Nodes(const std::string& count, const Location& where) { counts_.AddNodes(count, where); }

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
    Settings unknown;
    for (Setting& setting : slurm ? SlurmOptions(words, &unknown) : OptionsOf(words)) {
      if (slurm) {
        // Options of the command line go before those of the file.
        if (std::ranges::none_of(job_, [&](const Setting& option) {
              return SameSlurmOption(option.key, setting.key);
            }))
          slurm_.Take(setting, &counts_);
        continue;
      }
      if (setting.key.starts_with('l') && setting.key.size() > 1) {  // -lselect=4:ngpus=8
        setting.value = setting.key.substr(1) + "=" + setting.value;
        setting.key.resize(1);
      }
      if (!IsPbsOption(setting.key))
        unknown.push_back({"-" + setting.key.substr(0, 1), "", setting.where, ""});
      else if (setting.key == "l")
        pbs_.Take(setting, &counts_);
    }
    SayUnknown(slurm, unknown);
  }

  // A job with one is not started.
  void SayUnknown(bool slurm, const Settings& unknown) {
    for (const Setting& option : unknown) {
      const bool dashes = option.key.starts_with("--");
      const std::string like = slurm && dashes ? SlurmOptionLike(option.key.substr(2)) : "";
      const std::string may =
          option.value.empty()
              ? ""
              : fmt::format(": whether '{}' behind it is its value is not known", option.value);
      document_.notes.push_back(
          fmt::format("{}: {} has no option {}{}{}", Place(option.where), slurm ? "Slurm" : "PBS",
                      option.key, dashes && slurm ? ", unless a plugin of the site adds it" : "",
                      like.empty() ? may : fmt::format(": did you mean --{}?", like)));
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

  ShellScript script_;
  std::size_t command_ = 0;      // the place of the training command
  std::optional<Word> program_;  // that it starts, of no known target
  std::string arguments_;        // of that program
  std::optional<Word> other_;    // a program that trains nothing here
  Document document_;
  JobCounts counts_{&document_};
  Settings job_;  // options of salloc or sbatch
  SlurmCounts slurm_;
  PbsCounts pbs_;
  std::optional<Location>
      one_;  // where a launcher starts ranks, of one node unless others are named
};

}  // namespace

Document ReadScript(const SourcePtr& source, const OpenNamed& open) {
  return ScriptReader(source, open).Read();
}

}  // namespace orrery::exchange
