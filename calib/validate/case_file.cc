// SPDX-License-Identifier: Apache-2.0
// A file of published runs to rows.
#include <fmt/format.h>

#include <algorithm>

#include "calib/validate/validate.h"
#include "model/base/diagnostics.h"
#include "model/hardware/cluster_file.h"

namespace orrery {
namespace {

// A model is named, or its shape is given.
void CheckModels(const CsvTable& table, Diagnostics* diagnostics) {
  if (table.columns().empty() || table.HasColumn("model")) return;
  std::string missing;
  int count = 0;
  for (const std::string& name : ShapeColumns()) {
    if (!table.HasColumn(name)) missing += fmt::format("{}'{}'", count++ ? ", " : "", name);
  }
  if (count == 0) return;
  diagnostics->Error(table.header(table.columns().front()),
                     fmt::format("missing column{} {}", count > 1 ? "s" : "", missing),
                     "or a column 'model' with a name of `plan list models` or a file");
}

// A column that nobody reads and whose name is close to one that is missing is a slip, not another column.
void CheckSpelling(const CsvTable& table, Diagnostics* diagnostics) {
  constexpr std::size_t kLongEnough = 4;  // letters; "ep" is no slip of "cp"
  std::vector<std::string> missing;
  for (const std::string& name : OptionalCaseColumns()) {
    if (name.size() >= kLongEnough && !table.HasColumn(name)) missing.push_back(name);
  }
  std::vector<std::string> known = OptionalCaseColumns();
  for (const auto& more : {CaseColumns(), ShapeColumns()})
    known.insert(known.end(), more.begin(), more.end());
  for (const std::string& name : table.columns()) {
    if (std::ranges::count(known, name) > 0 || name.size() < kLongEnough) continue;
    for (const std::string& near : NearestNames(name, missing, 1))
      diagnostics->Error(table.header(name), fmt::format("unknown column '{}'", name),
                         fmt::format("did you mean '{}'?", near));
  }
}

}  // namespace

std::vector<CaseRow> LoadCases(const std::string& path) {
  Diagnostics diagnostics;
  const SourcePtr source = ReadSource(path);
  const CsvTable table = CsvTable::Parse(source, CaseColumns(), &diagnostics);
  // Without a header: a note in a row may say what such a file does.
  const std::string header = source->text.substr(0, source->text.find('\n'));
  const bool json = header.starts_with('{') || header.starts_with('[');
  if (!diagnostics.ok() && (json || header.find(',') == std::string::npos))
    RefuseMachineFile(source, "a table of measured runs");
  CheckModels(table, &diagnostics);
  CheckSpelling(table, &diagnostics);
  diagnostics.ThrowIfAny();
  std::vector<CaseRow> rows = ReadCases(table);
  if (rows.empty()) throw InputError(fmt::format("{} has no rows", path));
  return rows;
}

}  // namespace orrery
