// SPDX-License-Identifier: Apache-2.0
// Memory of a plan from its layouts.
#include "model/memory/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/ir/layout.h"
#include "model/ir/usage.h"
#include "model/memory/moment.h"
#include "model/units/text.h"

namespace orrery {
namespace {

constexpr const char* kClassNames[kMemoryClasses] = {
    "weights", "gradients", "master weights", "optimizer state", "activations", "gathered weights",
    "transient gradients", "scalars",
};

MemoryClass ClassOf(ir::BufferClass cls) {
  switch (cls) {
    case ir::BufferClass::kParam: return MemoryClass::kWeights;
    case ir::BufferClass::kGathered: return MemoryClass::kGathered;
    case ir::BufferClass::kGrad: return MemoryClass::kGradients;
    case ir::BufferClass::kGradTransient: return MemoryClass::kTransientGradients;
    case ir::BufferClass::kMaster: return MemoryClass::kMaster;
    case ir::BufferClass::kOptimizer: return MemoryClass::kOptimizer;
    case ir::BufferClass::kActivation: return MemoryClass::kActivations;
    case ir::BufferClass::kScalar: return MemoryClass::kScalars;
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

StageMemory MeasureStage(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout) {
  const ir::Peak peak = ir::LivePeak(plan, program, layout, true);
  StageMemory memory;
  memory.stage = program.stage;
  memory.arena = Bytes(static_cast<double>(layout.arena_bytes));
  memory.live = Bytes(static_cast<double>(peak.bytes));
  memory.slack = memory.arena - memory.live;
  for (const ir::LiveBuffer& live : peak.live) {
    const auto cls = static_cast<std::size_t>(ClassOf(program.buffers[live.buffer].cls));
    memory.by_class[cls] += Bytes(static_cast<double>(live.bytes));
  }
  memory.moment = DescribeMoment(program, layout, std::max(peak.call, 0), std::max(peak.op, 0));
  memory.largest = LargestTensors(program, peak);
  return memory;
}

std::string FitsVerdict(const MemoryReport& report) {
  return fmt::format("fits: {} of {} on stage {}, {} left; peak at {}", Format(report.total), Format(report.capacity),
                     report.peak().stage, Format(report.capacity - report.total), report.peak().moment.words);
}

// Names the first op that cannot get its bytes; a plan whose live bytes fit but whose arena does not says so.
std::string OverflowVerdict(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout,
                            const MemoryLimits& limits, const MemoryReport& report) {
  const double budget = (limits.capacity - limits.context).value / (1.0 + limits.fragmentation);
  const auto overflow = FirstOverflow(plan, program, layout, static_cast<int64_t>(std::max(0.0, budget)));
  const auto overhead = [&](Bytes live) {
    const Bytes bytes = limits.context + live * limits.fragmentation;
    return bytes.value > 0 ? fmt::format(", of which the framework takes {}", Format(bytes)) : std::string();
  };
  if (!overflow) {
    return fmt::format("out of memory on stage {}: {} live at {}, but the plan's arena with its slack takes {}; "
                       "capacity {}{}",
                       program.stage, Format(report.peak().live), report.peak().moment.words, Format(report.arena),
                       Format(report.capacity), overhead(report.arena));
  }
  const Bytes live(static_cast<double>(overflow->live));
  const PeakMoment& moment = overflow->moment;
  const std::string asks = moment.asked.value > 0
                               ? fmt::format("asks {} for {}", Format(moment.asked), moment.asked_tensor)
                               : "begins";
  return fmt::format("out of memory on stage {}: {} live when {} {}; capacity {}{}", program.stage, Format(live),
                     moment.words, asks, Format(report.capacity), overhead(live));
}

}  // namespace

const char* MemoryClassName(MemoryClass cls) { return kClassNames[static_cast<int>(cls)]; }

MemoryLimits LimitsOf(const GpuProfile& gpu, const StackProfile& stack) {
  return {gpu.memory, gpu.memory_context + stack.memory_buffers + stack.memory_communicator, stack.memory_fragmentation};
}

MemoryReport ReportMemory(const ir::Plan& plan, const MemoryLimits& limits) {
  MemoryReport report;
  std::vector<ir::Layout> layouts;
  for (const ir::Program& program : plan.programs) {
    layouts.push_back(ir::ComputeLayout(plan, program));
    report.stages.push_back(MeasureStage(plan, program, layouts.back()));
    if (report.stages.back().arena > report.stages[report.fullest].arena) report.fullest = program.stage;
  }
  report.arena = report.peak().arena;
  report.live = report.peak().live;
  report.context = limits.context;
  report.fragmentation = report.arena * limits.fragmentation;
  report.total = limits.Total(report.arena);
  report.capacity = limits.capacity;
  report.fits = limits.Fits(report.arena);
  report.verdict = report.fits ? FitsVerdict(report)
                               : OverflowVerdict(plan, plan.programs[report.fullest], layouts[report.fullest], limits,
                                                 report);
  return report;
}

Bytes ExactArena(const ir::Plan& plan) {
  int64_t most = 0;
  for (const ir::Program& program : plan.programs) {
    most = std::max(most, ir::ComputeLayout(plan, program).arena_bytes);
  }
  return Bytes(static_cast<double>(most));
}

}  // namespace orrery
