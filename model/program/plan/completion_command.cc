// SPDX-License-Identifier: Apache-2.0
// `plan completion SHELL`: a script that asks `plan completion words WORD...` at each press of the key, so that the three
// shells complete the same words, from the commands' own tables.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/arch/catalogue.h"
#include "model/arch/data_root.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/program/plan/commands.h"
#include "model/provision/offers.h"

namespace orrery::cli {
namespace {

constexpr const char* kWords = "words";
constexpr const char* kFiles = ":files";  // the shell adds names of files

// `program` is what the user typed, ./plan as well: its own catalogue is the right one.
constexpr const char* kBash = R"(# bash completion of plan; written by `plan completion bash`
_plan() {
  local line word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]/#\~\//$HOME/}
  COMPREPLY=()
  while IFS= read -r line; do
    if [ "$line" = :files ]; then
      compopt -o filenames 2>/dev/null
      while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${word#=}")
    else
      COMPREPLY+=("${line%%$'\t'*}")
    fi
  done < <("$program" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _plan plan ./plan
)";
constexpr const char* kZsh = R"(#compdef plan
# zsh completion of plan; written by `plan completion zsh`
_plan() {
  local line
  local -a found
  for line in "${(@f)$(${~words[1]} completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    if [[ $line == :files ]]; then _files
    elif [[ -n $line ]]; then found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}"); fi
  done
  (( $#found )) && _describe plan found
}
if [[ $funcstack[1] == _plan ]]; then _plan "$@"; else compdef _plan plan; fi
)";
constexpr const char* kFish = R"(# fish completion of plan; written by `plan completion fish`
function __plan_words
  set -l words (commandline -opc)
  set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
  for line in ($program completion words $words[2..-1] (commandline -ct) 2>/dev/null)
    if test "$line" = :files
      __fish_complete_path (commandline -ct)
    else
      echo $line
    end
  end
end
complete -c plan -f -a '(__plan_words)'
)";

constexpr std::array<std::pair<const char*, const char*>, 3> kShells = {
    {{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}}};

struct CompletionFlags {
  Flag shell, json;
  FlagSet set{"completion SHELL",
              "Prints a script that completes commands, flags and names of models, topologies, "
              "GPUs, frameworks, offers and scenarios, also behind ./plan.",
              {"source <(plan completion bash)", "source <(plan completion zsh)",
               "plan completion fish | source",
               "plan completion bash > ~/.local/share/bash-completion/completions/plan"}};
  CompletionFlags() {
    set.Positional(&shell, "SHELL", "bash, zsh or fish", Words::kList, {"bash", "zsh", "fish"});
    DeclareJson(&json, &set, "completion");
  }
};

// A word that may stand here, and what it means; kFiles as a word: names of files.
struct Offer {
  std::string word, meaning;
};

std::vector<std::string> NamesFor(const FlagInfo& info) {
  switch (info.words) {
    case Words::kModel:
      return ModelNames();
    case Words::kTopology:
      return TopologyNames();
    case Words::kGpu:
      return ProfileIds("gpu");
    case Words::kFramework:
      return FrameworkNames();
    case Words::kOffer:
      return OfferNames();
    case Words::kScenario:
      return NamesOfKind("scenarios");
    case Words::kList:
      return info.list;
    case Words::kFile:
    case Words::kOutput:
    case Words::kOutputFolder:
    case Words::kAny:
      break;
  }
  return {};
}

bool TakesFiles(Words words) {
  return words == Words::kFile || words == Words::kOutput || words == Words::kOutputFolder ||
         words == Words::kModel || words == Words::kTopology || words == Words::kOffer ||
         words == Words::kScenario;
}

// Names behind the last comma of `typed`: lists are written with commas.
void OfferValues(const FlagInfo& info, const std::string& before, const std::string& typed,
                 std::vector<Offer>* offers) {
  const std::string done = typed.substr(0, typed.rfind(',') + 1);
  for (const std::string& name : NamesFor(info)) offers->push_back({before + done + name, ""});
  if (TakesFiles(info.words)) offers->push_back({kFiles, ""});
}

// bash makes three words of --model=bert: they become one again. True: the last one was.
bool JoinAtEquals(std::vector<std::string>* words) {
  bool last = false;
  for (std::size_t i = 1; i < words->size(); ++i) {
    if ((*words)[i] != "=" || !(*words)[i - 1].starts_with("--")) continue;
    std::string value = i + 1 < words->size() ? (*words)[i + 1] : "";
    last = i + 2 >= words->size();
    (*words)[i - 1] += "=" + value;
    words->erase(words->begin() + static_cast<std::ptrdiff_t>(i),
                 words->begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, words->size())));
  }
  return last;
}

const FlagInfo* FindFlag(const Description& description, const std::string& name) {
  for (const FlagInfo& info : description.flags) {
    if (!info.positional && info.name == name) return &info;
  }
  return nullptr;
}

// What may stand in the place of the last word.
std::vector<Offer> OffersFor(std::vector<std::string> words) {
  std::vector<Offer> offers;
  if (words.empty()) words.emplace_back();
  const bool joined = JoinAtEquals(&words);
  const std::string typed = words.back();
  words.pop_back();
  const Command* command =
      words.empty() || words[0].starts_with('-') ? FindCommand("") : FindCommand(words[0]);
  if (command == nullptr) return offers;
  const Description description = command->describe();
  if (const std::size_t at = typed.find('='); at != typed.npos && typed.starts_with("--")) {
    if (const FlagInfo* info = FindFlag(description, typed.substr(0, at)))
      OfferValues(*info, joined ? "" : typed.substr(0, at + 1), typed.substr(at + 1), &offers);
    return offers;
  }
  const FlagInfo* behind = words.empty() ? nullptr : FindFlag(description, words.back());
  if (behind != nullptr && !behind->value.empty()) {
    OfferValues(*behind, "", typed, &offers);
    if (behind->value[0] != '[') return offers;
  }
  if (words.empty() && !typed.starts_with('-')) {
    for (const Command& each : Commands()) {
      if (each.name[0] != '\0') offers.push_back({each.name, each.summary});
    }
  }
  bool positional = false;
  for (const FlagInfo& info : description.flags) {
    if (!info.positional || typed.starts_with('-')) continue;
    positional = true;
    OfferValues(info, "", typed, &offers);
  }
  if (typed.starts_with('-') || (typed.empty() && !positional && !words.empty())) {
    for (const FlagInfo& info : description.flags) {
      if (!info.positional) offers.push_back({info.name, info.help});
    }
    offers.push_back({"--help", "this text"});
  }
  return offers;
}

// One line each: a word, a tab and what it means.
std::string OfferedWords(std::vector<std::string> words) {
  std::string typed = words.empty() ? "" : words.back();
  if (typed == "=") typed.clear();
  std::string text;
  for (const auto& [word, meaning] : OffersFor(std::move(words))) {
    if (word == kFiles)
      text += word + "\n";
    else if (word.starts_with(typed))
      text += fmt::format("{}{}{}\n", word, meaning.empty() ? "" : "\t", meaning);
  }
  return text;
}

}  // namespace

Description DescribeCompletion() { return CompletionFlags().set.Describe(); }

Answer RunCompletion(const CommandLine& line, std::size_t first) {
  const std::vector<std::string>& words = line.words();
  if (first < words.size() && words[first] == kWords) {
    return {ExitCode::kOk,
            OfferedWords({words.begin() + static_cast<std::ptrdiff_t>(first) + 1, words.end()}), "",
            true};
  }
  CompletionFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeCompletion().help};
  Diagnostics diagnostics;
  if (!flags.shell.given) diagnostics.Error(flags.shell.where, "which shell?", "bash, zsh or fish");
  std::vector<std::string> names;
  for (const auto& shell : kShells) names.emplace_back(shell.first);
  const auto index = ReadName(flags.shell, names, &diagnostics);
  diagnostics.ThrowIfAny();
  const auto& [shell, script] = kShells[index.value_or(0)];
  Answer answer = Deliver(ExitCode::kOk, script,
                          {{"schema", "orrery.completion/1"}, {"shell", shell}, {"script", script}},
                          flags.json);
  answer.document = true;
  return answer;
}

}  // namespace orrery::cli
