// SPDX-License-Identifier: Apache-2.0
// Faults in what lies in memory of the host.
#include <gtest/gtest.h>

#include "model/plan/ir/usage.h"
#include "tests/ir_verify/planted_faults.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

constexpr const char* kKept = "l0.mlp.in";  // what the backward pass of the first layer reads

Strategy States(int dp = 1, int zero = 0) {
  Strategy s = Degrees(1, 1, dp, zero);
  s.offload.optimizer = 1;
  return s;
}
Strategy Activations() {
  Strategy s = Degrees(1, 1, 1);
  s.offload.activations = true;
  return s;
}

void Redirect(Plan& plan, const std::string& block, const std::string& from,
              const std::string& to) {
  Program& program = plan.programs[0];
  const ViewId before = Named(program, from), after = Named(program, to);
  int changed = 0;
  for (Op& op : BlockOf(program, block).ops) {
    for (ViewId& view : op.in) {
      if (view != before || op.kind == OpKind::kCopy) continue;
      view = after;
      ++changed;
    }
  }
  ASSERT_GT(changed, 0);
}

// The buffer is read early: before the copy that brings it back.
void ReadEarly(Plan& plan) {
  Block& backward = BlockOf(plan.programs[0], "B0");
  const std::size_t copy = Find(plan.programs[0], backward, Writes(std::string(kKept) + "@back"));
  MoveOp(backward, copy, backward.ops.size() - 1);
}
void NeverBack(Plan& plan) { ASSERT_EQ(Drop(plan, Writes(std::string(kKept) + "@back")), 1); }
void NeverSent(Plan& plan) { ASSERT_EQ(Drop(plan, Writes(std::string(kKept) + "@host")), 1); }
void SentTooEarly(Plan& plan) {
  Block& forward = BlockOf(plan.programs[0], "F0");
  MoveOp(forward, Find(plan.programs[0], forward, Writes(std::string(kKept) + "@host")), 0);
}
void ReadOnHost(Plan& plan) {
  Redirect(plan, "B0", std::string(kKept) + "@back", std::string(kKept) + "@host");
}
void KernelOnHost(Plan& plan) {
  for (Op& op : BlockOf(plan.programs[0], "E").ops) {
    if (op.kind != OpKind::kAdam) continue;
    op.in[0] = Named(plan.programs[0], "G." + plan.programs[0].units[0].name);
    return;
  }
  FAIL() << "no update";
}
void UpdateWithoutGradient(Plan& plan) {
  const std::string& unit = plan.programs[0].units[1].name;
  ASSERT_EQ(Drop(plan, Writes("Gh." + unit)), 1);
}
void UpdateStays(Plan& plan) {
  const std::string& unit = plan.programs[0].units[1].name;
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kCopy), Writes("W." + unit))), 1);
}
void WeightsBeforeUpdate(Plan& plan) {
  Block& end = BlockOf(plan.programs[0], "E");
  const std::string& unit = plan.programs[0].units[1].name;
  const std::size_t copy =
      Find(plan.programs[0], end, Both(Is(OpKind::kCopy), Writes("W." + unit)));
  MoveOp(end, copy, 0);
}
void OtherUnit(Plan& plan) {
  Program& program = plan.programs[0];
  const ViewId other = Named(program, "Gh." + program.units[2].name);
  const std::string& unit = program.units[1].name;
  ASSERT_EQ(Change(plan, Both(Is(OpKind::kCopy), Writes("Gh." + unit)),
                   [&](Op& op) { op.out[0] = other; }),
            1);
}
void PartialGradient(Plan& plan) { ASSERT_GT(Drop(plan, Is(OpKind::kReduceScatter)), 0); }
void SlotShort(const Plan& plan, Layouts& layouts) {
  for (Frame& frame : layouts[0].frames) {
    if (!OnHost(plan.programs[0].buffers[frame.buffers.front()])) continue;
    frame.slots = 1;
    std::fill(frame.slot_of.begin(), frame.slot_of.end(), 0);
  }
}
void InArena(const Plan& plan, Layouts& layouts) {
  for (std::size_t b = 0; b < plan.programs[0].buffers.size(); ++b) {
    if (OnHost(plan.programs[0].buffers[b]) && layouts[0].frame_of[b] < 0) {
      layouts[0].offset[b] = 0;
      return;
    }
  }
}
Strategy Weights(int dp = 1) {
  Strategy s = States(dp, 3);
  s.offload.weights = true;
  return s;
}
std::string FetchedBy(Plan& plan, std::size_t unit) {
  const std::string of = "." + plan.programs[0].units[unit].name + "@F0";
  for (const Op& op : BlockOf(plan.programs[0], "F0").ops) {
    if (op.kind != OpKind::kCopy) continue;
    const std::string& to = plan.programs[0].views[op.out[0]].name;
    if (to.find(of) != std::string::npos) return to;
  }
  return "";
}
void WeightsNeverFetched(Plan& plan) { ASSERT_EQ(Drop(plan, Writes(FetchedBy(plan, 1))), 1); }
void WeightsFetchedLate(Plan& plan) {
  Block& forward = BlockOf(plan.programs[0], "F0");
  MoveOp(forward, Find(plan.programs[0], forward, Writes(FetchedBy(plan, 1))),
         forward.ops.size() - 1);
}
void WeightsOfAnotherUnit(Plan& plan) {
  const ViewId other = Named(plan.programs[0], "W." + plan.programs[0].units[2].name);
  ASSERT_EQ(Change(plan, Writes(FetchedBy(plan, 1)), [&](Op& op) { op.in[0] = other; }), 1);
}
void WeightsReadOnHost(Plan& plan) {
  const std::string& unit = plan.programs[0].units[1].name;
  const ViewId host = Named(plan.programs[0], "W." + unit);
  const ViewId fetched = Named(plan.programs[0], FetchedBy(plan, 1));
  for (View& view : plan.programs[0].views) {
    if (view.buffer == plan.programs[0].views[fetched].buffer &&
        view.name.find('/') != std::string::npos)
      view.buffer = plan.programs[0].views[host].buffer;
  }
}
void ShardGatheredFromHost(Plan& plan) {
  const std::string& unit = plan.programs[0].units[1].name;
  const ViewId host = Named(plan.programs[0], "Ws." + unit);
  const ViewId staged = Named(plan.programs[0], FetchedBy(plan, 1));
  ASSERT_EQ(Change(plan, Both(Is(OpKind::kAllGather), Reads(plan.programs[0].views[staged].name)),
                   [&](Op& op) { op.in[0] = host; }),
            1);
}
Strategy StatesBehindGradients() {
  Strategy s = States(2, 2);
  s.gradients_on_host = true;
  return s;
}
// Squares of what is on its way to the host, added in the passes.
void LoseStreamedSquares(Plan& plan) {
  Block& backward = BlockOf(plan.programs[0], "B0");
  const size_t at = Find(plan.programs[0], backward, Is(OpKind::kSumSq));
  backward.ops.erase(backward.ops.begin() + static_cast<std::ptrdiff_t>(at));
}
Strategy AllForwardFirst() {
  Strategy s = Activations();
  s.schedule = PipelineSchedule::kGpipe;
  return s;
}

}  // namespace

std::vector<PlantedFault> OffloadFaults() {
  using F = Fault;
  return {
      {"offloaded buffer read early", Activations(), ReadEarly, {F::kStaleRead}, {}},
      {"offloaded buffer never back", Activations(), NeverBack, {F::kReadBeforeWrite}, {}},
      {"offloaded buffer never sent", Activations(), NeverSent, {F::kReadBeforeWrite}, {}},
      {"offloaded buffer sent before it is made", Activations(), SentTooEarly, {F::kStaleRead}, {}},
      {"kernel reads memory of the host", Activations(), ReadOnHost, {F::kSpace}, {}},
      {"host slot one short", AllForwardFirst(), {}, {F::kSlotOverrun}, SlotShort},
      {"buffer of the host in the arena", States(), {}, {F::kByteClash}, InArena},
      {"CPU reads memory of the device", States(), KernelOnHost, {F::kSpace}, {}},
      {"CPU updates without a gradient",
       States(),
       UpdateWithoutGradient,
       {F::kReadBeforeWrite},
       {}},
      {"updated weights stay on the host", States(), UpdateStays, {F::kCoverage}, {}},
      {"weights back before the update", States(), WeightsBeforeUpdate, {F::kStaleRead}, {}},
      {"gradient of another unit sent", States(), OtherUnit, {F::kCoverage}, {}},
      {"one pass adds no squares to the norm",
       StatesBehindGradients(),
       LoseStreamedSquares,
       {F::kCoverage},
       {}},
      {"weights never fetched", Weights(), WeightsNeverFetched, {F::kReadBeforeWrite}, {}},
      {"weights fetched behind their use", Weights(), WeightsFetchedLate, {F::kStaleRead}, {}},
      {"weights of another unit fetched", Weights(), WeightsOfAnotherUnit, {F::kCoverage}, {}},
      {"kernel reads weights on the host", Weights(), WeightsReadOnHost, {F::kSpace}, {}},
      {"shard gathered from the host", Weights(2), ShardGatheredFromHost, {F::kSpace}, {}},
      {"gradient sent that is not reduced",
       States(2, 1),
       PartialGradient,
       {F::kReadBeforeWrite},
       {}},
  };
}

}  // namespace orrery::ir
