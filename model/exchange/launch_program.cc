// SPDX-License-Identifier: Apache-2.0
// Finds the training program behind its launchers, and tells options, files and numbers among the words.
#include <algorithm>
#include <span>

#include "model/base/plain_text.h"
#include "model/exchange/launch_options.h"
#include "model/exchange/launch_words.h"

namespace orrery::exchange {

bool IsOption(const std::string& text) {
  if (text.size() < 2 || text[0] != '-') return false;
  if (text[1] == '-') return text.size() > 2;
  return (text[1] >= 'a' && text[1] <= 'z') || (text[1] >= 'A' && text[1] <= 'Z');
}

bool IsArgumentsFile(const std::string& text) {
  return !IsOption(text) &&
         (text.ends_with(".json") || text.ends_with(".yaml") || text.ends_with(".yml"));
}

bool IsWhole(const std::string& text) {
  int64_t number = 0;
  return ParseInteger(text, &number) == NumberFault::kNone && number > 0;
}

bool StartsLlamaFactory(const std::string& text) {
  const std::string name = text.substr(text.rfind('/') + 1);
  return name == "llamafactory-cli" || name == "lmf";
}

std::size_t ProgramOf(const Words& words) {
  const std::vector<bool> values = ValuesIn(words);
  // Behind a program -m is an option of its own.
  const auto scripts = [&](std::size_t end) {
    return std::ranges::any_of(std::span(words).first(end),
                               [](const Word& word) { return word.text.ends_with(".py"); });
  };
  for (std::size_t i = words.size(); i-- > 0;) {
    const std::string& text = words[i].text;
    const bool module = i > 0 && words[i - 1].text == "-m";  // --module is torchtitan's own, too
    if (module && LaunchKindOf(text) == LaunchKind::kNone && !text.empty() && !scripts(i)) return i;
    if (text.ends_with(".py") && !values[i]) return i;
    if (text == "torchtitan.train" || text == "train.train") return i;
    if (text == "train" && i > 0 && StartsLlamaFactory(words[i - 1].text)) return i;
  }
  // A program that a variable names stands before the first option behind the launcher's, or before a file of arguments.
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i].unresolved.empty() || values[i] || words[i].text.ends_with('=')) continue;
    if (i > 0 && IsModule(words[i - 1].text)) continue;
    if (IsOption(words[i + 1].text) || IsArgumentsFile(words[i + 1].text)) return i;
  }
  return words.size();
}

}  // namespace orrery::exchange
