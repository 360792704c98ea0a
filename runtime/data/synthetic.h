// SPDX-License-Identifier: Apache-2.0
// Samples from the counter-based generator: a value depends on seed, step, global sample and
// position.
#pragma once

#include <vector>

#include "runtime/data/data_source.h"

namespace orrery::train {

struct DataSpec {
  uint64_t seed = 1;
  int64_t vocab = 0;        // tokens and labels are below it
  int64_t token_types = 2;  // segment ids are below it
  int64_t mask_token = -1;  // of masked language modelling; -1: see data/token_source.h
};

// One load op. Throws DataError when its attributes contradict `out` or each other.
void LoadSynthetic(const DataSpec& spec, const ir::Op& op, const LoadPlace& place,
                   std::span<double> out);

class SyntheticSource : public DataSource {
 public:
  explicit SyntheticSource(const DataSpec& spec) : spec_(spec) {}
  void Load(const ir::Op& op, const LoadPlace& place, std::span<double> out) override {
    LoadSynthetic(spec_, op, place, out);
  }

 private:
  DataSpec spec_;
};

// A fixed set of `samples` pairs of uniform features and targets, read in order and over again: the
// toy set that tutorials of data parallelism train Linear(20, 1) on.
class RandomSet : public DataSource {
 public:
  RandomSet(uint64_t seed, int64_t samples, int64_t global_batch)
      : seed_(seed), samples_(samples), global_batch_(global_batch) {}
  void Load(const ir::Op& op, const LoadPlace& place, std::span<double> out) override;
  void Resume(int64_t steps_done, int64_t samples_done) override {
    before_ = samples_done - steps_done * global_batch_;
  }

 private:
  uint64_t seed_;
  int64_t samples_, global_batch_;
  int64_t before_ = 0;  // number of step 1's first sample
};

}  // namespace orrery::train
