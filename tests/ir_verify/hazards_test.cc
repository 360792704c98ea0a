// SPDX-License-Identifier: Apache-2.0
// Waits against the definition of a byte hazard, pair by pair.
#include "model/plan/ir/hazards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ir_verify/planting.h"
#include "tests/ir_verify/strategies.h"

namespace orrery::ir {
namespace {

struct Range {
  int64_t begin, end;
  bool write;
};

std::vector<Range> RangesOf(const Program& program, const Layout& layout, const Instance& it) {
  std::vector<Range> ranges;
  const Op& op = program.blocks[it.block].ops[it.op];
  auto add = [&](ViewId id, bool write) {
    const View& view = program.views[id];
    const int64_t size = DtypeBytes(program.buffers[view.buffer].dtype);
    const int64_t begin = layout.Address(view.buffer, it.micro_batch) + view.offset * size;
    ranges.push_back({begin, begin + view.elements * size, write});
  };
  for (ViewId view : op.in) add(view, false);
  for (ViewId view : op.out) add(view, true);
  return ranges;
}

bool Conflict(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (const Range& x : a) {
    for (const Range& y : b) {
      if ((x.write || y.write) && x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

// By instance and stream: the latest instance known to be complete before this one starts.
std::vector<std::vector<int32_t>> KnownBefore(const Program& program,
                                              const std::vector<Instance>& list, size_t streams) {
  std::vector<std::vector<int32_t>> known(list.size(), std::vector<int32_t>(streams, -1));
  std::vector<int32_t> last(streams, -1);
  auto merge = [&](size_t i, int32_t done) {
    for (size_t s = 0; s < streams; ++s) known[i][s] = std::max(known[i][s], known[done][s]);
    const uint8_t stream = program.blocks[list[done].block].ops[list[done].op].stream;
    known[i][stream] = std::max(known[i][stream], done);
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const uint8_t stream = program.blocks[list[i].block].ops[list[i].op].stream;
    if (last[stream] >= 0) merge(i, last[stream]);
    for (int32_t wait : list[i].waits) merge(i, wait);
    last[stream] = static_cast<int32_t>(i);
  }
  return known;
}

TEST(Hazards, WaitsAreCompleteAndNeeded) {
  size_t hazards = 0, waits = 0, ops = 0;
  for (const Strategy& strategy : DrawStrategies(25, 4)) {
    const Plan plan = LowerTiny(strategy, 4 * strategy.data_parallel());
    for (const Program& program : plan.programs) {
      SCOPED_TRACE(fmt::format("{} stage {}", plan.title, program.stage));
      const Layout layout = ComputeLayout(plan, program);
      const std::vector<Instance> list = Unfold(plan, program, layout);
      const auto known = KnownBefore(program, list, plan.streams.size());
      std::vector<std::vector<Range>> ranges;
      for (const Instance& it : list) ranges.push_back(RangesOf(program, layout, it));
      auto stream = [&](size_t i) { return program.blocks[list[i].block].ops[list[i].op].stream; };
      for (size_t j = 0; j < list.size(); ++j) {
        ++ops;
        for (size_t i = 0; i < j; ++i) {
          if (stream(i) == stream(j) || !Conflict(ranges[i], ranges[j])) continue;
          ++hazards;
          ASSERT_GE(known[j][stream(i)], static_cast<int32_t>(i))
              << "instance " << j << " does not wait for " << i;
        }
        for (int32_t wait : list[j].waits) {
          ++waits;
          EXPECT_NE(stream(wait), stream(j));
          EXPECT_TRUE(Conflict(ranges[wait], ranges[j]))
              << "instance " << j << " waits for " << wait << " in vain";
        }
      }
    }
  }
  fmt::print("{} ops, {} hazards between streams, {} waits\n", ops, hazards, waits);
  EXPECT_GT(hazards, waits);
}

TEST(Hazards, InstancesFollowTheScheduleAndItsFlags) {
  Strategy strategy;
  strategy.dp = 2;
  strategy.reduce_in_backward = true;
  const Plan plan = LowerTiny(strategy, 8);
  const Program& program = plan.programs[0];
  const Layout layout = ComputeLayout(plan, program);
  int predicated = 0;
  int32_t call = 0;
  for (const Instance& it : Unfold(plan, program, layout)) {
    EXPECT_GE(it.call, call);
    call = it.call;
    EXPECT_EQ(it.block, layout.calls[call].block);
    EXPECT_EQ(it.micro_batch, layout.calls[call].micro_batch);
    if (program.blocks[it.block].ops[it.op].when == 0) continue;
    ++predicated;
    EXPECT_EQ(layout.calls[call].flags & kWhenLast, kWhenLast);
  }
  EXPECT_GT(predicated, 0);
}

}  // namespace
}  // namespace orrery::ir
