// SPDX-License-Identifier: Apache-2.0
// Walks ranks, streams and tasks, and prints events as it goes: traces are too large to build
// first.
#include "model/report/trace_json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>
#include <vector>

#include "model/cost/op_shape.h"
#include "model/input/check.h"
#include "model/ir/text_words.h"

namespace orrery::report {
namespace {

constexpr std::size_t kTraceChunk = std::size_t{1} << 20;  // bytes between writes
constexpr int64_t kMessagesPerMeeting = int64_t{1} << 24;  // to number the arrows

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
        meetings_(*source.meetings),
        timeline_(*source.timeline),
        op_time_(*source.op_time),
        out_(*out) {}

  void Write() {
    text_ = "{\n\"schemaVersion\": 1,\n\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [";
    for (const ir::Program& program : plan_.programs) FindStreams(program);
    for (std::size_t r = 0; r < meetings_.ranks.size(); ++r) {
      rank_ = meetings_.ranks[r];
      stage_ = Index(plan_.mesh.Coords(rank_)[Index(plan_.mesh.program_axis)]);
      exchanged_.assign(meetings_.meetings.size(), 0);
      NameRank();
      for (std::size_t s = 0; s < tasks_.streams; ++s) WriteStream(r, s);
    }
    text_ += "\n]\n}\n";
    Flush();
  }

 private:
  using Instances = std::vector<ir::Instance>;

  // A program's instances, stream by stream in order of issue.
  void FindStreams(const ir::Program& program) {
    std::vector<Instances> streams(tasks_.streams);
    for (ir::Instance& at : ir::Unfold(plan_, program, ir::ComputeLayout(plan_, program))) {
      const ir::Op& op = program.blocks[Index(at.block)].ops[Index(at.op)];
      at.waits = {};
      streams[op.stream].push_back(std::move(at));
    }
    streams_.push_back(std::move(streams));
  }

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
    std::size_t next = 0;
    for (const int32_t id : stage.on_stream[s]) {
      const sim::Task& task = stage.tasks[Index(id)];
      const sim::TaskSpan& span = timeline_[r][Index(id)];
      ORRERY_CHECK(next + Index(task.ops) <= streams_[stage_][s].size(), "stage {} stream {}: {}",
                   stage_, s, next);
      const ir::Instance* first = &streams_[stage_][s][next];
      next += Index(task.ops);
      if (task.line >= 0) {
        WriteCommunication(r, task, span, *first);
      } else {
        WriteCompute(task, span, first);
      }
    }
  }

  const ir::Op& OpOf(const ir::Instance& at) const {
    return plan_.programs[stage_].blocks[Index(at.block)].ops[Index(at.op)];
  }

  void WriteCompute(const sim::Task& task, const sim::TaskSpan& span, const ir::Instance* first) {
    const ir::Program& program = plan_.programs[stage_];
    shares_.clear();
    double total = 0;
    for (int32_t i = 0; i < task.ops; ++i) {
      total += op_time_.Device(program, OpOf(first[i]), plan_.micro_batches > 1);
      shares_.push_back(total);
    }
    int64_t from = Nanoseconds(span.start);
    for (int32_t i = 0; i < task.ops; ++i) {
      const bool last = i + 1 == task.ops;
      const double share = last ? 1 : total > 0 ? shares_[Index(i)] / total : 0;
      const int64_t to = Nanoseconds(span.start + (span.end - span.start) * share);
      Complete(first[i], from, last ? Nanoseconds(span.end) : to, "");
      from = to;
    }
  }

  void WriteCommunication(std::size_t r, const sim::Task& task, const sim::TaskSpan& span,
                          const ir::Instance& at) {
    const sim::LineMessages& line = tasks_.lines[Index(task.line)];
    const int32_t meeting = meetings_.of[Index(2 * task.line + task.receives)][r];
    std::string arguments = fmt::format(R"(, "bytes": {:.0f}, "partner_wait_us": {})",
                                        line.messages[Index(task.message)].bytes,
                                        Micros(Nanoseconds(span.met) - Nanoseconds(span.start)));
    if (line.line.group >= 0)
      arguments += ", \"group\": " + Escaped(plan_.groups[Index(line.line.group)].name);
    Complete(at, Nanoseconds(span.start), Nanoseconds(span.end), arguments);
    if (line.line.axis >= 0) Arrow(task, Nanoseconds(span.met), meeting);
  }

  // Sender and receiver count alike: their streams are first in, first out.
  void Arrow(const sim::Task& task, int64_t ns, int32_t meeting) {
    const int64_t id = meeting * kMessagesPerMeeting + exchanged_[Index(meeting)]++;
    Event(fmt::format(
        R"({{"ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {}, "cat": "send_recv", "name": "send_recv"{}}})",
        task.receives ? 'f' : 's', id, rank_, task.stream, Micros(ns),
        task.receives ? R"(, "bp": "e")" : ""));
  }

  void Complete(const ir::Instance& at, int64_t from, int64_t to, const std::string& arguments) {
    const ir::Block& block = plan_.programs[stage_].blocks[Index(at.block)];
    const ir::Op& op = OpOf(at);
    std::string place =
        fmt::format(R"("phase": "{}", "block": {}, "op": {}, "micro_batch": {})",
                    ir::kPhaseWords[Index(op.phase)], Escaped(block.name), at.op, at.micro_batch);
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
  const sim::MeetingTable& meetings_;
  const sim::Timeline& timeline_;
  const sim::OpTime& op_time_;
  std::ostream& out_;
  std::vector<std::vector<Instances>> streams_;  // by stage and stream
  std::vector<int64_t> exchanged_;               // by meeting, of one rank
  std::vector<double> shares_;
  std::string text_;
  bool first_ = true;
  int64_t rank_ = 0;
  std::size_t stage_ = 0;
};

}  // namespace

void WriteTrace(const TraceSource& source, std::ostream* out) { TraceWriter(source, out).Write(); }

}  // namespace orrery::report
