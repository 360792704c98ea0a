// SPDX-License-Identifier: Apache-2.0
// Unfolds programs and joins runs of compute ops.
#include "model/sim/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "model/cost/op_shape.h"
#include "model/input/check.h"

namespace orrery::sim {
namespace {

using ir::OpKind;

bool Communicates(const ir::Op& op) {
  const ir::OpClass op_class = ir::Info(op.kind).op_class;
  return op_class == ir::OpClass::kCollective || op_class == ir::OpClass::kPointToPoint;
}

// Numbers lines and messages over all stages.
class Lines {
 public:
  Lines(const ir::Plan& plan, std::vector<LineMessages>* lines) : plan_(plan), lines_(*lines) {}

  void Number(const ir::Program& program, const ir::Op& op, Task* task) {
    const Line line = LineOf(op);
    const auto [at, added] = line_numbers_.try_emplace(line, static_cast<int32_t>(lines_.size()));
    if (added) lines_.push_back({line, {}});
    task->line = at->second;
    task->receives = op.kind == OpKind::kRecv;
    std::vector<Message>& messages = lines_[static_cast<std::size_t>(task->line)].messages;
    const Message message = MessageOf(program, op);
    const auto found = std::ranges::find(messages, message);
    task->message = static_cast<int32_t>(found - messages.begin());
    if (found == messages.end()) messages.push_back(message);
  }

 private:
  Line LineOf(const ir::Op& op) const {
    if (op.kind == OpKind::kSend) return {-1, 0, op.peer.axis, op.peer.delta};
    if (op.kind == OpKind::kRecv) return {-1, 0, op.peer.axis, static_cast<int8_t>(-op.peer.delta)};
    return {op.group, op.stream, -1, 0};
  }

  static Message MessageOf(const ir::Program& program, const ir::Op& op) {
    const ir::ViewId view = LargerSide(op);
    const ir::BufferClass cls =
        program.buffers[static_cast<std::size_t>(
                            program.views[static_cast<std::size_t>(view)].buffer)].cls;
    const bool one_use =
        cls == ir::BufferClass::kGradTransient || cls == ir::BufferClass::kGathered;
    return {CollectiveOf(op.kind), ViewBytes(program, view), op.phase, !one_use, op.stream != 0};
  }

  static Collective CollectiveOf(OpKind kind) {
    switch (kind) {
      case OpKind::kSend:
      case OpKind::kRecv:
        return Collective::kSendRecv;
      case OpKind::kAllGather:
        return Collective::kAllGather;
      case OpKind::kReduceScatter:
        return Collective::kReduceScatter;
      default:
        return Collective::kAllReduce;
    }
  }

  // The whole buffer of a gather or a reduction.
  static ir::ViewId LargerSide(const ir::Op& op) {
    return op.kind == OpKind::kSend || op.kind == OpKind::kReduceScatter ? op.in.front()
                                                                         : op.out.front();
  }

  const ir::Plan& plan_;
  std::vector<LineMessages>& lines_;
  std::map<Line, int32_t> line_numbers_;
};

class StageBuilder {
 public:
  StageBuilder(const ir::Plan& plan, const ir::Program& program, const OpTime& time, Lines* lines)
      : plan_(plan),
        program_(program),
        time_(time),
        lines_(*lines),
        device_(program.blocks.size()) {}

  StageTasks Build(std::size_t streams) {
    const ir::Layout layout = ir::ComputeLayout(plan_, program_);
    instances_ = ir::Unfold(plan_, program_, layout);
    MarkAwaited();
    result_.on_stream.resize(streams);
    latest_.assign(streams, -1);
    task_of_.reserve(instances_.size());
    for (std::size_t i = 0; i < instances_.size(); ++i) AddInstance(static_cast<int32_t>(i));
    LinkSuccessors();
    result_.ops = static_cast<int64_t>(instances_.size());
    return std::move(result_);
  }

 private:
  const ir::Op& OpOf(const ir::Instance& at) const {
    return program_.blocks[static_cast<std::size_t>(at.block)].ops[static_cast<std::size_t>(at.op)];
  }

  void MarkAwaited() {
    awaited_.assign(instances_.size(), 0);
    for (const ir::Instance& instance : instances_) {
      for (const int32_t wait : instance.waits) awaited_[static_cast<std::size_t>(wait)] = 1;
    }
  }

  // Equal for all calls of a block: shapes do not depend on the micro-batch.
  double Device(const ir::Instance& at, const ir::Op& op) {
    std::vector<double>& known = device_[static_cast<std::size_t>(at.block)];
    if (known.empty())
      known.assign(program_.blocks[static_cast<std::size_t>(at.block)].ops.size(), -1);
    double& seconds = known[static_cast<std::size_t>(at.op)];
    if (seconds < 0) seconds = time_.Device(program_, op, plan_.micro_batches > 1);
    return seconds;
  }

  void AddInstance(int32_t i) {
    const ir::Instance& at = instances_[static_cast<std::size_t>(i)];
    const ir::Op& op = OpOf(at);
    received_.push_back(op.kind == OpKind::kRecv || (op.stream != 0 && WaitsForReceived(at)));
    const bool syncs = time_.HostWaits() && HostWaitsFor(at, op);
    if (syncs) {
      issued_ = 0;
      ++result_.epochs;
    }
    issued_ += time_.Host(program_, op);
    const int32_t last = latest_[op.stream];
    const bool joins =
        !syncs && !Communicates(op) && at.waits.empty() && last >= 0 && Joinable(last);
    if (joins) {
      Task& task = result_.tasks[static_cast<std::size_t>(last)];
      ++task.ops;
      AddCompute(Device(at, op), &task);
    } else {
      AddTask(i, at, op);
      result_.tasks.back().syncs = syncs;
    }
    const int32_t task = latest_[op.stream];
    task_of_.push_back(task);
    last_instance_[static_cast<std::size_t>(task)] = i;
  }

  // Copies of a micro-batch to the device, and the first use of what another rank has sent.
  bool HostWaitsFor(const ir::Instance& at, const ir::Op& op) {
    if (op.kind == OpKind::kLoad) {
      loaded_.resize(static_cast<std::size_t>(plan_.micro_batches), 0);
      return std::exchange(loaded_[static_cast<std::size_t>(at.micro_batch)], 1) == 0;
    }
    return op.stream == 0 && WaitsForReceived(at);
  }

  bool WaitsForReceived(const ir::Instance& at) const {
    return std::ranges::any_of(
        at.waits, [&](int32_t wait) { return received_[static_cast<std::size_t>(wait)] != 0; });
  }

  bool Joinable(int32_t task) const {
    const auto at = static_cast<std::size_t>(task);
    return result_.tasks[at].line < 0 && result_.tasks[at].epoch == result_.epochs - 1 &&
           awaited_[static_cast<std::size_t>(last_instance_[at])] == 0;
  }

  // An op starts when the one before it has ended and the host has issued it.
  void AddCompute(double seconds, Task* task) const {
    task->seconds += seconds;
    task->earliest = std::max(task->earliest, issued_) + seconds;
  }

  void AddTask(int32_t i, const ir::Instance& at, const ir::Op& op) {
    Task task;
    task.first = i;
    task.stream = op.stream;
    task.epoch = result_.epochs - 1;
    ORRERY_CHECK(at.waits.size() <= std::numeric_limits<uint8_t>::max(), "{} waits",
                 at.waits.size());
    task.waits = static_cast<uint8_t>(at.waits.size());
    if (Communicates(op)) {
      lines_.Number(program_, op, &task);
      task.earliest = issued_;
    } else {
      AddCompute(Device(at, op), &task);
    }
    const auto id = static_cast<int32_t>(result_.tasks.size());
    latest_[op.stream] = id;
    result_.on_stream[op.stream].push_back(id);
    result_.tasks.push_back(task);
    last_instance_.push_back(i);
  }

  void LinkSuccessors() {
    std::vector<std::vector<int32_t>> after(result_.tasks.size());
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      for (const int32_t wait : instances_[i].waits) {
        after[static_cast<std::size_t>(task_of_[static_cast<std::size_t>(wait)])].push_back(
            task_of_[i]);
      }
    }
    for (std::size_t t = 0; t < after.size(); ++t) {
      result_.tasks[t].successors = static_cast<uint32_t>(result_.successors.size());
      result_.successors.insert(result_.successors.end(), after[t].begin(), after[t].end());
      result_.tasks[t].successors_end = static_cast<uint32_t>(result_.successors.size());
    }
  }

  const ir::Plan& plan_;
  const ir::Program& program_;
  const OpTime& time_;
  Lines& lines_;
  std::vector<ir::Instance> instances_;
  std::vector<char> received_;               // by instance: a recv, or communication that passes it on
  std::vector<char> loaded_;                 // by micro-batch
  std::vector<char> awaited_;                // by instance: an op on another stream waits for it
  std::vector<int32_t> task_of_;             // by instance
  std::vector<int32_t> last_instance_;       // by task
  std::vector<int32_t> latest_;              // by stream
  std::vector<std::vector<double>> device_;  // by block and op
  double issued_ = 0;
  StageTasks result_;
};

std::size_t StreamCount(const ir::Plan& plan) {
  std::size_t count = plan.streams.size();
  for (const ir::Program& program : plan.programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops)
        count = std::max<std::size_t>(count, op.stream + std::size_t{1});
    }
  }
  return count;
}

}  // namespace

PlanTasks MakeTasks(const ir::Plan& plan, const OpTime& time) {
  PlanTasks result;
  result.streams = StreamCount(plan);
  Lines lines(plan, &result.lines);
  for (const ir::Program& program : plan.programs) {
    result.stages.push_back(StageBuilder(plan, program, time, &lines).Build(result.streams));
  }
  return result;
}

std::string Describe(const ir::Plan& plan, std::size_t stage, const Task& task) {
  const ir::Program& program = plan.programs[stage];
  const std::vector<ir::Instance> instances =
      ir::Unfold(plan, program, ir::ComputeLayout(plan, program));
  const ir::Instance& at = instances[static_cast<std::size_t>(task.first)];
  const ir::Block& block = program.blocks[static_cast<std::size_t>(at.block)];
  const ir::Op& op = block.ops[static_cast<std::size_t>(at.op)];
  return fmt::format("stage {}, {}: {}[{}] op {} {}", program.stage, plan.streams[op.stream],
                     block.name, at.micro_batch, at.op, ir::Info(op.kind).name);
}

}  // namespace orrery::sim
