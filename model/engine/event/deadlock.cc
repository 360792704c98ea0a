// SPDX-License-Identifier: Apache-2.0
// Names stuck streams and what each of them waits for.
#include "model/engine/event/deadlock.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/diagnostics.h"

namespace orrery::sim {
namespace {

constexpr int kMostStuck = 8;  // streams that the message names

std::string MissingRanks(const StepState& state, int32_t m) {
  const CommunicatorTable& table = state.table;
  const Communicator& communicator = table.communicators[At(m)];
  std::string missing;
  for (int32_t i = 0; i < communicator.members; ++i) {
    const int64_t member = table.members[At(communicator.first_member + i)];
    bool here = false;
    for (int32_t k = 0; k < state.rendezvous[At(m)].arrived; ++k)
      here |= table.ranks[state.arrivals[At(communicator.first_arrival + k)].rank] == member;
    const bool executed = std::ranges::binary_search(table.ranks, member);
    if (!here && executed) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", member);
  }
  return missing;
}

std::string WaitsFor(const StepState& state, uint32_t r, int32_t id) {
  const Task& task = state.TaskOf(r, id);
  const int waits = state.waits[state.ranks[r].first_wait + At(id)];
  if (waits > 0) return fmt::format("waits for {} ops on other streams", waits);
  if (task.epoch > state.ranks[r].epoch) return "waits for its host, which waits for the device";
  if (task.line < 0) return "computes";
  return "waits for rank " + MissingRanks(state, state.CommunicatorOf(r, task));
}

}  // namespace

void CheckAllDone(const StepState& state) {
  std::string stuck;
  int named = 0;
  for (std::size_t i = 0; i < state.streams.size() && named < kMostStuck; ++i) {
    const auto r = static_cast<uint32_t>(i / state.stream_count);
    const std::vector<int32_t>& order = state.ranks[r].stage->on_stream[i % state.stream_count];
    if (state.streams[i].head >= order.size()) continue;
    const int32_t id = order[state.streams[i].head];
    stuck += fmt::format("\n  rank {}, {}: {}", state.table.ranks[r], state.Where(r, id),
                         WaitsFor(state, r, id));
    ++named;
  }
  if (named > 0)
    throw InputError("deadlock: the step never ends" + stuck, "plan show --ir prints the plan");
}

}  // namespace orrery::sim
