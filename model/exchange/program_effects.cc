// SPDX-License-Identifier: Apache-2.0
// Recomputation, frozen parts, and arguments that are set after the call or handed to the Trainer itself.
//
// huggingface/transformers, src/transformers/modeling_utils.py (gradient_checkpointing_enable); huggingface/peft,
// src/peft/utils/other.py (prepare_model_for_kbit_training); huggingface/trl 0.12, trl/trainer/sft_trainer.py.
#include "model/exchange/program_effects.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

constexpr const char* kRecompute = "args.gradient_checkpointing";
constexpr const char* kRecomputeHow = "args.gradient_checkpointing_kwargs";

bool PreparesForBits(std::string_view function) {
  return function == "prepare_model_for_kbit_training" ||
         function == "prepare_model_for_int8_training";
}

std::string WordsIn(const YamlTree& list) {
  std::string words;
  for (const auto& element : list.elements) {
    if (element->kind != YamlTree::Kind::kScalar) return "[...]";
    words += (words.empty() ? "" : " ") + element->text;
  }
  return words;
}

bool Is(const PythonArgument& argument, const char* literal) {
  return argument.value != nullptr && !argument.value->quoted && argument.value->text == literal;
}

// Replaces what was said before it.
void Override(const PythonArgument& argument, Document* document) {
  const std::string key = "args." + argument.name;
  std::erase_if(document->settings, [&](const Setting& setting) {
    return setting.key == key || setting.key.starts_with(key + ".");
  });
  AddLiteral(key, argument.value.get(), argument.where, &document->settings);
}

void NameBranch(const std::string& what, const Location& where, const std::string& branch,
                Document* document) {
  if (!branch.empty())
    document->notes.push_back(fmt::format("{}: {} stands in a branch (`{}`), which is taken",
                                          Place(where), what, branch));
}

// PEFT prepares nothing for recomputation where no weights are in few bits.
bool LoadsFewBits(const std::vector<PythonCall>& calls) {
  return std::ranges::any_of(calls, [](const PythonCall& call) {
    return std::ranges::any_of(call.arguments, [](const PythonArgument& argument) {
      return (argument.name == "load_in_4bit" || argument.name == "load_in_8bit") &&
             !Is(argument, "False");
    });
  });
}

void TakeRecomputation(const PythonCall& arguments, const std::vector<PythonCall>& calls,
                       Document* document) {
  // "if args.gradient_checkpointing:" and "use_gradient_checkpointing=args.gradient_checkpointing" say nothing else.
  const std::string same = arguments.variable + ".gradient_checkpointing";
  const PythonCall* last = nullptr;
  const PythonArgument* asked = nullptr;
  const bool bits = LoadsFewBits(calls);
  for (const PythonCall& call : calls) {
    const bool prepares = PreparesForBits(call.function);
    if (call.function == "gradient_checkpointing_disable") last = nullptr;
    if (!(prepares && bits) && call.function != "gradient_checkpointing_enable") continue;
    const PythonArgument* use = prepares ? call.Find("use_gradient_checkpointing") : nullptr;
    if (prepares && use == nullptr && call.arguments.size() > 1 && call.arguments[1].name.empty())
      use = &call.arguments[1];
    if (use != nullptr && (Is(*use, "False") || use->code == same)) continue;
    if (call.branch == "if " + same + ":") continue;
    last = &call;
    asked = use;
  }
  if (last == nullptr) return;
  // FSDP's own, which the Trainer refuses next to its argument and not next to the model's.
  const auto fsdp = std::ranges::find_if(document->settings, [](const Setting& setting) {
    return setting.key.starts_with("args.fsdp_config.") &&
           setting.key.ends_with("activation_checkpointing") && setting.value == "true";
  });
  if (fsdp != document->settings.end()) {
    document->notes.push_back(
        fmt::format("{}: not modelled: recomputation by {} within that of FSDP ({}); the "
                    "prediction has FSDP's alone",
                    Place(last->where), last->function, Place(fsdp->where)));
    return;
  }
  if (const auto said = FindKey(&document->settings, kRecompute);
      said != document->settings.end()) {
    if (said->value != "true" && said->unresolved.empty())
      document->notes.push_back(fmt::format(
          "{}: {} switches recomputation on, gradient_checkpointing at {} is false: predicted "
          "without; the Trainer itself switches none off, --recompute full for that",
          Place(last->where), last->function, Place(said->where)));
    return;
  }
  const bool computed = asked != nullptr && asked->value == nullptr;
  document->settings.push_back(
      {kRecompute, computed ? "" : "true", last->where,
       computed ? fmt::format("{}'s use_gradient_checkpointing is computed", last->function) : "",
       false, last->function});
  const PythonArgument* how = last->Find("gradient_checkpointing_kwargs");
  if (how == nullptr && last->function == "gradient_checkpointing_enable" &&
      !last->arguments.empty() && last->arguments.front().name.empty())
    how = &last->arguments.front();
  const bool told = std::ranges::any_of(document->settings, [](const Setting& setting) {
    return setting.key.starts_with(kRecomputeHow);
  });
  if (how != nullptr && how->value != nullptr && !told)
    AddLiteral(kRecomputeHow, how->value.get(), how->where, &document->settings);
  NameBranch(last->function, last->where, last->branch, document);
}

// PEFT freezes the model itself, so that only a training without adapters is another one.
void TakeFrozen(const std::vector<PythonCall>& calls,
                const std::vector<PythonAssignment>& assignments, Document* document) {
  const auto peft = FindKey(&document->settings, "args.use_peft");
  if (HasKey(document->settings, "field.lora") ||
      (peft != document->settings.end() && peft->value != "False"))
    return;
  const auto freezes = [&](const Location& where) {
    document->settings.push_back({fmt::format("args.freeze_at_line_{}", where.line), "true", where,
                                  "", false, "requires_grad"});
  };
  for (const PythonAssignment& assignment : assignments) {
    if (assignment.set.name == "requires_grad" && !Is(assignment.set, "True"))
      freezes(assignment.set.where);
  }
  for (const PythonCall& call : calls) {
    if (call.function == "requires_grad_" && !call.arguments.empty() &&
        !Is(call.arguments.front(), "True"))
      freezes(call.where);
  }
}

}  // namespace

void AddLiteral(const std::string& key, const YamlTree* value, const Location& where,
                Settings* settings) {
  if (value == nullptr) return settings->push_back({key, "", where, "its value is computed"});
  switch (value->kind) {
    case YamlTree::Kind::kNull:
      return;
    case YamlTree::Kind::kMap:
      for (const YamlTree::Member& member : value->members)
        AddLiteral(key + "." + member.key, member.value.get(), where, settings);
      return;
    case YamlTree::Kind::kSequence:
      return settings->push_back({key, WordsIn(*value), where, ""});
    case YamlTree::Kind::kScalar:
      break;
  }
  const bool truth = !value->quoted && (value->text == "True" || value->text == "False");
  settings->push_back({key,
                       !truth                  ? value->text
                       : value->text == "True" ? "true"
                                               : "false",
                       where, ""});
}

bool HasEffects(std::string_view function) {
  return function == "gradient_checkpointing_enable" ||
         function == "gradient_checkpointing_disable" || function == "requires_grad_" ||
         PreparesForBits(function);
}

void TakeOverrides(const PythonCall& arguments, const std::vector<const PythonCall*>& trainers,
                   const std::vector<PythonAssignment>& assignments, Document* document) {
  const auto is_theirs = [&](const PythonAssignment& set) {
    if (set.begin < arguments.end || set.object.empty()) return false;
    return set.object == arguments.variable ||
           std::ranges::any_of(trainers, [&](const PythonCall* trainer) {
             return !trainer->variable.empty() && set.object == trainer->variable + ".args";
           });
  };
  for (const PythonAssignment& assignment : assignments) {
    if (!is_theirs(assignment)) continue;
    Override(assignment.set, document);
    NameBranch(assignment.set.name, assignment.set.where, assignment.branch, document);
  }
  // TRL before 0.13: the Trainer's own arguments, which replace those of its configuration.
  for (const PythonCall* trainer : trainers) {
    for (const char* name : {"max_seq_length", "max_length", "packing"}) {
      const PythonArgument* argument = trainer->Find(name);
      const bool none = argument != nullptr && argument->value != nullptr &&
                        argument->value->kind == YamlTree::Kind::kNull;
      if (argument != nullptr && !none) Override(*argument, document);
    }
  }
}

void TakeEffects(const PythonCall& arguments, const std::vector<PythonCall>& calls,
                 const std::vector<PythonAssignment>& assignments, Document* document) {
  TakeRecomputation(arguments, calls, document);
  TakeFrozen(calls, assignments, document);
}

}  // namespace orrery::exchange
