// SPDX-License-Identifier: Apache-2.0
// From a job of the flags to what is exported.
#include "model/program/common/export_case.h"

#include <algorithm>

#include "model/framework/presets.h"

namespace orrery::cli {

exchange::Case CaseOf(const report::Job& job, const Strategy& strategy, int64_t nodes,
                      int64_t global_batch) {
  exchange::Case layout;
  layout.model = job.request.model;
  layout.work = job.request.work;
  layout.work.global_batch = global_batch;
  layout.strategy = strategy;
  layout.nodes = nodes;
  layout.gpus_per_node = job.cluster.gpus_per_node;
  const std::vector<std::string>& hosts = job.request.topology.fabric.hosts;
  if (std::ssize(hosts) >= nodes) layout.hosts.assign(hosts.begin(), hosts.begin() + nodes);
  layout.framework = job.request.framework;
  layout.tp_overlap = FindFramework(job.request.framework).tp_overlap;
  const auto taken = FindFramework(job.request.framework).FusedAttention(job.profiles.gpu);
  for (const auto& [name, kernel] : kAttentionKernelNames) {
    if (FusedFirst(kernel, job.profiles.gpu) || kernel == taken)
      layout.chip_attention.push_back(kernel);
  }
  const FrameworkProfile& framework = job.profiles.framework;
  const bool whole = !InHalf(layout.work.precision) || strategy.fp32_grads;
  const double parameters = BucketParameters(framework, strategy.data_parallel());
  layout.bucket_bytes = parameters > 0 ? parameters * (whole ? 4 : 2) : framework.bucket.value;
  if (layout.bucket_bytes > 1e12) layout.bucket_bytes = 0;  // all at once
  return layout;
}

}  // namespace orrery::cli
