// SPDX-License-Identifier: Apache-2.0
// Reads and writes the CSV.
#include "calib/validate/left_out.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "model/arch/data_root.h"
#include "model/base/csv.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

constexpr double kMostRatio = 1e6;  // predicted over measured
constexpr double kMostSeconds = 1e12;
constexpr const char* kColumns[] = {
    "what",      "case", "model_left_out", "inside_80", "source_left_out", "source_inside_80",
    "measured_s"};

std::string RatioText(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.4f}", *ratio) : "";
}

std::string FlagText(const std::optional<bool>& inside) {
  return !inside ? "" : *inside ? "1" : "0";
}

std::optional<bool> Flag(const CsvTable& table, std::size_t row, const char* column) {
  const std::optional<int64_t> value = table.Integer(row, column, 0, 1);
  if (!value) return std::nullopt;
  return *value == 1;
}

}  // namespace

std::string LeftOutText(const LeftOutRows& rows) {
  std::string text = fmt::format("{}{}\n", fmt::join(kColumns, ","), IdentityColumns());
  for (const auto& [name, row] : rows) {
    text += fmt::format("{},{},{},{},{},{},{}{}\n", name.first, name.second,
                        RatioText(row.by_model), FlagText(row.inside_by_model),
                        RatioText(row.by_source), FlagText(row.inside_by_source),
                        row.run ? fmt::format("{:.6g}", row.measured) : "",
                        IdentityCells(row.run ? &*row.run : nullptr));
  }
  return text;
}

LeftOutRows ReadLeftOut(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  Diagnostics diagnostics;
  const CsvTable table =
      CsvTable::Parse(ReadSource(path), {std::begin(kColumns), std::end(kColumns)}, &diagnostics);
  IdentityReader reader(table);
  LeftOutRows rows;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const std::optional<double> ratio = table.Number(i, "model_left_out", 0, kMostRatio);
    if (!ratio) continue;
    LeftOutRow row{*ratio, Flag(table, i, "inside_80"),
                   table.Number(i, "source_left_out", 0, kMostRatio),
                   Flag(table, i, "source_inside_80")};
    if (const auto measured = table.Number(i, "measured_s", 0, kMostSeconds)) {
      row.measured = *measured;
      row.run = reader.Read(i);
    }
    rows[{table.Text(i, "what"), table.Text(i, "case")}] = std::move(row);
  }
  diagnostics.ThrowIfAny();
  return rows;
}

std::string LeftOutPath() {
  return (std::filesystem::path(DataRoot()) / "calib" / "profiles" / "left_out.csv").string();
}

}  // namespace orrery
