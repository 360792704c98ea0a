// SPDX-License-Identifier: Apache-2.0
// What each training framework sets and what it leaves open: `--framework NAME` is one row here.
//
// A preset fills the fine knobs of Strategy with the framework's defaults and says which axes a search
// may turn. The cost profile of the same name (calib/profiles/stack) holds its constants.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

// When gradients of 16-bit runs are accumulated and reduced in fp32.
enum class Fp32Grads { kNever, kBf16, kBf16Zero0 };

struct FrameworkPreset {
  const char* name;
  const char* description;                  // one line
  bool tensor = false;                      // tp > 1
  bool sequence = false;                    // sequence parallelism with tp > 1
  bool hybrid = false;                      // dp_outer > 1: ZeRO shards inside groups of ranks
  bool uneven_chunks = false;               // interleaving where layers do not divide by pp x vpp
  std::vector<int> zero;                    // stages on offer
  int zero_with_pipeline = 0;               // highest stage beside pp > 1
  std::vector<PipelineSchedule> schedules;  // with pp > 1, preferred first; empty: no pipelines
  std::vector<Recompute> recompute;
  Fp32Grads fp32_grads = Fp32Grads::kNever;
  Strategy defaults;   // knobs; degrees are all 1
  double dropout = 0;  // of runs whose settings do not name any

  bool pipeline() const { return !schedules.empty(); }
  // The knobs that hang on the ZeRO stage and on the precision, filled in for given degrees.
  Strategy Complete(Strategy degrees, Precision precision) const;
  // Dropout of a published run that does not print it: the framework's own default, and none for models with gated
  // layers, whose recipes train without (Llama and its kin).
  double DropoutOf(const ModelSpec& model) const { return model.gated ? 0 : dropout; }
  // Empty, or the sentence that says what the framework cannot do.
  std::string Refuses(const Strategy& strategy) const;
};

std::span<const FrameworkPreset> FrameworkPresets();
std::vector<std::string> FrameworkNames();
// Throws InputError with the nearest names.
const FrameworkPreset& FindFramework(std::string_view name);

}  // namespace orrery
