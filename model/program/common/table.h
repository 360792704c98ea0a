// SPDX-License-Identifier: Apache-2.0
// Aligned text tables and bars.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orrery::report {

struct Column {
  std::string title;
  bool right = false;  // numbers
};

// Two spaces between columns, no trailing blanks. Column titles of several words may be broken
// over two lines with '\n'.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void Row(std::vector<std::string> cells);  // missing cells are empty
  void Remove(std::size_t column);           // with its cells
  bool AllEqual(std::size_t column, const std::string& text) const;
  std::size_t rows() const { return rows_.size(); }
  // A table wider than the page goes on below itself with further columns, behind its first one.
  std::string Text(std::size_t indent = 2, bool titles = true) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "#####     ": `share` of `width` characters, rounded.
std::string Bar(double share, int width);

// Which of `count` rows to print when there is room for `most`: the first, the last, `special` and
// others at even distance.
std::vector<std::size_t> ShownRows(std::size_t count, std::size_t most, std::size_t special);

// Words broken over lines of at most `width` columns, 0: those of the page; the first line starts at column `indent`
// already, every further one is indented by it.
std::string Fold(const std::string& text, std::size_t indent, std::size_t width = 0);

// Columns that texts and tables may take; 0: 100 for texts, any number for tables. Of the whole program.
void SetPageWidth(std::size_t columns);

}  // namespace orrery::report
