// SPDX-License-Identifier: Apache-2.0
// What figures of a simulated step are drawn from: passes over time, tensors over time, traffic on links.
//
// Every --html adds these keys to the command's JSON; model/report draws them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "model/engine/event/simulation.h"
#include "model/twin/job.h"
#include "model/twin/predict.h"

namespace orrery::report {

// Adds to `json`:
//   "timeline"          {seconds, stages, joined, lanes: [{stage, rank, stream, compute, spans: [{start_s, end_s, name,
//                       phase, micro_batch, passes, busy_s, met_s}]}]}: one lane per stage and stream. `busy_s`: without the waits within it; `met_s`, of a message: until then it waits for its partners. Of very many stages some, of very
//                       many passes the first and the last; those in between are one span of so many `passes`, `joined` in
//                       all.
//   "memory_over_time"  [{stage, rank, peak_bytes, peak_at_s, seconds, time_s, total_bytes, series: [{name, bytes}]}]: bytes of the plan's tensors; in each
//                       interval of time the moment at which most are alive.
//   "cluster"           {nodes, nodes_shown, devices: [{name, kind, node}], links: [{from, to, bytes, busy, efficiency}]}
// At most kMostLanesShown stages. The simulation has run with `record` and `keep_links`; `ranks` are indices of
// result().ranks, one per stage.
void AddStepPicture(const sim::Simulation& simulation, const Cluster& cluster,
                    const std::vector<std::size_t>& ranks, nlohmann::ordered_json* json);
// The same of a layout or of a plan, simulated for it. Where that takes more than a few times
// Job::most_effort: key "not_pictured" says so.
void AddStepPicture(const orrery::Job& job, const Strategy& layout, nlohmann::ordered_json* json);
void AddStepPicture(const orrery::Job& job, const ir::Plan& plan, nlohmann::ordered_json* json);

// Of each stage the rank that computes longest, the first one of equals: indices into times.
std::vector<std::size_t> Representatives(const sim::StepResult& result,
                                         const std::vector<int>& stages);

}  // namespace orrery::report
