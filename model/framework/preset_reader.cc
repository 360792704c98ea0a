// SPDX-License-Identifier: Apache-2.0
// The sections of a framework's YAML besides its constants: what it offers, what it sets, its aliases.
//
//   offers:
//     zero: {value: [0, 1], source: "arguments.py: --use-distributed-optimizer shards ..."}
//   defaults:
//     dropout: {value: 0.1, source: "arguments.py: --hidden-dropout"}
//   aliases:
//     - {name: mcore, why: "Megatron Core is the library that Megatron-LM trains with"}
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <variant>

#include "model/framework/presets.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

using enum Fp32Grads;
constexpr NameRow<Fp32Grads> kFp32GradNames[] = {
    {"never", kNever}, {"bf16", kBf16}, {"bf16-zero0", kBf16Zero0}, {"bf16-sharded", kBf16Sharded}};

using Preset = FrameworkPreset;
template <class T>
using List = std::vector<T>;

// One fact: where it stands in the file and in the preset.
struct FactRow {
  const char* section;
  const char* key;
  std::variant<bool Preset::*, int Preset::*, double Preset::*, Fp32Grads Preset::*,
               List<int> Preset::*, List<PipelineSchedule> Preset::*, List<Recompute> Preset::*,
               List<RecomputeModule> Preset::*, List<CpMethod> Preset::*,
               List<AttentionKernel> Preset::*, List<Fp8> Preset::*, nccl::Release Preset::*,
               bool Strategy::*, int Strategy::*, AdapterSplit Strategy::*>
      member;
  double min = 0, max = 1;

  std::string Name() const { return fmt::format("{}.{}", section, key); }
};

const FactRow kFacts[] = {
    {"offers", "tensor", &Preset::tensor},
    {"offers", "sequence", &Preset::sequence},
    {"offers", "sequence_in_pipelines", &Preset::sequence_in_pipelines},
    {"offers", "hybrid", &Preset::hybrid},
    {"offers", "hybrid_zero", &Preset::hybrid_zero, 1, 3},
    {"offers", "uneven_chunks", &Preset::uneven_chunks},
    {"offers", "zero", &Preset::zero, 0, 3},
    {"offers", "zero_with_pipeline", &Preset::zero_with_pipeline, 0, 3},
    {"offers", "schedules", &Preset::schedules},
    {"offers", "recompute", &Preset::recompute},
    {"offers", "recompute_modules", &Preset::recompute_modules},
    {"offers", "recompute_first", &Preset::recompute_first},
    {"offers", "recompute_every", &Preset::recompute_every},
    {"offers", "offload_optimizer", &Preset::offload_optimizer},
    {"offers", "offload_share", &Preset::offload_share},
    {"offers", "offload_weights", &Preset::offload_weights},
    {"offers", "offload_activations", &Preset::offload_activations},
    {"offers", "offload_activations_alone", &Preset::offload_activations_alone},
    {"offers", "offload_zero", &Preset::offload_zero, 0, 3},
    {"offers", "context", &Preset::context},
    {"offers", "fp8", &Preset::fp8},
    {"offers", "fp8_weights_zero", &Preset::fp8_weights_zero, 0, 3},
    {"facts", "nccl", &Preset::nccl},
    {"facts", "bucket", &Preset::bucket, 0, 1e12},
    {"facts", "gather_messages", &Preset::gather_messages, 1, 64},
    {"facts", "attention", &Preset::attention},
    {"facts", "fp8_fused_casts", &Preset::fused_casts},
    {"facts", "fp8_weights", &Preset::fp8_weights},
    {"facts", "tp_overlap", &Preset::tp_overlap},
    {"facts", "sequence_copies", &Preset::sequence_copies},
    {"facts", "gathers_kept", &Strategy::gathers_kept},
    {"facts", "reduces_apart", &Strategy::reduces_apart},
    {"facts", "offload_gradients", &Preset::offload_gradients},
    {"facts", "compile", &Preset::compile},
    {"facts", "fused_norm", &Preset::fused_norm},
    {"facts", "autocast", &Preset::autocast},
    {"facts", "compile_loss", &Preset::compile_loss},
    {"facts", "padded_vocab", &Preset::padded_vocab},
    {"facts", "fused_gate", &Preset::fused_gate},
    {"facts", "repeats_keys", &Preset::repeats_keys},
    {"facts", "scores_buffer", &Preset::scores_buffer},
    {"facts", "dummy_weight_gradients", &Preset::dummy_weight_gradients},
    {"facts", "recompute_unread", &Strategy::recompute_unread},
    {"facts", "split_products", &Strategy::split_products},
    {"facts", "adapter_split", &Strategy::adapter_split},
    {"defaults", "dropout", &Preset::dropout, 0, 0.99},
    {"defaults", "master_weights", &Preset::master_weights},
    {"defaults", "sequence_parallel", &Strategy::sequence_parallel},
    {"defaults", "whole_logits", &Strategy::whole_logits},
    {"defaults", "whole_embedding", &Strategy::whole_embedding},
    {"defaults", "whole_head_in_pipelines", &Preset::whole_head_in_pipelines},
    {"defaults", "free_head", &Strategy::free_head},
    {"defaults", "fp32_grads", &Preset::fp32_grads},
    {"defaults", "overlap_grad_reduce", &Strategy::overlap_grad_reduce},
    {"defaults", "overlap_param_gather", &Strategy::overlap_param_gather},
    {"defaults", "reduce_in_backward", &Strategy::reduce_in_backward},
    {"defaults", "reduce_once", &Strategy::reduce_once},
    {"defaults", "reduce_once_in_pipelines", &Preset::reduce_once_in_pipelines},
    {"defaults", "scatter_gather", &Strategy::scatter_gather},
    {"defaults", "tp_async", &Strategy::tp_async},
    {"defaults", "bucket_layers", &Strategy::bucket_layers, 1, 1000},
    {"defaults", "prefetch", &Strategy::prefetch, 0, 2},
    {"defaults", "rings", &Strategy::rings},
    {"defaults", "recv_slots", &Strategy::recv_slots, 0, 16},
    {"defaults", "send_slots", &Strategy::send_slots, 1, 16},
    {"defaults", "frame_pool", &Strategy::frame_pool},
    {"defaults", "count_embedding", &Strategy::count_embedding},
    {"defaults", "count_head", &Strategy::count_head},
};

template <class E>
std::span<const NameRow<E>> NamesOf();
template <>
std::span<const NameRow<PipelineSchedule>> NamesOf() {
  return kScheduleNames;
}
template <>
std::span<const NameRow<RecomputeModule>> NamesOf() {
  return kRecomputeModuleNames;
}
template <>
std::span<const NameRow<CpMethod>> NamesOf() {
  return kCpMethodNames;
}
template <>
std::span<const NameRow<Fp8>> NamesOf() {
  return kFp8Names;
}
template <>
std::span<const NameRow<AttentionKernel>> NamesOf() {
  return kAttentionKernelNames;
}

// Reads `value` of a fact into its member and returns it as text.
struct FactReader {
  const Node& entry;
  const FactRow& row;
  Preset* preset;

  std::string operator()(bool Preset::*member) const { return Truth(&(preset->*member)); }
  std::string operator()(bool Strategy::*member) const {
    return Truth(&(preset->defaults.*member));
  }
  std::string operator()(int Preset::*member) const { return Whole(&(preset->*member)); }
  std::string operator()(int Strategy::*member) const { return Whole(&(preset->defaults.*member)); }
  std::string operator()(double Preset::*member) const {
    preset->*member = entry.Number("value", row.min, row.max);
    return fmt::format("{}", preset->*member);
  }
  std::string operator()(Fp32Grads Preset::*member) const {
    const std::span<const NameRow<Fp32Grads>> names = kFp32GradNames;
    preset->*member = entry.Choice("value", names);
    return NameIn(kFp32GradNames, preset->*member);
  }
  std::string operator()(nccl::Release Preset::*member) const {
    preset->*member = nccl::ReadRelease(entry.String("value"));
    return nccl::ReleaseText(preset->*member);
  }
  std::string operator()(AdapterSplit Strategy::*member) const {
    const std::span<const NameRow<AdapterSplit>> names = kAdapterSplitNames;
    preset->defaults.*member = entry.Choice("value", names);
    return NameIn(kAdapterSplitNames, preset->defaults.*member);
  }
  std::string operator()(List<int> Preset::*member) const {
    return Several<int>(&(preset->*member), [&](const Node& element) {
      return static_cast<int>(
          element.AsInteger(static_cast<int64_t>(row.min), static_cast<int64_t>(row.max)));
    });
  }
  std::string operator()(List<Recompute> Preset::*member) const {
    return Several<Recompute>(&(preset->*member), [&](const Node& element) {
      const std::string text = element.AsString();
      const std::optional<Recompute> read = ReadRecompute(text);
      if (!read) element.Error(fmt::format("{}: there is no '{}'", row.key, text), kRecomputeForms);
      return read.value_or(Recompute::kNone);
    });
  }
  template <class E>
  std::string operator()(List<E> Preset::*member) const {
    return Several<E>(&(preset->*member), [&](const Node& element) {
      std::vector<std::string> known;
      const std::string text = element.AsString();
      for (const auto& [name, value] : NamesOf<E>()) {
        if (text == name) return value;
        known.emplace_back(name);
      }
      element.Error(fmt::format("{}: there is no '{}'", row.key, text), SuggestName(text, known));
      return E{};
    });
  }

 private:
  std::string Truth(bool* out) const {
    *out = entry.Bool("value");
    return *out ? "true" : "false";
  }
  std::string Whole(int* out) const {
    *out = static_cast<int>(
        entry.Integer("value", static_cast<int64_t>(row.min), static_cast<int64_t>(row.max)));
    return std::to_string(*out);
  }
  template <class T, class Read>
  std::string Several(List<T>* out, const Read& read) const {
    out->clear();
    std::string text;
    for (const Node& element : entry.Items("value")) {
      const T value = read(element);
      if (std::find(out->begin(), out->end(), value) != out->end())
        element.Error(fmt::format("{} names this twice", row.key));
      out->push_back(value);
      text += (text.empty() ? "" : ", ") + element.AsString();
    }
    return text;
  }
};

void ReadFacts(const Node& root, const char* section, const std::string& file, Preset* preset) {
  const std::optional<Node> facts = root.Find(section);
  if (!facts) return;
  for (const FactRow& row : kFacts) {
    if (std::string_view(row.section) != section) continue;
    const std::optional<Node> entry = facts->Find(row.key);
    if (!entry) continue;
    FrameworkFact fact;
    fact.value = std::visit(FactReader{*entry, row, preset}, row.member);
    fact.source = entry->String("source");
    fact.file = file;
    entry->RejectUnknownKeys();
    preset->facts[row.Name()] = std::move(fact);
  }
  facts->RejectUnknownKeys();
}

bool IsList(const FactRow& row) {
  return std::holds_alternative<List<int> Preset::*>(row.member) ||
         std::holds_alternative<List<PipelineSchedule> Preset::*>(row.member) ||
         std::holds_alternative<List<Recompute> Preset::*>(row.member) ||
         std::holds_alternative<List<RecomputeModule> Preset::*>(row.member) ||
         std::holds_alternative<List<CpMethod> Preset::*>(row.member) ||
         std::holds_alternative<List<Fp8> Preset::*>(row.member) ||
         std::holds_alternative<List<AttentionKernel> Preset::*>(row.member);
}

// "did you mean a? ": in front of what else is to say.
std::string NearestWords(const std::string& key, const std::vector<std::string>& names) {
  const std::string words = SuggestName(key, names);
  return words.empty() ? words : words + " ";
}

void SetFact(const std::string& key, std::string value, Preset* preset) {
  const auto row = std::ranges::find_if(kFacts, [&](const FactRow& fact) {
    return key == fact.key && std::string_view(fact.section) != "offers";
  });
  if (row == std::end(kFacts))
    throw InputError(fmt::format("frameworks have no fact '{}'", key),
                     fmt::format("{}plan list facts shows all, with their values",
                                 NearestWords(key, FactNames())));
  const bool truth = std::holds_alternative<bool Preset::*>(row->member) ||
                     std::holds_alternative<bool Strategy::*>(row->member);
  if (truth && value != "on" && value != "off")
    throw InputError(fmt::format("{} is on or off, not '{}'", key, value));
  if (truth) value = value == "on" ? "true" : "false";
  if (IsList(*row)) value = fmt::format("[{}]", value);
  try {
    Diagnostics diagnostics;
    const Node entry = Node::Parse(
        std::make_shared<Source>(Source{"--fact " + key, fmt::format("value: {}", value)}),
        &diagnostics);
    diagnostics.ThrowIfAny();
    FrameworkFact fact{std::visit(FactReader{entry, *row, preset}, row->member), "--fact",
                       kOwnFact};
    entry.RejectUnknownKeys();
    diagnostics.ThrowIfAny();
    preset->facts[row->Name()] = std::move(fact);
  } catch (const InputError& error) {  // the caller knows where the user wrote it
    std::vector<Diagnostic> list = error.diagnostics();
    for (Diagnostic& diagnostic : list) diagnostic.where = {};
    throw InputError(std::move(list));
  }
}

void ReadAliases(const Node& root, Preset* preset) {
  preset->aliases.clear();
  if (!root.Has("aliases")) return;
  for (const Node& entry : root.Items("aliases")) {
    FrameworkAlias alias{entry.String("name"), entry.String("why"), entry.where("name")};
    if (FoldedName(alias.name).empty())
      entry.ErrorAt("name", "an alias has at least one letter or digit");
    entry.RejectUnknownKeys();
    preset->aliases.push_back(std::move(alias));
  }
}

void ReadPublishedAs(const Node& root, Preset* preset) {
  preset->published_as.clear();
  if (!root.Has("published_as")) return;
  for (const Node& entry : root.Items("published_as")) {
    preset->published_as.push_back({entry.String("framework"), entry.String("source"),
                                    entry.String("note"), entry.String("facts", ""),
                                    entry.String("lora_targets", ""),
                                    entry.String("lora_base", "")});
    entry.RejectUnknownKeys();
  }
}

// Only a framework that can be named, or an abstract base, says more than constants.
void CheckSections(const Node& root, const std::string& id, const Preset& preset) {
  const std::size_t at = id.find('@');
  // A release is a framework of its own: it has a description.
  const bool site =
      id.find('/') == std::string::npos && at != std::string::npos && preset.description.empty();
  for (const char* section : {"description", "offers", "defaults", "aliases", "published_as"}) {
    if (!root.Has(section)) continue;
    if (site) {
      root.ErrorAt(section, "the file of a site holds facts and constants alone",
                   fmt::format("move '{}' to {}.yaml", section, id.substr(0, at)));
    } else if (preset.description.empty() && !root.Bool("abstract", false)) {
      root.ErrorAt(section,
                   fmt::format("'{}' belongs to a framework, and this file is none", section),
                   "description: \"one line\" makes it a framework that --framework can name");
    }
  }
}

}  // namespace

void ReadPreset(const Node& root, const std::string& id, const std::string& file,
                FrameworkPreset* preset) {
  preset->name = id;
  preset->description = root.String("description", "");
  for (const char* section : {"offers", "facts", "defaults"})
    ReadFacts(root, section, file, preset);
  ReadAliases(root, preset);
  ReadPublishedAs(root, preset);
  CheckSections(root, id, *preset);
}

std::vector<std::string> FactNames() {
  std::vector<std::string> names;
  for (const FactRow& row : kFacts) {
    if (std::string_view(row.section) != "offers") names.emplace_back(row.key);
  }
  return names;
}

namespace {

template <class E>
std::string NamesIn(std::span<const NameRow<E>> names) {
  std::string text;
  for (const auto& [name, value] : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// The values of a fact, in words.
struct FormWords {
  const FactRow& row;

  std::string operator()(bool Preset::*) const { return "on, off"; }
  std::string operator()(bool Strategy::*) const { return "on, off"; }
  std::string operator()(int Preset::*) const { return Range(); }
  std::string operator()(int Strategy::*) const { return Range(); }
  std::string operator()(double Preset::*) const { return Range(); }
  std::string operator()(nccl::Release Preset::*) const {
    return fmt::format("2.{} to 2.{}", nccl::kFirstMinor, nccl::kLastMinor);
  }
  std::string operator()(Fp32Grads Preset::*) const { return NamesIn<Fp32Grads>(kFp32GradNames); }
  std::string operator()(AdapterSplit Strategy::*) const {
    return NamesIn<AdapterSplit>(kAdapterSplitNames);
  }
  std::string operator()(List<int> Preset::*) const { return "numbers"; }
  std::string operator()(List<Recompute> Preset::*) const { return "kinds of recomputation"; }
  template <class E>
  std::string operator()(List<E> Preset::*) const {
    return "some of " + NamesIn(NamesOf<E>());
  }

 private:
  std::string Range() const { return fmt::format("{} to {}", row.min, row.max); }
};

}  // namespace

std::vector<FactForm> FactForms() {
  std::vector<FactForm> forms;
  for (const FactRow& row : kFacts) {
    if (std::string_view(row.section) != "offers")
      forms.push_back({row.Name(), row.key, std::visit(FormWords{row}, row.member)});
  }
  return forms;
}

std::string FactValueText(const std::string& value) {
  if (value == "true") return "on";
  return value == "false" ? "off" : value.empty() ? "none" : value;
}

void SetFacts(std::string_view assignments, FrameworkPreset* preset) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (std::string_view rest = assignments; !rest.empty();) {
    const std::string_view piece = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), piece.size() + 1));
    const std::size_t at = piece.find('=');
    if (at != std::string_view::npos) {
      facts.emplace_back(piece.substr(0, at), piece.substr(at + 1));
    } else if (!facts.empty()) {
      facts.back().second += fmt::format(", {}", piece);
    } else {
      throw InputError(fmt::format("'{}' sets no fact", piece),
                       "KEY=VALUE, such as tp_overlap=off");
    }
  }
  for (auto fact = facts.begin(); fact != facts.end(); ++fact) {
    if (std::ranges::find(facts.begin(), fact, fact->first,
                          &std::pair<std::string, std::string>::first) != fact)
      throw InputError(fmt::format("{} is given twice", fact->first), "leave one of them out");
    SetFact(fact->first, fact->second, preset);
  }
  preset->overridden = assignments;
}

std::string MissingFacts(const FrameworkPreset& preset) {
  std::string missing;
  for (const FactRow& row : kFacts) {
    if (!preset.facts.contains(row.Name())) missing += (missing.empty() ? "" : ", ") + row.Name();
  }
  return missing;
}

}  // namespace orrery
