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

// This rank's lanes, a stream each, as text for rank 0; times are seconds since `origin_ns` on this rank's clock. Ops one by
// one; where they are too many to draw, passes over a block; then the first and the last of those.
std::string MeasuredLanes(const exec::RankImage& image, const std::vector<exec::OpSpan>& spans,
                          int64_t origin_ns);

// All ranks' lanes ("": not drawn) as "timeline": {seconds, measured: true, step, ranks, stages, clock_error_s, joined, lanes}.
// It begins with the first op.
nlohmann::ordered_json MeasuredTimeline(const std::vector<std::string>& lanes, int64_t step,
                                        std::size_t stages, double clock_error_s);

}  // namespace orrery::cli
