// SPDX-License-Identifier: Apache-2.0
// Rows, the frontier and what a flag changes.
#include "model/program/plan/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "model/program/plan/study_progress.h"
#include "model/program/plan/study_report.h"

namespace orrery::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Study Named(std::initializer_list<std::pair<const char*, const char*>> flags) {
  JobFlags job;
  LayoutFlags layout;
  FlagSet set("", "", {});
  job.Declare(&set, false);
  layout.Declare(&set, "");
  for (const auto& [name, text] : flags) {
    for (const std::vector<Flag*>& all : {job.All(), layout.All()}) {
      for (Flag* flag : all) {
        if (flag->name == name) *flag = {name, text, true, {}};
      }
    }
  }
  return *Study::Of(job, layout);
}

TEST(Study, EveryCombinationIsOneRowAndJobsStandTogether) {
  const Study study = Named({{"--model", "gpt2-xl"},
                             {"--tp", "1,2"},
                             {"--topology", "aws-p4d"},
                             {"--nodes", "1..4"},
                             {"--micro-batch", "1,2,4"}});
  EXPECT_EQ(study.rows(), 18);
  EXPECT_EQ(study.RowsPerJob(), 6);
  std::set<std::string> seen;
  for (int64_t row = 0; row < study.rows(); ++row) {
    const StudyCase one = study.CaseOf(row);
    seen.insert(one.job.nodes.text + " " + one.layout.tp.text + " " + one.layout.micro_batch.text);
    EXPECT_EQ(one.job.nodes.text, study.CaseOf(row / 6 * 6).job.nodes.text);
    EXPECT_EQ(one.job.model.text, "gpt2-xl");
  }
  EXPECT_EQ(seen.size(), 18u);
}

TEST(Study, OneValueEachIsNone) {
  JobFlags job;
  LayoutFlags layout;
  EXPECT_FALSE(Study::Of(job, layout));
}

TEST(Study, ChecksValuesBeforeTheWork) {
  EXPECT_THROW(Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,x"}}),
               InputError);
  EXPECT_THROW(Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,2,1"}}),
               InputError);
  EXPECT_THROW(Named({{"--model", "gpt2-xl,gpt9"}, {"--topology", "aws-p4d"}}), InputError);
}

StudyPoint Point(int64_t row, double rate, double dollars, bool fits = true,
                 std::size_t question = 0) {
  return {row,
          fits ? RowStatus::kOk : RowStatus::kDoesNotFit,
          {1 / rate, rate, 0.5, 1e9, 8, dollars},
          question};
}

// A small model's tokens say nothing of a large one's: its rows had hidden all of the other's.
TEST(Front, IsOfEachModel) {
  const std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 50, 2),
                                          Point(2, 10, 30, true, 1), Point(3, 20, 20, true, 1)};
  EXPECT_THAT(FrontOf(points, {1, 5}), ElementsAre(0, 3));
  const Study study =
      Named({{"--model", "gpt2-xl,llama2-7b"}, {"--topology", "aws-p4d"}, {"--tp", "1,2"}});
  EXPECT_THAT(StudyText(study, points, {}, {1, 5}),
              HasSubstr("Frontier: 2 rows that no other of its model beats in tokens_per_s"));
  Refusals refusals;
  StudyRow row;
  row.row = 3;
  EXPECT_EQ(PointOf(study, row, &refusals).question, 1u);
}

// More tokens/s of shorter sequences, and a shorter step of a smaller batch, are no better answers.
TEST(Front, ComparesEqualWork) {
  const Study lengths =
      Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--seq-len", "512,1024"}});
  Refusals refusals;
  StudyRow row;
  row.row = 1;
  EXPECT_EQ(PointOf(lengths, row, &refusals).question, 1u);
  std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 50, 2, true, 1)};
  EXPECT_THAT(FrontOf(points, {1, 5}), ElementsAre(0, 1));
  EXPECT_THAT(StudyText(lengths, points, {}, {1, 5}),
              HasSubstr("that no other of its sequence length beats in"));
  // Half the tokens per step.
  points = {Point(0, 100, 1), Point(1, 100, 1), Point(2, 90, 1)};
  points[1].metrics[0] /= 2;
  EXPECT_THAT(FrontOf(points, {0}), ElementsAre(1, 0));
  EXPECT_THAT(StudyText(lengths, points, {}, {0}),
              HasSubstr("that no other of its sequence length and tokens per step beats in"));
}

// One model's rows that leave the margin say nothing of another's that all are nearly full.
TEST(Front, RanksNearlyFullRowsOfAModelThatHasNoOthers) {
  std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 120, 1), Point(2, 10, 3, true, 1),
                                    Point(3, 20, 2, true, 1)};
  for (const std::size_t full : {1, 2, 3}) points[full].status = RowStatus::kNearlyFull;
  EXPECT_THAT(FrontOf(points, {1, 5}), ElementsAre(0, 3));
  const Study study =
      Named({{"--model", "gpt2-xl,llama2-7b"}, {"--topology", "aws-p4d"}, {"--tp", "1,2"}});
  EXPECT_THAT(StudyText(study, points, {}, {1, 5}),
              HasSubstr("tp 2 (nearly full, as all that fit of its model)"));
  EXPECT_THAT(StudyBrief(study, points),
              testing::AllOf(HasSubstr("fastest of its model: row 0: "),
                             HasSubstr("fastest of its model: row 3: ")));
}

TEST(Front, IsThatOfBruteForce) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> digit(1, 12);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<StudyPoint> points;
    for (int64_t row = 0; row < 40; ++row) {
      points.push_back(Point(row, digit(random), digit(random), digit(random) > 2));
      points.back().metrics[3] = digit(random);
    }
    for (const std::vector<std::size_t>& metrics :
         {std::vector<std::size_t>{1, 5}, std::vector<std::size_t>{1, 5, 3}}) {
      const auto worth = [&](std::size_t i, std::size_t m) {
        return StudyMetrics()[m].more_is_better ? points[i].metrics[m] : -points[i].metrics[m];
      };
      // Which figures no other row beats; of equal rows one stands for all.
      std::set<std::vector<double>> expected, found;
      for (std::size_t i = 0; i < points.size(); ++i) {
        bool beaten = points[i].status != RowStatus::kOk;
        for (std::size_t j = 0; j < points.size() && !beaten; ++j) {
          bool all = points[j].status == RowStatus::kOk, one = false;
          for (const std::size_t m : metrics) {
            all = all && worth(j, m) >= worth(i, m);
            one = one || worth(j, m) > worth(i, m);
          }
          beaten = all && one;
        }
        std::vector<double> figures;
        for (const std::size_t m : metrics) figures.push_back(points[i].metrics[m]);
        if (!beaten) expected.insert(figures);
      }
      for (const std::size_t i : FrontOf(points, metrics)) {
        std::vector<double> figures;
        for (const std::size_t m : metrics) figures.push_back(points[i].metrics[m]);
        EXPECT_TRUE(found.insert(figures).second);
      }
      EXPECT_EQ(found, expected);
    }
  }
}

// As `plan` ranks: below every layout that leaves the margin of memory, however fast.
TEST(Front, NearlyFullRowsStandBelowAllOthers) {
  std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 50, 2), Point(2, 10, 1, false),
                                    Point(3, 20, 3)};
  points[0].status = RowStatus::kNearlyFull;
  EXPECT_THAT(FrontOf(points, {1, 5}), ElementsAre(1));
  const Study study =
      Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,2,4,8"}});
  const std::vector<Sensitivity> all = SensitivitiesOf(study, points);
  EXPECT_EQ(all[0].ok, 1);
  EXPECT_EQ(all[0].best, 0);
  EXPECT_EQ(all[1].best, 1);
  EXPECT_THAT(StudyText(study, points, {}, {1, 5}),
              HasSubstr("4 rows: 3 fit (1 of them nearly full: below all others)"));
  points.pop_back();
  points[1].status = RowStatus::kDoesNotFit;  // nothing leaves the margin
  EXPECT_THAT(FrontOf(points, {1, 5}), ElementsAre(0));
  EXPECT_THAT(StudyText(study, points, {}, {1, 5}),
              HasSubstr("Frontier: 1 row, nearly full as all that fit,"));
}

// Rows without a price are not on a frontier of prices: nothing may drop out unasked.
TEST(Front, IsOfPricesWhereEveryRowHasOne) {
  std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 50, 2)};
  EXPECT_THAT(DefaultFront(points), ElementsAre(1, 5));
  points[0].metrics[5] = std::nan("");
  EXPECT_THAT(DefaultFront(points), ElementsAre(1, 4));
  points[0].status = RowStatus::kDoesNotFit;
  EXPECT_THAT(DefaultFront(points), ElementsAre(1, 5));
}

// As one writes it who knows the flags alone.
TEST(Study, AFlagOutsideOfItsSectionIsSentThere) {
  const std::string path = testing::TempDir() + "/flat.yaml";
  std::ofstream(path) << "model: gpt2-xl\ntp: [1, 2]\ntq: 3\n";
  try {
    Study::Read({"STUDY.yaml", path, true, {}});
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    const std::string text = Render(error.diagnostics(), false);
    EXPECT_THAT(text, HasSubstr("flat.yaml:1:8: error: 'model' stands under 'job:'"));
    EXPECT_THAT(text, HasSubstr("flat.yaml:2:5: error: 'tp' stands under 'layout:'"));
    EXPECT_THAT(text, HasSubstr("flat.yaml:3:1: error: unknown key 'tq'"));
  }
}

TEST(Study, AListInAListIsOneValue) {
  const std::string file = testing::TempDir() + "/list_in_list.yaml";
  std::ofstream(file)
      << "job: {model: gpt2-xl, topology: aws-p4d}\n"
         "layout: {pp: 2, layout: [[24, 24], [20, 28]], recompute: [mlp+core_attn, full]}\n";
  const Study study = Study::Read({"STUDY.yaml", file, true, {}});
  EXPECT_EQ(study.rows(), 4);
  EXPECT_THAT(study.Text(), testing::AllOf(HasSubstr("layout: [24,24] [20,28]"),
                                           HasSubstr("recompute: [mlp+core_attn] [full]")));
}

TEST(Sensitivities, CompareValuesWithAllElseAlike) {
  const Study study =
      Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,2"}, {"--pp", "1,2"}});
  // tp 2 is half as fast with pp 1 and does not fit with pp 2.
  const std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 80, 1), Point(2, 50, 1),
                                          Point(3, 70, 1, false)};
  const std::vector<Sensitivity> all = SensitivitiesOf(study, points);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].ok, 2);
  EXPECT_EQ(all[0].compared, 1);  // with pp 2 it is alone, and no proof of being fast
  EXPECT_EQ(all[0].best, 1);
  EXPECT_EQ(all[0].slower, 0);
  EXPECT_EQ(all[1].ok, 1);
  EXPECT_EQ(all[1].compared, 1);
  EXPECT_DOUBLE_EQ(all[1].slower, 1);
  EXPECT_DOUBLE_EQ(all[3].slower, 0.25);  // pp 2
  EXPECT_EQ(StudyJson(study, points, {}, {1, 5})["sensitivities"][0]["compared"], 1);
  EXPECT_THAT(StudyText(study, points, {}, {1, 5}),
              HasSubstr("combinations of the other flags in which this value and another fit"));
}

// The upper of the two in the middle stood for an even number.
TEST(Sensitivities, AreMedians) {
  const Study study =
      Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,2"}, {"--pp", "1,2"}});
  const std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 80, 1), Point(2, 50, 1),
                                          Point(3, 64, 1)};
  EXPECT_DOUBLE_EQ(SensitivitiesOf(study, points)[1].slower, 0.625);  // of 1 and 0.25
}

// A small model is not a faster choice than a large one.
TEST(Sensitivities, LeaveModelsApart) {
  const Study study =
      Named({{"--model", "gpt2-xl,llama2-7b"}, {"--topology", "aws-p4d"}, {"--tp", "1,2"}});
  const std::vector<StudyPoint> points = {Point(0, 100, 1), Point(1, 50, 2),
                                          Point(2, 10, 30, true, 1), Point(3, 20, 20, true, 1)};
  const std::vector<Sensitivity> all = SensitivitiesOf(study, points);
  for (const std::size_t model : {0, 1}) {
    EXPECT_EQ(all[model].ok, 2);
    EXPECT_EQ(all[model].compared, 0);
    EXPECT_TRUE(std::isnan(all[model].slower));
  }
  EXPECT_EQ(all[2].compared, 2);
  EXPECT_THAT(StudyText(study, points, {}, {1, 5}),
              HasSubstr("not compared: tokens/s of one model with those of another"));
}

// Where one value alone fits, nothing says what the flag changes.
TEST(Sensitivities, AValueAloneIsNotCompared) {
  const Study study = Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,2"}});
  const std::vector<Sensitivity> all =
      SensitivitiesOf(study, {Point(0, 100, 1, false), Point(1, 80, 1)});
  EXPECT_EQ(all[1].ok, 1);
  EXPECT_EQ(all[1].compared, 0);
  EXPECT_EQ(all[1].best, 0);
  EXPECT_TRUE(std::isnan(all[1].slower));
}

// A log gets lines below each other, none of which steers a terminal; rows that were there are no part of the rate.
TEST(Progress, IsWrittenAsLinesIntoALog) {
  testing::internal::CaptureStderr();
  {
    std::atomic<int64_t> rows = 40;
    const StudyProgress progress({"plan sweep", 100, 40, false, 0.05}, [&] { return rows += 10; });
    while (rows < 70) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::StartsWith("plan sweep: 50 of 100 rows, "));
  EXPECT_THAT(said, testing::ContainsRegex("\nplan sweep: 60 of 100 rows, [0-9]+ rows/s, .* left"));
  EXPECT_THAT(said, testing::Not(testing::AnyOf(HasSubstr("\r"), HasSubstr("\033"))));
  EXPECT_TRUE(said.ends_with("left\n")) << said;
}

TEST(Progress, LeavesNothingOnATerminal) {
  testing::internal::CaptureStderr();
  {
    std::atomic<int64_t> asked = 0;
    const StudyProgress progress({"plan sweep", 100, 0, true}, [&] { return ++asked; });
    while (asked < 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("\r\033[K1 of 100 rows, 1 rows/s"));
  EXPECT_TRUE(said.ends_with("\r\033[K")) << said;
}

TEST(CsvLine, ReadsBackWhatItWrote) {
  const Study study = Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--pp", "1,2"}});
  StudyRow row;
  row.row = 1;
  row.status = RowStatus::kOk;
  row.gpus = 8;
  row.layout = "tp 1, \"pp\" 2";
  row.time.total = 0.1 + 0.2;
  row.tokens_per_s = 1.0 / 3;
  row.mfu = 0.25;
  row.memory_bytes = 7;
  Refusals refusals;
  const StudyPoint point = PointOfLine(study, CsvLine(study, row), &refusals);
  EXPECT_TRUE(refusals.empty());
  EXPECT_EQ(point.row, 1);
  EXPECT_EQ(point.metrics[0], 0.1 + 0.2);
  EXPECT_EQ(point.metrics[1], 1.0 / 3);
  EXPECT_EQ(point.metrics[4], 8);
  EXPECT_TRUE(std::isnan(point.metrics[5]));
  row.status = RowStatus::kNearlyFull;
  EXPECT_THAT(CsvLine(study, row), HasSubstr(",nearly full,"));
  EXPECT_EQ(PointOfLine(study, CsvLine(study, row), &refusals).status, RowStatus::kNearlyFull);
}

// `plan predict` says where a step time may be off; a row was silent, and did not name its engine.
TEST(CsvLine, SaysWhatPredictSaysOfTheTime) {
  const Study study = Named({{"--model", "llama2-7b"},
                             {"--topology", "aws-p3-16xl"},
                             {"--nodes", "64"},
                             {"--seq-len", "2048"},
                             {"--global-batch", "1536"},
                             {"--micro-batch", "4"},
                             {"--tp", "8,32"}});
  const std::string contention =
      "not counted: contention: tensor-parallel communication and data-parallel communication "
      "share the links between nodes";
  const auto cells = [&](Engine engine, int64_t row) {
    return CsvCells(CsvLine(study, StudyPredictor(study, engine).Predict(row)));
  };
  const std::vector<std::string> names = CsvCells(CsvHeader(study));
  const auto at = [&](const char* name) {
    return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
  };
  EXPECT_EQ(cells(Engine::kClosed, 1)[at("engine")], "closed");
  EXPECT_THAT(cells(Engine::kClosed, 1)[at("notes")],
              testing::AllOf(HasSubstr(contention), HasSubstr("not calibrated: ")));
  EXPECT_THAT(cells(Engine::kClosed, 0)[at("notes")], testing::Not(HasSubstr("not counted")));
  EXPECT_EQ(cells(Engine::kAuto, 1)[at("engine")], "event");
  EXPECT_THAT(cells(Engine::kAuto, 1)[at("notes")], HasSubstr("engines differ: "));
}

// What a disk or an editor may leave is no row: none is taken for one, or read past its end.
TEST(RowOfLine, KnowsWholeRowsAlone) {
  const Study study =
      Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,5"}, {"--pp", "1,2"}});
  StudyPredictor predictor(study, Engine::kClosed);
  for (int64_t row = 0; row < study.rows(); ++row) {
    std::string line = CsvLine(study, predictor.Predict(row));
    line.pop_back();
    EXPECT_EQ(RowOfLine(study, line), row) << line;
    for (std::size_t cut = 0; cut < line.size(); ++cut) {
      const int64_t found = RowOfLine(study, line.substr(0, cut));
      // Cut in its last cell a reason is shorter, and cannot be told from another.
      if (found != -1) {
        EXPECT_GT(cut, line.rfind(',')) << line.substr(0, cut);
      }
    }
    EXPECT_EQ(RowOfLine(study, line + ",x"), -1);
    EXPECT_EQ(RowOfLine(study, line + "\r"), line.back() == ',' ? -1 : row);
    EXPECT_EQ(RowOfLine(study, std::to_string(row + 1) + line.substr(1)), -1);
    std::string other = line;
    other.replace(other.find(',') + 1, 1, "8");  // tp
    EXPECT_EQ(RowOfLine(study, other), -1);
  }
  for (const char* junk : {"", "3", "3,", "3,???", "-1,1,1,ok", "9,1,1,ok", ",,,,,,"})
    EXPECT_EQ(RowOfLine(study, junk), -1) << junk;
  std::string line = CsvLine(study, predictor.Predict(0));
  line.pop_back();
  const std::size_t step = line.find("\",") + 2;
  EXPECT_EQ(RowOfLine(study, line.substr(0, step) + "x" + line.substr(step + 1)), -1);
}

TEST(StudyText, SaysWhyRowsAreRefused) {
  const Study study = Named({{"--model", "gpt2-xl"}, {"--topology", "aws-p4d"}, {"--tp", "1,16"}});
  Refusals refusals;
  std::vector<StudyPoint> points;
  StudyPredictor predictor(study, Engine::kClosed);
  for (int64_t row = 0; row < study.rows(); ++row) {
    const StudyRow one = predictor.Predict(row);
    points.push_back(PointOfLine(study, CsvLine(study, one), &refusals));
  }
  ASSERT_EQ(refusals.size(), 1u);
  const std::string text = StudyText(study, points, refusals, DefaultFront(points));
  EXPECT_THAT(text, HasSubstr("Refused\n       1  " + refusals.begin()->first));
  EXPECT_EQ(StudyJson(study, points, refusals, DefaultFront(points))["refused"][0]["rows"], 1);
  EXPECT_THAT(StudyHeader(study), HasSubstr("set by default"));
}

}  // namespace
}  // namespace orrery::cli
