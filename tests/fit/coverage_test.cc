// SPDX-License-Identifier: Apache-2.0
// Of rows that a fit has not seen, four in five lie inside their 80 % intervals, source by source.
#include <gtest/gtest.h>

#include "calib/fit/case_source.h"
#include "calib/fit/holdout.h"
#include "calib/fit/job.h"
#include "calib/validate/validate.h"

namespace orrery {
namespace {

constexpr int kLeastRows = 20;  // of a source: below, a share of 80 % says little

TEST(Coverage, OfPublishedRunsLeftOutByModel) {
  const std::string root = ORRERY_SOURCE_DIR;
  ProfileStore store;
  const FitJob job = ReadFitJob(ReadSource(root + "/calib/fit/jobs/published-runs.yaml"));
  const CaseSource cases(LoadCases(root + "/calib/data/published_runs.csv"), job.filter, &store);
  const std::vector<FitParameter> parameters = MakeParameters(job.requests, &store);
  const Evidence evidence({&cases}, store);
  Fitter fitter(evidence, parameters, {});
  (void)fitter.Fit();
  const Unseen unseen = LeaveGroupsOut(evidence, Holdout::kModel, &fitter);
  std::map<std::string, std::pair<int, int>> sources;
  for (const auto& [row, hit] : Coverage(evidence, Holdout::kModel, unseen)) {
    auto& [hits, count] = sources[evidence.observations()[row]->source];
    hits += hit;
    ++count;
  }
  int judged = 0;
  for (const auto& [source, count] : sources) {
    if (count.second < kLeastRows) continue;
    const double share = static_cast<double>(count.first) / count.second;
    EXPECT_GE(share, 0.75) << source << ", " << count.second << " rows";
    EXPECT_LE(share, 0.87) << source << ", " << count.second << " rows";
    ++judged;
  }
  EXPECT_GE(judged, 4);
}

}  // namespace
}  // namespace orrery
