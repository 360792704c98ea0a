// SPDX-License-Identifier: Apache-2.0
// Unfolds programs and joins runs of compute ops.
#include "model/engine/event/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "model/base/check.h"
#include "model/engine/event/index.h"
#include "model/engine/event/lines.h"
#include "model/engine/event/split.h"
#include "model/plan/ir/usage.h"
#include "model/plan/lower/overlap.h"
#include "model/price/op_term.h"

namespace orrery::sim {
namespace {

using ir::OpKind;

bool Communicates(const ir::Op& op) {
  const ir::OpClass op_class = ir::Info(op.kind).op_class;
  return op_class == ir::OpClass::kCollective || op_class == ir::OpClass::kPointToPoint;
}

class StageBuilder {
 public:
  StageBuilder(const ir::Plan& plan, const ir::Program& program, const Pricer& pricer, Lines* lines)
      : plan_(plan),
        program_(program),
        pricer_(pricer),
        lines_(*lines),
        prices_(program.blocks.size()) {}

  StageTasks Build(std::size_t streams) {
    const ir::Layout layout = ir::ComputeLayout(plan_, program_);
    instances_ = ir::Unfold(plan_, program_, layout);
    MarkAwaited();
    result_.on_stream.resize(streams);
    latest_.assign(streams, -1);
    task_of_.reserve(instances_.size());
    SplitMessages();
    for (std::size_t i = 0; i < instances_.size(); ++i) AddInstance(static_cast<int32_t>(i));
    AddAwaitedReductions(std::numeric_limits<int32_t>::max());
    LinkSuccessors();
    result_.ops = static_cast<int64_t>(instances_.size());
    return std::move(result_);
  }

 private:
  const ir::Op& OpOf(const ir::Instance& at) const {
    return program_.blocks[At(at.block)].ops[At(at.op)];
  }

  void MarkAwaited() {
    awaited_.assign(instances_.size(), 0);
    for (const ir::Instance& instance : instances_) {
      for (const int32_t wait : instance.waits) awaited_[At(wait)] = 1;
    }
  }

  // What the step before has left of its gathers goes first on its stream; what is awaited of
  // reductions goes last.
  void SplitMessages() {
    split_ = FindSplitOps(plan_, program_, instances_,
                          pricer_.messages.Awaited(HoldsWholeReplicas(plan_)));
    if (split_.gathers.empty() && split_.reductions.empty()) return;
    own_part_.assign(instances_.size(), {1.0, Part::kWhole});
    other_waits_.assign(instances_.size(), 0);
    last_part_.assign(instances_.size(), -1);
    for (const SplitOp& gather : split_.gathers) {
      own_part_[At(gather.instance)] = {gather.awaited, Part::kAwaited};
      if (gather.awaited >= 1) continue;
      const int32_t task = AddOtherPart(gather.instance, {1.0 - gather.awaited, Part::kBeside});
      if (gather.reader < 0) continue;
      ++other_waits_[At(gather.reader)];
      readers_.push_back({task, gather.reader});
    }
    for (const SplitOp& reduction : split_.reductions) {
      own_part_[At(reduction.instance)] = {1.0 - reduction.awaited, Part::kBeside};
    }
    if (!split_.reductions.empty()) awaited_[At(split_.last_pass)] = 1;
  }

  int32_t AddOtherPart(int32_t instance, std::pair<double, Part> part) {
    const ir::Op& op = OpOf(instances_[At(instance)]);
    Task task;
    task.first = instance;
    task.ops = 0;
    task.stream = op.stream;
    lines_.Number(program_, op, part.first, part.second, &task);
    Append(task, instance);
    return latest_[op.stream];
  }

  // Before instance `until` of their stream, in order.
  void AddAwaitedReductions(int32_t until) {
    for (; next_reduction_ < split_.reductions.size(); ++next_reduction_) {
      const SplitOp& reduction = split_.reductions[next_reduction_];
      if (reduction.instance >= until) return;
      if (reduction.awaited <= 0) continue;
      const int32_t task = AddOtherPart(reduction.instance, {reduction.awaited, Part::kAwaited});
      result_.tasks[At(task)].waits = 1;  // for the last pass
      last_part_[At(reduction.instance)] = task;
    }
  }

  std::pair<double, Part> OwnPart(int32_t i) const {
    if (own_part_.empty()) return {1.0, Part::kWhole};
    return own_part_[At(i)];
  }

  // Equal for all calls of a block: shapes do not depend on the micro-batch.
  const OpPrice& PriceOf(const ir::Instance& at, const ir::Op& op) {
    std::vector<std::optional<OpPrice>>& known = prices_[At(at.block)];
    if (known.empty()) known.resize(program_.blocks[At(at.block)].ops.size());
    std::optional<OpPrice>& price = known[At(at.op)];
    if (!price) price = pricer_.ops.Price(program_, op, plan_.micro_batches > 1);
    return *price;
  }
  double Device(const ir::Instance& at, const ir::Op& op) { return PriceOf(at, op).device; }

  void AddInstance(int32_t i) {
    const ir::Instance& at = instances_[At(i)];
    const ir::Op& op = OpOf(at);
    // What scatters inside the passes does not wait for their end.
    const bool reduces =
        op.phase == ir::Phase::kGradReduce && op.stream != 0 && i > split_.last_pass;
    if (reduces && OwnPart(i).second == Part::kWhole) AddAwaitedReductions(i);
    // Rings inside a pass run on the device alone.
    const bool from_stage = op.kind == OpKind::kRecv && op.phase == ir::Phase::kPipeline;
    received_.push_back(from_stage || (op.stream != 0 && Communicates(op) && WaitsForReceived(at)));
    const bool syncs = pricer_.ops.HostWaits() && HostWaitsFor(at, op);
    if (syncs) {
      issued_ = 0;
      ++result_.epochs;
    }
    issued_ += PriceOf(at, op).host;
    result_.host += PriceOf(at, op).host;
    const int32_t last = latest_[op.stream];
    const bool joins = !syncs && !Communicates(op) && Waits(i, at) == 0 && last >= 0 &&
                       Joinable(last) && result_.tasks[At(last)].offload == Offloads(op);
    if (joins) {
      Task& task = result_.tasks[At(last)];
      ++task.ops;
      AddCompute(Device(at, op), op, &task);
    } else {
      AddTask(i, at, op);
      result_.tasks.back().syncs = syncs;
    }
    const int32_t task = latest_[op.stream];
    task_of_.push_back(task);
    last_instance_[At(task)] = i;
  }

  // Copies of a micro-batch to the device, and the first use of what another rank has sent.
  bool HostWaitsFor(const ir::Instance& at, const ir::Op& op) {
    if (op.kind == OpKind::kLoad) {
      loaded_.resize(At(plan_.micro_batches), 0);
      return std::exchange(loaded_[At(at.micro_batch)], 1) == 0;
    }
    return op.stream == 0 && WaitsForReceived(at);
  }

  bool WaitsForReceived(const ir::Instance& at) const {
    return std::ranges::any_of(at.waits, [&](int32_t wait) { return received_[At(wait)] != 0; });
  }

  bool Joinable(int32_t task) const {
    const auto at = At(task);
    return result_.tasks[at].line < 0 && result_.tasks[at].epoch == result_.epochs - 1 &&
           awaited_[At(last_instance_[at])] == 0;
  }

  std::size_t Waits(int32_t i, const ir::Instance& at) const {
    return at.waits.size() + (other_waits_.empty() ? 0 : other_waits_[At(i)]);
  }

  bool Offloads(const ir::Op& op) const {
    return op.kind == OpKind::kCopy || ir::OnHost(program_, op);
  }

  // An op starts when the one before it has ended and the host has issued it.
  void AddCompute(double seconds, const ir::Op& op, Task* task) const {
    task->seconds += seconds;
    task->offload = Offloads(op);
    if (Updates(op)) task->update += seconds;
    task->earliest = std::max(task->earliest, issued_) + seconds;
    task->issued = issued_;
  }

  void AddTask(int32_t i, const ir::Instance& at, const ir::Op& op) {
    Task task;
    task.first = i;
    task.stream = op.stream;
    task.epoch = result_.epochs - 1;
    const std::size_t waits = Waits(i, at);
    ORRERY_CHECK(waits <= std::numeric_limits<uint8_t>::max(), "{} waits", waits);
    task.waits = static_cast<uint8_t>(waits);
    if (Communicates(op)) {
      const auto [share, part] = OwnPart(i);
      lines_.Number(program_, op, share, part, &task);
      task.earliest = task.issued = issued_;
    } else {
      AddCompute(Device(at, op), op, &task);
    }
    Append(task, i);
  }

  // Who waits for an op waits for all parts of its message.
  int32_t LastTaskOf(int32_t i) const {
    const auto at = At(i);
    return last_part_.empty() || last_part_[at] < 0 ? task_of_[at] : last_part_[at];
  }

  void Append(const Task& task, int32_t instance) {
    const auto id = static_cast<int32_t>(result_.tasks.size());
    latest_[task.stream] = id;
    result_.on_stream[task.stream].push_back(id);
    result_.tasks.push_back(task);
    last_instance_.push_back(instance);
  }

  void LinkSuccessors() {
    std::vector<std::vector<int32_t>> after(result_.tasks.size());
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      const bool after_passes = static_cast<int32_t>(i) > split_.last_pass;
      for (const int32_t wait : instances_[i].waits) {
        const int32_t task = after_passes ? LastTaskOf(wait) : task_of_[At(wait)];
        after[At(task)].push_back(task_of_[i]);
      }
    }
    for (const auto& [gather, reader] : readers_) after[At(gather)].push_back(task_of_[At(reader)]);
    for (const SplitOp& reduction : split_.reductions) {
      if (reduction.awaited <= 0) continue;
      const int32_t pass = task_of_[At(split_.last_pass)];
      after[At(pass)].push_back(LastTaskOf(reduction.instance));
    }
    for (std::size_t t = 0; t < after.size(); ++t) {
      result_.tasks[t].successors = static_cast<uint32_t>(result_.successors.size());
      result_.successors.insert(result_.successors.end(), after[t].begin(), after[t].end());
      result_.tasks[t].successors_end = static_cast<uint32_t>(result_.successors.size());
    }
  }

  const ir::Plan& plan_;
  const ir::Program& program_;
  const Pricer& pricer_;
  Lines& lines_;
  std::vector<ir::Instance> instances_;
  SplitOps split_;
  std::size_t next_reduction_ = 0;                 // whose awaited part has no task yet
  std::vector<std::pair<double, Part>> own_part_;  // by instance; empty: all whole, likewise below
  std::vector<uint8_t> other_waits_;               // by instance: for carried gathers
  std::vector<int32_t> last_part_;                 // by instance: task of its awaited part, or -1
  std::vector<std::pair<int32_t, int32_t>> readers_;  // carried task, instance that waits for it
  std::vector<char> received_;          // by instance: a recv, or communication that passes it on
  std::vector<char> loaded_;            // by micro-batch
  std::vector<char> awaited_;           // by instance: an op on another stream waits for it
  std::vector<int32_t> task_of_;        // by instance
  std::vector<int32_t> last_instance_;  // by task
  std::vector<int32_t> latest_;         // by stream
  std::vector<std::vector<std::optional<OpPrice>>> prices_;  // by block and op
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

std::vector<MessageCount> CountMessages(const StageTasks& stage) {
  std::map<std::tuple<int32_t, bool, int32_t>, double> times;
  for (const Task& task : stage.tasks) {
    if (task.line >= 0) ++times[{task.line, task.receives, task.message}];
  }
  std::vector<MessageCount> counts;
  for (const auto& [of, count] : times)
    counts.push_back({std::get<0>(of), std::get<2>(of), std::get<1>(of), count});
  return counts;
}

PlanTasks MakeTasks(const ir::Plan& plan, const Pricer& pricer) {
  PlanTasks result;
  result.streams = StreamCount(plan);
  Lines lines(plan, &result.lines);
  for (const ir::Program& program : plan.programs) {
    result.stages.push_back(StageBuilder(plan, program, pricer, &lines).Build(result.streams));
  }
  return result;
}

std::string Describe(const ir::Plan& plan, std::size_t stage, const Task& task) {
  const ir::Program& program = plan.programs[stage];
  const std::vector<ir::Instance> instances =
      ir::Unfold(plan, program, ir::ComputeLayout(plan, program));
  const ir::Instance& at = instances[At(task.first)];
  const ir::Block& block = program.blocks[At(at.block)];
  const ir::Op& op = block.ops[At(at.op)];
  return fmt::format("stage {}, {}: {}[{}] op {} {}", program.stage, plan.streams[op.stream],
                     block.name, at.micro_batch, at.op, ir::Info(op.kind).name) +
         (task.other_part() ? ", in part" : "");
}

std::vector<int32_t> OpenersOf(const StageTasks& stage) {
  std::vector<int32_t> opens(static_cast<std::size_t>(stage.epochs), -1);
  for (std::size_t t = 0; t < stage.tasks.size(); ++t) {
    if (stage.tasks[t].syncs)
      opens[static_cast<std::size_t>(stage.tasks[t].epoch)] = static_cast<int32_t>(t);
  }
  return opens;
}

}  // namespace orrery::sim
