// SPDX-License-Identifier: Apache-2.0
// Published runs of a CSV (the columns of `plan validate`) as measurements of step times.
//
// Every micro-batch is lowered once; afterwards a prediction only costs its shapes again.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "calib/fit/source.h"
#include "calib/validate/case_row.h"
#include "model/hardware/summary.h"
#include "model/twin/predict.h"

namespace orrery {

// Rows that a fit takes. Empty sets take all.
struct RowFilter {
  std::set<std::string> sources, gpus, fabrics, frameworks;
  bool Takes(const std::string& source, const std::string& gpu, const std::string& fabric,
             const std::string& framework) const;
};

class CaseSource : public MeasurementSource {
 public:
  // Loads the profiles that the rows need into `store`. Rows that cannot be predicted and rows that
  // the filter leaves out are counted by reason. Throws InputError when none remains.
  CaseSource(std::vector<CaseRow> rows, const RowFilter& filter, ProfileStore* store);

  const std::vector<Observation>& observations() const override { return observations_; }
  void Predict(const ProfileStore& store, const std::vector<int>& which,
               std::vector<double>* values) const override;
  // The 80 % interval of each observation's prediction.
  std::vector<Confidence> Confidences(const ProfileStore& store, const Trust& trust) const;
  const std::map<std::string, int>& left_out() const { return left_out_; }
  const std::map<std::string, std::string>& reasons() const { return reasons_; }  // by row

 private:
  using Cluster = std::unique_ptr<ClusterSummary>;
  // Rows of one model, workload and cluster that differ in batch and strategy only.
  struct Sweep {
    ModelSpec model;
    Workload work;
    const ClusterSummary* cluster = nullptr;
    int gpu = 0, fabric = 0, framework = 0;
    std::unique_ptr<ShapeCache> shapes;
  };
  struct Run {
    int sweep = 0;
    int64_t global_batch = 0;
    Strategy strategy;
    Window window = Window::kStep;
  };

  void Add(const CaseRow& row, const RowFilter& filter, ProfileStore* store);
  void LeaveOut(const CaseRow& row, const std::string& reason);
  const ClusterSummary* FindCluster(const CaseRow& row);
  int FindSweep(const CaseRow& row, const ClusterSummary* cluster, const Observation& profiles);
  Job JobOf(const Run& run, const ProfileStore& store) const;
  void NameGroups();

  std::map<std::tuple<std::string, int64_t, int>, Cluster> clusters_;
  std::map<std::string, int> sweep_of_;
  std::vector<Sweep> sweeps_;
  std::vector<Run> runs_;  // beside observations_
  std::vector<Observation> observations_;
  std::map<std::string, int> left_out_;
  std::map<std::string, std::string> reasons_;
};

}  // namespace orrery
