// SPDX-License-Identifier: Apache-2.0
// A CSV reader by RFC 4180 that remembers where every cell starts.
#include "model/base/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/check.h"
#include "model/base/plain_text.h"
#include "model/base/text.h"

namespace orrery {

// Walks the text record by record.
class CsvTable::Scanner {
 public:
  Scanner(SourcePtr source, std::deque<std::string>* own_texts, Diagnostics* diagnostics)
      : source_(std::move(source)),
        text_(source_->text),
        own_texts_(*own_texts),
        diagnostics_(diagnostics) {
    const std::size_t mark = text_.size() - WithoutByteOrderMark(text_).size();
    at_ = mark;
  }

  // The next record that is not an empty line; false at the end or after a fault that leaves the
  // rest of the text without meaning.
  bool Next(std::vector<Cell>* record) {
    record->clear();
    while (at_ < text_.size() && AtLineEnd()) EndLine();
    if (at_ >= text_.size() || broken_) return false;
    while (true) {
      record->push_back(ReadCell());
      if (broken_) return false;
      if (at_ >= text_.size()) return true;
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      EndLine();
      return true;
    }
  }

 private:
  bool AtLineEnd() const {
    return at_ < text_.size() &&
           (text_[at_] == '\n' || (text_[at_] == '\r' && text_.substr(at_, 2) == "\r\n"));
  }
  void EndLine() {
    at_ += text_[at_] == '\r' ? 2 : 1;
    NewLine();
  }
  void NewLine() {
    ++line_;
    line_start_ = at_;
  }
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }

  Cell ReadCell() {
    Cell field{"", line_, column()};
    if (at_ < text_.size() && text_[at_] == '"') {
      ReadQuoted(&field);
      return field;
    }
    const std::size_t start = at_, size = text_.size();
    const char* text = text_.data();
    std::size_t end = start;  // in a register: most of the time of large tables is spent here
    for (; end < size; ++end) {
      const char c = text[end];
      if (c > ',') continue;
      if (c == ',' || c == '\n' || (c == '\r' && end + 1 < size && text[end + 1] == '\n')) break;
      if (c == '"') {
        at_ = end;
        Break({source_, line_, column()}, "a quote inside a field that does not start with one",
              "put the whole field in quotes and double the quotes inside");
        return field;
      }
    }
    at_ = end;
    field.text = text_.substr(start, end - start);
    return field;
  }

  void ReadQuoted(Cell* field) {
    std::size_t start = ++at_;
    std::string* own = nullptr;  // once there is a doubled quote
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '\n') NewLine();
      if (c != '"') continue;
      if (at_ < text_.size() && text_[at_] == '"') {
        if (own == nullptr) own = &own_texts_.emplace_back();
        own->append(text_.substr(start, at_ - start));
        start = ++at_;
        continue;
      }
      field->text = text_.substr(start, at_ - 1 - start);
      if (own != nullptr) field->text = own->append(field->text);
      if (at_ < text_.size() && text_[at_] != ',' && !AtLineEnd()) {
        Break({source_, line_, column()}, "text after the closing quote of a field",
              "double the quotes inside a quoted field");
      }
      return;
    }
    Break({source_, field->line, field->column}, "this quote is never closed", "");
  }

  void Break(const Location& where, const char* message, const char* hint) {
    diagnostics_->Error(where, message, hint);
    broken_ = true;
  }

  SourcePtr source_;
  std::string_view text_;
  std::deque<std::string>& own_texts_;
  Diagnostics* diagnostics_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  int line_ = 1;
  bool broken_ = false;
};

namespace {

template <class Cell>
void CheckHeader(const SourcePtr& source, const std::vector<Cell>& header,
                 const std::vector<std::string>& required, Diagnostics* diagnostics) {
  std::vector<std::string> unused;  // columns that nobody requires: a misspelt one is among them
  for (std::size_t i = 0; i < header.size(); ++i) {
    const std::string name(header[i].text);
    const auto same = [&](const Cell& field) { return field.text == name; };
    if (std::find_if(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(i), same) !=
        header.begin() + static_cast<std::ptrdiff_t>(i)) {
      diagnostics->Error({source, header[i].line, header[i].column},
                         fmt::format("the column '{}' appears twice", name));
    }
    if (std::find(required.begin(), required.end(), name) == required.end()) unused.push_back(name);
  }
  std::string missing, hint;
  int count = 0;
  for (const std::string& name : required) {
    const auto same = [&](const Cell& field) { return field.text == name; };
    if (std::any_of(header.begin(), header.end(), same)) continue;
    missing += fmt::format("{}'{}'", count++ ? ", " : "", name);
    for (const std::string& near : NearestNames(name, unused, 1)) {
      hint += fmt::format("{}is '{}' meant to be '{}'?", hint.empty() ? "" : " ", near, name);
    }
  }
  if (count == 0) return;
  for (const char other : {';', '\t'}) {
    if (header.size() == 1 && header[0].text.find(other) != std::string::npos)
      hint = fmt::format("columns are separated by commas, not by {}",
                         other == ';' ? "semicolons" : "tabs");
  }
  diagnostics->Error({source, header[0].line, header[0].column},
                     fmt::format("missing column{} {}", count > 1 ? "s" : "", missing), hint);
}

template <class T>
std::string Range(T min, T max) {
  return fmt::format("allowed: between {} and {}", min, max);
}

}  // namespace

CsvTable CsvTable::Parse(SourcePtr source, const std::vector<std::string>& required,
                         Diagnostics* diagnostics) {
  CsvTable table;
  table.source_ = std::move(source);
  table.diagnostics_ = diagnostics;
  if (!CheckPlainText(table.source_, diagnostics)) return table;
  table.own_texts_ = std::make_shared<std::deque<std::string>>();
  Scanner scanner(table.source_, table.own_texts_.get(), diagnostics);
  std::vector<Cell> record;
  if (!scanner.Next(&record)) {
    if (record.empty())
      diagnostics->Error({table.source_, 0, 0}, "the table is empty",
                         "the first line names the columns");
    return table;
  }
  for (Cell& field : record) field.text = Trim(field.text);
  CheckHeader(table.source_, record, required, diagnostics);
  for (const Cell& field : record) {
    table.index_.try_emplace(std::string(field.text), table.header_.size());
    table.header_.emplace_back(field.text);
    table.header_at_.push_back({table.source_, field.line, field.column});
  }
  while (scanner.Next(&record)) {
    if (record.size() != table.header_.size()) {
      diagnostics->Error(
          {table.source_, record[0].line, record[0].column},
          fmt::format("this row has {} field{}, the header has {}", record.size(),
                      record.size() == 1 ? "" : "s", table.header_.size()),
          record.size() > table.header_.size() ? "put fields that hold a comma in quotes" : "");
      continue;
    }
    table.cells_.insert(table.cells_.end(), record.begin(), record.end());
  }
  return table;
}

std::optional<std::size_t> CsvTable::IndexOf(std::string_view column) const {
  const auto found = index_.find(column);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

const CsvTable::Cell* CsvTable::At(std::size_t row, std::string_view column) const {
  ORRERY_CHECK(row < rows(), "row {} of {}", row, rows());
  const std::optional<std::size_t> index = IndexOf(column);
  return index ? &cells_[row * header_.size() + *index] : nullptr;
}

Location CsvTable::header(std::string_view column) const {
  const std::optional<std::size_t> index = IndexOf(column);
  return index ? header_at_[*index] : Location{source_, 1, 0};
}

bool CsvTable::HasColumn(std::string_view column) const { return IndexOf(column).has_value(); }

Location CsvTable::where(std::size_t row, std::string_view column) const {
  const Cell* cell = At(row, column);
  if (!cell) cell = &cells_[row * header_.size()];
  return cell ? Location{source_, cell->line, cell->column} : Location{source_, 0, 0};
}

std::string CsvTable::Text(std::size_t row, std::string_view column) const {
  return std::string(View(row, column));
}

std::string_view CsvTable::View(std::size_t row, std::string_view column) const {
  const Cell* cell = At(row, column);
  return cell ? cell->text : std::string_view();
}

std::optional<double> CsvTable::Number(std::size_t row, std::string_view column, double min,
                                       double max) const {
  return Number(row, IndexOf(column), min, max);
}

std::optional<double> CsvTable::Number(std::size_t row, std::optional<std::size_t> index,
                                       double min, double max) const {
  ORRERY_CHECK(row < rows(), "row {} of {}", row, rows());
  const std::string_view text =
      index ? Trim(cells_[row * header_.size() + *index].text) : std::string_view();
  if (text.empty()) return std::nullopt;
  double value = 0;
  const NumberFault fault = ParseNumber(text, &value);
  if (fault == NumberFault::kNone && value >= min && value <= max) return value;
  Complain(row, header_[*index], fault == NumberFault::kMalformed, "a number", Range(min, max));
  return std::nullopt;
}

std::optional<int64_t> CsvTable::Integer(std::size_t row, std::string_view column, int64_t min,
                                         int64_t max) const {
  const std::string_view text = Trim(View(row, column));
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  const NumberFault fault = ParseInteger(text, &value);
  if (fault == NumberFault::kNone && value >= min && value <= max) return value;
  Complain(row, column, fault == NumberFault::kMalformed, "a whole number", Range(min, max));
  return std::nullopt;
}

void CsvTable::Complain(std::size_t row, std::string_view column, bool malformed,
                        const char* wanted, const std::string& range) const {
  const std::string text = Text(row, column).substr(0, 40);
  if (malformed) {
    diagnostics_->Error(where(row, column),
                        fmt::format("'{}': expected {}, found '{}'", column, wanted, text));
  } else {
    diagnostics_->Error(where(row, column), fmt::format("'{}': '{}' is out of range", column, text),
                        range);
  }
}

}  // namespace orrery
