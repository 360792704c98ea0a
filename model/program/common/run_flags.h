// SPDX-License-Identifier: Apache-2.0
// The flags of `plan run`: known to `plan` for help and completion, used by its own program.
#pragma once

#include "model/program/common/job_flags.h"

namespace orrery::cli {

struct RunFlags {
  RunFlags();

  Flag plan;
  JobFlags job;
  LayoutFlags layout;
  Flag lr, lr_schedule, lr_steps, lr_end, lr_power, warmup, weight_decay, clip_norm;
  Flag ranks, comm, device, cuda_graphs, steps, seed, data, mask_token, timeout, log_every, json,
      html, trace, trace_steps;
  Flag init_from, export_hf;
  Flag save, save_every, resume, time_limit, supervise, max_restarts, best_layout, hostfile,
      host_test, host_wait;
  Flag tensorboard, profile;
  FlagSet set;
};

Description DescribeRun();

}  // namespace orrery::cli
