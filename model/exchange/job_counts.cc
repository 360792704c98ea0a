// SPDX-License-Identifier: Apache-2.0
// What launchers start in a job, against what its scheduler gives.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/exchange/slurm_counts.h"

namespace orrery::exchange {
namespace {

int64_t JobNumber(const Setting* setting) {
  int64_t number = 0;
  return setting != nullptr && ParseInteger(setting->value, &number) == NumberFault::kNone ? number
                                                                                           : 0;
}
Setting* JobCountIn(Settings* settings, const char* key) {
  const auto at = std::ranges::find(*settings, key, &Setting::key);
  return at == settings->end() ? nullptr : &*at;
}

}  // namespace

// Open MPI 4 and 5, MPICH and Intel MPI in jobs of Slurm and PBS: a node's slots, then those of the next.
void JobCounts::FillSlots(int64_t slots, const Location& by) {
  const int64_t started = fills && !agents ? JobNumber(&*fills) : 0;
  Setting* const nodes = JobCountIn(&document->settings, "NNODES");
  const int64_t all = JobNumber(nodes);
  if (started == 0 || slots < 1 || all < 1 || started / slots >= all) return;
  const int64_t taken = (started + slots - 1) / slots, each = std::min(slots, started);
  Setting* const gpus = JobCountIn(&document->settings, "GPUS_PER_NODE");
  // Slots may be cores (ppn=32:gpus=8), and ranks are placed by GPUs then.
  if (gpus != nullptr && JobNumber(gpus) < each) return;
  if (taken * each != started)
    throw InputError({{fills->where,
                       fmt::format("{} ranks fill the {} slots of a node ({}) before the next: {} "
                                   "on the last of {} nodes",
                                   started, slots, Place(by), started - (taken - 1) * each, taken),
                       "as many on each node, such as with --map-by node"}});
  if (taken < all)
    document->notes.push_back(
        fmt::format("{}: {} ranks fill the slots of {} of {} nodes, {} on "
                    "each ({})",
                    Place(fills->where), started, taken, all, each, Place(by)));
  nodes->value = std::to_string(taken);
  const Setting filled{"GPUS_PER_NODE", std::to_string(each), fills->where, "", true};
  if (gpus != nullptr)
    *gpus = filled;
  else
    document->settings.push_back(filled);
}

void JobCounts::CheckOneNode() const {
  // Of the job, not torchrun's own next to --standalone.
  const auto own = of_agent.find("NNODES");
  const auto nodes = std::ranges::find_if(document->settings, [&](const Setting& setting) {
    return setting.key == "NNODES" &&
           (own == of_agent.end() || own->second.where.line != setting.where.line ||
            own->second.where.column != setting.where.column);
  });
  if (!one_node || nodes == document->settings.end() || JobNumber(&*nodes) <= 1) return;
  throw InputError({{one_node->where,
                     fmt::format("torchrun starts one node {}, and the job has {} ({})",
                                 one_node->said, nodes->value, Place(nodes->where)),
                     one_node->said.starts_with("without")
                         ? fmt::format("--nnodes {} and a rendezvous",
                                       slurm || srun ? "$SLURM_NNODES" : nodes->value)
                         : "a rendezvous of all nodes instead, such as --rdzv-backend c10d"}});
}

void JobCounts::CheckWorldSize(const std::string& value, const Location& where) const {
  int64_t said = 0;
  const int64_t started = ranks && !agents ? JobNumber(&*ranks) : 0;
  if (started == 0 || ParseInteger(value, &said) != NumberFault::kNone || said == started) return;
  throw InputError({{where,
                     fmt::format("WORLD_SIZE {} here, and {} ranks are started ({})", said, started,
                                 Place(ranks->where)),
                     "they wait for ranks that never come: keep one of them"}});
}

}  // namespace orrery::exchange
