// SPDX-License-Identifier: Apache-2.0
// CSV (RFC 4180: quoted fields, doubled quotes, CRLF or LF) with named columns and places.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {

class CsvTable {
 public:
  // `required` columns that are missing are reported together, with near names. A row with another
  // number of fields than the header, or an unterminated quote, is an error with its line.
  static CsvTable Parse(SourcePtr source, const std::vector<std::string>& required,
                        Diagnostics* diagnostics);

  std::size_t rows() const { return header_.empty() ? 0 : cells_.size() / header_.size(); }
  const std::vector<std::string>& columns() const { return header_; }
  Location header(std::string_view column) const;  // where it is named; the first line without it
  bool HasColumn(std::string_view column) const;
  Location where(std::size_t row, std::string_view column) const;

  std::string Text(std::size_t row,
                   std::string_view column) const;  // "" when empty or no such column
  std::string_view View(std::size_t row, std::string_view column)
      const;  // the same, for as long as this table or a copy lives
  // The first of its name; for those who read it in every row.
  std::optional<std::size_t> IndexOf(std::string_view column) const;
  // nullopt: the cell is empty, or it is malformed or out of range (then also recorded).
  std::optional<double> Number(std::size_t row, std::string_view column, double min,
                               double max) const;
  std::optional<double> Number(std::size_t row, std::optional<std::size_t> index, double min,
                               double max) const;
  std::optional<int64_t> Integer(std::size_t row, std::string_view column, int64_t min,
                                 int64_t max) const;

 private:
  struct Cell {
    std::string_view text;  // of the source, or of own_texts_
    int line;
    int column;
  };
  class Scanner;

  const Cell* At(std::size_t row, std::string_view column) const;  // null: no such column
  void Complain(std::size_t row, std::string_view column, bool malformed, const char* wanted,
                const std::string& range) const;

  SourcePtr source_;
  Diagnostics* diagnostics_ = nullptr;
  std::vector<std::string> header_;
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  // Of a column, the first of its name.
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;
  std::vector<Location> header_at_;
  std::vector<Cell> cells_;                             // by rows
  std::shared_ptr<std::deque<std::string>> own_texts_;  // of cells with a doubled quote
};

}  // namespace orrery
