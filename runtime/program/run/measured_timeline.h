// SPDX-License-Identifier: Apache-2.0
// The last step of a run as a timeline of the page: ranks x ops, with the keys of model/program/common/step_picture.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"

namespace orrery::cli {

// Of a run with very many ranks some are drawn.
bool IsDrawn(int64_t rank, int64_t ranks);

// When this rank came to each of its messages, by communicator or pair of ranks, as text; and the latest of all ranks: then
// the message had its partners. Times as MeasuredLanes() has them.
std::string ArrivalsAtMessages(const exec::RankImage& image, const std::vector<exec::OpSpan>& spans,
                               int64_t origin_ns);
std::string LatestArrivals(const std::vector<std::string>& arrivals);

// This rank's lanes, a stream each, as text for rank 0; times are seconds since `origin_ns` on this rank's clock. Ops one by
// one; where they are too many to draw, passes over a block; then the first and the last of those. `latest`: of all ranks;
// "": not known, a message then holds the wait for its partners.
std::string MeasuredLanes(const exec::RankImage& image, const std::vector<exec::OpSpan>& spans,
                          int64_t origin_ns, const std::string& latest);

// All ranks' lanes ("": not drawn) as "timeline": {seconds, measured: true, step, ranks, stages, clock_error_s,
// meetings_known, joined, lanes}. It begins with the first op.
nlohmann::ordered_json MeasuredTimeline(const std::vector<std::string>& lanes, int64_t step,
                                        std::size_t stages, double clock_error_s,
                                        bool partners_known);

}  // namespace orrery::cli
