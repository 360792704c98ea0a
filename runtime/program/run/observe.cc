// SPDX-License-Identifier: Apache-2.0
// Steps as they come, and what all ranks know at the end.
#include "runtime/program/run/observe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "model/base/write_file.h"
#include "model/price/op_term.h"
#include "model/program/common/time_report.h"
#include "model/program/common/timeline_lanes.h"
#include "runtime/program/run/console.h"
#include "runtime/program/run/measured_timeline.h"

namespace orrery::cli {
namespace {

// `breakdown`: of the mean step of all ranks, as the record's.
void WriteTraceFile(const std::string& path, const std::string& digest, const Breakdown& breakdown,
                    const std::vector<std::string>& events,
                    const std::vector<comm::ClockOffset>& clocks) {
  double error = 0;
  for (const comm::ClockOffset& clock : clocks) error = std::max(error, clock.error_s);
  std::string text = fmt::format(
      "{{\n\"schemaVersion\": 1,\n\"digest\": \"{}\",\n\"displayTimeUnit\": \"ms\",\n"
      "\"clock_error_us\": {:.3f},\n\"breakdown\": {},\n\"traceEvents\": [",
      digest, error * 1e6, report::TimeJson(breakdown).dump());
  for (std::size_t r = 0; r < events.size(); ++r) text += (r == 0 ? "\n" : ",\n") + events[r];
  text += "\n]\n}\n";
  if (const std::string why = RewriteTextFile(path, text); !why.empty())
    throw std::runtime_error(fmt::format("cannot write '{}': {}", path, why));
}

}  // namespace

RankObserver::RankObserver(const RunJob& job, comm::Endpoint* endpoint, Observer* observer)
    : job_(job), endpoint_(endpoint), observer_(observer) {
  part_.rank = endpoint->rank();
  part_.host = endpoint->host();
}

void RankObserver::BeforeTraining(exec::Executor* executor) {
  part_.arena_bytes = executor->arena_bytes();
  if (part_.rank != 0 || observer_->quiet) return;
  Say(stdout, RunHeading(job_, part_.host, part_.arena_bytes, observer_->peak_flops_per_s));
}

void RankObserver::AfterStep(exec::Executor* executor, const launch::StepRecord& record) {
  steps_.Add(record);
  if (!observer_->trace_file.empty() && record.step > job_.steps - observer_->trace_steps) {
    traced_.push_back({record.step, executor->spans()});
    AddStep(job_.plan, *executor, record.result.seconds, &traced_profile_);
  }
  if (observer_->wants_timeline) last_ = {record.step, executor->spans()};
  const bool due = record.step % job_.log_every == 0 || record.step == job_.steps;
  if (part_.rank != 0 || observer_->quiet || !due) return;
  Say(stdout, StepLine(job_, record, observer_->peak_flops_per_s));
}

void RankObserver::AfterTraining(exec::Executor* executor) {
  GatherRecord();
  if (!observer_->trace_file.empty() && !traced_.empty()) GatherTrace(*executor);
  if (observer_->wants_timeline && !last_.spans.empty()) GatherTimeline(*executor);
}

// As many steps at a time as are a few megabytes of all ranks.
void RankObserver::GatherRecord() {
  constexpr int64_t kMostAtOnce = 65'536, kFewestAtOnce = 64;
  Summarise(steps_, &part_);
  RunRecord* record = &observer_->record;
  for (const std::string& text : comm::GatherText(endpoint_, PartText(part_), job_.timeout_s))
    record->parts.push_back(ReadPart(text));
  const int64_t at_once = std::max(kFewestAtOnce, kMostAtOnce / endpoint_->size());
  for (int64_t first = 0; first < steps_.size(); first += at_once) {
    const auto own = steps_.Part(first, std::min(at_once, steps_.size() - first));
    std::string text(reinterpret_cast<const char*>(own.data()), own.size() * sizeof own[0]);
    std::vector<RunStep> merged(own.size());
    const auto texts = comm::GatherText(endpoint_, text, job_.timeout_s);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      if (texts[rank].size() != text.size())
        throw std::runtime_error(fmt::format("rank {} has done other steps than rank 0", rank));
      for (std::size_t s = 0; s < merged.size(); ++s) {
        launch::StepRecord one;
        std::memcpy(&one, texts[rank].data() + s * sizeof one, sizeof one);
        Merge(one, rank == 0, &merged[s]);
      }
    }
    if (part_.rank != 0) continue;
    for (const RunStep& step : merged) record->steps.Add(step);
  }
}

int64_t RankObserver::Origin(int64_t origin, std::vector<comm::ClockOffset>* all) {
  std::vector<comm::ClockOffset>& clocks = *all;
  clocks = comm::CompareClocks(endpoint_, job_.timeout_s);
  constexpr int32_t kOriginChannel = 32005;
  if (part_.rank == 0) {
    for (int64_t peer = 1; peer < endpoint_->size(); ++peer) {
      const int64_t theirs =
          origin + static_cast<int64_t>(clocks[static_cast<std::size_t>(peer)].ahead_s * 1e9);
      Wait(endpoint_, endpoint_->Send(peer, kOriginChannel, &theirs, sizeof theirs).get(),
           job_.timeout_s, "trace");
    }
  } else {
    Wait(endpoint_, endpoint_->Receive(0, kOriginChannel, &origin, sizeof origin).get(),
         job_.timeout_s, "trace");
  }
  return origin;
}

// All times since rank 0's first traced step began, on rank 0's clock.
void RankObserver::GatherTrace(const exec::Executor& executor) {
  std::vector<comm::ClockOffset> clocks;
  const int64_t origin = Origin(exec::StepBegin(traced_.front()), &clocks);
  const auto events = comm::GatherText(
      endpoint_,
      exec::TraceEvents(executor.image(), traced_, origin,
                        [this](const ir::Op& op) { return TermNameOf(job_.plan, op); }),
      job_.timeout_s);
  StepProfile mean;
  GatherProfile(traced_profile_, endpoint_, job_.timeout_s, &mean);
  if (part_.rank == 0)
    WriteTraceFile(observer_->trace_file, job_.digest, mean.breakdown, events, clocks);
}

void RankObserver::GatherTimeline(const exec::Executor& executor) {
  std::vector<comm::ClockOffset> clocks;
  const int64_t origin = Origin(exec::StepBegin(last_), &clocks);
  const exec::RankImage& image = executor.image();
  // Of very many ranks a few are drawn, whose partners are not all known.
  const bool partners_known = endpoint_->size() <= static_cast<int64_t>(report::kMostLanesShown);
  std::string latest;
  if (partners_known) {
    const auto arrivals =
        comm::GatherText(endpoint_, ArrivalsAtMessages(image, last_.spans, origin), job_.timeout_s);
    latest = comm::TextToAll(endpoint_, LatestArrivals(arrivals), job_.timeout_s);
  }
  const bool drawn = IsDrawn(part_.rank, endpoint_->size());
  const auto lanes = comm::GatherText(
      endpoint_, drawn ? MeasuredLanes(image, last_.spans, origin, latest) : "", job_.timeout_s);
  if (part_.rank != 0) return;
  double error = 0;
  for (const comm::ClockOffset& clock : clocks) error = std::max(error, clock.error_s);
  observer_->timeline =
      MeasuredTimeline(lanes, last_.step, job_.plan.programs.size(), error, partners_known);
}

}  // namespace orrery::cli
