// SPDX-License-Identifier: Apache-2.0
// Walks ranks, streams and tasks, and prints events as it goes: traces are too large to build
// first.
#include "model/program/simulate/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>
#include <vector>

#include "model/engine/event/compute_clock.h"
#include "model/engine/event/memory_track.h"
#include "model/engine/event/task_ops.h"
#include "model/plan/ir/text_words.h"
#include "model/price/op_term.h"
#include "model/price/pricer.h"
#include "model/program/common/names.h"
#include "model/program/common/time_report.h"
#include "model/program/simulate/gzip_stream.h"

namespace orrery::report {
namespace {

constexpr std::size_t kTraceChunk = std::size_t{1} << 20;       // bytes between writes
constexpr int64_t kMessagesPerCommunicator = int64_t{1} << 24;  // to number the arrows

template <class T>
std::size_t Index(T number) {
  return static_cast<std::size_t>(number);
}

int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
std::string Micros(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
std::string Escaped(const std::string& text) { return nlohmann::json(text).dump(); }

class TraceWriter {
 public:
  TraceWriter(const TraceSource& source, std::ostream* out)
      : plan_(*source.plan),
        tasks_(*source.tasks),
        communicators_(*source.communicators),
        timeline_(*source.timeline),
        links_(source.links),
        perturbation_(source.perturbation),
        breakdown_(source.breakdown),
        out_(*out) {
    for (const std::vector<sim::TaskSpan>& spans : timeline_)
      for (const sim::TaskSpan& span : spans) step_ = std::max(step_, span.end);
    step_ += source.fixed;
    for (std::size_t stage = 0; stage < plan_.programs.size(); ++stage)
      ops_.emplace_back(plan_, tasks_, *source.pricer, stage);
    for (const sim::TaskOps& ops : ops_) memory_.emplace_back(ops);
  }

  void Write() {
    text_ = fmt::format("{{\n\"schemaVersion\": 1,\n\"digest\": \"{}\",\n\"precision\": \"{}\",\n",
                        ir::Digest(plan_), Name(PrecisionOf(plan_)));
    if (breakdown_ != nullptr)
      text_ += fmt::format("\"breakdown\": {},\n", TimeJson(*breakdown_).dump());
    text_ += "\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [";
    for (std::size_t r = 0; r < communicators_.ranks.size(); ++r) {
      rank_ = communicators_.ranks[r];
      stage_ = Index(plan_.mesh.Coords(rank_)[Index(plan_.mesh.program_axis)]);
      exchanged_.assign(communicators_.communicators.size(), 0);
      NameRank();
      for (std::size_t s = 0; s < tasks_.streams; ++s) WriteStream(r, s);
      if (r == 0) WriteStep();
      WriteMemory(r);
    }
    WriteLinks();
    text_ += "\n]\n}\n";
    Flush();
  }

 private:
  void NameRank() {
    Metadata("process_name", 0, fmt::format(R"("name": "rank {}")", rank_));
    Metadata("process_labels", 0,
             fmt::format(R"("labels": "stage {}")", plan_.programs[stage_].stage));
    Metadata("process_sort_index", 0, fmt::format(R"("sort_index": {})", rank_));
    for (std::size_t s = 0; s < tasks_.streams; ++s) {
      const std::string name = s < plan_.streams.size() ? plan_.streams[s] : "";
      Metadata("thread_name", s, "\"name\": " + Escaped(fmt::format("stream {} {}", s, name)));
      Metadata("thread_sort_index", s, fmt::format(R"("sort_index": {})", s));
    }
  }

  void Metadata(const char* what, std::size_t stream, const std::string& arguments) {
    Event(
        fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "ts": 0, "args": {{{}}}}})",
                    what, rank_, stream, arguments));
  }

  void WriteStream(std::size_t r, std::size_t s) {
    const sim::StageTasks& stage = tasks_.stages[stage_];
    for (const int32_t id : stage.on_stream[s]) {
      const sim::Task& task = stage.tasks[Index(id)];
      const sim::TaskSpan& span = timeline_[r][Index(id)];
      if (task.line >= 0) {
        WriteCommunication(r, task, span, ops_[stage_].Of(id).front());
      } else {
        WriteCompute(id, task, span);
      }
    }
  }

  const ir::Op& OpOf(const ir::Instance& at) const { return ops_[stage_].OpOf(at); }

  // Share of a task's time in which the device does not work at it: the host is late, or messages slow it or stop it, whose time
  // that is in the breakdown.
  double Gap(int32_t id, const sim::Task& task, const sim::TaskSpan& span) const {
    const double took = span.end - span.start;
    const double factor =
        perturbation_ == nullptr ? 1 : sim::ComputeFactor(*perturbation_, rank_, id, task);
    return took > 0 ? std::clamp(1 - task.seconds * factor / took, 0.0, 1.0) : 0;
  }

  void WriteCompute(int32_t id, const sim::Task& task, const sim::TaskSpan& span) {
    const std::span<const ir::Instance> instances = ops_[stage_].Of(id);
    const double gap = Gap(id, task, span);
    double from = span.start;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const double to = ops_[stage_].End(id, span, i);
      Complete(instances[i], Nanoseconds(from + gap * (to - from)), Nanoseconds(to), "");
      from = to;
    }
  }

  // As plan run marks its steps.
  void WriteStep() {
    Event(fmt::format(
        R"({{"ph": "X", "cat": "step", "name": "ProfilerStep#1", "pid": {}, "tid": -1, "ts": 0.000, "dur": {}}})",
        rank_, Micros(Nanoseconds(step_))));
  }

  void WriteMemory(std::size_t r) {
    const sim::MemoryTrack track = memory_[stage_].Track(timeline_[r]);
    for (std::size_t i = 0; i < track.points.size(); ++i) {
      const int64_t ns = Nanoseconds(track.points[i].time);
      // Of what happens in one nanosecond, the last.
      if (i + 1 < track.points.size() && Nanoseconds(track.points[i + 1].time) == ns) continue;
      Counter("memory", ns, fmt::format(R"("live bytes": {})", track.points[i].bytes));
    }
  }

  void WriteLinks() {
    if (links_.empty()) return;
    rank_ = plan_.mesh.ranks();
    Metadata("process_name", 0, R"("name": "links")");
    Metadata("process_sort_index", 0, fmt::format(R"("sort_index": {})", rank_));
    for (const TracedLink& link : links_) {
      const std::string name = Escaped(link.name);
      for (std::size_t i = 0; i < link.points.size(); ++i) {
        const int64_t ns = Nanoseconds(link.points[i].time);
        if (i + 1 < link.points.size() && Nanoseconds(link.points[i + 1].time) == ns) continue;
        Counter(name.substr(1, name.size() - 2), ns,
                fmt::format(R"("% of bandwidth": {:.2f})", 100 * link.points[i].share));
      }
    }
  }

  void Counter(const std::string& name, int64_t ns, const std::string& arguments) {
    Event(
        fmt::format(R"({{"ph": "C", "name": "{}", "pid": {}, "tid": 0, "ts": {}, "args": {{{}}}}})",
                    name, rank_, Micros(ns), arguments));
  }

  void WriteCommunication(std::size_t r, const sim::Task& task, const sim::TaskSpan& span,
                          const ir::Instance& at) {
    const sim::LineMessages& line = tasks_.lines[Index(task.line)];
    const sim::Message& message = line.messages[Index(task.message)];
    const int32_t communicator = communicators_.of[Index(2 * task.line + task.receives)][r];
    std::string arguments =
        fmt::format(R"(, "bytes": {:.0f}, "partner_wait_us": {})", message.share * message.bytes,
                    Micros(Nanoseconds(span.met) - Nanoseconds(span.start)));
    if (line.line.group >= 0)
      arguments += ", \"group\": " + Escaped(plan_.groups[Index(line.line.group)].name);
    Complete(at, Nanoseconds(span.start), Nanoseconds(span.end), arguments);
    if (message.share < 1) arguments += fmt::format(R"(, "share": {:.3f})", message.share);
    if (line.line.axis >= 0) Arrow(task, Nanoseconds(span.met), communicator);
  }

  // Sender and receiver count alike: their streams are first in, first out.
  void Arrow(const sim::Task& task, int64_t ns, int32_t communicator) {
    const int64_t id = communicator * kMessagesPerCommunicator + exchanged_[Index(communicator)]++;
    Event(fmt::format(
        R"({{"ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {}, "cat": "send_recv", "name": "send_recv"{}}})",
        task.receives ? 'f' : 's', id, rank_, task.stream, Micros(ns),
        task.receives ? R"(, "bp": "e")" : ""));
  }

  void Complete(const ir::Instance& at, int64_t from, int64_t to, const std::string& arguments) {
    const ir::Block& block = plan_.programs[stage_].blocks[Index(at.block)];
    const ir::Op& op = OpOf(at);
    std::string place =
        fmt::format(R"("phase": "{}", "term": "{}", "block": {}, "op": {}, "micro_batch": {})",
                    ir::kPhaseWords[Index(op.phase)], TermNameOf(plan_, op), Escaped(block.name),
                    at.op, at.micro_batch);
    if (op.layer >= 0) place += fmt::format(R"(, "layer": {})", op.layer);
    Event(fmt::format(
        R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}{}}}}})",
        ir::Info(op.kind).name, rank_, op.stream, Micros(from), Micros(to - from), place,
        arguments));
  }

  void Event(const std::string& event) {
    text_ += std::exchange(first_, false) ? "\n" : ",\n";
    text_ += event;
    if (text_.size() > kTraceChunk) Flush();
  }

  void Flush() {
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    text_.clear();
  }

  const ir::Plan& plan_;
  const sim::PlanTasks& tasks_;
  const sim::CommunicatorTable& communicators_;
  const sim::Timeline& timeline_;
  const std::vector<TracedLink>& links_;
  const sim::Perturbation* perturbation_;
  const Breakdown* breakdown_;
  double step_ = 0;
  std::ostream& out_;
  std::vector<sim::TaskOps> ops_;            // by stage
  std::vector<sim::StageMemoryMap> memory_;  // by stage
  std::vector<int64_t> exchanged_;           // by communicator, of one rank
  std::string text_;
  bool first_ = true;
  int64_t rank_ = 0;
  std::size_t stage_ = 0;
};

}  // namespace

void WriteTrace(const TraceSource& source, std::ostream* out) { TraceWriter(source, out).Write(); }

bool WriteGzipTrace(const TraceSource& source, std::ostream* out) {
  GzipBuffer buffer(out);
  std::ostream compressed(&buffer);
  WriteTrace(source, &compressed);
  return buffer.Finish() && compressed.good();
}

}  // namespace orrery::report
