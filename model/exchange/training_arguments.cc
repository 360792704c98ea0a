// SPDX-License-Identifier: Apache-2.0
// TrainingArguments as a call in a Python program: keywords whose values are literals or constants. Nothing of it is run.
// Logs have them as Transformers prints them, sorted, each in a line of its own, texts without quotes:
//   ... - Training/evaluation parameters TrainingArguments(
//   _n_gpu=1,
//   bf16=True,
//   optim=OptimizerNames.ADAMW_TORCH_FUSED,
//   )
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "model/base/text.h"
#include "model/exchange/document.h"
#include "model/exchange/peft_calls.h"
#include "model/exchange/program_effects.h"
#include "model/exchange/python_calls.h"
#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

constexpr const char* kBatch = "args.per_device_train_batch_size";
// Transformers' class, those of its tasks, and TRL's, which add to it.
constexpr std::array kCalls = {"TrainingArguments(", "SFTConfig(", "DPOConfig(", "RewardConfig("};

// Position behind the bracket of the first call; npos: there is none. A class that is derived from it is no call.
std::size_t CallIn(std::string_view text) {
  for (const std::string_view call : kCalls) {
    for (std::size_t at = text.find(call); at != std::string_view::npos;
         at = text.find(call, at + 1)) {
      const std::size_t line = text.rfind('\n', at) + 1;
      const std::string_view front = Trim(text.substr(line, at - line));
      if (!front.starts_with("class ") && !front.starts_with("#")) return at + call.size();
    }
  }
  return std::string_view::npos;
}

bool IsArguments(std::string_view function) {
  return std::ranges::any_of(kCalls, [&](std::string_view call) {
    return function.ends_with(call.substr(0, call.size() - 1));
  });
}
bool IsTrainer(std::string_view function) { return function.ends_with("Trainer"); }

// What is handed to a call under that name: a variable, or a call that stands there.
bool Hands(const PythonCall& taker, const char* name, const PythonCall& call) {
  if (call.begin > taker.begin && call.end <= taker.end) return true;
  return !call.variable.empty() &&
         std::ranges::any_of(taker.arguments, [&](const PythonArgument& argument) {
           return (argument.name.empty() || argument.name == name) &&
                  argument.code == call.variable;
         });
}

// Those that take these arguments; where there is only one, it may get them by another name.
std::vector<const PythonCall*> TrainersOf(const PythonCall& arguments,
                                          const std::vector<PythonCall>& calls) {
  std::vector<const PythonCall*> all, taking;
  for (const PythonCall& call : calls) {
    if (!IsTrainer(call.function)) continue;
    all.push_back(&call);
    if (Hands(call, "args", arguments)) taking.push_back(&call);
  }
  return taking.empty() && all.size() == 1 ? all : taking;
}

// Of several the one whose Trainer trains.
const PythonCall& ArgumentsThatTrain(const std::vector<PythonCall>& calls, Document* document) {
  std::vector<const PythonCall*> all, training;
  std::string lines;
  for (const PythonCall& call : calls) {
    if (!IsArguments(call.function)) continue;
    all.push_back(&call);
    lines += (lines.empty() ? "" : ", ") + std::to_string(call.where.line);
    for (const PythonCall& trainer : calls) {
      if (!IsTrainer(trainer.function) || !Hands(trainer, "args", call)) continue;
      const bool trains = std::ranges::any_of(calls, [&](const PythonCall& run) {
        return run.function == "train" &&
               (run.begin == trainer.end ||  // Trainer(...).train()
                (!trainer.variable.empty() && run.object == trainer.variable));
      });
      if (trains && (training.empty() || training.back() != &call)) training.push_back(&call);
    }
  }
  if (all.size() == 1) return *all.front();
  if (training.size() != 1)
    throw InputError(
        {{(all.size() > 1 ? all[1] : all[0])->where,
          fmt::format("{} calls of {} here (lines {}): which of them trains is not "
                      "known{}",
                      all.size(), all.front()->function, lines,
                      training.empty() ? ", as none goes to a Trainer whose train() is "
                                         "called"
                                       : ""),
          "--from a file with the one that trains"}});
  document->notes.push_back(
      fmt::format("{}: of {} calls (lines {}) this one is read, whose Trainer "
                  "trains",
                  Place(training.front()->where), all.size(), lines));
  return *training.front();
}

void AddArguments(const PythonCall& call, Document* document) {
  const PythonArgument* unread = nullptr;
  for (const PythonArgument& argument : call.arguments) {
    if (argument.name == "**") {
      unread = &argument;
      document->notes.push_back(fmt::format("{}: **{}: what else it says of {} is not read",
                                            Place(argument.where), argument.code, call.function));
    } else if (!argument.name.empty()) {
      AddLiteral("args." + argument.name, argument.value.get(), argument.where,
                 &document->settings);
    }
  }
  // The Trainer's default would stand for what is not read.
  if (unread != nullptr && !HasKey(document->settings, kBatch))
    document->settings.push_back(
        {kBatch, "", unread->where,
         fmt::format("**{} of {} may say it, and is no dictionary of literals here", unread->code,
                     call.function)});
}

// Behind the bracket of what a log prints; npos: nothing.
std::size_t PrintedIn(std::string_view text) {
  const std::size_t call = CallIn(text);
  const bool printed = call != std::string_view::npos && text.substr(call, 1) == "\n" &&
                       text.find("_n_gpu=", call) != std::string_view::npos;
  return printed ? call : std::string_view::npos;
}

// "[<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.AUTO_WRAP: 'auto_wrap'>]": the words in quotes.
std::string QuotedWords(std::string_view text) {
  std::string words;
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string_view::npos;) {
    const std::size_t end = text.find('\'', at + 1);
    if (end == std::string_view::npos) break;
    words += (words.empty() ? "" : " ") + std::string(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

// "{'min_num_params': 0, 'xla': False}" below its name; values that are no plain words are left out.
void TakeDictionary(const std::string& name, std::string_view text, const Location& where,
                    Settings* settings) {
  text = text.substr(1, text.rfind('}') - 1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(", '"), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    const std::size_t colon = one.find("': ");
    if (colon == std::string_view::npos || !one.starts_with('\'')) continue;
    std::string value = PythonLiteral(one.substr(colon + 3));
    if (value.empty() || value == "None") continue;
    if (value == "True" || value == "False") value = value == "True" ? "true" : "false";
    settings->push_back(
        {name + "." + std::string(one.substr(1, colon - 1)), std::move(value), where, ""});
  }
}

void TakePrinted(const std::string& name, std::string_view value, const Location& where,
                 Settings* settings) {
  constexpr std::string_view kNames = "OptimizerNames.";
  if (value == "None" || value == "[]" || value == "{}" || value.empty()) return;
  if (value[0] == '{' && name == "args.deepspeed") {
    settings->push_back({name, "", where, "it is printed as a dictionary, which is not read"});
    return;
  }
  if (value[0] == '{') return TakeDictionary(name, value, where, settings);
  std::string text = value[0] == '[' ? QuotedWords(value) : std::string(value);
  if (text.starts_with(kNames)) {
    text.erase(0, kNames.size());
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  if (text == "True" || text == "False") text = text == "True" ? "true" : "false";
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  settings->push_back({name, std::move(text), where, ""});
}

Settings ReadPrinted(const SourcePtr& source, std::size_t call) {
  Settings settings;
  const std::string_view text = source->text;
  int line = 1 + static_cast<int>(std::count(
                     text.begin(), text.begin() + static_cast<std::ptrdiff_t>(call), '\n'));
  for (std::size_t begin = call + 1; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view row = Trim(text.substr(begin, end - begin));
    begin = end + 1;
    ++line;
    const std::size_t equals = std::min(row.find('='), row.size());
    const std::size_t label = row.substr(0, equals).find_last_of(" :]");  // of a rank
    if (label != std::string_view::npos) row.remove_prefix(label + 1);
    if (row == ")") return settings;
    const std::size_t name = NameLength(row);
    if (name == 0 || row.substr(name, 1) != "=" || !row.ends_with(',')) continue;
    TakePrinted("args." + std::string(row.substr(0, name)),
                row.substr(name + 1, row.size() - name - 2), {source, line, 1}, &settings);
  }
  throw InputError({{{source, line, 1},
                     "the log ends within the TrainingArguments that it prints",
                     "the whole log, or the launch script"}});
}

}  // namespace

bool CallsTrainingArguments(std::string_view text) {
  const std::size_t call = CallIn(text);
  if (call == std::string_view::npos) return false;
  if (PrintedIn(text) != std::string_view::npos) return true;
  // Next to an import, or as a value: prose and shells have neither.
  return text.find("import ") != std::string_view::npos ||
         Trim(text.substr(0, call)).find('=') != std::string_view::npos;
}

Document ReadTrainingArguments(const SourcePtr& source) {
  Document document{source, "TrainingArguments in a Python program", kAccelerate, {}, {}};
  bool trl = false;
  if (PrintedIn(source->text) != std::string_view::npos) {
    const std::size_t call = CallIn(source->text);
    document.kind = "TrainingArguments that a log prints";
    document.settings = ReadPrinted(source, call);
    trl = !std::string_view(source->text).substr(0, call).ends_with(kCalls.front());
  } else {
    const std::vector<PythonCall> calls = CallsIn(source, [](std::string_view function) {
      return IsArguments(function) || IsTrainer(function) || function == "train" ||
             IsOfAdapters(function) || HasEffects(function);
    });
    if (std::ranges::none_of(calls, [](const auto& call) { return IsArguments(call.function); }))
      throw InputError(
          {{{source, 1, 1},
            fmt::format("{} holds TrainingArguments in a text or a comment alone", source->name),
            "--from the program that makes them, or a file of its arguments"}});
    const PythonCall& arguments = ArgumentsThatTrain(calls, &document);
    const std::vector<PythonAssignment> assignments = AttributesSetIn(source);
    AddArguments(arguments, &document);
    TakeOverrides(arguments, TrainersOf(arguments, calls), assignments, &document);
    // Sharding by no words is none.
    std::erase_if(document.settings, [](const Setting& setting) {
      return (setting.key == "args.fsdp" || setting.key == "args.deepspeed") &&
             setting.value.empty() && setting.unresolved.empty();
    });
    if (!arguments.branch.empty())
      document.notes.push_back(fmt::format("{}: {} stands in a branch (`{}`), which is taken",
                                           Place(arguments.where), arguments.function,
                                           arguments.branch));
    trl = !arguments.function.ends_with(
        std::string_view(kCalls.front()).substr(0, std::string_view(kCalls.front()).size() - 1));
    if (arguments.function.ends_with("DPOConfig") || arguments.function.ends_with("RewardConfig"))
      document.settings.push_back({"PREFERENCES", "", arguments.where, ""});
    TakeAdapterCalls(calls, &document);
    TakeEffects(arguments, calls, assignments, &document);
  }
  if (trl && !document.settings.empty())
    document.settings.push_back({"TRL", "", document.settings.front().where, ""});
  for (const Setting& setting : document.settings) {
    if (setting.key == "args.deepspeed") document.files.push_back(setting);
    if (setting.key == "args.fsdp_config") document.files.push_back(setting);
  }
  return document;
}

}  // namespace orrery::exchange
