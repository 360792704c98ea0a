// SPDX-License-Identifier: Apache-2.0
// Tables of words; the longest entry that a cell begins with decides.
#include "calib/validate/case_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/framework/presets.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

std::string Folded(std::string_view text) { return FoldedName(text); }

template <class T>
using Word = std::pair<std::string_view, T>;  // folded beginning of a cell

// The value of the longest word that `text` begins with.
template <class T>
const T* Longest(std::span<const Word<T>> words, const std::string& text) {
  const Word<T>* best = nullptr;
  for (const Word<T>& word : words) {
    if (text.starts_with(word.first) && (!best || word.first.size() > best->first.size()))
      best = &word;
  }
  return best ? &best->second : nullptr;
}

// The project's own word, whatever its case; else by the table of other words.
template <class T, std::size_t N>
Meaning<T> Read(const char* column, const std::string& text, const NameRow<T> (&own)[N],
                std::span<const Word<T>> others) {
  const std::string folded = Folded(text);
  std::vector<std::string> names;
  for (const auto& [name, value] : own) {
    if (folded == Folded(name)) return {value, ""};
    names.emplace_back(name);
  }
  if (const T* value = Longest(others, folded))
    return {*value, fmt::format("{} '{}' read as {}", column, text, NameIn(own, *value))};
  return {std::nullopt, fmt::format("{} '{}': {}", column, text, SuggestName(text, names))};
}

constexpr NameRow<CsvFamily> kFamilies[] = {
    {"gpt", CsvFamily::kGpt}, {"llama", CsvFamily::kLlama}, {"bert", CsvFamily::kBert},
    {"t5", CsvFamily::kT5},   {"vit", CsvFamily::kVit},     {"mlp", CsvFamily::kMlp}};

constexpr Word<CsvFamily> kFamilyWords[] = {
    {"gpt", CsvFamily::kGpt},           {"opt", CsvFamily::kGpt},
    {"bloom", CsvFamily::kGpt},         {"mpt", CsvFamily::kGpt},
    {"falcon", CsvFamily::kGpt},        {"nemotron", CsvFamily::kGpt},
    {"starcoder", CsvFamily::kGpt},     {"palm", CsvFamily::kGpt},
    {"pythia", CsvFamily::kGpt},        {"megatron", CsvFamily::kGpt},
    {"mtnlg", CsvFamily::kGpt},         {"turingnlg", CsvFamily::kGpt},
    {"cerebrasgpt", CsvFamily::kGpt},   {"decoder", CsvFamily::kGpt},
    {"transformer", CsvFamily::kGpt},   {"llama", CsvFamily::kLlama},
    {"codellama", CsvFamily::kLlama},   {"mistral", CsvFamily::kLlama},
    {"qwen", CsvFamily::kLlama},        {"gemma", CsvFamily::kLlama},
    {"yi", CsvFamily::kLlama},          {"baichuan", CsvFamily::kLlama},
    {"internlm", CsvFamily::kLlama},    {"olmo", CsvFamily::kLlama},
    {"phi", CsvFamily::kLlama},         {"tinyllama", CsvFamily::kLlama},
    {"smollm", CsvFamily::kLlama},      {"granite", CsvFamily::kLlama},
    {"deepseek", CsvFamily::kLlama},    {"bert", CsvFamily::kBert},
    {"roberta", CsvFamily::kBert},      {"electra", CsvFamily::kBert},
    {"megatronbert", CsvFamily::kBert}, {"encoderonly", CsvFamily::kBert},
    {"mlm", CsvFamily::kBert},          {"t5", CsvFamily::kT5},
    {"mlp", CsvFamily::kMlp},           {"mt5", CsvFamily::kT5},
    {"flant5", CsvFamily::kT5},         {"ul2", CsvFamily::kT5},
    {"encoderdecoder", CsvFamily::kT5}, {"vit", CsvFamily::kVit},
    {"deit", CsvFamily::kVit},          {"visiontransformer", CsvFamily::kVit}};

// Sparse models by their names; none of them is what its columns alone would say.
constexpr std::string_view kSparse[] = {
    "moe",    "mixtral", "deepseekv2", "deepseekv3", "deepseekr1", "grok",         "dbrx",
    "switch", "arctic",  "gptoss",     "llama4",     "glam",       "qwen3235ba22b"};

constexpr Word<Precision> kPrecisionWords[] = {
    {"bf16", Precision::kBf16},      {"bfloat16", Precision::kBf16},
    {"ampbf16", Precision::kBf16},   {"ampbfloat16", Precision::kBf16},
    {"mixedbf16", Precision::kBf16}, {"fp16", Precision::kFp16},
    {"float16", Precision::kFp16},   {"half", Precision::kFp16},
    {"amp", Precision::kFp16},       {"16mixed", Precision::kFp16},
    {"mixed", Precision::kFp16},     {"16", Precision::kFp16},
    {"fp32", Precision::kFp32},      {"float32", Precision::kFp32},
    {"single", Precision::kFp32},    {"32", Precision::kFp32},
    {"tf32", Precision::kTf32},      {"tensorfloat", Precision::kTf32}};

// Scales per row of a tensor cost what one per tensor costs.
constexpr Word<Fp8> kRecipeWords[] = {
    {"tensorwise", Fp8::kCurrent}, {"currentscaling", Fp8::kCurrent},
    {"dynamic", Fp8::kCurrent},    {"rowwise", Fp8::kCurrent},
    {"hybrid", Fp8::kDelayed},     {"delayedscaling", Fp8::kDelayed},
    {"block", Fp8::kBlockwise},    {"deepseek", Fp8::kBlockwise},
    {"mx", Fp8::kMxfp8},           {"nv", Fp8::kNvfp4}};

// Read by what they keep per parameter; the arithmetic of a step is a few passes over memory with any of them.
constexpr Word<Optimizer> kOptimizerWords[] = {{"fusedadamw", Optimizer::kAdamW},
                                               {"decoupledadamw", Optimizer::kAdamW},
                                               {"adamw", Optimizer::kAdamW},
                                               {"adam", Optimizer::kAdam},
                                               {"fusedadam", Optimizer::kAdam},
                                               {"apexadam", Optimizer::kAdam},
                                               {"distributedfusedadam", Optimizer::kAdam},
                                               {"distributedadam", Optimizer::kAdam},
                                               {"sophia", Optimizer::kAdam},
                                               {"nvlamb", Optimizer::kLamb},
                                               {"fusedlamb", Optimizer::kLamb},
                                               {"lamb", Optimizer::kLamb},
                                               {"sgd", Optimizer::kSgd},
                                               {"momentum", Optimizer::kSgd},
                                               {"nesterov", Optimizer::kSgd},
                                               {"lars", Optimizer::kSgd},
                                               {"lion", Optimizer::kSgd},
                                               {"adafactor", Optimizer::kSgd},
                                               {"rmsprop", Optimizer::kSgd},
                                               {"muon", Optimizer::kMuon},
                                               {"shampoo", Optimizer::kSgd}};

constexpr Word<Recompute> kRecomputeWords[] = {{"full", Recompute::kFull},
                                               {"yes", Recompute::kFull},
                                               {"true", Recompute::kFull},
                                               {"1", Recompute::kFull},
                                               {"on", Recompute::kFull},
                                               {"block", Recompute::kFull},
                                               {"uniform", Recompute::kFull},
                                               {"checkpoint", Recompute::kFull},
                                               {"activationcheckpoint", Recompute::kFull},
                                               {"all", Recompute::kFull},
                                               {"no", Recompute::kNone},
                                               {"false", Recompute::kNone},
                                               {"0", Recompute::kNone},
                                               {"off", Recompute::kNone},
                                               {"sel", Recompute::kSelective},
                                               {"core", Recompute::kSelective},
                                               {"att", Recompute::kSelective}};

constexpr NameRow<Window> kWindows[] = {
    {"step", Window::kStep}, {"microstep", Window::kMicrostep}, {"sustained", Window::kSustained}};
constexpr Word<Window> kWindowWords[] = {
    {"step", Window::kStep},          {"iter", Window::kStep},
    {"optimizerstep", Window::kStep}, {"train", Window::kStep},
    {"micro", Window::kMicrostep},    {"forwardbackward", Window::kMicrostep},
    {"fwdbwd", Window::kMicrostep}};

constexpr Word<int> kZeroWords[] = {
    {"none", 0},        {"no", 0},          {"ddp", 0},     {"noshard", 0},   {"zero0", 0},
    {"zero1", 1},       {"zero2", 2},       {"zero3", 3},   {"stage1", 1},    {"stage2", 2},
    {"stage3", 3},      {"distributed", 1}, {"distopt", 1}, {"fullshard", 3}, {"fsdp", 3},
    {"shardgradop", 2}, {"hybridshard", 3}, {"hsdp", 3}};

constexpr Word<bool> kYesWords[] = {{"1", true},   {"yes", true},    {"true", true},
                                    {"on", true},  {"y", true},      {"0", false},
                                    {"no", false}, {"false", false}, {"off", false}};
constexpr Word<bool> kFlashWords[] = {
    {"flash", true},    {"fa", true},     {"2", true},
    {"3", true},        {"te", true},     {"cudnn", true},
    {"xformers", true}, {"triton", true}, {"memoryefficient", true},
    {"sdpa", true},     {"fused", true},  {"math", false},
    {"eager", false},   {"torch", false}, {"unfused", false}};

constexpr std::pair<std::string_view, const char*> kInstances[] = {
    {"p316xlarge", "aws-p3-16xl"}, {"p3dn", "aws-p3dn"},     {"p4d", "aws-p4d"},
    {"p4de", "aws-p4de"},          {"p548xlarge", "aws-p5"}, {"p5en", "aws-p5en"},
    {"g548xlarge", "aws-g5-48xl"}, {"dl1", "aws-dl1"}};

bool IsLow(const std::string& folded) {
  return folded.find("fp8") != std::string::npos || folded.find("fp4") != std::string::npos;
}

std::string ByLayout(const LayoutHint& hint) {
  if (hint.model_parallel) return "megatron";
  return hint.zero >= 2 ? "fsdp" : hint.zero == 1 ? "deepspeed" : "ddp";
}

}  // namespace

std::string KnownText(const std::string& cell) {
  std::string_view text = cell;
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  const std::string folded = Folded(text);
  const bool bare = text == "?" || text == "-" || text == "--";
  for (const char* word : {"nan", "na", "null", "unknown", "notprinted", "notstated"}) {
    if (folded == word) return "";
  }
  return bare ? "" : std::string(text);
}

Meaning<CsvFamily> FamilyOf(const std::string& text, bool gated) {
  if (text.empty()) {
    return {gated ? CsvFamily::kLlama : CsvFamily::kGpt,
            fmt::format("family not printed: read as {}",
                        gated ? "llama, for its gated layers" : "gpt")};
  }
  const std::string folded = Folded(text);
  for (const std::string_view sparse : kSparse) {
    if (folded.find(sparse) != std::string::npos)
      return {std::nullopt, fmt::format("family '{}': mixtures of experts are not modelled", text)};
  }
  return Read<CsvFamily>("family", text, kFamilies, kFamilyWords);
}

Meaning<std::string> FrameworkOf(const std::string& text, const LayoutHint& hint) {
  const FrameworkMatch match = FrameworkThatBegins(text);
  if (match.preset && Folded(text) == Folded(match.preset->name)) return {match.preset->name, ""};
  // A release that nobody knows is not the newest.
  if (text.find('@') != std::string::npos)
    return {std::nullopt, fmt::format("framework '{}': no such release", text)};
  if (text.empty()) {
    const std::string name = ByLayout(hint);
    return {name, fmt::format("framework not printed: read as {}, which such layouts are run with",
                              name)};
  }
  if (!match.preset)
    return {std::nullopt,
            fmt::format("unknown framework '{}': {}", text, SuggestName(text, FrameworkNames()))};
  const std::string& name = match.preset->name;
  return {name, fmt::format("framework '{}' read as {}{}", text, name,
                            match.alias ? ": " + match.alias->why : "")};
}

Meaning<Precision> PrecisionOf(const std::string& text) {
  if (text.empty()) return {Precision::kBf16, "precision not printed: read as bf16"};
  const std::string folded = Folded(text);
  // Products of layers alone have 8 or 4 bits; everything else stays in bf16 in published runs.
  if (IsLow(folded)) return {Precision::kBf16, ""};
  return Read<Precision>("precision", text, kPrecisionNames, kPrecisionWords);
}

Meaning<Fp8> Fp8Of(const std::string& precision, const std::string& recipe,
                   const std::vector<Fp8>& offered) {
  if (!IsLow(Folded(precision))) return {Fp8::kOff, ""};
  // "fp8-delayed", "mxfp8": with or without the type in front.
  for (const std::string& text : {recipe, precision}) {
    std::string folded = Folded(text);
    if (folded.starts_with("fp8")) folded = folded.substr(3);
    if (folded.empty()) continue;
    return Read<Fp8>("precision_recipe", folded, kFp8Names, kRecipeWords);
  }
  if (offered.empty()) {
    return {std::nullopt,
            fmt::format("precision '{}': the framework has no recipe, and the row names none",
                        precision)};
  }
  return {offered.front(), fmt::format("precision '{}' without a recipe: {}, the framework's own",
                                       precision, NameIn(kFp8Names, offered.front()))};
}

Meaning<Optimizer> OptimizerOf(const std::string& text) {
  if (text.empty()) return {Optimizer::kAdam, "optimizer not printed: read as adam"};
  return Read<Optimizer>("optimizer", text, kOptimizerNames, kOptimizerWords);
}

Meaning<Recompute> RecomputeOf(const std::string& text) {
  if (text.empty() || Folded(text).starts_with("partial")) return {};
  if (const std::optional<Recompute> exact = ReadRecompute(text)) return {*exact, ""};
  return Read<Recompute>("recompute", text, kRecomputeNames, kRecomputeWords);
}

Meaning<Offload> OffloadOf(const std::string& text) {
  if (text.empty()) return {Offload{}, ""};
  if (const std::optional<Offload> exact = ReadOffload(text)) return {*exact, ""};
  // As the tables of Megatron-Bridge's runs are written.
  constexpr std::string_view kBefore = "activations of ", kBehind = " layers to the host";
  if (text.starts_with(kBefore) && text.ends_with(kBehind) &&
      text.size() > kBefore.size() + kBehind.size()) {
    const std::string layers =
        text.substr(kBefore.size(), text.size() - kBefore.size() - kBehind.size());
    if (const auto read = ReadOffload("activations:" + layers)) return {*read, ""};
  }
  return {std::nullopt, fmt::format("offload '{}' is not known: {}", text, kOffloadForms)};
}

Meaning<Window> WindowOf(const std::string& text) {
  if (text.empty()) return {Window::kStep, ""};
  return Read<Window>("window", text, kWindows, kWindowWords);
}

Meaning<bool> YesOrNo(const std::string& text) {
  const std::string folded = Folded(text);
  for (const auto& [word, value] : kYesWords) {
    if (folded == word) return {value, ""};
  }
  return {};
}

Meaning<bool> FlashOf(const std::string& text) {
  if (text.empty()) return {};
  if (const Meaning<bool> plain = YesOrNo(text); plain.value) return plain;
  if (Folded(text) == "none") return {false, ""};
  if (const bool* value = Longest<bool>(kFlashWords, Folded(text)))
    return {*value, fmt::format("flash '{}' read as {}", text, *value ? 1 : 0)};
  return {std::nullopt, fmt::format("flash '{}': 1 or 0", text)};
}

Meaning<int> ZeroOf(const std::string& text) {
  if (const int* stage = Longest<int>(kZeroWords, Folded(text)))
    return {*stage, fmt::format("zero '{}' read as stage {}", text, *stage)};
  return {};
}

std::optional<std::string> TopologyAlias(const std::string& text) {
  const std::string folded = Folded(text);
  std::size_t longest = 0;
  std::optional<std::string> name;
  for (const auto& [word, topology] : kInstances) {
    if (!folded.starts_with(word) || word.size() <= longest) continue;
    longest = word.size();
    name = topology;
  }
  return name;
}

}  // namespace orrery
