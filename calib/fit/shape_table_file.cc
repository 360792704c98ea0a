// SPDX-License-Identifier: Apache-2.0
// Tables of shapes as part of a chip's profile file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "calib/fit/shape_table.h"
#include "model/arch/data_root.h"
#include "model/base/diagnostics.h"
#include "model/base/write_file.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
constexpr const char* kBlock = "kernel_factors:";

std::string TableText(const ShapeTable& table) {
  std::string text = fmt::format(
      "    {}:\n      spread: {:.3g}\n      reach: {:.3g}\n      noise: {:.3g}\n      points: {}\n"
      "      source: \"timed kernels: measured over formula\"\n"
      "      left_out_error: {{formula: {:.4f}, table: {:.4f}}}\n      shapes:\n",
      table.kernel, table.rule.spread, table.rule.reach, table.rule.noise, table.points,
      table.formula_error, table.table_error);
  for (const KernelFactors::Measured& one : table.shapes)
    text += fmt::format("        - [{:.0f}, {:.0f}, {:.0f}, {:.0f}, {:.4f}]\n", one.shape[0],
                        one.shape[1], one.shape[2], one.shape[3], std::exp(one.log_ratio));
  return text;
}

// Without the block that stands there, from its key to the next key.
std::string Stripped(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != ' ') inside = line.starts_with(kBlock);
    if (!inside) out += line + "\n";
  }
  return out;
}

}  // namespace

std::string WithShapeTables(const std::string& text, const std::vector<ShapeTable>& tables) {
  std::string block;
  for (const auto& [name, precision] : kPrecisionNames) {
    std::string kernels;
    for (const ShapeTable& table : tables) {
      if (table.used && table.precision == precision) kernels += TableText(table);
    }
    if (!kernels.empty()) block += fmt::format("  {}:\n{}", name, kernels);
  }
  const std::string rest = Stripped(text);
  return block.empty() ? rest : fmt::format("{}{}\n{}", rest, kBlock, block);
}

std::string WriteShapeTables(const std::vector<ShapeTable>& tables, const std::string& gpu,
                             const std::string& folder) {
  if (std::ranges::none_of(tables, &ShapeTable::used)) return "";
  const fs::path home = fs::path(DataRoot()) / "calib" / "profiles";
  const fs::path file = fs::path("gpu") / (gpu + ".yaml");
  const fs::path path = folder.ends_with(".yaml")
                            ? fs::path(folder)
                            : (folder.empty() ? home : fs::path(folder)) / file;
  const fs::path old = fs::exists(path) ? path : home / file;  // constants may be there already
  const std::string text = WithShapeTables(ReadSource(old.string())->text, tables);
  std::error_code error;
  if (!path.parent_path().empty()) fs::create_directories(path.parent_path(), error);
  if (const std::string why = RewriteTextFile(path.string(), text); !why.empty())
    throw InputError(fmt::format("cannot write {}: {}", path.string(), why));
  return path.string();
}

}  // namespace orrery
