// SPDX-License-Identifier: Apache-2.0
// Initial parameters, from the counter-based generator or given: a value depends on seed, the
// parameter's name and the element's global index, never on the layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/plan/ir/plan.h"
#include "model/plan/ir/unit_codes.h"

namespace orrery::train {

// Values of one whole parameter without padding, by their global row-major index. At() may throw.
class GivenTensor {
 public:
  virtual ~GivenTensor() = default;
  virtual double At(int64_t global_index) const = 0;
};

// Parameters that begin with values from elsewhere (a checkpoint). Ranks of one process read it at once.
class GivenWeights {
 public:
  virtual ~GivenWeights() = default;
  virtual const GivenTensor* Find(const std::string& param) const = 0;  // null: drawn from the seed
  virtual void CheckWhole() const {
  }  // behind the last value: throws where what was read is not to be trusted
  virtual uint64_t id() const = 0;  // no two of a process have the same; never 0
};

// Where parameters begin.
struct InitialFrom {
  InitialFrom(uint64_t the_seed, const GivenWeights* the_given = nullptr)  // NOLINT: a seed is one
      : seed(the_seed), given(the_given) {}
  uint64_t seed;
  const GivenWeights* given;
  bool (*stops)() = nullptr;  // asked while values are made: true: nobody will read them
};

// Initial value of one element of a parameter, by its global row-major index.
double InitialValue(const InitialFrom& from, const ir::Param& param, int64_t global_index);

// Elements [first, first + out.size()) of a flat unit on a rank at `coords`; padding is 0. Throws
// std::invalid_argument when a segment's size contradicts its parameter.
void InitialUnit(const InitialFrom& from, const ir::Plan& plan, const ir::Unit& unit,
                 const std::vector<int>& coords, int64_t first, std::span<double> out);

// What weights held in 8 bits begin with, by the op that casts their unit. A tensor's scale is that of the whole tensor, so every
// layout begins alike.
class InitialCodes {
 public:
  InitialCodes(const InitialFrom& from, const ir::Plan& plan, const ir::Unit& unit,
               const std::vector<int>& coords, const ir::Op& cast);
  const std::vector<double>& scales() const { return scales_; }
  // Elements [first, first + values.size()) of the unit: numbers become codes.
  void Cast(int64_t first, std::span<double> values) const;

 private:
  std::vector<ir::CodedSegment> segments_;
  ir::CastFormat format_;
  std::vector<double> scales_;
};

}  // namespace orrery::train
