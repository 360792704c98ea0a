// SPDX-License-Identifier: Apache-2.0
// Configurations that programs print as JSON in their logs.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/exchange/document.h"

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

// DeepSpeed: "[config.py:1000:print]   world_size ................... 8".
std::optional<int64_t> GpusOfDots(std::string_view line) {
  int64_t world = 0;
  const std::string_view number =
      Trim(line.substr(std::min(line.find_last_of('.') + 1, line.size())));
  const bool known = ParseInteger(std::string(number), &world) == NumberFault::kNone && world > 0;
  return known ? std::optional(world) : std::nullopt;
}

void AddWorld(const SourcePtr& source, bool deepspeed, Settings* settings) {
  const std::string_view text = source->text;
  const std::size_t at = text.find(deepspeed ? "]   world_size ." : "device mesh with ");
  if (at == text.npos) return;
  const std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
  if (const auto gpus = deepspeed ? GpusOfDots(line) : GpusOfMesh(line); gpus)
    settings->push_back({"WORLD", std::to_string(*gpus), {source, NumberOfLine(text, at), 1}, ""});
}

}  // namespace

bool HasLoggedJson(std::string_view text) {
  std::size_t begin = 0;
  return LoggedIn(text, &begin) != nullptr;
}

Document ReadLoggedJson(const SourcePtr& source) {
  std::size_t begin = 0;
  const Logged* logged = LoggedIn(source->text, &begin);
  Document document = ReadTree(JsonAlone(source, begin, logged->program));
  document.kind += ", in its log";
  AddWorld(source, document.target == kDeepSpeed, &document.settings);
  return document;
}

}  // namespace orrery::exchange
