// SPDX-License-Identifier: Apache-2.0
// Each column with the type that all of its cells have.
#include "model/program/plan/study_parquet.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "model/base/parquet.h"
#include "model/base/write_file.h"

namespace orrery::cli {
namespace {

ParquetKind KindOf(const std::vector<std::string>& values) {
  for (const ParquetKind kind : {ParquetKind::kInteger, ParquetKind::kNumber}) {
    if (std::ranges::all_of(values, [&](const auto& value) { return HoldsKind(value, kind); }))
      return kind;
  }
  return ParquetKind::kText;
}

// As CsvHeader() has them: the row, the axes, words and figures.
std::vector<ParquetColumn> ColumnsOf(const Study& study) {
  std::string header = CsvHeader(study);
  header.pop_back();
  std::vector<ParquetColumn> columns;
  for (const std::string& name : CsvCells(header)) columns.push_back({name, ParquetKind::kNumber});
  columns[0].kind = ParquetKind::kInteger;
  for (std::size_t i = 0; i < study.axes().size(); ++i)
    columns[i + 1].kind = KindOf(study.axes()[i].values);
  for (std::size_t i = study.axes().size() + 1; i < columns.size(); ++i) {
    const std::string& name = columns[i].name;
    if (name == "gpus") columns[i].kind = ParquetKind::kInteger;
    for (const char* words : {"status", "layout_words", "engine", "notes", "reason"})
      if (name == words) columns[i].kind = ParquetKind::kText;
  }
  return columns;
}

}  // namespace

std::string CsvBeside(const std::string& parquet) {
  return std::filesystem::path(parquet).replace_extension(".csv").string();
}

void WriteParquet(const Study& study, const StudyFiles& files, const Flag& out) {
  const std::string aside = out.text + ".part";
  std::string why = WhyNotWritable(aside);
  if (why.empty()) {
    std::ofstream file(aside, std::ios::binary);
    ParquetWriter writer(&file, ColumnsOf(study));
    files.ForEachRow([&](const std::string& line) { writer.Row(CsvCells(line)); });
    writer.Finish();
    file.close();
    std::error_code error;
    if (file) std::filesystem::rename(aside, out.text, error);
    if (!file || error) why = "the disk is full, a limit of size, or the folder is gone";
    if (!why.empty()) std::filesystem::remove(aside, error);
  }
  if (!why.empty())
    throw InputError({{out.where, fmt::format("cannot write '{}': {}", out.text, why),
                       "the same command writes it from the rows that are there"}});
}

}  // namespace orrery::cli
