// SPDX-License-Identifier: Apache-2.0
// Looks at finished text: whoever writes an answer need not know how wide it will be.
#include "model/program/common/wide_lines.h"

#include <algorithm>
#include <string_view>

#include "model/program/common/table.h"

namespace orrery::cli {
namespace {

std::size_t LettersOf(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

bool IsCaret(std::string_view line) {
  return line.ends_with('^') && line.find_first_not_of(' ') == line.size() - 1;
}

// Where the text of the line begins that may be broken: behind the last gap of two blanks.
std::size_t TextBegin(std::string_view line) {
  const std::size_t gap = line.rfind("  ");
  if (gap != std::string_view::npos) return gap + 2;
  return std::min(line.find_first_not_of(' '), line.size());
}

// "# words": each further line is a remark, too.
std::string WrappedRemark(const std::string& line, std::size_t columns) {
  constexpr std::string_view kMark = "# ";
  std::string wrapped = report::Fold(line.substr(kMark.size()), kMark.size(), columns);
  for (std::size_t at = 0; (at = wrapped.find('\n', at)) != std::string::npos; ++at)
    wrapped.replace(at + 1, kMark.size(), kMark);
  return std::string(kMark) + wrapped;
}

std::string Wrapped(const std::string& line, std::size_t columns) {
  constexpr std::size_t kNarrowColumn = 20;
  constexpr std::size_t kBelow = 6;
  const std::size_t begin = TextBegin(line);
  const std::string_view text = std::string_view(line).substr(begin);
  const std::size_t indent = LettersOf(std::string_view(line).substr(0, begin));
  const bool kept = line.starts_with('#') || text.starts_with("plan ") ||
                    text.starts_with("./plan ") || text.find(' ') == std::string_view::npos;
  // Not what nccl-tests print, for programs that read it.
  const auto has = [&](std::string_view part) { return line.find(part) != std::string::npos; };
  const bool remark = line.starts_with("# ") && !has("  ") &&
                      (line.ends_with('.') || has("; ") || has(", ") || has(". "));
  if (remark) return WrappedRemark(line, columns);
  if (kept) return line;
  if (indent + kNarrowColumn > columns) {
    // No room beside the row: below it.
    const std::size_t end = line.find_last_not_of(' ', begin - 1);
    if (begin == 0 || end == std::string::npos) return line;
    return line.substr(0, end + 1) + "\n" + std::string(kBelow, ' ') +
           report::Fold(std::string(text), kBelow, columns);
  }
  return line.substr(0, begin) + report::Fold(std::string(text), indent, columns);
}

}  // namespace

std::string WithinColumns(const std::string& text, std::size_t columns) {
  if (columns == 0) return text;
  std::string within;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t next = std::min(text.find('\n', std::min(end + 1, text.size())), text.size());
    const std::string line = text.substr(begin, end - begin);
    const bool pointed =
        end < text.size() && IsCaret(std::string_view(text).substr(end + 1, next - end - 1));
    within += LettersOf(line) <= columns || pointed ? line : Wrapped(line, columns);
    if (end < text.size()) within += '\n';
    begin = end + 1;
  }
  return within;
}

}  // namespace orrery::cli
