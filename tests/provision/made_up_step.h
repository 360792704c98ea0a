// SPDX-License-Identifier: Apache-2.0
// A job on a real cluster whose step time is made up, and a price.
#pragma once

#include <memory>

#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/provision/long_run.h"

namespace orrery {

struct Case {
  TopologySpec topology;
  Profiles profiles;
  Job job;
  Prediction prediction;
};

// A made-up step on a real cluster: the run follows from its time alone.
inline std::unique_ptr<Case> CaseOf(const char* model, const char* topology, int64_t nodes,
                                    double step_seconds, int64_t batch, int64_t seq_len) {
  auto made = std::make_unique<Case>();
  made->topology = LoadTopology(topology);
  made->profiles = LoadProfiles(made->topology, "megatron", true);
  Workload work;
  work.seq_len = seq_len;
  work.global_batch = batch;
  work.optimizer = Optimizer::kAdamW;
  made->job = MakeJob(LoadModel(model).spec, work, made->topology, nodes, 0, made->profiles);
  Strategy layout;
  layout.dp = static_cast<int>(made->job.cluster.ranks());
  StepTime time{};
  time.total = step_seconds;
  time.low = 0.9 * step_seconds;
  time.high = 1.12 * step_seconds;
  made->prediction = PredictionOf(made->job, layout, time);
  return made;
}

inline Quote QuoteAt(double price) {
  Quote quote;
  quote.offer.name = "made up";
  quote.price.price = DollarsPerHour(price);
  return quote;
}

}  // namespace orrery
