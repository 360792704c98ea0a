// SPDX-License-Identifier: Apache-2.0
// Prints spans as events.
#include "runtime/exec/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "model/plan/ir/text_words.h"
#include "runtime/exec/index.h"

namespace orrery::exec {
namespace {

constexpr int64_t kMessagesPerChannel = int64_t{1} << 20;  // to number the arrows

std::string Micros(int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}
std::string JsonText(const std::string& text) { return nlohmann::json(text).dump(); }

class EventWriter {
 public:
  EventWriter(const RankImage& image, int64_t origin,
              const std::function<std::string(const ir::Op&)>& term)
      : image_(image), origin_(origin), term_(term) {}

  std::string Write(const std::vector<TracedStep>& steps) {
    NameRank();
    for (const TracedStep& step : steps) {
      if (steps.size() > 1 && image_.rank == 0) MarkStep(step);
      for (std::size_t t = 0; t < image_.tasks.size(); ++t)
        WriteTask(image_.tasks[t], step.spans[t]);
    }
    return std::move(text_);
  }

 private:
  void NameRank() {
    Metadata("process_name", 0, fmt::format(R"("name": "rank {}")", image_.rank));
    Metadata("process_labels", 0, fmt::format(R"("labels": "stage {}")", image_.program->stage));
    Metadata("process_sort_index", 0, fmt::format(R"("sort_index": {})", image_.rank));
    for (std::size_t s = 0; s < image_.plan->streams.size(); ++s) {
      Metadata("thread_name", s,
               "\"name\": " + JsonText(fmt::format("stream {} {}", s, image_.plan->streams[s])));
      Metadata("thread_sort_index", s, fmt::format(R"("sort_index": {})", s));
    }
  }

  void Metadata(const char* what, std::size_t stream, const std::string& arguments) {
    Event(
        fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "ts": 0, "args": {{{}}}}})",
                    what, image_.rank, stream, arguments));
  }

  void MarkStep(const TracedStep& step) {
    int64_t end = 0;
    for (const OpSpan& span : step.spans) end = std::max(end, span.end);
    const int64_t begin = StepBegin(step);
    Event(fmt::format(
        R"({{"ph": "X", "cat": "step", "name": "ProfilerStep#{}", "pid": {}, "tid": -1, "ts": {}, "dur": {}}})",
        step.step, image_.rank, Micros(begin - origin_), Micros(end - begin)));
  }

  void WriteTask(const Task& task, const OpSpan& span) {
    const ir::Op& op = *task.op;
    std::string arguments = fmt::format(
        R"("phase": "{}", "term": {}, "block": {}, "op": {}, "micro_batch": {})",
        ir::kPhaseWords[At(op.phase)], JsonText(term_(op)),
        JsonText(image_.program->blocks[At(task.block)].name), task.index, task.micro_batch);
    if (op.layer >= 0) arguments += fmt::format(R"(, "layer": {})", op.layer);
    if (task.line >= 0 || task.channel >= 0) {
      const cpu::Operand& x = image_.operands[At(task.out_begin)];
      arguments += fmt::format(R"(, "bytes": {})", x.n * ir::DtypeBytes(x.dtype));
      if (op.group >= 0)
        arguments += ", \"group\": " + JsonText(image_.plan->groups[At(op.group)].name);
    }
    Event(fmt::format(
        R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
        ir::Info(op.kind).name, image_.rank, op.stream, Micros(span.begin - origin_),
        Micros(span.end - span.begin), arguments));
    if (task.channel >= 0) Arrow(task, span);
  }

  // Sender and receiver count alike: channels are first in, first out.
  void Arrow(const Task& task, const OpSpan& span) {
    const bool receives = task.op->kind == ir::OpKind::kRecv;
    const int64_t from = receives ? task.peer : image_.rank,
                  to = receives ? image_.rank : task.peer;
    const int64_t line = (from * image_.plan->mesh.ranks() + to) * 64 + task.channel;
    const int64_t id = line * kMessagesPerChannel + exchanged_[line]++;
    Event(fmt::format(
        R"({{"ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {}, "cat": "send_recv", "name": "send_recv"{}}})",
        receives ? 'f' : 's', id, image_.rank, task.op->stream,
        Micros((receives ? span.end : span.begin) - origin_), receives ? R"(, "bp": "e")" : ""));
  }

  void Event(const std::string& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event;
  }

  const RankImage& image_;
  int64_t origin_;
  const std::function<std::string(const ir::Op&)>& term_;
  std::map<int64_t, int64_t> exchanged_;
  std::string text_;
};

}  // namespace

std::string TraceEvents(const RankImage& image, const std::vector<TracedStep>& steps,
                        int64_t origin_ns, const std::function<std::string(const ir::Op&)>& term) {
  return EventWriter(image, origin_ns, term).Write(steps);
}

int64_t StepBegin(const TracedStep& step) {
  int64_t begin = 0;
  for (const OpSpan& span : step.spans)
    begin = begin == 0 ? span.begin : std::min(begin, span.begin);
  return begin;
}

}  // namespace orrery::exec
