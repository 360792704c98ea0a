// SPDX-License-Identifier: Apache-2.0
// Chooses what of a timeline is drawn.
#include "model/program/common/timeline_lanes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orrery::report {
namespace {

// At most `most` spans: the first and the last of them, those in between as one.
std::vector<TimelineSpan> Joined(std::vector<TimelineSpan> spans, std::size_t most) {
  std::ranges::stable_sort(spans, {}, &TimelineSpan::start);
  if (spans.size() <= most) return spans;
  const std::size_t edge = std::max<std::size_t>(1, most / 2);
  const std::size_t last = spans.size() - edge;
  if (last <= edge) return spans;  // two remain two
  TimelineSpan middle = spans[edge];
  for (std::size_t i = edge + 1; i < last; ++i) {
    middle.end = std::max(middle.end, spans[i].end);
    middle.passes += spans[i].passes;
    middle.busy += spans[i].busy;
  }
  middle.met = -1;
  middle.phase = "mixed";
  middle.micro_batch = -1;
  spans.erase(spans.begin() + static_cast<std::ptrdiff_t>(edge),
              spans.begin() + static_cast<std::ptrdiff_t>(last));
  spans.insert(spans.begin() + static_cast<std::ptrdiff_t>(edge), std::move(middle));
  return spans;
}

}  // namespace

std::vector<std::size_t> Spread(std::size_t all, std::size_t count) {
  std::vector<std::size_t> chosen;
  if (all <= count) {
    for (std::size_t i = 0; i < all; ++i) chosen.push_back(i);
    return chosen;
  }
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(i * (all - 1) / (count - 1));
  return chosen;
}

std::pair<std::size_t, std::size_t> SpansOf(const std::vector<TimelineLane>& lanes, bool compute) {
  std::size_t count = 0, spans = 0;
  for (const TimelineLane& lane : lanes) {
    if (lane.compute != compute) continue;
    ++count;
    spans += lane.spans.size();
  }
  return {std::max<std::size_t>(1, count), spans};
}

nlohmann::ordered_json LanesJson(std::vector<TimelineLane> lanes, std::size_t most,
                                 int64_t* joined) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  const std::size_t of_passes = most / SpansOf(lanes, true).first,
                    of_messages = most / SpansOf(lanes, false).first;
  for (TimelineLane& lane : lanes) {
    nlohmann::ordered_json out = {{"stage", lane.stage},
                                  {"rank", lane.rank},
                                  {"stream", lane.stream},
                                  {"compute", lane.compute}};
    out["spans"] = nlohmann::ordered_json::array();
    for (const TimelineSpan& span :
         Joined(std::move(lane.spans), lane.compute ? of_passes : of_messages)) {
      *joined += span.passes > 1 ? span.passes : 0;
      out["spans"].push_back({{"start_s", span.start},
                              {"end_s", span.end},
                              {"name", span.name},
                              {"phase", span.phase},
                              {"micro_batch", span.micro_batch},
                              {"passes", span.passes},
                              {"busy_s", span.busy}});
      if (span.met >= 0) out["spans"].back()["met_s"] = span.met;
    }
    json.push_back(std::move(out));
  }
  return json;
}

}  // namespace orrery::report
