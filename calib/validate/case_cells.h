// SPDX-License-Identifier: Apache-2.0
// The cells of one row, with what had to be assumed and why the row cannot be run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "calib/validate/case_names.h"
#include "calib/validate/case_row.h"
#include "model/base/csv.h"

namespace orrery {

inline constexpr int64_t kMostWidth = int64_t{1} << 26;
inline constexpr int64_t kMostRanks = 1'000'000;
inline constexpr int64_t kMostBatch = int64_t{1} << 40;

// Refusals and notes go to the row; the first refusal stays.
class CaseCells {
 public:
  CaseCells(const CsvTable& table, std::size_t index, CaseRow* row)
      : table_(table), index_(index), row_(row) {}

  // Without blanks; "" too where the cell says that nothing is known.
  std::string Text(const char* column) const { return KnownText(table_.Text(index_, column)); }
  // A whole number, also as "8.0", which is how tables with gaps are written; absent when the cell is empty. What is
  // malformed or out of range refuses the row.
  std::optional<int64_t> Integer(const char* column, int64_t min, int64_t max);
  std::optional<double> Number(const char* column, double min, double max);
  // A number without which nothing can be said; refuses the row and gives 1.
  int64_t Needed(const char* column, int64_t max);
  bool Flag(const char* column);

  // The value, its note taken; without one the row is refused with the note.
  template <class T>
  T Take(Meaning<T> meaning, T otherwise) {
    if (!meaning.value) Refuse(meaning.note);
    if (meaning.value && !meaning.note.empty()) Note(meaning.note);
    return meaning.value.value_or(otherwise);
  }

  void Refuse(std::string reason);
  void Note(std::string note) { row_->notes.push_back(std::move(note)); }

 private:
  const CsvTable& table_;
  std::size_t index_;
  CaseRow* row_;
};

// case_layout.cc: degrees, batch, sharding and schedule; the model and the workload were read.
void ReadLayout(CaseCells* cells, CaseRow* row);
// Behind it: products in fewer bits, and the type that gradients are reduced in.
void ReadProducts(CaseCells* cells, CaseRow* row);
// One fact of the row's framework.
void AddFact(const std::string& fact, CaseRow* row);

}  // namespace orrery
