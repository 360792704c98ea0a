// SPDX-License-Identifier: Apache-2.0
// Reads Chrome traces: those of PyTorch's profiler (Kineto) and of this project.
//
// Taken are complete events ("ph": "X"): kernels and copies of devices as spans, "ProfilerStep#N"
// as steps. In this project's traces every operation is an event of the category "kernel" with its
// phase; a step lasts from the first to the last of them, and the
// breakdown of the mean step stands in front: its sum is the step that is compared. Events leave memory as soon as they are
// read. A trace that ends in the middle (a killed process) keeps what it has and counts as garbled; the
// step that it ends in is none.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "calib/import/json_lines.h"
#include "calib/import/kernel_names.h"
#include "calib/import/log_lines.h"
#include "calib/import/record_json.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

using Json = nlohmann::json;

const Json& Member(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto at = object.find(key);
  return at == object.end() ? kNone : *at;
}

std::string TextIn(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  return "";
}

int64_t RankIn(const Json& value) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return value.is_number_integer() ? std::clamp<int64_t>(value.get<int64_t>(), 0, kMost) : 0;
}

// Microseconds as seconds; nan: no number.
double SecondsIn(const Json& value) {
  return value.is_number() ? value.get<double>() * 1e-6 : std::numeric_limits<double>::quiet_NaN();
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

class TraceReader {
 public:
  explicit TraceReader(const SourcePtr& source) {
    log_.source = source;
    log_.format = LogFormat::kTrace;
  }

  TrainingLog Read() {
    const std::string& text = log_.source->text;
    const auto callback = [this](int depth, Json::parse_event_t event, Json& value) {
      return OnEvent(depth, event, &value);
    };
    const Json root =
        Json::parse(CountingIterator(text.data(), &line_),
                    CountingIterator(text.data() + text.size(), &line_), callback, false);
    if (root.is_discarded())
      AddGarbled(line_, 0, "the trace breaks off or is no JSON from here on", &log_);
    Finish(root, !root.is_discarded());
    FinishLog("a Chrome trace with complete events of kernels or with ProfilerStep# annotations",
              &log_);
    return std::move(log_);
  }

 private:
  bool OnEvent(int depth, Json::parse_event_t event, Json* value) {
    using Event = Json::parse_event_t;
    if (depth == 0 && event == Event::array_start) bare_ = true;
    if (depth == 1 && event == Event::key && !bare_) {
      in_events_ = *value == "traceEvents";
      if (*value == "digest") header_ = &log_.digest;
      if (*value == "precision") header_ = &log_.precision;
      in_breakdown_ = *value == "breakdown";
    }
    if (depth == 1 && event == Event::object_end && std::exchange(in_breakdown_, false))
      TakeTerms(*value, -1, line_, &log_);
    if (depth == 1 && event == Event::value && header_ != nullptr)
      *std::exchange(header_, nullptr) = TextIn(*value);  // kept even if the trace breaks off
    const bool element = bare_ ? depth == 1 : in_events_ && depth == 2;
    if (!element) return true;
    if (event == Event::object_start) first_line_ = line_;
    if (event == Event::object_end) return Take(*value), false;
    if (event == Event::value || event == Event::array_end)
      return AddGarbled(line_, 0, "an event that is no object", &log_), false;
    return true;
  }

  void Garbled(const std::string& why) { AddGarbled(first_line_, 0, why, &log_); }

  void Take(const Json& event) {
    const std::string kind = TextIn(Member(event, "ph"));
    if (kind.empty()) return Garbled("an event without its kind ('ph')");
    if (kind == "M") return NoteName(event);
    if (kind != "X") return;
    const Json& arguments = Member(event, "args");
    const std::string category = Lower(TextIn(Member(event, "cat")));
    SpanSample span;
    span.name = TextIn(Member(event, "name"));
    const bool step = span.name.starts_with("ProfilerStep#");
    const bool own = Member(arguments, "phase").is_string();
    const bool device = category == "kernel" || category == "gpu_memcpy" ||
                        category == "gpu_memset" || category == "memcpy" || category == "memset";
    if (!step && !own && !device) return;  // the host's side
    span.begin = SecondsIn(Member(event, "ts"));
    span.seconds = SecondsIn(Member(event, "dur"));
    span.line = first_line_;
    if (!(std::abs(span.begin) < 1e12) || !(span.seconds >= 0 && span.seconds < kLongestSeconds))
      return Garbled(fmt::format("'{}' has no time and duration", span.name.substr(0, 60)));
    if (step) return TakeStep(category, span);
    Place(event, arguments, own, &span);
    log_.spans.push_back(std::move(span));
  }

  void Place(const Json& event, const Json& arguments, bool own, SpanSample* span) {
    span->rank = own ? RankIn(Member(event, "pid")) : 0;
    span->stream = TextIn(Member(event, "tid"));
    if (own) {
      log_.own = true;
      span->phase = TextIn(Member(arguments, "phase"));
      span->term = TextIn(Member(arguments, "term"));
      if (!WorkOfOp(span->name, &span->work)) span->work = WorkOfKernel(span->name);
      // "adam", "lamb_dir"; not "sumsq" of the norm.
      for (const char* optimizer : {"adam", "lamb", "sgd", "muon"}) {
        if (span->work == Work::kOptimizer && span->name.starts_with(optimizer))
          log_.optimizer = optimizer;
      }
      return;
    }
    const std::string stream = TextIn(Member(arguments, "stream"));
    if (!stream.empty()) span->stream = stream;
    span->work = Lower(TextIn(Member(event, "cat"))).find("mem") != std::string::npos
                     ? Work::kCopy
                     : WorkOfKernel(span->name);
  }

  // The host's annotation; the device's, which begins and ends with its kernels, only without it.
  void TakeStep(const std::string& category, const SpanSample& span) {
    const std::optional<int64_t> number = WholeIn(std::string_view(span.name).substr(13));
    if (!number) return Garbled(fmt::format("'{}' has no number", span.name.substr(0, 60)));
    if (span.seconds <= 0) return Garbled("a step that takes no time");
    StepSample step;
    step.step = *number;
    step.seconds = span.seconds;
    step.line = span.line;
    (category.starts_with("gpu_") ? device_steps_ : host_steps_)[*number] = step;
  }

  void NoteName(const Json& event) {
    if (TextIn(Member(event, "name")) != "thread_name") return;
    const std::string name = TextIn(Member(Member(event, "args"), "name"));
    if (!name.empty()) names_[{RankIn(Member(event, "pid")), TextIn(Member(event, "tid"))}] = name;
  }

  void Finish(const Json& root, bool whole) {
    const int64_t rank = RankIn(Member(Member(root, "distributedInfo"), "rank"));
    for (SpanSample& span : log_.spans) {
      if (!log_.own) span.rank = rank;
      const auto named = names_.find({span.rank, span.stream});
      if (log_.own && named != names_.end()) span.stream = named->second;
    }
    for (const auto& [number, step] : host_steps_.empty() ? device_steps_ : host_steps_)
      log_.steps.push_back(step);
    if (!whole || !log_.own || log_.spans.empty() || !log_.steps.empty()) return;
    double first = std::numeric_limits<double>::infinity(), last = -first;
    for (const SpanSample& span : log_.spans) {
      first = std::min(first, span.begin);
      last = std::max(last, span.begin + span.seconds);
    }
    StepSample step;
    step.line = log_.spans.front().line;
    if (last > first) {
      step.seconds = last - first;
      log_.steps.push_back(step);
    }
  }

  TrainingLog log_;
  std::map<std::pair<int64_t, std::string>, std::string> names_;  // of threads
  std::map<int64_t, StepSample> host_steps_, device_steps_;
  int line_ = 1, first_line_ = 1;
  bool bare_ = false;              // the file is a list of events
  bool in_breakdown_ = false;      // of the member "breakdown"
  bool in_events_ = false;         // of the member "traceEvents"
  std::string* header_ = nullptr;  // whose value comes next
};

}  // namespace

TrainingLog ReadTrace(const SourcePtr& source) { return TraceReader(source).Read(); }

}  // namespace orrery::measured
