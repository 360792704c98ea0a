// SPDX-License-Identifier: Apache-2.0
// Finds the training command of a script, and what its launcher says of nodes and GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "model/base/plain_text.h"
#include "model/exchange/document.h"
#include "model/exchange/shell.h"

namespace orrery::exchange {
namespace {

// What launchers call nodes and GPUs per node; the first letter of the result is of whom it speaks.
struct LaunchName {
  const char* name;
  const char* key;
};
constexpr LaunchName kLaunchFlags[] = {
    {"nnodes", "NNODES"},
    {"num_nodes", "NNODES"},
    {"nodes", "NNODES"},
    {"N", "NNODES"},
    {"nproc-per-node", "GPUS_PER_NODE"},
    {"nproc_per_node", "GPUS_PER_NODE"},
    {"num_gpus", "GPUS_PER_NODE"},
    {"gpus-per-node", "GPUS_PER_NODE"},
    {"num_machines", "num_machines"},
    {"num_processes", "num_processes"},
};
constexpr LaunchName kLaunchVariables[] = {
    {"NNODES", "NNODES"},
    {"NUM_NODES", "NNODES"},
    {"N_NODES", "NNODES"},
    {"GPUS_PER_NODE", "GPUS_PER_NODE"},
    {"NPROC_PER_NODE", "GPUS_PER_NODE"},
    {"NUM_GPUS_PER_NODE", "GPUS_PER_NODE"},
    {"NGPU", "GPUS_PER_NODE"},
};

bool IsOption(const std::string& text) {
  if (text.size() < 2 || text[0] != '-') return false;
  if (text[1] == '-') return text.size() > 2;
  return (text[1] >= 'a' && text[1] <= 'z') || (text[1] >= 'A' && text[1] <= 'Z');
}

bool IsWhole(const std::string& text) {
  int64_t number = 0;
  return ParseInteger(text, &number) == NumberFault::kNone && number > 0;
}

// Position of the training program in a command; words.size(): there is none.
std::size_t ProgramOf(const Words& words) {
  for (std::size_t i = words.size(); i-- > 0;) {
    const std::string& text = words[i].text;
    if (text.ends_with(".py") && (i == 0 || words[i - 1].text != "--config")) {
      const bool value = i > 0 && IsOption(words[i - 1].text) && words[i - 1].text != "-u";
      if (!value) return i;
    }
    if (text == "torchtitan.train" || text == "train.train") return i;
  }
  // A program that a variable names stands before the first option behind the launcher's.
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (!words[i].unresolved.empty() && IsOption(words[i + 1].text)) return i;
  }
  return words.size();
}

// Options of a command behind `begin`: --key value, --key=value, --switch, and KEY=VALUE.
Settings OptionsOf(std::span<const Word> words) {
  Settings settings;
  bool takes = false;  // the last setting may still take words
  for (const Word& word : words) {
    if (!word.unresolved.empty() && word.text.empty()) {
      if (takes) {
        settings.back().unresolved = word.unresolved;
        takes = false;
      }
      continue;
    }
    if (IsOption(word.text)) {
      std::string key = word.text.substr(word.text.find_first_not_of('-'));
      const std::size_t equals = key.find('=');
      std::string value = equals == std::string::npos ? "" : key.substr(equals + 1);
      settings.push_back({key.substr(0, equals), std::move(value), word.where, word.unresolved});
      takes = equals == std::string::npos;
      continue;
    }
    if (takes) {
      Setting& last = settings.back();
      last.value += (last.value.empty() ? "" : " ") + word.text;
      if (last.unresolved.empty()) last.unresolved = word.unresolved;
      continue;
    }
    const std::size_t equals = word.text.find('=');
    if (equals != std::string::npos && equals > 0) {
      std::string key = word.text.substr(word.text[0] == '+' ? 1 : 0, equals);
      key.resize(word.text[0] == '+' ? equals - 1 : equals);
      settings.push_back({key, word.text.substr(equals + 1), word.where, word.unresolved});
    }
  }
  return settings;
}

// A training command takes KEY=VALUE words between options, too.
Settings SettingsOf(const Words& words, std::size_t program) {
  Settings settings;
  const auto rest = std::span(words).subspan(std::min(program + 1, words.size()));
  bool option = false;
  Words plain;
  for (const Word& word : rest) {
    const bool assigns =
        !option && !IsOption(word.text) && word.text.find('=') != std::string::npos;
    if (assigns) {
      for (Setting& setting : OptionsOf(std::span(&word, 1))) settings.push_back(setting);
      continue;
    }
    option = IsOption(word.text);
    plain.push_back(word);
  }
  // mpirun's "-x NAME", once per variable, is nothing that a program is given.
  for (Setting& setting : OptionsOf(plain)) {
    if (setting.key != "x") settings.push_back(std::move(setting));
  }
  return settings;
}

bool Has(const Settings& settings, std::initializer_list<const char*> keys) {
  return std::ranges::any_of(settings, [&](const Setting& setting) {
    return std::ranges::any_of(keys, [&](const char* key) { return setting.key == key; });
  });
}
bool HasPart(const Settings& settings, const char* part) {
  return std::ranges::any_of(settings,
                             [&](const Setting& setting) { return setting.key.starts_with(part); });
}

std::optional<Target> TargetOf(const Settings& settings) {
  if (Has(settings, {"tensor-model-parallel-size", "pipeline-model-parallel-size", "hidden-size",
                     "num-attention-heads", "micro-batch-size"}))
    return kMegatron;
  if (HasPart(settings, "model.tensor_model_parallel") || HasPart(settings, "train.micro_batch") ||
      HasPart(settings, "ddp."))
    return kBridge;
  if (Has(settings, {"per_device_train_batch_size", "gradient_accumulation_steps", "num_processes",
                     "num_machines"}))
    return kAccelerate;
  if (HasPart(settings, "parallelism.")) return kTitanToml;
  return std::nullopt;
}

class ScriptReader {
 public:
  explicit ScriptReader(const SourcePtr& source) : script_(ReadShell(source)) {
    document_.source = source;
    document_.kind = "a script";
  }

  Document Read() {
    FindCommand();
    for (const Word& comment : script_.comments) Directive(comment);
    for (const LaunchName& row : kLaunchVariables) Variable(row);
    for (const Word& branch : script_.branches)
      document_.notes.push_back(fmt::format(
          "{}: what this branch adds to {} is ignored, since the branch may not be taken",
          Place(branch.where), branch.text));
    if (document_.settings.empty()) {
      RefuseClusterFile(document_.source);
      throw InputError({{{document_.source, 1, 1},
                         fmt::format("{}: no training command and no size of a job is found",
                                     document_.source->name),
                         "a script that starts pretrain_gpt.py, torchrun, accelerate or deepspeed, "
                         "or that holds #SBATCH or #PBS lines"}});
    }
    return std::move(document_);
  }

 private:
  // The command with the most settings; arguments of tools before it are fewer.
  void FindCommand() {
    const Words* best = nullptr;
    std::size_t program = 0;
    Settings most;
    for (const Words& words : script_.commands) {
      const std::size_t at = ProgramOf(words);
      if (at == words.size()) continue;
      Settings settings = SettingsOf(words, at);
      if (best != nullptr && settings.size() <= most.size()) continue;
      best = &words;
      program = at;
      most = std::move(settings);
    }
    if (best == nullptr) return;
    const Settings launch = OptionsOf(std::span(*best).subspan(0, program));
    for (const Setting& setting : launch) Launch(setting);
    document_.target = TargetOf(most);
    if (!document_.target && Has(document_.settings, {"num_machines"}))
      document_.target = kAccelerate;
    if (document_.target)
      document_.kind = fmt::format("a script with settings of {}", InfoOf(*document_.target).name);
    for (Setting& setting : most) {
      if (document_.target == kAccelerate && !setting.key.starts_with("num_"))
        setting.key = "args." + setting.key;
      document_.settings.push_back(std::move(setting));
    }
  }

  void Launch(const Setting& setting) {
    for (const LaunchName& row : kLaunchFlags) {
      if (setting.key == row.name && (!setting.unresolved.empty() || IsWhole(setting.value)))
        Add(row.key, setting.value, setting.where, setting.unresolved);
    }
  }

  void Add(const char* key, const std::string& value, const Location& where,
           const std::string& unresolved = "") {
    if (!unresolved.empty()) return;  // another line may know it
    document_.settings.push_back({key, value, where, ""});
  }

  void Variable(const LaunchName& row) {
    const auto at = script_.variables.find(row.name);
    if (at == script_.variables.end() || at->second.words.size() != 1) return;
    const Word& word = at->second.words[0];
    if (word.unresolved.empty() && IsWhole(word.text) && !Has(document_.settings, {row.key}))
      Add(row.key, word.text, word.where);
  }

  // "SBATCH --nodes=4" and "PBS -l select=4:ncpus=8:ngpus=8".
  void Directive(const Word& comment) {
    const auto source = document_.source;
    const bool slurm = comment.text.starts_with("SBATCH ");
    if (!slurm && !comment.text.starts_with("PBS ")) return;
    Words words;
    std::string word;
    for (const char c : comment.text.substr(slurm ? 7 : 4) + " ") {
      if (c == '#') break;
      if (c != ' ' && c != '\t') {
        word += c;
      } else if (!word.empty()) {
        words.push_back({std::move(word), comment.where, ""});
        word.clear();
      }
    }
    for (const Setting& setting : OptionsOf(words)) {
      if (slurm) {
        Slurm(setting);
      } else if (setting.key == "l" && setting.value.starts_with("select=")) {
        Pbs(setting);
      }
    }
  }

  void Slurm(const Setting& setting) {
    if (setting.key == "nodes" || setting.key == "N") {
      if (IsWhole(setting.value)) Add("NNODES", setting.value, setting.where);
    } else if (setting.key == "gpus-per-node" || setting.key == "gres") {
      const std::size_t colon = setting.value.rfind(':');
      const std::string count =
          colon == std::string::npos ? setting.value : setting.value.substr(colon + 1);
      const bool gpus = setting.key != "gres" || setting.value.starts_with("gpu");
      if (gpus && IsWhole(count)) Add("GPUS_PER_NODE", count, setting.where);
      const std::size_t kind = setting.value.find(':');
      if (gpus && kind != std::string::npos && setting.value.starts_with("gpu:") && kind != colon)
        document_.notes.push_back(fmt::format("{} requests {} GPUs", Place(setting.where),
                                              setting.value.substr(kind + 1, colon - kind - 1)));
    }
  }

  void Pbs(const Setting& setting) {
    std::string rest = setting.value.substr(7) + ":";
    bool first = true;
    for (std::size_t colon = rest.find(':'); colon != std::string::npos; colon = rest.find(':')) {
      const std::string part = rest.substr(0, colon);
      rest.erase(0, colon + 1);
      if (first && IsWhole(part)) Add("NNODES", part, setting.where);
      if (part.starts_with("ngpus=") && IsWhole(part.substr(6)))
        Add("GPUS_PER_NODE", part.substr(6), setting.where);
      first = false;
    }
  }

  ShellScript script_;
  Document document_;
};

}  // namespace

Document ReadScript(const SourcePtr& source) { return ScriptReader(source).Read(); }

}  // namespace orrery::exchange
