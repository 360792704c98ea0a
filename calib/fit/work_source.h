// SPDX-License-Identifier: Apache-2.0
// Traces as measurements: the device time of products, attention, element-wise kernels, optimizer.
//
// Times are of one rank and step. Gaps between kernels are no part of them. Layouts with pipeline
// stages are left out: their ranks differ. Where attention is materialised its products and passes
// cannot be told from the others' in a trace; all three then count as one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calib/fit/case_source.h"
#include "calib/fit/log_measure.h"
#include "model/hardware/summary.h"
#include "model/price/layer_ops.h"

namespace orrery {

class WorkSource : public MeasurementSource {
 public:
  // Takes the runs whose log is a trace with operations; there may be none.
  WorkSource(const std::vector<const LoggedRun*>& runs, const RowFilter& filter,
             ProfileStore* store);

  const std::vector<Observation>& observations() const override { return observations_; }
  void Predict(const ProfileStore& store, const std::vector<int>& which,
               std::vector<double>* values) const override;

 private:
  struct Run {
    ModelSpec model;
    Workload work;
    Strategy strategy;
    MicroBatchOps ops;
    ClusterSummary cluster;
  };
  struct Part {
    int run = 0;
    measured::Work work = measured::Work::kProduct;
    bool merged = false;  // all kernels but the optimizer's
  };

  void Add(const LoggedRun& logged, const RowFilter& filter, ProfileStore* store);

  std::vector<Run> runs_;
  std::vector<Part> parts_;  // beside observations_
  std::vector<Observation> observations_;
};

}  // namespace orrery
