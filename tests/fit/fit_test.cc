// SPDX-License-Identifier: Apache-2.0
// Fits on runs that the model itself made with planted constants.
#include "calib/fit/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "calib/fit/case_source.h"
#include "calib/fit/holdout.h"
#include "calib/validate/validate.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using testing::HasSubstr;

constexpr const char* kFramework = "framework/megatron-deepspeed@vtrain-a100:";
constexpr const char* kChip = "gpu/a100-sxm4-80gb:gemm_efficiency_fp16";

std::vector<CaseRow> SampleRows() {
  return LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/fit/samples/runs.csv");
}

// Rows with the times that the model predicts when these constants are set.
std::vector<CaseRow> RowsMadeBy(const std::map<std::string, double>& planted) {
  std::vector<CaseRow> rows = SampleRows();
  ProfileStore store;
  const CaseSource source(rows, {}, &store);
  for (const auto& [text, value] : planted) {
    store.Override(ParseConstantName(text));
    store.SetValue(ParseConstantName(text), value);
  }
  std::vector<int> all;
  for (std::size_t i = 0; i < rows.size(); ++i) all.push_back(static_cast<int>(i));
  std::vector<double> times;
  source.Predict(store, all, &times);
  EXPECT_EQ(times.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].measured_step_s = times[i];
  return rows;
}

struct Bench {
  ProfileStore store;
  std::unique_ptr<CaseSource> source;
  std::unique_ptr<Evidence> evidence;
  std::unique_ptr<Fitter> fitter;
};

// Of a constant whose fitted value may lie far from what is planted below.
std::optional<double> PriorOf(const std::string& text) {
  if (text.ends_with("step_fixed")) return 20e-3;
  return std::nullopt;
}

// A fit of these constants with wide priors at the profiles' own values.
std::unique_ptr<Bench> Prepare(std::vector<CaseRow> rows, const std::vector<std::string>& free) {
  auto bench = std::make_unique<Bench>();
  bench->source = std::make_unique<CaseSource>(std::move(rows), RowFilter{}, &bench->store);
  std::vector<ParameterRequest> requests;
  for (const std::string& text : free)
    requests.push_back({{ParseConstantName(text)}, PriorOf(text), 1.0});
  auto parameters = MakeParameters(requests, &bench->store);
  bench->evidence = std::make_unique<Evidence>(
      std::vector<const MeasurementSource*>{bench->source.get()}, bench->store);
  bench->fitter = std::make_unique<Fitter>(*bench->evidence, std::move(parameters), FitOptions{});
  return bench;
}

const std::map<std::string, double> kPlanted = {{kFramework + std::string("loss_traffic"), 120},
                                                {kFramework + std::string("step_fixed"), 40e-3},
                                                {kChip, 0.7}};
const std::vector<std::string> kFree = {kFramework + std::string("loss_traffic"),
                                        kFramework + std::string("step_fixed"), kChip};

TEST(Fit, RecoversPlantedConstants) {
  const auto bench = Prepare(RowsMadeBy(kPlanted), kFree);
  const FitResult result = bench->fitter->Fit();
  for (const FittedConstant& constant : result.constants) {
    const std::string name = constant.parameter.names.front().Text();
    EXPECT_NEAR(constant.after / kPlanted.at(name), 1.0, 0.05) << name;
    EXPECT_EQ(constant.status, FitStatus::kFitted) << name;
    EXPECT_GT(constant.points, 0) << name;
  }
  for (double error : result.error) EXPECT_NEAR(error, 0, 0.01);
  for (double error : LeaveGroupsOut(*bench->evidence, Holdout::kModel, bench->fitter.get()).error)
    EXPECT_NEAR(error, 0, 0.02);
}

TEST(Fit, KeepsWhatTheRowsDoNotDetermine) {
  std::vector<std::string> free = kFree;
  free.push_back(kFramework + std::string("lamb_traffic"));
  free.push_back(kFramework + std::string("sgd_traffic"));
  const auto bench = Prepare(RowsMadeBy(kPlanted), free);
  const FitResult result = bench->fitter->Fit();
  for (std::size_t j = 3; j < 5; ++j) {
    EXPECT_EQ(result.constants[j].status, FitStatus::kKept);
    EXPECT_DOUBLE_EQ(result.constants[j].after, result.constants[j].parameter.before);
    EXPECT_NEAR(result.constants[j].ratio, 1.0, 1e-6);
  }
  EXPECT_EQ(result.constants[0].status, FitStatus::kFitted);
}

TEST(Fit, WithstandsOutliers) {
  std::vector<CaseRow> rows = RowsMadeBy(kPlanted);
  rows[2].measured_step_s *= 3;
  rows[7].measured_step_s *= 0.4;
  const auto bench = Prepare(std::move(rows), kFree);
  for (const FittedConstant& constant : bench->fitter->Fit().constants) {
    const std::string name = constant.parameter.names.front().Text();
    EXPECT_NEAR(constant.after / kPlanted.at(name), 1.0, 0.1) << name;
  }
}

TEST(Fit, StaysWithinPhysicalBounds) {
  std::vector<CaseRow> rows = RowsMadeBy(kPlanted);
  for (CaseRow& row : rows) row.measured_step_s *= 0.3;  // faster than the peak allows
  const auto bench = Prepare(std::move(rows), {kChip});
  const FitResult result = bench->fitter->Fit();
  EXPECT_LE(result.constants[0].after, 1.0 + 1e-9);
  EXPECT_TRUE(result.constants[0].bound);
}

TEST(Fit, IntervalsHoldEightyPercent) {
  std::vector<double> errors;
  for (int i = -50; i <= 50; ++i) errors.push_back(0.001 * i);
  const Interval interval = IntervalOf(errors);
  EXPECT_NEAR(interval.low, std::exp(-0.04), 1e-3);
  EXPECT_NEAR(interval.high, std::exp(0.04), 1e-3);
  EXPECT_EQ(interval.points, 101);
}

TEST(Fit, SaysWhyNoRowIsLeft) {
  ProfileStore store;
  RowFilter filter;
  filter.gpus = {"h100-sxm5-80gb"};
  try {
    const CaseSource source(SampleRows(), filter, &store);
    FAIL() << "rows of another GPU were taken";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a100-sxm4-80gb"));
  }
}

TEST(Fit, RefusesConstantsWithoutEffect) {
  ProfileStore store;
  const CaseSource source(SampleRows(), {}, &store);
  const auto request = [](const char* text) {
    return std::vector<ParameterRequest>{{{ParseConstantName(text)}, std::nullopt, std::nullopt}};
  };
  EXPECT_THROW(MakeParameters(request("framework/fsdp:kernel_gap"), &store), InputError);
  EXPECT_THROW(
      MakeParameters(request("framework/megatron-deepspeed@vtrain-a100:memory_gradient_copy"),
                     &store),
      InputError);  // zero, without a prior
}

}  // namespace
}  // namespace orrery
