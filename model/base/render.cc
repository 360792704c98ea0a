// SPDX-License-Identifier: Apache-2.0
// Diagnostics as a person reads them: place, message, source line with a caret, hint.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/diagnostics.h"
#include "model/base/plain_text.h"

namespace orrery {
namespace {

constexpr std::size_t kMostShown = 10;
constexpr std::size_t kWidth = 96;             // of a shown source line
constexpr std::size_t kFarthest = 8 * kWidth;  // bytes looked at on either side of the caret

// The text split into what is printed for each character: itself, two spaces for a tab, \xNN for
// control characters and for bytes that are no UTF-8.
struct Cell {
  std::string shown;
  std::size_t width;   // terminal columns, taking one per character
  std::size_t offset;  // of its first byte
};

std::vector<Cell> Cells(std::string_view text) {
  std::vector<Cell> cells;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = Utf8Length(text.substr(i));
    // U+0080 to U+009F are control characters too.
    const bool c1 = length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (byte == '\t') {
      cells.push_back({"  ", 2, i});
    } else if (length == 0 || byte < 0x20 || byte == 0x7F || c1) {
      cells.push_back({fmt::format("\\x{:02x}", byte), 4, i});
      if (c1)
        cells.push_back(
            {fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i + 1])), 4, i + 1});
    } else {
      cells.push_back({std::string(text.substr(i, length)), 1, i});
    }
    i += std::max<std::size_t>(length, 1);
  }
  return cells;
}

std::string Safe(std::string_view text) {
  std::string safe;
  for (const Cell& cell : Cells(text)) safe += cell.shown;
  return safe;
}

// Line `number` of the text, counted from 1, without its line break.
std::string_view LineOf(std::string_view text, int number) {
  std::size_t start = 0;
  for (int line = 1; line < number; ++line) {
    start = text.find('\n', start);
    if (start == std::string_view::npos) return {};
    ++start;
  }
  std::string_view line = text.substr(start, text.find('\n', start) - start);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The source line, cropped around the caret, and below it the caret.
std::string Excerpt(std::string_view line, std::size_t column) {
  const std::size_t caret = std::min(column - 1, line.size());  // byte offset in the line
  std::size_t first = caret > kFarthest ? caret - kFarthest : 0;
  while (first > 0 && first < line.size() &&
         (static_cast<unsigned char>(line[first]) & 0xC0) == 0x80)
    ++first;
  const bool cut_before = first > 0, cut_after = line.size() > caret + kFarthest;
  const std::vector<Cell> cells = Cells(line.substr(first, caret + kFarthest - first));

  std::size_t at = 0, total = 0;  // cell under the caret; columns in all
  while (at < cells.size() && cells[at].offset + first < caret) ++at;
  for (const Cell& cell : cells) total += cell.width;
  std::size_t begin = 0, end = cells.size();
  if (total > kWidth || cut_before || cut_after) {
    std::size_t width = 0;
    begin = end = at;
    while (begin > 0 && width < kWidth / 2) width += cells[--begin].width;
    while (end < cells.size() && width < kWidth) width += cells[end++].width;
    while (begin > 0 && width < kWidth) width += cells[--begin].width;
  }
  std::string shown = begin > 0 || cut_before ? "..." : "";
  std::size_t indent = shown.size();
  for (std::size_t i = begin; i < end; ++i) {
    shown += cells[i].shown;
    if (i < at) indent += cells[i].width;
  }
  if (end < cells.size() || cut_after) shown += "...";
  return fmt::format("  {}\n  {}^\n", shown, std::string(indent, ' '));
}

std::string RenderOne(const Diagnostic& diagnostic, bool colour) {
  const char* bold = colour ? "\x1b[1m" : "";
  const char* red = colour ? "\x1b[1;31m" : "";
  const char* plain = colour ? "\x1b[0m" : "";
  const Location& where = diagnostic.where;
  std::string place;
  if (where.source) {
    place = Safe(where.source->name) + ":";
    if (where.line > 0) place += fmt::format("{}:{}:", where.line, std::max(where.column, 1));
    place += ' ';
  }
  std::string text = fmt::format("{}{}{}{}error:{} {}{}{}\n", bold, place, plain, red, plain, bold,
                                 Safe(diagnostic.message), plain);
  if (where.source && where.line > 0) {
    std::string_view line = LineOf(where.source->text, where.line);
    auto column = static_cast<std::size_t>(std::max(where.column, 1));
    if (const std::string_view rest = WithoutByteOrderMark(line);
        where.line == 1 && rest.size() < line.size()) {
      column = column > 3 ? column - 3 : 1;
      line = rest;
    }
    text += Excerpt(line, column);
  }
  if (!diagnostic.hint.empty()) text += fmt::format("  hint: {}\n", Safe(diagnostic.hint));
  return text;
}

}  // namespace

std::string Render(const std::vector<Diagnostic>& diagnostics, bool colour) {
  std::string text;
  const std::size_t shown = std::min(diagnostics.size(), kMostShown);
  for (std::size_t i = 0; i < shown; ++i) text += RenderOne(diagnostics[i], colour);
  if (diagnostics.size() > shown)
    text += fmt::format("... and {} more\n", diagnostics.size() - shown);
  return text;
}

}  // namespace orrery
