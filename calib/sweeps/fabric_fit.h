// SPDX-License-Identifier: Apache-2.0
// Sweeps as evidence for the class constants of a network: the closed form with a fabric profile,
// not a curve of its own. What is fitted there carries over to other numbers of nodes.
#pragma once

#include <map>
#include <memory>

#include "calib/fit/fit.h"
#include "calib/fit/holdout.h"
#include "calib/fit/source.h"
#include "calib/sweeps/machine.h"
#include "model/hardware/summary.h"

namespace orrery {

class CollectiveSource : public MeasurementSource {
 public:
  // Sweeps over several nodes of topologies with this fabric profile. Throws InputError: none.
  CollectiveSource(const std::vector<MeasuredRuns>& sweeps, const MachineTopologies& topologies,
                   const std::string& fabric, ProfileStore* store);
  const std::vector<Observation>& observations() const override { return observations_; }
  void Predict(const ProfileStore& store, const std::vector<int>& which,
               std::vector<double>* values) const override;

 private:
  struct Point {
    int sweep = 0;
    double bytes = 0;
  };
  std::vector<MeasuredRuns> sweeps_;
  std::vector<ClusterSummary> clusters_;  // by sweep
  std::vector<Point> points_;
  std::vector<Observation> observations_;
};

struct FabricFit {
  FitResult result;
  std::vector<double> left_out;  // ln(predicted / measured), each size of all sweeps left out
  std::vector<double> bytes;     // of the same points
};

// The constants of `fabric` that sweeps say something about; priors are those of the profile that
// it inherits (its own came from such a fit), with a spread of a factor e.
std::vector<ParameterRequest> FabricRequests(const std::string& fabric, const ProfileStore& store);
FabricFit FitFabric(const Evidence& evidence, const CollectiveSource& source,
                    std::vector<FitParameter> parameters);

}  // namespace orrery
