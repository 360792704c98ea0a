// SPDX-License-Identifier: Apache-2.0
// What one calibration does: rows, constants and their priors, what is left out to test it.
//
// A job file:
//   title: text
//   sources: [vtrain, mosaic]       # of the rows' first column; absent: all
//   kernels_of: h200-sxm-141gb       # where there are timed kernels: the GPU that ran them
//   holdout: model                  # none, model, topology or source
//   memory_by: {bloom: nvidia-smi}  # who printed the memory of a source's rows, where these do not say
//   parameters:
//     - {of: "framework/fsdp:step_fixed", prior: 20ms, spread: 0.6}
//     - {of: ["gpu/family-ampere:gemm_efficiency_fp16", "gpu/family-ampere:gemm_efficiency_bf16"]}
//     - {of: "framework/fsdp@site:step_fixed", prior: "framework/fsdp:step_fixed", spread: 0.5}
// A prior that names a constant freed above it is that constant's value: sites are drawn around their
// family, which stands in their middle, and a site without data of its own follows it.
// `prior` and `spread` (relative) may be absent: then the profile's own value, and at least 0.3.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/case_source.h"
#include "calib/fit/holdout.h"
#include "calib/fit/memory_source.h"
#include "calib/fit/parameters.h"

namespace orrery {

struct FitJob {
  std::string title;
  RowFilter filter;
  Holdout holdout = Holdout::kModel;
  std::vector<ParameterRequest> requests;
  MemoryKinds memory_by;
  std::string kernels_of;          // profile of the GPU that timed kernels ran on; "": not said
  std::vector<std::string> sites;  // profiles framework@topology, on disk or to be created
};

// Whether the name is FRAMEWORK@TOPOLOGY, not a release such as megatron@2021.
bool IsSite(const std::string& framework);

FitJob ReadFitJob(const SourcePtr& source);  // throws InputError

// Flags of the command line.
struct FitFlags {
  std::vector<std::string> gpus, fabrics, frameworks, sources, free;
};
FitJob JobOf(const FitFlags& flags, ProfileStore* store);

}  // namespace orrery
