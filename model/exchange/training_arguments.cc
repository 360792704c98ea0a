// SPDX-License-Identifier: Apache-2.0
// TrainingArguments as a call in a Python program: keywords whose values are literals or constants. Nothing of it is run.
// Logs have them as Transformers prints them, sorted, each in a line of its own, texts without quotes:
//   ... - Training/evaluation parameters TrainingArguments(
//   _n_gpu=1,
//   bf16=True,
//   optim=OptimizerNames.ADAMW_TORCH_FUSED,
//   )
#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/exchange/document.h"
#include "model/exchange/shell_arithmetic.h"

namespace orrery::exchange {
namespace {

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

// NAME = LITERAL at the beginning of a line, of names that no other line sets.
std::map<std::string, std::string> ConstantsOf(std::string_view text) {
  std::map<std::string, int> set;
  std::map<std::string, std::string> values;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin), code = Trim(line);
    begin = end + 1;
    const std::string name(code.substr(0, NameLength(code)));
    const std::string_view rest = Trim(code.substr(name.size()));
    const std::size_t equals = rest.find('=');
    if (name.empty() || equals == std::string_view::npos || equals > 3 ||
        rest.substr(equals).starts_with("==") ||
        rest.substr(0, equals).find_first_not_of("+-*/%|&^<>") != std::string_view::npos)
      continue;
    ++set[name];
    std::string_view value = rest.substr(equals + 1);
    if (value.find_first_of("\"'") == std::string_view::npos)
      value = value.substr(0, value.find('#'));
    if (equals == 0 && line.starts_with(name)) values[name] = PythonLiteral(value);
  }
  std::erase_if(values, [&](const auto& row) { return row.second.empty() || set[row.first] > 1; });
  return values;
}

// Whole numbers of constants: "128 // (BS * 8)"; "": something else.
std::string Calculated(std::string text, const std::map<std::string, std::string>& constants) {
  for (std::size_t at = 0; (at = text.find('/', at)) != std::string::npos; ++at) {
    if (!text.substr(at).starts_with("//")) return "";  // no whole number
    text.erase(at, 1);
  }
  const auto value = Calculate(text, [&](const std::string& name) -> std::optional<int64_t> {
    const auto known = constants.find(name);
    int64_t number = 0;
    if (known == constants.end() || ParseInteger(known->second, &number) != NumberFault::kNone)
      return std::nullopt;
    return number;
  });
  return value && *value >= 0 ? std::to_string(*value) : "";
}

// Cuts the arguments of a call at its commas: brackets, quotes and comments are stepped over.
class Arguments {
 public:
  Arguments(const SourcePtr& source, std::size_t begin)
      : source_(source), constants_(ConstantsOf(source->text)), at_(begin) {
    line_ = 1 + static_cast<int>(
                    std::count(source->text.begin(),
                               source->text.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  }

  Settings Read() {
    Settings settings;
    std::string argument;
    int depth = 0, begun = line_;
    for (; at_ < text().size(); ++at_) {
      const char c = text()[at_];
      if (c == '\n') ++line_;
      if (c == '#') {
        at_ = std::min(text().find('\n', at_), text().size()) - 1;
        continue;
      }
      if (c == '"' || c == '\'') {
        argument += Quoted(c);
        continue;
      }
      if (depth == 0 && (c == ',' || c == ')')) {
        Add(argument, begun, &settings);
        argument.clear();
        if (c == ')') return settings;
        continue;
      }
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (argument.empty() && std::isspace(static_cast<unsigned char>(c)) != 0) continue;
      if (argument.empty()) begun = line_;
      argument += c;
    }
    throw InputError({{{source_, begun, 1}, "the call is never closed", ""}});
  }

 private:
  const std::string& text() const { return source_->text; }

  std::string Quoted(char quote) {
    const std::size_t begin = at_;
    for (++at_; at_ < text().size() && text()[at_] != quote; ++at_) {
      if (text()[at_] == '\\') ++at_;
      if (at_ < text().size() && text()[at_] == '\n') ++line_;
    }
    return text().substr(begin, at_ - begin + 1);
  }

  void Add(const std::string& argument, int line, Settings* settings) const {
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos || argument.compare(equals, 2, "==") == 0) return;
    const std::string name(Trim(std::string_view(argument).substr(0, equals)));
    std::string value = PythonLiteral(std::string_view(argument).substr(equals + 1));
    const std::string code(Trim(std::string_view(argument).substr(equals + 1)));
    if (const auto known = constants_.find(code); value.empty() && known != constants_.end())
      value = known->second;
    if (value.empty()) value = Calculated(code, constants_);
    if (value == "None" || name.empty()) return;
    if (value == "True" || value == "False") value = value == "True" ? "true" : "false";
    const char* const why = value.empty() ? "its value is computed" : "";
    settings->push_back({"args." + name, std::move(value), {source_, line, 1}, why});
  }

  const SourcePtr& source_;
  const std::map<std::string, std::string> constants_;  // of the program, by name
  std::size_t at_;
  int line_ = 1;
};

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
  const std::size_t call = CallIn(source->text);
  const bool printed = PrintedIn(source->text) != std::string_view::npos;
  if (printed) document.kind = "TrainingArguments that a log prints";
  document.settings = printed ? ReadPrinted(source, call) : Arguments(source, call).Read();
  if (!std::string_view(source->text).substr(0, call).ends_with(kCalls.front()) &&
      !document.settings.empty())
    document.settings.push_back({"TRL", "", document.settings.front().where, ""});
  for (const Setting& setting : document.settings) {
    if (setting.key == "args.deepspeed") document.files.push_back(setting);
  }
  return document;
}

}  // namespace orrery::exchange
