// SPDX-License-Identifier: Apache-2.0
// Reads the runs once and ranks them by distance.
#include "model/twin/nearest.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "model/arch/data_root.h"
#include "model/base/csv.h"
#include "model/base/diagnostics.h"
#include "model/framework/presets.h"
#include "model/hardware/profile_reader.h"

namespace orrery {
namespace {

constexpr double kOtherKind = 2;     // doublings, for another chip or framework
constexpr double kOtherCluster = 1;  // doublings, for another cluster or precision of products
constexpr double kMostValue = 1e12;  // of any column

std::vector<NearRun> ReadRuns(const SourcePtr& source) {
  Diagnostics diagnostics;
  std::vector<std::string> columns = {"what",   "case",     "model_left_out", "framework", "gpu",
                                      "fabric", "topology", "facts",          "measured_s"};
  columns.insert(columns.end(), std::begin(kFeatureNames), std::end(kFeatureNames));
  const CsvTable table = CsvTable::Parse(source, columns, &diagnostics);
  IdentityReader reader(table);
  const auto measured_s = table.IndexOf("measured_s"), left_out = table.IndexOf("model_left_out");
  std::vector<NearRun> runs;
  runs.reserve(table.rows());
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto measured = table.Number(i, measured_s, 1e-12, kMostValue);
    const auto ratio = table.Number(i, left_out, 0, kMostValue);
    if (!measured || !ratio) continue;  // memory, or a row that no fit has seen
    NearRun run{reader.Read(i), table.Text(i, "case")};
    run.measured = *measured;
    run.predicted = *measured * *ratio;
    runs.push_back(std::move(run));
  }
  diagnostics.ThrowIfAny();
  return runs;
}

}  // namespace

SiteCalibration CalibrationOf(const FrameworkProfile& framework) {
  SiteCalibration found;
  const std::string& path = framework.header.path;
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return found;
  const SourcePtr source = ReadUnchanged(path);
  if (source->text.find("\ncalibration:") == std::string::npos) return found;
  Diagnostics diagnostics;
  const Node block = Node::Parse(source, &diagnostics).Child("calibration");
  found.site = block.String("site", "");
  std::string lines;
  if (block.Has("runs")) {
    for (const Node& line : block.Items("runs")) lines += line.AsString() + "\n";
  }
  diagnostics.ThrowIfAny();
  if (!lines.empty()) found.runs = ReadRuns(std::make_shared<Source>(Source{path, lines}));
  return found;
}

std::shared_ptr<const std::vector<NearRun>> CalibratedRuns() {
  const std::filesystem::path path =
      std::filesystem::path(DataRoot()) / "calib" / "profiles" / "left_out.csv";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::make_shared<std::vector<NearRun>>();
  static std::mutex mutex;
  static SourcePtr known;
  static std::shared_ptr<const std::vector<NearRun>> runs;
  const std::lock_guard lock(mutex);
  const SourcePtr source = ReadUnchanged(path.string());
  if (source != known || !runs) {
    runs = std::make_shared<const std::vector<NearRun>>(ReadRuns(source));
    known = source;
  }
  return runs;
}

namespace {

double Distance(const NearRun& run, const RunIdentity& asked, const std::string& family) {
  double sum = 0;
  for (int feature = 0; feature < kFeatures; ++feature) {
    if (feature != kAtNodes) sum += std::pow(std::log2(run.at[feature] / asked.at[feature]), 2);
  }
  const auto products = [](const RunIdentity& of) -> std::string_view {
    const auto found = of.facts.find(kProductsFact);
    return found == of.facts.end() ? std::string_view() : found->second;
  };
  if (run.gpu != asked.gpu) sum += kOtherKind * kOtherKind;
  if (FamilyOf(run.framework) != family) sum += kOtherKind * kOtherKind;
  if (run.topology != asked.topology) sum += kOtherCluster * kOtherCluster;
  if (products(run) != products(asked)) sum += kOtherCluster * kOtherCluster;
  return std::sqrt(sum);
}

}  // namespace

std::vector<NearRun> NearestRuns(const Job& job, const Strategy& layout, std::size_t count) {
  const RunIdentity asked = IdentityOf(job.prices(), job.work, layout,
                                       SituationOf(job.model, job.work, layout, job.cluster.nodes));
  const std::string family = FamilyOf(asked.framework);
  const std::shared_ptr<const std::vector<NearRun>> runs = CalibratedRuns();
  const std::vector<NearRun> own = CalibrationOf(*job.framework).runs;
  std::vector<std::pair<double, const NearRun*>> order;
  for (const std::vector<NearRun>* some : {&own, runs.get()}) {
    for (const NearRun& run : *some) order.emplace_back(Distance(run, asked, family), &run);
  }
  std::ranges::stable_sort(order, {}, [](const auto& one) { return one.first; });
  std::vector<NearRun> nearest;
  std::set<std::tuple<std::string, double, double>> seen;  // a model on a cluster
  for (const auto& [distance, run] : order) {
    // A model without some of what runs are compared by, such as one of no hidden size, is near to none.
    if (nearest.size() == count || !std::isfinite(distance)) break;
    if (!seen.emplace(run->topology, run->at[kAtHidden], run->at[kAtLayers]).second) continue;
    nearest.push_back(*run);
    nearest.back().distance = distance;
  }
  return nearest;
}

}  // namespace orrery
