// SPDX-License-Identifier: Apache-2.0
// A study: flags of `plan predict` with several values each, and all their combinations as rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/program/common/job_flags.h"
#include "model/twin/predict.h"

namespace orrery::cli {

// A flag with several values.
struct StudyAxis {
  std::string key;  // as in the file: "global_batch"
  std::vector<std::string> values;
  std::vector<Location> where;  // of each
};

// Job and layout of one row.
struct StudyCase {
  JobFlags job;
  LayoutFlags layout;
};

class Study {
 public:
  Study();

  // Sections `job` and `layout` of a YAML file; a list in a list is one value. Throws InputError with places.
  static Study Read(const Flag& file);
  // Flags that name lists or ranges; nullopt: none does.
  static std::optional<Study> Of(const JobFlags& job, const LayoutFlags& layout);

  int64_t rows() const;
  const std::vector<StudyAxis>& axes() const { return axes_; }
  // Index into each axis's values: the last axis turns fastest, those of the job come first.
  std::vector<std::size_t> At(int64_t row) const;
  StudyCase CaseOf(int64_t row) const;
  // Rows with the same job stand together: this many.
  int64_t RowsPerJob() const;
  // A line for each file that a value names, with a hash of what it holds.
  std::string Files() const;
  std::string Text() const;  // every flag with its values; the same study has the same text

 private:
  // `where`: of each value.
  void Take(const Flag& flag, bool of_job, std::vector<std::string> values,
            std::vector<Location> where);
  // What a value alone says wrong, whatever the others are: before hours of work. Throws InputError.
  bool HasModel() const;
  void CheckSize(const Location& where) const;  // throws InputError: too many rows
  void CheckValues() const;
  void CheckLayoutValue(const std::string& key, const std::string& value,
                        const Location& where) const;

  std::shared_ptr<FlagSet> declared_;  // names the flags of base_
  StudyCase base_;
  std::vector<StudyAxis> axes_;
  std::size_t job_axes_ = 0;
};

// What a range or list stands for: "1,2,4", "8..64" (doubled up to its end), "8..32 by 8". A text that is none of them is
// one value. Errors are recorded at `flag`.
std::vector<std::string> StudyValues(const Flag& flag, Diagnostics* diagnostics);

}  // namespace orrery::cli
