// SPDX-License-Identifier: Apache-2.0
// Lanes of a timeline, simulated or measured, few enough to draw; step_picture.h says what their JSON holds.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace orrery::report {

constexpr std::size_t kMostLanesShown = 16;  // stages or ranks
constexpr std::size_t kMostSpans = 2400;     // of all lanes of passes, and of all of messages

constexpr double kShownWait = 0.002;  // of the step: shorter waits are part of their pass

struct TimelineSpan {
  double start = 0, end = 0;
  std::string name, phase;
  int32_t micro_batch = -1;
  int passes = 1;
  double busy = 0;  // of it the stream works or sends; the rest are waits within it
  double met = -1;  // of a message: its last partner has come; -1: no message, or not known
};

struct TimelineLane {
  int stage = 0;
  int64_t rank = 0;
  std::string stream;
  bool compute = false;
  std::vector<TimelineSpan> spans;
};

// `count` of `all`, evenly spread, the first and the last among them.
std::vector<std::size_t> Spread(std::size_t all, std::size_t count);
// Lanes of passes or of messages (at least 1), and their spans.
std::pair<std::size_t, std::size_t> SpansOf(const std::vector<TimelineLane>& lanes, bool compute);
// Lanes as JSON. Of a lane with more than its part of `most` spans the first and the last; those in between are one span,
// and counted in `joined`.
nlohmann::ordered_json LanesJson(std::vector<TimelineLane> lanes, std::size_t most,
                                 int64_t* joined);

}  // namespace orrery::report
