// SPDX-License-Identifier: Apache-2.0
// Memory of a plan from its layouts.
#include "model/memory/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/base/text.h"
#include "model/memory/moment.h"
#include "model/plan/ir/layout.h"

namespace orrery {
namespace {

constexpr const char* kClassNames[kMemoryClasses] = {
    "weights",     "gradients",        "master weights",      "optimizer state",
    "activations", "gathered weights", "transient gradients", "scalars",
};

MemoryClass ClassOf(ir::BufferClass cls) {
  switch (cls) {
    case ir::BufferClass::kParam:
      return MemoryClass::kWeights;
    case ir::BufferClass::kGathered:
      return MemoryClass::kGathered;
    case ir::BufferClass::kGrad:
      return MemoryClass::kGradients;
    case ir::BufferClass::kGradTransient:
      return MemoryClass::kTransientGradients;
    case ir::BufferClass::kMaster:
      return MemoryClass::kMaster;
    case ir::BufferClass::kOptimizer:
      return MemoryClass::kOptimizer;
    case ir::BufferClass::kActivation:
      return MemoryClass::kActivations;
    case ir::BufferClass::kScalar:
      return MemoryClass::kScalars;
  }
  return MemoryClass::kScalars;
}

constexpr std::size_t kLargest = 10;

std::vector<LiveTensor> LargestTensors(const ir::Program& program, const ir::Peak& peak) {
  std::map<ir::BufferId, LiveTensor> by_buffer;
  for (const ir::LiveBuffer& live : peak.live) {
    const ir::Buffer& buffer = program.buffers[live.buffer];
    LiveTensor& tensor = by_buffer[live.buffer];
    tensor.copies = tensor.name.empty() ? 1 : tensor.copies + 1;
    tensor.name = buffer.name;
    tensor.cls = ClassOf(buffer.cls);
    tensor.bytes += Bytes(static_cast<double>(live.bytes));
  }
  std::vector<LiveTensor> tensors;
  for (auto& [id, tensor] : by_buffer) tensors.push_back(std::move(tensor));
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const LiveTensor& a, const LiveTensor& b) { return a.bytes > b.bytes; });
  if (tensors.size() > kLargest) tensors.resize(kLargest);
  return tensors;
}

// The plan's tensors that hold bytes of their own in this software at that moment.
ir::Peak LiveAt(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout,
                StepPlace at, const Allocation& allocation) {
  ir::Peak peak;
  peak.call = at.call;
  peak.op = at.op;
  ir::ListLive(plan, program, layout, &peak);
  const std::vector<int64_t> bytes = HeldBytes(program, allocation.holding);
  const ir::Usage usage = HeldUsage(program, allocation.holding);
  const std::vector<StepPlace> from = HeldFrom(program, layout, usage, allocation.holding);
  const ir::Usage plan_usage = ir::AnalyseUsage(program);
  const int32_t block = layout.calls[static_cast<std::size_t>(at.call)].block;
  for (std::size_t i = 0; i < usage.by_block[block].size(); ++i) {  // held past the plan's last use
    const ir::Touch& held = usage.by_block[block][i];
    if (plan_usage.by_block[block][i].last_op < at.op && at.op <= held.last_op)
      peak.live.push_back({held.buffer, -1, 0});
  }
  for (ir::LiveBuffer& live : peak.live)
    live.bytes = from[live.buffer] > at ? 0 : bytes[live.buffer];
  std::erase_if(peak.live, [](const ir::LiveBuffer& live) { return live.bytes == 0; });
  return peak;
}

StageMemory MeasureStage(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout,
                         const MemoryLimits& limits) {
  StageMemory memory;
  memory.stage = program.stage;
  memory.arena = Bytes(static_cast<double>(layout.arena_bytes));
  memory.host = Bytes(static_cast<double>(layout.host_bytes));
  memory.need =
      PeakOf(DemandOf(plan, program, layout, limits.allocation.holding), limits.allocation);
  const StepPlace at = memory.need.at;
  const ir::Peak peak = LiveAt(plan, program, layout, at, limits.allocation);
  for (const ir::LiveBuffer& live : peak.live) {
    const auto cls = static_cast<std::size_t>(ClassOf(program.buffers[live.buffer].cls));
    memory.by_class[cls] += Bytes(static_cast<double>(live.bytes));
  }
  memory.moment = DescribeMoment(program, layout, at.call, at.op);
  memory.largest = LargestTensors(program, peak);
  return memory;
}

// Offload: what a node's host keeps for its ranks.
void CountHost(const MemoryLimits& limits, MemoryReport* report) {
  Bytes most;
  for (const StageMemory& stage : report->stages) most = std::max(most, stage.host);
  report->host_node = most * static_cast<double>(limits.ranks_per_node);
  report->host_capacity = limits.host_memory;
  if (limits.host_memory.value == 0 || report->host_node <= limits.host_memory) return;
  if (report->fits)
    report->summary = fmt::format(
        "out of memory on the host: {} rank{} x {} exceed the {} of a node", limits.ranks_per_node,
        limits.ranks_per_node == 1 ? "" : "s", Format(most), Format(limits.host_memory));
  report->fits = report->nearly_full = false;
}

std::string FitsSummary(const MemoryReport& report, double nearly_full) {
  std::string words =
      fmt::format("fits: {} of {} on stage {}, {} left; peak at {}", Format(report.total),
                  Format(report.capacity), report.peak().stage,
                  Format(report.capacity - report.total), report.peak().moment.words);
  if (report.nearly_full) {
    words +=
        fmt::format("; nearly full: above {:.0f} % frameworks retry allocations, slow down or fail",
                    100 * nearly_full);
  }
  return words;
}

// Of a plan whose live tensors fit by themselves: what comes on top of them.
std::string OnTopSummary(const StageMemory& stage) {
  const StagePeak& peak = stage.need;
  std::string text = fmt::format("{} live at {}", Format(peak.live), stage.moment.words);
  if (peak.gaps.value > 0)
    text += fmt::format(", but the plan's arena with its gaps needs {}", Format(stage.arena));
  if (peak.loss_copies.value > 0)
    text += fmt::format(", copies of the logits {} more", Format(peak.loss_copies));
  if (peak.mask.value > 0)
    text += fmt::format(", the data loader's attention mask {}", Format(peak.mask));
  if (peak.gradient_copies.value > 0)
    text += fmt::format(", copies of gradients {}", Format(peak.gradient_copies));
  if (peak.buckets.value > 0)
    text += fmt::format(", buckets of reductions {}", Format(peak.buckets));
  if (peak.dummies.value > 0)
    text += fmt::format(", dummy weight gradients {}", Format(peak.dummies));
  if (peak.scores.value > 0)
    text += fmt::format(", the buffer of attention scores {}", Format(peak.scores));
  return text;
}

// Names the first op that cannot get its bytes, or what does not fit on top of the tensors.
std::string OverflowSummary(const ir::Plan& plan, const ir::Program& program,
                            const ir::Layout& layout, const MemoryLimits& limits,
                            const MemoryReport& report) {
  const StageMemory& stage = report.peak();
  const double budget =
      (limits.capacity - report.workspaces - report.context).value / (1.0 + limits.fragmentation) -
      stage.need.kept().value;
  const auto overflow = FirstOverflow(plan, program, layout, limits.allocation,
                                      static_cast<int64_t>(std::max(0.0, budget)));
  // `kept`: what the text does not name, beside the tensors.
  const auto overhead = [&](Bytes allocated, Bytes kept) {
    const Bytes bytes =
        report.workspaces + report.context + kept + (allocated + kept) * limits.fragmentation;
    if (bytes.value <= 0) return std::string();
    return bytes > report.capacity
               ? fmt::format(", and the framework alone takes {}", Format(bytes))
               : fmt::format(", of which the framework takes {}", Format(bytes));
  };
  if (!overflow) {
    return fmt::format("out of memory on stage {}: {}; capacity {}{}", program.stage,
                       OnTopSummary(stage), Format(report.capacity),
                       overhead(stage.allocated(), Bytes(0.0)));
  }
  const Bytes live(static_cast<double>(overflow->live));
  const PeakMoment& moment = overflow->moment;
  const std::string needs =
      moment.asked.value > 0
          ? fmt::format("needs {} for {}", Format(moment.asked), moment.asked_tensor)
          : "begins";
  return fmt::format(
      "out of memory on stage {}{}: {} live when {} {}; capacity {}{}", program.stage,
      overflow->first_step ? " in the first step, before the optimizer's states" : "", Format(live),
      moment.words, needs, Format(report.capacity), overhead(live, stage.need.kept()));
}

}  // namespace

const char* MemoryClassName(MemoryClass cls) { return kClassNames[static_cast<int>(cls)]; }

GpuMemory MemoryOf(const GpuProfile& gpu) { return {gpu.Capacity(), gpu.memory_context}; }

GpuMemory WithBuffers(GpuMemory memory, const FrameworkProfile& framework) {
  memory.context += framework.memory_buffers;
  return memory;
}

MemoryLimits LimitsOf(const GpuProfile& gpu, const FrameworkProfile& framework) {
  MemoryLimits limits;
  const GpuMemory memory = WithBuffers(MemoryOf(gpu), framework);
  limits.capacity = memory.capacity;
  limits.context = memory.context;
  limits.workspaces = gpu.memory_workspace * framework.memory_handles;
  limits.fragmentation = framework.memory_fragmentation;
  limits.communicator = framework.memory_communicator;
  limits.allocation = AllocationOf(framework);
  limits.nearly_full = FullShare(gpu, framework);
  limits.not_modelled = gpu.memory_note;
  return limits;
}

MemoryLimits MemoryLimits::Of(int stage) const {
  MemoryLimits limits = *this;
  limits.of_stages.clear();
  if (of_stages.empty()) return limits;
  const GpuMemory& memory = of_stages[static_cast<std::size_t>(stage)];
  limits.capacity = memory.capacity;
  limits.context = memory.context;
  return limits;
}

double MemoryLimits::Filled(const std::vector<double>& allocated, int communicators) const {
  double most = 0;
  for (std::size_t stage = 0; stage < allocated.size(); ++stage) {
    const MemoryLimits own = Of(static_cast<int>(stage));
    most = std::max(most, own.Total(Bytes(allocated[stage]), communicators) / own.capacity);
  }
  return most;
}

MemoryReport ReportMemory(const ir::Plan& plan, const MemoryLimits& of_all, int communicators) {
  MemoryReport report;
  report.mixed = !of_all.of_stages.empty();
  std::vector<ir::Layout> layouts;
  for (const ir::Program& program : plan.programs) {
    layouts.push_back(ir::ComputeLayout(plan, program));
    report.stages.push_back(MeasureStage(plan, program, layouts.back(), of_all));
    StageMemory& stage = report.stages.back();
    const MemoryLimits own = of_all.Of(program.stage);
    stage.total = own.Total(stage.allocated(), communicators);
    stage.capacity = own.capacity;
    const StageMemory& fullest = report.peak();
    const bool fuller = report.mixed
                            ? stage.total / stage.capacity > fullest.total / fullest.capacity
                            : stage.allocated() > fullest.allocated();
    if (fuller) report.fullest = program.stage;
  }
  const MemoryLimits limits = of_all.Of(report.fullest);
  report.arena = report.peak().arena;
  report.live = report.peak().need.live;
  const Bytes allocated = report.peak().allocated();
  report.workspaces = limits.workspaces;
  report.context = limits.Context(communicators);
  report.fragmentation = allocated * limits.fragmentation;
  report.total = limits.Total(allocated, communicators);
  report.capacity = limits.capacity;
  report.not_modelled = limits.not_modelled;
  report.fits = limits.Fits(allocated, communicators);
  report.nearly_full = report.fits && report.total > limits.WithMargin();
  report.summary = report.fits ? FitsSummary(report, limits.nearly_full)
                               : OverflowSummary(plan, plan.programs[report.fullest],
                                                 layouts[report.fullest], limits, report);
  CountHost(limits, &report);
  return report;
}

}  // namespace orrery
