// SPDX-License-Identifier: Apache-2.0
// The flags of `plan simulate`: known to `plan` for help and completion, used by its own program.
#pragma once

#include "model/engine/network/network.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/names.h"

namespace orrery::cli {

inline constexpr report::NameRow<net::Backend> kNetworkNames[] = {
    {"fluid", net::Backend::kFluid},
    {"simgrid", net::Backend::kSimGrid},
};

inline constexpr report::NameRow<bool> kContentionNames[] = {{"on", true}, {"off", false}};

struct SimulateFlags {
  SimulateFlags();

  JobFlags job;
  LayoutFlags layout;
  Flag plan, scenario, network, contention, jitter, seed, slow_gpu, degraded_link, failed_nic,
      all_ranks, trace, json, html, bundle;
  FlagSet set;
};

Description DescribeSimulate();

}  // namespace orrery::cli
