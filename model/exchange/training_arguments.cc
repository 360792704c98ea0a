// SPDX-License-Identifier: Apache-2.0
// TrainingArguments as a call in a Python program: keywords with literal values. Nothing of it is run.
#include <algorithm>
#include <array>
#include <cctype>

#include "model/base/text.h"
#include "model/exchange/document.h"

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

// Cuts the arguments of a call at its commas: brackets, quotes and comments are stepped over.
class Arguments {
 public:
  Arguments(const SourcePtr& source, std::size_t begin) : source_(source), at_(begin) {
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
    if (value == "None" || name.empty()) return;
    if (value == "True" || value == "False") value = value == "True" ? "true" : "false";
    const char* const why = value.empty() ? "its value is computed" : "";
    settings->push_back({"args." + name, std::move(value), {source_, line, 1}, why});
  }

  const SourcePtr& source_;
  std::size_t at_;
  int line_ = 1;
};

}  // namespace

bool CallsTrainingArguments(std::string_view text) {
  const std::size_t call = CallIn(text);
  if (call == std::string_view::npos) return false;
  // Next to an import, or as a value: prose and shells have neither.
  return text.find("import ") != std::string_view::npos ||
         Trim(text.substr(0, call)).find('=') != std::string_view::npos;
}

Document ReadTrainingArguments(const SourcePtr& source) {
  Document document{source, "TrainingArguments in a Python program", kAccelerate, {}, {}};
  document.settings = Arguments(source, CallIn(source->text)).Read();
  for (const Setting& setting : document.settings) {
    if (setting.key == "args.deepspeed") document.files.push_back(setting);
  }
  return document;
}

}  // namespace orrery::exchange
