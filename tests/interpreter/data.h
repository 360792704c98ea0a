// SPDX-License-Identifier: Apache-2.0
// Samples and initial parameters from a counter-based generator: a value depends on what it is (seed, step, global
// sample, position; parameter, global element), never on which rank asks or in which order.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "model/ir/plan.h"

namespace orrery::interpreter {

uint64_t HashOf(std::initializer_list<uint64_t> key);
double UniformOf(uint64_t bits);  // in (0, 1)

struct DataSpec {
  uint64_t seed = 1;
  int64_t vocab = 0;        // tokens and labels are below it
  int64_t token_types = 2;  // segment ids are below it
};

// Where one load op stands: the sequence shard and the samples of this rank.
struct LoadPlace {
  int64_t step = 0;
  int64_t first_sample = 0;    // of the step
  int64_t first_position = 0;
};
void Load(const DataSpec& spec, const ir::Op& op, const LoadPlace& place, std::span<double> out);

// Initial value of one element of a parameter, by its global row-major index.
double InitialValue(uint64_t seed, const ir::Param& param, int64_t global_index);

// Elements [first, first + out.size()) of a flat unit on a rank at `coords`; padding is 0.
void InitialUnit(uint64_t seed, const ir::Plan& plan, const ir::Unit& unit, const std::vector<int>& coords,
                 int64_t first, std::span<double> out);

}  // namespace orrery::interpreter
