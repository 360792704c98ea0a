// SPDX-License-Identifier: Apache-2.0
// Timed products, attentions and streaming kernels of one chip as measurements.
//
// Predicted by the formulas of model/price/op_cost.h, without the gaps and habits of a training
// software and without what earlier measurements left of them. What is
// left out together is a weight's shape (n, k) of products, heads and head size of attention, the
// operation of streaming kernels: the error of shapes that nobody has measured.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calib/fit/fit.h"
#include "calib/import/kernel_csv.h"
#include "model/price/op_cost.h"

namespace orrery {

// Shorter calls mostly time their launch.
inline constexpr double kShortestKernel = 5e-6;

class KernelSource : public MeasurementSource {
 public:
  // `gpu`: the profile of the chip that ran them. What it does not compute, launches, optimizers and
  // short calls are counted by reason. Throws InputError when nothing remains.
  KernelSource(const std::vector<measured::KernelSample>& samples, const std::string& gpu,
               ProfileStore* store);

  const std::vector<Observation>& observations() const override { return observations_; }
  void Predict(const ProfileStore& store, const std::vector<int>& which,
               std::vector<double>* values) const override;
  const std::map<std::string, int>& left_out() const { return left_out_; }

  // Where an observation stands among measured shapes; nullopt: streaming kernels, products of rows that
  // wide loads cannot read.
  struct Place {
    Precision precision = Precision::kBf16;
    std::string kernel;
    KernelFactors::Shape shape{};
  };
  std::optional<Place> PlaceOf(int observation) const;

 private:
  struct Kernel {
    Precision precision = Precision::kBf16;
    std::variant<GemmShape, AttentionShape, TrafficShape> shape;
    AttentionKernel attention = AttentionKernel::kFa2;
    bool grouped = false;    // products of several experts
    double accumulated = 0;  // bytes that adding to the output moves
  };
  // A reason when the sample says nothing about a constant.
  std::string Add(const measured::KernelSample& sample, const GpuProfile& gpu, Observation seen);

  std::vector<Kernel> kernels_;  // beside observations_
  std::vector<Observation> observations_;
  std::map<std::string, int> left_out_;
};

// Measured over predicted by what is left out together, shrunk to 1 the less was measured of it:
// exp(mean log * n / (n + s^2 / t^2)), s the spread within, t between. Longest deviation first.
std::string RenderShapes(const Evidence& evidence, const std::vector<double>& errors);

}  // namespace orrery
