// SPDX-License-Identifier: Apache-2.0
// Size and speed of the largest plan: gpt3-175b on 4 096 GPUs (tp 8, pp 16, dp 32), 192
// micro-batches.
//
// One line per figure: name = value unit. Times are the least of several rounds on one core; wall
// times need an otherwise idle machine, `_cpu` does not.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>

#include "heap_use.h"
#include "model/arch/catalogue.h"
#include "model/plan/ir/layout.h"
#include "model/plan/ir/plan.h"
#include "model/plan/ir/verify.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

constexpr int kRounds = 15;
constexpr int kDataParallel = 32;
constexpr int kMicroBatches = 192;

struct Case {
  std::string name;
  Strategy strategy;
};

Strategy BaseStrategy() {
  Strategy strategy;
  strategy.tp = 8;
  strategy.pp = 16;
  strategy.dp = kDataParallel;
  strategy.zero = 1;
  strategy.sequence_parallel = true;
  return strategy;
}

std::vector<Case> Cases() {
  Case plain{"1f1b", BaseStrategy()};
  Case interleaved{"interleaved", BaseStrategy()};
  interleaved.strategy.schedule = PipelineSchedule::kInterleaved;
  interleaved.strategy.vpp = 6;
  return {plain, interleaved};
}

struct Spent {
  double wall_ms = 1e300;
  double cpu_ms = 1e300;  // of this process: what the wall time is on an idle machine
};

template <class Work>
Spent Least(const Work& work) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  Spent least;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    work();
    const double cpu_ms = 1e3 * double(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    const Milliseconds wall = std::chrono::steady_clock::now() - start;
    least = {std::min(least.wall_ms, wall.count()), std::min(least.cpu_ms, cpu_ms)};
  }
  return least;
}

int64_t ItemCount(const std::vector<ir::Item>& items) {
  int64_t count = 0;
  for (const ir::Item& item : items) count += 1 + ItemCount(item.body);
  return count;
}

void Print(const Case& which, const char* figure, double value, const char* unit) {
  fmt::print("ir_{}_{} = {:.6g} {}\n", which.name, figure, value, unit);
}

class Bench {
 public:
  Bench(const Case& which, const ModelSpec& model) : case_(which), model_(model) {
    work_.seq_len = 2048;
    work_.global_batch = int64_t{kDataParallel} * kMicroBatches;
    work_.precision = Precision::kBf16;
  }

  bool Run() {
    const ir::Plan plan = Build();
    const std::vector<ir::Finding> findings = ir::Verify(plan);
    for (const ir::Finding& finding : findings) {
      fmt::print(stderr, "{} stage {} {}: {}\n", ir::FaultName(finding.fault), finding.stage,
                 finding.where, finding.message);
    }
    Times(plan);
    Memory();
    Counts(plan);
    ArenaOverPeak(plan);
    Print(case_, "findings", double(findings.size()), "findings");
    return findings.empty();
  }

 private:
  ir::Plan Build() const {
    LowerResult result = Lower(model_, work_, case_.strategy);
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
      fmt::print(stderr, "refused: {}\n", refusal->reason);
      std::exit(1);
    }
    return std::get<ir::Plan>(std::move(result));
  }

  void Times(const ir::Plan& plan) const {
    const Spent both = Least([&] { ir::Verify(Build()); });
    Print(case_, "build_verify", both.wall_ms, "ms");
    Print(case_, "build_verify_cpu", both.cpu_ms, "ms");
    Time("build", [&] { Build(); });
    Time("verify", [&] { ir::Verify(plan); });
    Time("layout", [&] {
      for (const ir::Program& program : plan.programs) ir::ComputeLayout(plan, program);
    });
    Time("compress", [&] {
      for (const ir::Program& program : plan.programs) {
        ir::Compress(ir::Expand(program.schedule));
      }
    });
    const std::string text = ir::ToText(plan);
    Time("write_text", [&] { ir::ToText(plan); });
    Time("parse_text", [&] { ir::ParsePlan(text, "plan"); });
    Time("digest", [&] { ir::Digest(plan); });
    Print(case_, "text", double(text.size()), "bytes");
  }

  template <class Work>
  void Time(const char* figure, const Work& work) const {
    Print(case_, figure, Least(work).wall_ms, "ms");
  }

  void Memory() const {
    StartHeapCount();
    const ir::Plan plan = Build();
    const int64_t kept = HeapBytes(), building = HeapPeakBytes();
    ir::Verify(plan);
    Print(case_, "plan", double(kept), "bytes");
    Print(case_, "build_peak", double(building), "bytes");
    Print(case_, "build_verify_peak", double(HeapPeakBytes()), "bytes");
    StopHeapCount();
  }

  void Counts(const ir::Plan& plan) const {
    int64_t ops = 0, buffers = 0, views = 0, items = 0, calls = 0;
    for (const ir::Program& program : plan.programs) {
      for (const ir::Block& block : program.blocks) ops += int64_t(block.ops.size());
      buffers += int64_t(program.buffers.size());
      views += int64_t(program.views.size());
      items += ItemCount(program.schedule);
      calls += int64_t(ir::Expand(program.schedule).size());
    }
    Print(case_, "ops", double(ops), "ops");
    Print(case_, "buffers", double(buffers), "buffers");
    Print(case_, "views", double(views), "views");
    Print(case_, "schedule_items", double(items), "items");
    Print(case_, "calls", double(calls), "calls");
  }

  // Per stage, and the worst of them.
  void ArenaOverPeak(const ir::Plan& plan) const {
    double worst = 0;
    for (const ir::Program& program : plan.programs) {
      const ir::Layout layout = ir::ComputeLayout(plan, program);
      const ir::Peak peak = ir::LivePeak(plan, program, layout, false);
      const double over = 100.0 * (double(layout.arena_bytes) / double(peak.bytes) - 1.0);
      worst = std::max(worst, over);
      Print(case_, fmt::format("arena_over_peak_stage_{}", program.stage).c_str(), over, "percent");
    }
    Print(case_, "arena_over_peak_worst", worst, "percent");
  }

  Case case_;
  ModelSpec model_;
  Workload work_;
};

}  // namespace
}  // namespace orrery

int main() {
  const orrery::ModelSpec model = orrery::LoadModel("gpt3-175b").spec;
  bool sound = true;
  for (const orrery::Case& which : orrery::Cases()) sound &= orrery::Bench(which, model).Run();
  return sound ? 0 : 1;
}
