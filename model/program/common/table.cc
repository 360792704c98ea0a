// SPDX-License-Identifier: Apache-2.0
// Lays out tables by the widest cell of each column.
#include "model/program/common/table.h"

#include <algorithm>
#include <cmath>

namespace orrery::report {
namespace {

constexpr std::size_t kUsualText = 100;
std::size_t g_page_width = 0;

// Terminal columns, taking one per UTF-8 character.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Padded(const std::string& text, std::size_t width, bool right) {
  const std::string blanks(width - std::min(width, Width(text)), ' ');
  return right ? blanks + text : text + blanks;
}

std::string Line(const std::vector<Column>& columns, const std::vector<std::size_t>& widths,
                 const std::vector<std::string>& cells, std::size_t indent) {
  std::string line(indent, ' ');
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (c > 0) line += "  ";
    line += Padded(cells[c], widths[c], columns[c].right);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// The columns from `next` on that fit on the page, behind the first of all; at least one. Moves `next` behind them.
std::vector<std::size_t> Fitting(const std::vector<std::size_t>& widths, std::size_t indent,
                                 std::size_t* next) {
  std::vector<std::size_t> shown;
  std::size_t taken = indent;
  if (*next > 0) {
    shown.push_back(0);
    taken += widths[0];
  }
  const std::size_t first = std::max<std::size_t>(*next, 1);  // the names alone are no block
  for (; *next < widths.size(); ++*next) {
    const std::size_t more = widths[*next] + (shown.empty() ? 0 : 2);
    if (g_page_width > 0 && *next > first && taken + more > g_page_width) break;
    taken += more;
    shown.push_back(*next);
  }
  return shown;
}

// A number stays with its unit: "29.8 GiB", "12 %".
bool KeepTogether(const std::string& before, const std::string& word) {
  constexpr std::size_t kLongestUnit = 7;
  if (before.empty() || word.empty() || word.size() > kLongestUnit) return false;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return digit(before.back()) && !digit(word.front()) && word.front() != '(';
}

}  // namespace

void Table::Row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::Remove(std::size_t column) {
  const auto at = static_cast<std::ptrdiff_t>(column);
  columns_.erase(columns_.begin() + at);
  for (auto& row : rows_) row.erase(row.begin() + at);
}

bool Table::AllEqual(std::size_t column, const std::string& text) const {
  return std::all_of(rows_.begin(), rows_.end(),
                     [&](const auto& row) { return row[column] == text; });
}

std::string Table::Text(std::size_t indent, bool titles) const {
  std::vector<std::vector<std::string>> heads(2, std::vector<std::string>(columns_.size()));
  bool two_lines = false;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::string& title = columns_[c].title;
    const std::size_t split = title.find('\n');
    if (split == std::string::npos) {
      heads[1][c] = title;
    } else {
      heads[0][c] = title.substr(0, split);
      heads[1][c] = title.substr(split + 1);
      two_lines = true;
    }
  }
  std::vector<std::vector<std::string>> lines;
  if (titles && two_lines) lines.push_back(heads[0]);
  if (titles) lines.push_back(heads[1]);
  lines.insert(lines.end(), rows_.begin(), rows_.end());
  std::vector<std::size_t> widths(columns_.size());
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < columns_.size(); ++c)
      widths[c] = std::max(widths[c], Width(line[c]));
  }
  std::string text;
  for (std::size_t next = 0; next < columns_.size();) {
    const bool below = next > 0;
    const std::vector<std::size_t> shown = Fitting(widths, indent, &next);
    // Bars below the numbers that they show say nothing.
    if (below && std::all_of(shown.begin() + 1, shown.end(), [&](std::size_t c) {
          return columns_[c].title.empty() &&
                 std::all_of(rows_.begin(), rows_.end(), [&](const auto& row) {
                   return row[c].find_first_not_of('#') == std::string::npos;
                 });
        }))
      continue;
    std::vector<Column> columns;
    std::vector<std::size_t> wide;
    for (const std::size_t c : shown) columns.push_back(columns_[c]), wide.push_back(widths[c]);
    for (const auto& line : lines) {
      std::vector<std::string> cells;
      for (const std::size_t c : shown) cells.push_back(line[c]);
      text += Line(columns, wide, cells, indent);
    }
  }
  return text;
}

std::vector<std::size_t> ShownRows(std::size_t count, std::size_t most, std::size_t special) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < std::min(count, most); ++i) {
    rows.push_back(count <= most ? i : i * (count - 1) / (most - 1));
  }
  if (special < count && std::find(rows.begin(), rows.end(), special) == rows.end())
    rows.push_back(special);
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::string Bar(double share, int width) {
  if (!(share > 0)) return "";
  const int filled = std::clamp(static_cast<int>(std::lround(share * width)), 0, width);
  return std::string(static_cast<std::size_t>(filled), '#');
}

void SetPageWidth(std::size_t columns) { g_page_width = columns; }

std::string Fold(const std::string& text, std::size_t indent, std::size_t width) {
  if (width == 0) width = g_page_width > 0 ? std::min(g_page_width, kUsualText) : kUsualText;
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!words.empty() && KeepTogether(words.back(), word)) {
      words.back() += " " + word;
    } else {
      words.push_back(word);
    }
    begin = end + 1;
  }
  std::string folded;
  std::size_t column = indent;
  for (const std::string& word : words) {
    if (column > indent && column + 1 + Width(word) > width) {
      folded += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      folded += ' ';
      ++column;
    }
    folded += word;
    column += Width(word);
  }
  return folded;
}

}  // namespace orrery::report
