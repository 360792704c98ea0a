// SPDX-License-Identifier: Apache-2.0
// Printed peaks of memory as measurements, of the framework's allocator or of the device.
//
// Every plan is lowered once; what it demands does not hang on constants (model/memory/software_memory.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calib/fit/case_source.h"
#include "calib/fit/parameters.h"
#include "calib/validate/predict_memory.h"

namespace orrery {

// Who printed the memory of a source's rows, where the rows do not say.
using MemoryKinds = std::map<std::string, MemoryKind>;

// Which measurements a fit of these constants needs: printed memory, and times (of any other constant).
struct Needs {
  bool memory = false, time = false;
};
Needs NeedsOf(const std::vector<ParameterRequest>& requests);

class MemorySource : public MeasurementSource {
 public:
  // Takes the rows that print memory; those of which nobody says who printed it are counted as left out.
  MemorySource(const std::vector<CaseRow>& rows, const MemoryKinds& kinds, const RowFilter& filter,
               ProfileStore* store);

  const std::vector<Observation>& observations() const override { return observations_; }
  void Predict(const ProfileStore& store, const std::vector<int>& which,
               std::vector<double>* values) const override;
  const std::map<std::string, int>& left_out() const { return left_out_; }

 private:
  struct Figure {
    const RunDemand* demand = nullptr;  // in predictor_
    MemoryKind kind = MemoryKind::kDevice;
  };

  void Add(const CaseRow& row, const MemoryKinds& kinds, const RowFilter& filter,
           ProfileStore* store);

  MemoryPredictor predictor_;
  std::vector<Figure> figures_;  // beside observations_
  std::vector<Observation> observations_;
  std::map<std::string, int> left_out_;
};

}  // namespace orrery
