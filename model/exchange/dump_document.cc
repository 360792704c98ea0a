// SPDX-License-Identifier: Apache-2.0
// Megatron's dump of its arguments in a log: "  name ...... value" between two ruled lines, and the line in front of it:
//   using world size: 16, data-parallel size: 4, tensor-model-parallel size: 4, pipeline-model-parallel size: 1
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

// What the line in front of the dump says, by the names of arguments. Some releases lack a comma in it.
constexpr std::string_view kWorldLine = "using world size:";
constexpr std::pair<std::string_view, const char*> kWorldNames[] = {
    {"world size", "WORLD"},
    {"data-parallel size", "data-parallel-size"},
    {"data-parallel-size", "data-parallel-size"},
    {"context-parallel size", "context-parallel-size"},
    {"tensor-model-parallel size", "tensor-model-parallel-size"},
    {"pipeline-model-parallel size", "pipeline-model-parallel-size"},
    {"and model-parallel size", "model-parallel-size"},
};

Settings WorldOf(std::string_view text, const Location& where) {
  Settings settings;
  text.remove_prefix(text.find(kWorldLine) + std::string_view("using ").size());
  for (std::size_t colon = 0; (colon = text.find(':')) != text.npos;) {
    // A name may stand behind the digits of the number before.
    const std::size_t first = text.find_first_not_of(" ,]\t");
    const std::string_view name = text.substr(first, colon - first);
    text.remove_prefix(std::min(text.find_first_not_of(" \t", colon + 1), text.size()));
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const auto known =
        std::ranges::find(kWorldNames, name, [](const auto& one) { return one.first; });
    if (known != std::end(kWorldNames) && digits > 0)
      settings.push_back({known->second, std::string(text.substr(0, digits)), where, ""});
    std::size_t end = digits;
    if (end == 0 && text.starts_with("None"))
      end = 4;
    else if (end == 0)
      end = text.starts_with('[') ? text.find(']') : text.find(',');
    text.remove_prefix(std::min(end, text.size()));
  }
  return settings;
}

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
  Settings world;
  bool inside = false, whole = false;
  int last = 1;
  for (int line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!inside) {
      inside = text.find(kBegin) != std::string_view::npos;
      if (text.find(kWorldLine) != text.npos) world = WorldOf(text, {source, line, 1});
      if (inside) document.settings = std::move(world);
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
    if (key == "deepspeed-config") {  // names a file, which the log may hold, too
      if (!HasLoggedJson(source->text))
        document.files.push_back({"deepspeed_config", word, where, ""});
      continue;
    }
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
  const std::size_t again = rest.find(kBegin);
  if (again != std::string_view::npos) {
    const auto between =
        std::count(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(again), '\n');
    document.notes.push_back(
        fmt::format("{}:{}: the arguments of a later run; those of the first "
                    "are taken",
                    source->name, last + 1 + between));
  }
  return document;
}

}  // namespace orrery::exchange
