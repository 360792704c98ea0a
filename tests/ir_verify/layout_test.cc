// SPDX-License-Identifier: Apache-2.0
// Layout and live peak against their definitions, byte by byte, on random plans; overhead on
// realistic ones.
#include "model/plan/ir/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "model/arch/catalogue.h"
#include "model/plan/ir/scratch.h"
#include "tests/ir_verify/planting.h"
#include "tests/ir_verify/strategies.h"

namespace orrery::ir {
namespace {

// What a buffer's value belongs to: the step, a micro-batch or one call.
using Owner = std::pair<BufferId, int64_t>;

Owner OwnerOf(const Program& program, const Layout& layout, BufferId buffer, size_t call) {
  switch (layout.scope[buffer]) {
    case Layout::Scope::kStep:
      return {buffer, -1};
    case Layout::Scope::kMicroBatch:
      return {buffer, layout.calls[call].micro_batch};
    default:
      break;
  }
  (void)program;
  return {buffer, static_cast<int64_t>(call)};
}

// Every byte read was last written by its own buffer for the same micro-batch (or by nobody in this
// step).
void CheckBytes(const Program& program, const Layout& layout) {
  std::vector<Owner> bytes(layout.arena_bytes, Owner{-1, 0});
  for (size_t c = 0; c < layout.calls.size(); ++c) {
    const Call& call = layout.calls[c];
    for (const Op& op : program.blocks[call.block].ops) {
      if ((op.when & call.flags) != op.when) continue;
      auto each = [&](ViewId id, auto visit) {
        const View& view = program.views[id];
        const int64_t size = DtypeBytes(program.buffers[view.buffer].dtype);
        const int64_t start = layout.Address(view.buffer, call.micro_batch) + view.offset * size;
        ASSERT_LE(start + view.elements * size, layout.arena_bytes);
        for (int64_t b = start; b < start + view.elements * size; ++b) {
          visit(bytes[b], OwnerOf(program, layout, view.buffer, c));
        }
      };
      for (ViewId view : op.in) {
        each(view, [&](const Owner& found, const Owner& own) {
          const bool untouched = found.first < 0 && layout.scope[own.first] == Layout::Scope::kStep;
          ASSERT_TRUE(found == own || untouched)
              << program.blocks[call.block].name << " " << program.buffers[own.first].name;
        });
      }
      for (ViewId view : op.out) each(view, [](Owner& byte, const Owner& own) { byte = own; });
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Largest sum of buffers between their first and last naming; step buffers always count.
int64_t PeakByDefinition(const Program& program, const Layout& layout) {
  std::map<Owner, std::pair<int64_t, int64_t>> spans;
  int64_t now = 0, always = 0;
  for (size_t c = 0; c < layout.calls.size(); ++c) {
    for (const Op& op : program.blocks[layout.calls[c].block].ops) {
      auto name = [&](ViewId view) {
        const Owner owner = OwnerOf(program, layout, program.views[view].buffer, c);
        auto [it, added] = spans.try_emplace(owner, now, now);
        it->second.second = now;
      };
      for (ViewId view : op.in) name(view);
      for (ViewId view : op.out) name(view);
      ++now;
    }
  }
  std::vector<int64_t> delta(now + 1, 0);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (layout.scope[b] == Layout::Scope::kStep)
      always += buffer.elements * DtypeBytes(buffer.dtype);
  }
  for (const auto& [owner, span] : spans) {
    const Buffer& buffer = program.buffers[owner.first];
    if (layout.scope[owner.first] == Layout::Scope::kStep) continue;
    delta[span.first] += buffer.elements * DtypeBytes(buffer.dtype);
    delta[span.second + 1] -= buffer.elements * DtypeBytes(buffer.dtype);
  }
  int64_t live = always, peak = always;
  for (int64_t step : delta) peak = std::max(peak, live += step);
  return peak;
}

TEST(Layout, KeepsEveryByteOfRandomPlans) {
  for (const Strategy& strategy : DrawStrategies(120, 1)) {
    const Plan plan = LowerTiny(strategy, 4 * strategy.data_parallel());
    for (const Program& program : plan.programs) {
      SCOPED_TRACE(fmt::format("{} stage {}", plan.title, program.stage));
      CheckBytes(program, ComputeLayout(plan, program));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(LivePeak, FollowsItsDefinitionOnRandomPlans) {
  for (const Strategy& strategy : DrawStrategies(120, 2)) {
    const Plan plan = LowerTiny(strategy, 4 * strategy.data_parallel());
    for (const Program& program : plan.programs) {
      SCOPED_TRACE(fmt::format("{} stage {}", plan.title, program.stage));
      const Layout layout = ComputeLayout(plan, program);
      const Peak peak = LivePeak(plan, program, layout, true);
      EXPECT_EQ(peak.bytes, PeakByDefinition(program, layout));
      EXPECT_LE(peak.bytes, layout.arena_bytes);
      int64_t listed = 0;
      for (const LiveBuffer& live : peak.live) listed += live.bytes;
      EXPECT_EQ(listed, peak.bytes);
      EXPECT_TRUE(std::is_sorted(
          peak.live.begin(), peak.live.end(),
          [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; }));
    }
  }
}

TEST(Layout, IsAlignedAndAddsUp) {
  for (const Strategy& strategy : DrawStrategies(20, 3)) {
    const Plan plan = LowerTiny(strategy, 4 * strategy.data_parallel());
    for (const Program& program : plan.programs) {
      const Layout layout = ComputeLayout(plan, program);
      EXPECT_EQ(layout.arena_bytes,
                layout.step_bytes + layout.frame_bytes + layout.ring_bytes + layout.scratch_bytes);
      for (size_t b = 0; b < program.buffers.size(); ++b) {
        for (int m = 0; m < plan.micro_batches; ++m) {
          if (layout.scope[b] == Layout::Scope::kUnused) continue;
          EXPECT_EQ(layout.Address(static_cast<BufferId>(b), m) % plan.alignment, 0);
        }
      }
    }
  }
}

// A program of one block that writes and later reads `m`-bound buffers in any order of
// micro-batches.
TEST(Layout, SlotsStayApartInAnyOrder) {
  Plan plan;
  plan.mesh.axes = {{"pp", 1}};
  plan.streams = {"compute"};
  plan.micro_batches = 6;
  Program program;
  program.buffers.push_back({"x", BufferClass::kActivation, Dtype::kF32, 64, Life::kDerived});
  program.views.push_back({"x", 0, 0, 64});
  Op write, read;
  write.out = {0};
  read.kind = OpKind::kSend;
  read.in = {0};
  program.blocks = {{"F0", {write}}, {"B0", {read}}};
  std::vector<Call> calls;
  for (int m : {4, 1, 3}) calls.push_back({0, m, 0});
  for (int m : {1, 4, 3}) calls.push_back({1, m, 0});
  for (int m : {0, 2, 5}) calls.push_back({0, m, 0});
  for (int m : {5, 2, 0}) calls.push_back({1, m, 0});
  program.schedule = Compress(calls);
  for (int extra : {0, 1, 2, 9}) {
    program.buffers[0].extra_slots = static_cast<uint8_t>(extra);
    const Layout layout = ComputeLayout(plan, program);
    ASSERT_EQ(layout.frames.size(), 1u);
    EXPECT_GE(layout.frames[0].slots, std::min(6, 3 + extra));
    EXPECT_LE(layout.frames[0].slots, 6);
    CheckBytes(program, layout);
  }
}

TEST(Scratch, PacksToTheBoundWhereOneOrderDoes) {
  const std::vector<Lifetime> items{{256, 0, 3}, {512, 1, 1},  {512, 2, 5},
                                    {256, 4, 6}, {1024, 6, 7}, {768, 7, 9}};
  const Packing packing = Pack(items, PackingBound(items));
  EXPECT_EQ(packing.bytes, PackingBound(items));
  for (size_t a = 0; a < items.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const bool together = items[a].first <= items[b].last && items[b].first <= items[a].last;
      const bool overlap = packing.offset[a] < packing.offset[b] + items[b].bytes &&
                           packing.offset[b] < packing.offset[a] + items[a].bytes;
      EXPECT_FALSE(together && overlap) << a << " " << b;
    }
  }
}

// Overhead of the arena over the live peak on the stage with the largest arena, which decides what
// fits.
double Overhead(const std::string& model, const Workload& work, const Strategy& strategy) {
  const LowerResult result = Lower(LoadModel(model).spec, work, strategy);
  if (const auto* refusal = std::get_if<Refusal>(&result)) {
    ADD_FAILURE() << refusal->reason;
    return 0;
  }
  const Plan& plan = std::get<Plan>(result);
  int64_t largest = 0;
  double overhead = 0, worst = 0;
  for (const Program& program : plan.programs) {
    const Layout layout = ComputeLayout(plan, program);
    const int64_t live = LivePeak(plan, program, layout, false).bytes;
    const double over = static_cast<double>(layout.arena_bytes - live) / static_cast<double>(live);
    worst = std::max(worst, over);
    if (layout.arena_bytes <= largest) continue;
    largest = layout.arena_bytes;
    overhead = over;
  }
  fmt::print("arena over live peak, {:<60} = {:.2f} % (worst stage {:.2f} %)\n", plan.title,
             100 * overhead, 100 * worst);
  return overhead;
}

TEST(Layout, ArenaIsCloseToTheLivePeak) {
  Workload gpt3{.seq_len = 2048, .global_batch = 192 * 32};
  Workload gpt2{.seq_len = 1024, .global_batch = 64};
  Strategy large;
  large.tp = 8;
  large.pp = 16;
  large.dp = 32;
  large.zero = 1;
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    large.recompute = recompute;
    large.schedule = PipelineSchedule::k1F1B;
    large.vpp = 1;
    EXPECT_LE(Overhead("gpt3-175b", gpt3, large), 0.02);
    large.schedule = PipelineSchedule::kInterleaved;
    large.vpp = 6;
    EXPECT_LE(Overhead("gpt3-175b", gpt3, large), 0.05);
    large.schedule = PipelineSchedule::kZeroBubble;
    large.vpp = 1;
    EXPECT_LE(Overhead("gpt3-175b", gpt3, large), 0.05);
  }
  for (int zero = 0; zero < 4; ++zero) {
    Strategy data;
    data.dp = 8;
    data.zero = zero;
    data.micro_batch = 2;
    data.rings = false;  // their second slots are memory that the strategy spends on overlap
    EXPECT_LE(Overhead("gpt2-xl", gpt2, data), 0.02);
    data.recompute = Recompute::kFull;
    EXPECT_LE(Overhead("gpt2-xl", gpt2, data), 0.02);
  }
  Strategy pipeline;
  pipeline.dp = 2;
  pipeline.pp = 4;
  EXPECT_LE(Overhead("gpt2-xl", gpt2, pipeline), 0.02);
  pipeline.schedule = PipelineSchedule::kZeroBubble;
  EXPECT_LE(Overhead("gpt2-xl", gpt2, pipeline), 0.05);
  pipeline.schedule = PipelineSchedule::kInterleaved;
  pipeline.vpp = 2;
  EXPECT_LE(Overhead("gpt2-xl", gpt2, pipeline), 0.05);
}

}  // namespace
}  // namespace orrery::ir
