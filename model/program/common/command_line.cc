// SPDX-License-Identifier: Apache-2.0
// Shows the command line as one source line, quoted where a shell would need it.
#include "model/program/common/command_line.h"

#include <algorithm>
#include <utility>

namespace orrery::cli {

std::string Quoted(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\n' ? ' ' : c;
  return text + "'";
}

CommandLine::CommandLine(std::vector<std::string> words) : words_(std::move(words)) {
  if (words_.empty()) words_.emplace_back();
  words_[0] = "plan";
  std::string text;
  for (const std::string& word : words_) {
    if (!text.empty()) text += ' ';
    columns_.push_back(static_cast<int>(text.size()) + 1);
    text += Quoted(word);
  }
  columns_.push_back(static_cast<int>(text.size()) + 1);
  source_ = std::make_shared<const Source>(Source{kCommandLine, std::move(text)});
}

Location CommandLine::where(std::size_t word) const {
  return {source_, 1, columns_[std::min(word, words_.size())]};
}

}  // namespace orrery::cli
