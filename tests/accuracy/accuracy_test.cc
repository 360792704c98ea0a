// SPDX-License-Identifier: Apache-2.0
// The document of errors: its tables hold what the rows say, on a few published runs.
#include "calib/program/validate/accuracy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "calib/program/validate/accuracy_collectives.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using testing::HasSubstr;

const std::string kData = std::string(ORRERY_SOURCE_DIR) + "/calib/data/";

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Every `step`-th published run, and the runs whose name begins with `also`.
std::string Subset(int step, const std::string& also) {
  std::ifstream in(kData + "published_runs.csv");
  std::string line, text;
  std::getline(in, line);
  text = line + "\n";
  for (int i = 0; std::getline(in, line); ++i) {
    if (i % step == 0 || line.starts_with(also)) text += line + "\n";
  }
  const std::string path = testing::TempDir() + "/orrery_subset.csv";
  std::ofstream(path) << text;
  return path;
}

const Accuracy& SmallAccuracy() {
  static const Accuracy accuracy = MeasureAccuracy(Subset(40, "mcoreci"));
  return accuracy;
}

std::vector<std::string> CellsOf(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const auto first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

// The cells of the row that begins with `name` in the section `title`; empty: there is none.
std::vector<std::string> RowOf(const std::string& document, const std::string& title,
                               const std::string& name) {
  const std::size_t at = document.find("## " + title + "\n");
  if (at == std::string::npos) return {};
  const std::size_t end = document.find("\n## ", at);
  for (const std::string& line : LinesOf(document.substr(at, end - at))) {
    if (line.starts_with("| " + name + " |")) return CellsOf(line);
  }
  return {};
}

TEST(Accuracy, StepTimesAreThoseOfTheRows) {
  const std::string document = RenderAccuracy(SmallAccuracy());
  const auto closed = BySource(SmallAccuracy().closed), event = BySource(SmallAccuracy().event);
  for (const char* source : {"vtrain", "mosaic", "mcoreci"}) {
    const std::vector<std::string> cells = RowOf(document, "Step time", source);
    ASSERT_EQ(cells.size(), 11u) << source;
    const ErrorSummary errors = Summarise(closed.at(source)), played = Summarise(event.at(source));
    EXPECT_EQ(cells[2], std::to_string(errors.predicted));
    EXPECT_EQ(cells[3], fmt::format("{:.1f}", 100 * errors.mean));
    EXPECT_EQ(cells[4], fmt::format("{:.1f}", 100 * errors.median));
    EXPECT_EQ(cells[6], fmt::format("{:+.0f}", 100 * errors.worst));
    EXPECT_THAT(cells[7], testing::StartsWith(fmt::format("{:.1f}", 100 * played.mean)));
  }
  EXPECT_EQ(RowOf(document, "Step time", "all").at(2),
            std::to_string(SmallAccuracy().closed.size()));
}

TEST(Accuracy, LeftOutColumnsAreOfTheSameRows) {
  Accuracy accuracy = SmallAccuracy();
  accuracy.left_out.clear();
  const std::string none = RenderAccuracy(accuracy);
  EXPECT_EQ(RowOf(none, "Step time", "mcoreci").at(9), "-");
  for (const CasePrediction& one : accuracy.closed) {
    if (one.row.source == "mcoreci")
      accuracy.left_out[{kStepTimeRow, one.row.name}] = {1.2, true, 0.5, false};
  }
  const std::string known = RenderAccuracy(accuracy);
  EXPECT_EQ(RowOf(known, "Step time", "mcoreci").at(9), "20.0, 20.0");
  EXPECT_EQ(RowOf(known, "Step time", "mcoreci").at(10), "50.0");
  EXPECT_EQ(RowOf(known, "80 % interval", "mcoreci").at(3), "100");
  EXPECT_EQ(RowOf(known, "80 % interval", "mcoreci").at(4), "0");
}

// A file of other runs, of which the fit left out some: their columns say how many, and a run of the same name counts only if
// it is the same.
TEST(Accuracy, LeftOutColumnsSayOfHowManyRowsTheyAre) {
  Accuracy accuracy = SmallAccuracy();
  accuracy.left_out.clear();
  int known = 0;
  for (const CasePrediction& one : accuracy.closed) {
    if (one.row.source != "mcoreci" || ++known > 3) continue;
    LeftOutRow row{1.2, true, 0.5, false};
    row.measured = (known == 3 ? 2 : 1) * one.row.measured_step_s;
    accuracy.left_out[{kStepTimeRow, one.row.name}] = row;
  }
  ASSERT_GT(known, 3);
  const std::string document = RenderAccuracy(accuracy);
  EXPECT_EQ(RowOf(document, "Step time", "mcoreci").at(9), "20.0, 20.0 (2 rows)");
  EXPECT_EQ(RowOf(document, "Step time", "mcoreci").at(10), "50.0 (2 rows)");
  EXPECT_EQ(RowOf(document, "80 % interval", "mcoreci").at(3), "100 (2 rows)");
}

TEST(Accuracy, KinshipIsThatOfTheTrustFile) {
  Accuracy accuracy = SmallAccuracy();
  accuracy.kin = {};
  const std::string title = "80 % interval";
  EXPECT_TRUE(RowOf(RenderAccuracy(accuracy), title, "new cluster").empty());
  accuracy.kin[static_cast<std::size_t>(Kin::kNewCluster)] = {7, 100, 0.1, 1.28, 0.86};
  accuracy.kin[static_cast<std::size_t>(Kin::kCluster)] = {49, 1000, 0.05, 1.2, 0.78};
  const std::string document = RenderAccuracy(accuracy);
  EXPECT_THAT(RowOf(document, title, "new cluster"),
              testing::ElementsAre("new cluster", "7", "100", "10.0", "13.7", "86", "43 to 100"));
  EXPECT_EQ(RowOf(document, title, "new model on a known cluster").at(6), "75 to 87");
}

TEST(Accuracy, EveryPublishedRunWasLeftOutOnce) {
  const LeftOutRows rows = ReadLeftOut(LeftOutPath());
  for (const CaseRow& row : LoadCases(kData + "published_runs.csv")) {
    EXPECT_TRUE(rows.contains({kStepTimeRow, row.name})) << row.name;
    EXPECT_EQ(rows.contains({kMemoryRow, row.name}), row.measured_mem_gib.has_value()) << row.name;
  }
}

TEST(Accuracy, MemoryIsApartByWhoPrintedIt) {
  const std::string document = RenderAccuracy(SmallAccuracy());
  EXPECT_EQ(RowOf(document, "Memory", "mcoreci").at(1), "allocator");
  EXPECT_EQ(RowOf(document, "Memory", "mcoreci").at(2), "4");
}

TEST(Accuracy, TablesAreWhole) {
  const std::string document = RenderAccuracy(SmallAccuracy());
  for (const char* title :
       {"Step time", "80 % interval", "Data parallelism alone", "Largest errors", "Memory",
        "Collectives", "Single figures of tutorials"})
    EXPECT_THAT(document, HasSubstr(fmt::format("## {}\n", title)));
  std::ptrdiff_t bars = 0;
  for (const std::string& line : LinesOf(document)) {
    if (!line.starts_with("|")) {
      bars = 0;
      continue;
    }
    const std::ptrdiff_t here = std::count(line.begin(), line.end(), '|');
    if (bars == 0) bars = here;
    EXPECT_EQ(here, bars) << line;
  }
}

TEST(LeftOut, SurvivesItsFile) {
  RunIdentity run{"s@2021", "a-80gb", "f", "here", {{"attention", "fa2"}, {"tp_overlap", "on"}},
                  {}};
  run.at.fill(4);
  const LeftOutRows rows = {{{kStepTimeRow, "a-1"}, {1.25, true, 0.75, false, 2.5, run}},
                            {{kMemoryRow, "a-1"}, {0.5, std::nullopt, std::nullopt, std::nullopt}}};
  const std::string path = testing::TempDir() + "/orrery_left_out.csv";
  std::ofstream(path) << LeftOutText(rows);
  const LeftOutRows read = ReadLeftOut(path);
  ASSERT_EQ(read.size(), 2u);
  const LeftOutRow& row = read.at({kStepTimeRow, "a-1"});
  EXPECT_DOUBLE_EQ(row.by_model, 1.25);
  EXPECT_EQ(row.inside_by_model, true);
  EXPECT_EQ(row.inside_by_source, false);
  EXPECT_DOUBLE_EQ(row.measured, 2.5);
  ASSERT_TRUE(row.run.has_value());
  EXPECT_EQ(row.run->framework, "s@2021");
  EXPECT_EQ(row.run->facts, run.facts);
  EXPECT_EQ(row.run->at, run.at);
  EXPECT_FALSE(read.at({kMemoryRow, "a-1"}).by_source);
  EXPECT_TRUE(ReadLeftOut(testing::TempDir() + "/none.csv").empty());
}

TEST(CollectiveErrors, ATableWithoutTimesIsNamed) {
  const std::string path = testing::TempDir() + "/orrery_collective_runs.csv";
  std::ofstream(path) << "table,topology,nodes,gpus_per_node,algorithm\nnowhere,dgx-h100,1,8,\n";
  try {
    PredictCollectives(path, {kData + "collectives.csv"});
    FAIL() << "accepted a table that is not there";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no collective times of 'nowhere'"));
  }
}

// A published table without a row went missing without a reason.
TEST(CollectiveErrors, EveryPublishedTableIsComparedOrSaysWhyNot) {
  const auto cells = [](const std::string& file) {
    std::set<std::string> names;
    std::ifstream in(kData + file);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) names.insert(line.substr(0, line.find(',')));
    return names;
  };
  const std::set<std::string> runs = cells("collective_runs.csv");
  for (const std::string& table : cells("collectives.csv"))
    EXPECT_TRUE(runs.contains(table)) << table;
}

TEST(CollectiveErrors, TablesLeftOutCountInNoMeanAndSayWhy) {
  CollectiveErrors kept, left;
  kept.table = "kept", left.table = "left";
  left.left_out = "sums in the switches";
  kept.errors.Add(1e9, 0.03), kept.chosen.Add(1e9, 0.03);
  left.errors.Add(1e9, 0.5), left.chosen.Add(1e9, 0.5);
  const std::string text = CollectiveSection({kept, left}, {});
  EXPECT_THAT(text, HasSubstr("Mean over tables: - / - / 3.0."));
  EXPECT_THAT(text, HasSubstr("| left | - | - | - | 50.0 | sums in the switches |"));
}

TEST(CollectiveErrors, RowsThatMadeConstantsAreApart) {
  CollectiveErrors made, other;
  made.table = "made";
  made.fitted = "hop of EFA";
  made.algorithm = "ring";
  other.table = "other";
  made.errors.Add(1e9, 0.01);
  made.chosen.Add(1e9, 0.5);
  other.errors.Add(1e9, 0.03);
  other.chosen.Add(1e9, 0.03);
  const std::string text = CollectiveSection({made, other}, {});
  EXPECT_THAT(text, HasSubstr("Mean over tables: - / - / 2.0."));
  EXPECT_THAT(text, HasSubstr("Without those that made constants: - / - / 3.0 (other)"));
  EXPECT_THAT(text, HasSubstr("| hop of EFA | made |"));
  EXPECT_THAT(text, HasSubstr("the mean over tables is - / - / 26.5"));
  EXPECT_THAT(text, HasSubstr("| made | - | - | 50.0 |"));
}

}  // namespace
}  // namespace orrery
