// SPDX-License-Identifier: Apache-2.0
// Factors of measured layers: recovered from runs that the model itself made, and their files.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "calib/fit/case_source.h"
#include "calib/fit/holdout.h"
#include "calib/fit/layer_parameters.h"
#include "calib/validate/validate.h"

namespace orrery {
namespace {

constexpr double kFastLayer = 0.8;

// The sample's runs, each at its own depth and at half of it.
std::vector<CaseRow> RowsOfTwoDepths() {
  std::vector<CaseRow> rows =
      LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/fit/samples/runs.csv");
  std::erase_if(rows, [](const CaseRow& row) { return row.strategy.pp != 1; });
  const std::size_t n = rows.size();
  for (std::size_t i = 0; i < n; ++i) {
    rows.push_back(rows[i]);
    rows.back().model.layers /= 2;
    rows.back().name += "-half";
  }
  return rows;
}

struct Made {
  std::vector<CaseRow> rows;
  std::string shape;  // whose layers take kFastLayer times the formulas
};

Made RowsMadeWithOneFastShape() {
  Made made{RowsOfTwoDepths(), ""};
  ProfileStore store;
  const CaseSource source(made.rows, {}, &store);
  const Observation& chosen = source.observations().front();
  made.shape = chosen.shape;
  store.Set(ProfileLayer::kFramework, chosen.framework, kLayerPrefix + chosen.shape, kFastLayer);
  std::vector<int> all;
  for (std::size_t i = 0; i < made.rows.size(); ++i) all.push_back(static_cast<int>(i));
  std::vector<double> times;
  source.Predict(store, all, &times);
  for (std::size_t i = 0; i < times.size(); ++i) made.rows[i].measured_step_s = times[i];
  return made;
}

TEST(MeasuredLayers, AreRecoveredAndCarryOverToAnotherDepth) {
  const Made made = RowsMadeWithOneFastShape();
  ProfileStore store;
  const CaseSource source(made.rows, {}, &store);
  const Evidence evidence({&source}, store);
  Fitter fitter(evidence, LayerParameters(source.observations(), 0.1, store), FitOptions{});
  const FitResult result = fitter.Fit();
  ASSERT_GE(result.constants.size(), 2U);
  for (const FittedConstant& layer : result.constants) {
    const bool planted = layer.parameter.shape == made.shape;
    EXPECT_NEAR(layer.after, planted ? kFastLayer : 1.0, 0.02) << layer.parameter.shape;
  }
  for (double error : LeaveGroupsOut(evidence, Holdout::kModel, &fitter).error)
    EXPECT_NEAR(error, 0, 0.02);
  const auto files = LayerFiles(result);
  ASSERT_EQ(files.size(), 1U);
  const auto factors =
      ReadLayerFactors(std::make_shared<Source>(Source{"layer.yaml", files.begin()->second}));
  EXPECT_NEAR(factors.at(made.shape), kFastLayer, 0.02);
}

TEST(MeasuredLayers, NeedTwoModelsOfOneShape) {
  std::vector<CaseRow> rows = RowsOfTwoDepths();
  const int64_t depth = rows.front().model.layers;
  std::erase_if(rows, [&](const CaseRow& row) { return row.model.layers != depth; });
  ASSERT_GT(rows.size(), 2U);
  ProfileStore store;
  const CaseSource source(rows, {}, &store);
  EXPECT_TRUE(LayerParameters(source.observations(), 0.1, store).empty());
}

}  // namespace
}  // namespace orrery
