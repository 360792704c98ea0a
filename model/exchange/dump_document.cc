// SPDX-License-Identifier: Apache-2.0
// Megatron's dump of its arguments in a log: "  name ...... value" between two ruled lines.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/text.h"
#include "model/exchange/document.h"

namespace orrery::exchange {
namespace {

constexpr std::string_view kBegin = " arguments ---";
constexpr std::string_view kDumpEnd = "end of arguments";
constexpr std::size_t kMostSettings = 5000;

// Arguments that exist only as --no-NAME; the dump has NAME, False.
constexpr const char* kNegative[] = {"scatter-gather-tensors-in-pipeline"};
// Arguments with another name on the command line.
constexpr std::pair<const char*, const char*> kRenamed[] = {
    {"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"},
    {"add-bias-linear", ""},
};

bool LineOf(std::string_view text, std::string_view* name, std::string_view* value) {
  const std::size_t dots = text.find(" ..");
  if (dots == std::string_view::npos) return false;
  std::size_t end = text.find_first_not_of('.', dots + 1);
  if (end == std::string_view::npos || text[end] != ' ') return false;
  std::string_view front = Trim(text.substr(0, dots));
  const std::size_t blank = front.find_last_of(" \t:]");  // prefixes of srun and of ranks
  if (blank != std::string_view::npos) front.remove_prefix(blank + 1);
  *name = front;
  *value = Trim(text.substr(end));
  return !name->empty() && !value->empty();
}

}  // namespace

bool HasArgumentDump(std::string_view text) {
  const std::size_t at = text.find(kBegin);
  return at != std::string_view::npos && at > 3 && text.substr(at - 3, 3) == "---";
}

Document ReadArgumentDump(const SourcePtr& source) {
  Document document{source, "the arguments that Megatron printed", kMegatron, {}, {}};
  std::string_view rest = source->text;
  bool inside = false, whole = false;
  int last = 1;
  for (int line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!inside) {
      inside = text.find(kBegin) != std::string_view::npos;
      continue;
    }
    last = line;
    whole = text.find(kDumpEnd) != std::string_view::npos;
    if (whole) break;
    std::string_view name, value;
    if (!LineOf(text, &name, &value) || value == "None") continue;
    if (document.settings.size() > kMostSettings) break;
    std::string key(name);
    std::ranges::replace(key, '_', '-');
    std::string word(value);
    const Location where{source, line, 1};
    if (key == "world-size") {
      document.settings.push_back({"WORLD", word, where, ""});
      continue;
    }
    if (key == "add-bias-linear" && word == "False") {
      document.settings.push_back({"disable-bias-linear", "", where, ""});
      continue;
    }
    for (const auto& [old_name, new_name] : kRenamed) {
      if (key == old_name) key = new_name;
    }
    if (key.empty()) continue;
    const bool negative = std::ranges::any_of(kNegative, [&](const char* n) { return key == n; });
    if (word == "False" && negative) document.settings.push_back({"no-" + key, "", where, ""});
    if (word == "False") continue;
    if (word == "True") word.clear();
    if (word.starts_with("AttnBackend.")) word.erase(0, 12);
    document.settings.push_back({std::move(key), std::move(word), where, ""});
  }
  // Arguments are printed in the order of the alphabet: those behind the cut would be taken for defaults.
  if (!whole)
    throw InputError({{{source, last, 1},
                       fmt::format("{} ends within Megatron's arguments: 'end of arguments' never "
                                   "comes",
                                   source->name),
                       "the whole dump, or the launch script"}});
  return document;
}

}  // namespace orrery::exchange
