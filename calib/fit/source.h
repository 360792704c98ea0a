// SPDX-License-Identifier: Apache-2.0
// Where measurements come from: something that predicts what it measured from a set of profiles.
//
// A fit only sees this interface. A further kind of measurement (a benchmark's table, a trace) is a
// further MeasurementSource; its observations name the profiles that they depend on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calib/fit/profile_store.h"
#include "model/twin/kinship.h"

namespace orrery {

struct Observation {
  std::string name;    // of the row
  std::string source;  // "vtrain"; rows of one origin
  std::string group;   // "vtrain one node": rows that share weight, spread and error line
  std::string model;   // what is left out together, per way of leaving out
  std::string topology;
  double measured = 0;    // seconds, or bytes
  bool step_time = true;  // counts for the interval around predicted step times
  std::string sweep;  // rows of one model, cluster and batch, whose layouts are compared; "": none
  std::optional<RunIdentity> run;             // of a training run
  int gpu = -1, fabric = -1, framework = -1;  // in the ProfileStore; -1: independent of it
};

class MeasurementSource {
 public:
  virtual ~MeasurementSource() = default;
  virtual const std::vector<Observation>& observations() const = 0;
  // Predicted values of the observations at `which` (ascending), in the unit of `measured`. Safe to
  // call from several threads with different stores that were copied from the one it was built on.
  virtual void Predict(const ProfileStore& store, const std::vector<int>& which,
                       std::vector<double>* values) const = 0;
};

}  // namespace orrery
