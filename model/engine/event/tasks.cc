// SPDX-License-Identifier: Apache-2.0
// Unfolds programs and joins runs of compute ops.
#include "model/engine/event/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
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
        facts_(program.blocks.size()) {}

  StageTasks Build(std::size_t streams) {
    const ir::Layout layout = ir::ComputeLayout(plan_, program_);
    instances_ = ir::Unfold(plan_, program_, layout);
    MarkAwaited();
    result_.on_stream.resize(streams);
    latest_.assign(streams, -1);
    Reserve(instances_.size());
    SplitMessages();
    for (std::size_t i = 0; i < instances_.size(); ++i) AddInstance(static_cast<int32_t>(i));
    AddAwaitedReductions(std::numeric_limits<int32_t>::max());
    LinkSuccessors();
    result_.ops = static_cast<int64_t>(instances_.size());
    result_.tasks.shrink_to_fit();  // they stay for the whole simulation
    return std::move(result_);
  }

 private:
  void Reserve(std::size_t instances) {
    constexpr std::size_t kPerTask = 4;  // ops, about
    task_of_.reserve(instances);
    received_.reserve(instances);
    result_.tasks.reserve(instances / kPerTask);
    last_instance_.reserve(instances / kPerTask);
  }

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

  // What is equal for all calls of an op: shapes do not depend on the micro-batch.
  struct OpFacts {
    OpPrice price;
    bool known = false;
    bool communicates = false, offloads = false, updates = false;
    int32_t line = -1, message = -1;  // of the whole message, once a task sends it
    bool receives = false;
  };

  OpFacts& FactsOf(const ir::Instance& at, const ir::Op& op) {
    std::vector<OpFacts>& of_block = facts_[At(at.block)];
    if (of_block.empty()) of_block.resize(program_.blocks[At(at.block)].ops.size());
    OpFacts& facts = of_block[At(at.op)];
    if (facts.known) return facts;
    facts.known = true;
    facts.price = pricer_.ops.Price(plan_, program_, op, plan_.micro_batches > 1);
    facts.communicates = Communicates(op);
    facts.offloads = op.kind == OpKind::kCopy || ir::OnHost(program_, op);
    facts.updates = Updates(op);
    return facts;
  }

  void AddInstance(int32_t i) {
    const ir::Instance& at = instances_[At(i)];
    const ir::Op& op = OpOf(at);
    OpFacts& facts = FactsOf(at, op);
    // What scatters inside the passes does not wait for their end.
    const bool reduces =
        op.phase == ir::Phase::kGradReduce && op.stream != 0 && i > split_.last_pass;
    if (reduces && OwnPart(i).second == Part::kWhole) AddAwaitedReductions(i);
    // Rings inside a pass run on the device alone.
    const bool from_stage = op.kind == OpKind::kRecv && op.phase == ir::Phase::kPipeline;
    received_.push_back(from_stage ||
                        (op.stream != 0 && facts.communicates && WaitsForReceived(at)));
    const bool syncs = pricer_.ops.HostWaits() && HostWaitsFor(at, op);
    if (syncs) {
      issued_ = 0;
      ++result_.epochs;
    }
    issued_ += facts.price.host;
    result_.host += facts.price.host;
    const int32_t last = latest_[op.stream];
    const bool joins = !syncs && !facts.communicates && Waits(i, at) == 0 && last >= 0 &&
                       Joinable(last) && result_.tasks[At(last)].offload == facts.offloads;
    if (joins) {
      Task& task = result_.tasks[At(last)];
      ++task.ops;
      AddCompute(facts, &task);
    } else {
      AddTask(i, at, op, &facts);
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

  // An op starts when the one before it has ended and the host has issued it.
  void AddCompute(const OpFacts& facts, Task* task) const {
    const double seconds = facts.price.device;
    task->seconds += seconds;
    task->offload = facts.offloads;
    if (facts.updates) task->update += seconds;
    task->earliest = std::max(task->earliest, issued_) + seconds;
    task->issued = issued_;
  }

  void AddTask(int32_t i, const ir::Instance& at, const ir::Op& op, OpFacts* facts) {
    Task task;
    task.first = i;
    task.stream = op.stream;
    task.epoch = result_.epochs - 1;
    const std::size_t waits = Waits(i, at);
    ORRERY_CHECK(waits <= std::numeric_limits<uint8_t>::max(), "{} waits", waits);
    task.waits = static_cast<uint8_t>(waits);
    if (facts->communicates) {
      NumberOwnPart(i, op, facts, &task);
      task.earliest = task.issued = issued_;
    } else {
      AddCompute(*facts, &task);
    }
    Append(task, i);
  }

  void NumberOwnPart(int32_t i, const ir::Op& op, OpFacts* facts, Task* task) {
    const auto [share, part] = OwnPart(i);
    if (part == Part::kWhole && facts->line >= 0) {
      task->line = facts->line;
      task->message = facts->message;
      task->receives = facts->receives;
      return;
    }
    lines_.Number(program_, op, share, part, task);
    if (part != Part::kWhole) return;
    facts->line = task->line;
    facts->message = task->message;
    facts->receives = task->receives;
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
    std::vector<std::pair<int32_t, int32_t>> links;  // a task, one that waits for it
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      const bool after_passes = static_cast<int32_t>(i) > split_.last_pass;
      for (const int32_t wait : instances_[i].waits) {
        const int32_t task = after_passes ? LastTaskOf(wait) : task_of_[At(wait)];
        links.emplace_back(task, task_of_[i]);
      }
    }
    for (const auto& [gather, reader] : readers_) links.emplace_back(gather, task_of_[At(reader)]);
    for (const SplitOp& reduction : split_.reductions) {
      if (reduction.awaited <= 0) continue;
      links.emplace_back(task_of_[At(split_.last_pass)], LastTaskOf(reduction.instance));
    }
    SortSuccessors(links);
  }

  // By task, else in their order.
  void SortSuccessors(const std::vector<std::pair<int32_t, int32_t>>& links) {
    for (const auto& [task, next] : links) ++result_.tasks[At(task)].successors_end;
    uint32_t begin = 0;
    for (Task& task : result_.tasks) {
      const uint32_t count = std::exchange(task.successors_end, begin);
      task.successors = begin;
      begin += count;
    }
    result_.successors.resize(links.size());
    for (const auto& [task, next] : links)
      result_.successors[result_.tasks[At(task)].successors_end++] = next;
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
  std::vector<std::vector<OpFacts>> facts_;  // by block and op
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
