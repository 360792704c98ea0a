// SPDX-License-Identifier: Apache-2.0
// Configurations that programs print in their logs: as JSON, and DeepSpeed as lines of dots, too.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/exchange/document.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

// What stands in front of the first bracket, on its line.
struct Logged {
  std::string_view words, line;
  const char* program;
};
constexpr Logged kLogged[] = {
    {"Running with configs: {", "", "torchtitan"},
    {"Running with args: {", "", "torchtitan"},  // up to 2025
    {"json = {", "[config.py:", "DeepSpeed"},
};

std::size_t LineStart(std::string_view text, std::size_t at) {
  const std::size_t end = text.rfind('\n', at);
  return end == std::string_view::npos ? 0 : end + 1;
}
int NumberOfLine(std::string_view text, std::size_t at) {
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// `begin`: of the bracket.
const Logged* LoggedIn(std::string_view text, std::size_t* begin) {
  for (const Logged& one : kLogged) {
    const std::size_t at = text.find(one.words);
    if (at == text.npos) continue;
    const std::size_t line = LineStart(text, at);
    if (text.substr(line, at - line).find(one.line) == text.npos) continue;
    *begin = at + one.words.size() - 1;
    return &one;
  }
  return nullptr;
}

// What a launcher puts in front of each line: "[rank0]:", "0: ", "worker-0: ".
std::string LabelOf(std::string_view text, std::size_t begin) {
  const std::size_t line = LineStart(text, begin),
                    next = std::min(text.find('\n', begin), text.size());
  const std::size_t colon = text.find("]:", line);
  const std::string_view first = text.substr(line, begin - line);
  const std::string_view second = text.substr(std::min(next + 1, text.size()));
  // A program's own brackets stand on the first line alone, whatever rank's line comes next.
  if (first.starts_with('[') && second.starts_with('[') && colon < begin &&
      first.find_first_of(" ") > colon - line)  // no time in brackets
    return std::string(text.substr(line, colon + 2 - line));
  const auto same = std::mismatch(first.begin(), first.end(), second.begin(), second.end()).first;
  const std::string_view common = first.substr(0, static_cast<std::size_t>(same - first.begin()));
  return std::string(common.substr(0, common.rfind(':') + 1));
}

// The text with nothing but that JSON in it, each part where it was.
SourcePtr JsonAlone(const SourcePtr& source, std::size_t begin, const char* program) {
  const std::string label = LabelOf(source->text, begin);
  std::string plain = source->text;
  for (std::size_t i = 0; i < begin; ++i)
    if (plain[i] != '\n') plain[i] = ' ';
  int open = 0;
  std::size_t at = begin;
  for (bool first = true; at < plain.size(); first = false) {
    const std::size_t end = std::min(plain.find('\n', at), plain.size());
    // Lines of other ranks may come in between.
    const bool own = first || plain.compare(at, label.size(), label) == 0;
    const std::size_t blanks = first ? 0 : own ? label.size() : end - at;
    std::fill_n(plain.begin() + static_cast<std::ptrdiff_t>(at), blanks, ' ');
    for (bool quoted = false; at < end; ++at) {
      if (plain[at] == '"' && plain[at - 1] != '\\') quoted = !quoted;
      if (quoted || (plain[at] != '{' && plain[at] != '}')) continue;
      open += plain[at] == '{' ? 1 : -1;
      if (open == 0) break;
    }
    if (at < end) break;
    at = end + 1;
  }
  if (open > 0)
    throw InputError(
        {{{source, NumberOfLine(source->text, source->text.size()), 1},
          fmt::format("{} ends within the configuration that {} printed", source->name, program),
          "the whole log, or the file of that configuration"}});
  plain.resize(std::min(at + 1, plain.size()));
  return std::make_shared<const Source>(Source{source->name, std::move(plain)});
}

// torchtitan says how many GPUs there are by the degrees of its mesh:
//   Building 2-D device mesh with ['pp', 'dp_shard'], [2, 4]
//   Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=1, ep=1, etp=1
std::optional<int64_t> GpusOfMesh(std::string_view line) {
  line = line.substr(0, line.find(", ep="));  // ranks of experts are among the others
  const std::size_t list = line.rfind('[');
  if (list != line.npos) line.remove_prefix(list);
  constexpr int64_t kMost = int64_t{1} << 24;
  int64_t world = 1;
  bool any = false;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of(",]"), line.size());
    std::string_view number = line.substr(0, end);
    number.remove_prefix(std::min(number.find_last_of("=[ ") + 1, number.size()));
    int64_t degree = 0;
    if (ParseInteger(std::string(number), &degree) == NumberFault::kNone && degree > 0 &&
        degree <= kMost && world <= kMost) {
      world *= degree;
      any = true;
    }
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return any ? std::optional(world) : std::nullopt;
}

// What DeepSpeed's DeepSpeedConfig.print writes of itself (runtime/config.py of 0.3 to 0.18), by the keys of its file:
//   [2024-12-11 17:41:48,136] [INFO] [config.py:1003:print]   gradient_accumulation_steps .. 4
//   [2024-12-11 17:41:48,136] [INFO] [config.py:1003:print]   train_micro_batch_size_per_gpu  2
constexpr std::string_view kPrinted = "[config.py:", kPrintEnd = "print]";
constexpr std::pair<std::string_view, const char*> kDots[] = {
    {"zero_optimization_stage", "zero_optimization.stage"},
    {"train_batch_size", "train_batch_size"},
    {"train_micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu"},
    {"gradient_accumulation_steps", "gradient_accumulation_steps"},
    {"bfloat16_enabled", "bf16.enabled"},
    {"fp16_enabled", "fp16.enabled"},
    {"bfloat16_config", "bf16.enabled"},  // "enabled=True immediate_grad_update=True ..."
    {"float16_config", "fp16.enabled"},
    {"grad_accum_dtype", "data_types.grad_accum_dtype"},
    {"mics_shard_size", "zero_optimization.mics_shard_size"},
    {"world_size", "WORLD"},
};

// Of the value behind the dots. "": the file leaves it out.
std::string DotsValue(std::string_view value) {
  if (value.starts_with("enabled=")) value.remove_prefix(std::string_view("enabled=").size());
  value = value.substr(0, value.find_first_of(" \t\r"));
  if (value == "True") return "true";
  if (value == "False") return "false";
  if (value.ends_with(".0")) value.remove_suffix(2);  // ranks by a division
  return value == "None" ? "" : std::string(value);
}

// Until `take` says false.
void ForEachDots(std::string_view text, const SourcePtr& source,
                 const std::function<bool(Setting)>& take) {
  int line = 1;
  std::size_t counted = 0;
  for (std::size_t at = text.find(kPrinted); at != text.npos; at = text.find(kPrinted, at)) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view rest = text.substr(at, end - at);
    const std::size_t begin = std::exchange(at, end);
    const std::size_t bracket = rest.find(kPrintEnd);
    if (bracket == rest.npos) continue;
    rest = Trim(rest.substr(bracket + kPrintEnd.size()));
    const std::string_view name = rest.substr(0, rest.find(' '));
    const auto known = std::ranges::find(kDots, name, [](const auto& one) { return one.first; });
    const std::size_t value = rest.find_first_not_of(" .", name.size());
    if (known == std::end(kDots) || value == rest.npos) continue;
    line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                                        text.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
    counted = begin;
    if (!take({known->second, DotsValue(rest.substr(value)), {source, line, 1}, ""})) return;
  }
}

// What its file leaves out, or to "auto", as DeepSpeed took it: the first engine's.
void AddDots(const SourcePtr& source, Settings* settings) {
  const auto find = [&](const std::string& key) {
    return std::ranges::find(*settings, key, &Setting::key);
  };
  ForEachDots(source->text, source, [&](Setting dots) {
    const auto at = find(dots.key);
    if (dots.value.empty()) return true;
    if (at == settings->end())
      settings->push_back(std::move(dots));
    else if (at->value == kAuto)
      *at = std::move(dots);
    return true;
  });
  // Its world size is that of a batch: ranks of a sequence share one.
  const auto world = find("WORLD"), sequence = find("sequence_parallel_size");
  int64_t ranks = 0, each = 0;
  if (world != settings->end() && sequence != settings->end() &&
      ParseInteger(world->value, &ranks) == NumberFault::kNone &&
      ParseInteger(sequence->value, &each) == NumberFault::kNone && each > 0 &&
      each < (int64_t{1} << 24) && ranks < (int64_t{1} << 24))
    world->value = std::to_string(ranks * each);
}

void AddMesh(const SourcePtr& source, Settings* settings) {
  const std::string_view text = source->text;
  const std::size_t at = text.find("device mesh with ");
  if (at == text.npos) return;
  const std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
  if (const auto gpus = GpusOfMesh(line))
    settings->push_back({"WORLD", std::to_string(*gpus), {source, NumberOfLine(text, at), 1}, ""});
}

}  // namespace

bool HasLoggedJson(std::string_view text) {
  std::size_t begin = 0;
  return LoggedIn(text, &begin) != nullptr;
}

bool HasLoggedSettings(std::string_view text) {
  bool any = HasLoggedJson(text);
  if (!any) ForEachDots(text, nullptr, [&](const Setting&) { return any = true, false; });
  return any;
}

Document ReadLoggedSettings(const SourcePtr& source) {
  std::size_t begin = 0;
  const Logged* logged = LoggedIn(source->text, &begin);
  Document document{source, "a DeepSpeed configuration", kDeepSpeed, {}, {}};
  if (logged != nullptr) document = ReadTree(JsonAlone(source, begin, logged->program));
  document.kind += ", in its log";
  if (document.target == kDeepSpeed)
    AddDots(source, &document.settings);
  else
    AddMesh(source, &document.settings);
  return document;
}

}  // namespace orrery::exchange
