// SPDX-License-Identifier: Apache-2.0
// The number of all ranks against nodes, GPUs and degrees.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/import_steps.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

// DeepSpeed's batches are those of one number of ranks, where all three stand in the file.
std::optional<int64_t> RanksOfBatch(const SettingIndex& index) {
  constexpr const char *kAll = "train_batch_size", *kMicro = "train_micro_batch_size_per_gpu",
                       *kSteps = "gradient_accumulation_steps";
  for (const char* key : {kAll, kMicro, kSteps}) {
    if (index.Peek(key).empty() || index.Peek(key) == kAuto) return std::nullopt;
  }
  const auto all = index.Whole(kAll, 1), micro = index.Whole(kMicro, 1),
             steps = index.Whole(kSteps, 1);
  if (*all % (*micro * *steps) == 0) return *all / (*micro * *steps);
  throw InputError({{index.Find(kAll)->where,
                     fmt::format("{} {} is no multiple of {} {} x {} {}", kAll, *all, kMicro,
                                 *micro, kSteps, *steps),
                     "DeepSpeed asserts that they agree on a number of ranks"}});
}

}  // namespace

void FitWorld(const Values& given, Settings* settings, std::vector<std::string>* notes) {
  const auto number = [&](const char* key, int64_t* value) -> Setting* {
    const auto at = std::ranges::find(*settings, key, &Setting::key);
    const bool known = at != settings->end() && at->unresolved.empty() &&
                       ParseInteger(at->value, value) == NumberFault::kNone && *value > 0;
    return known ? &*at : nullptr;
  };
  int64_t world = 0, nodes = 0, gpus = 0;
  const Setting *all = number("WORLD", &world), *machines = number("NNODES", &nodes);
  Setting* each = number("GPUS_PER_NODE", &gpus);
  const bool unread = each == nullptr && Has(*settings, {"GPUS_PER_NODE"});
  if (all == nullptr || machines == nullptr || unread) return;
  if (each == nullptr) gpus = NumberOf(given, "gpus_per_node", 0);
  if (gpus > 0 && gpus <= world && nodes == world / gpus && world % gpus == 0) return;
  const auto flag = given.find("gpus_per_node");
  const bool flags = given.contains("nodes") || (flag != given.end() && !flag->second.key.empty());
  const std::string of = gpus > 0 ? fmt::format(" of {} GPUs", gpus) : "";
  std::string note;
  if (flags) {
    note = fmt::format("{}: {} ranks there; the prediction is of {} node{}{}", Place(all->where),
                       world, nodes, nodes == 1 ? "" : "s", of);
  } else if (world % nodes != 0 || (gpus > 0 && world / nodes > gpus)) {
    throw InputError({{all->where,
                       fmt::format("{} ranks here, and {} node{}{} in {}", world, nodes,
                                   nodes == 1 ? "" : "s", of, Place(machines->where)),
                       "keep one of them, or give --nodes N and --gpus-per-node N"}});
  } else {
    note = fmt::format("{}: {} ranks are {} on each of {} nodes", Place(all->where), world,
                       world / nodes, nodes);
    const Setting fitted{"GPUS_PER_NODE", Text(world / nodes), all->where, ""};
    if (each != nullptr)
      *each = fitted;
    else
      settings->push_back(fitted);
  }
  if (std::ranges::find(*notes, note) == notes->end()) notes->push_back(std::move(note));
}

void TakeWorld(Target target, const SettingIndex& index, const Values& given, Values* values,
               std::vector<std::string>* notes) {
  auto world = index.Whole("WORLD", 1);
  const auto replicas = index.Whole("data-parallel-size", 1);
  const Setting* named = world ? index.Find("WORLD") : nullptr;
  if (target == kDeepSpeed && !world && !given.contains("global_batch") &&
      !given.contains("micro_batch")) {
    if (const auto ranks = RanksOfBatch(index)) {
      world = *ranks * ModelRanks(*values);
      named = index.Find("train_batch_size");
    }
  }
  if (world && replicas && *world != *replicas * ModelRanks(*values))
    throw InputError(
        {{index.Find("data-parallel-size")->where,
          fmt::format("data_parallel_size {} x {} ranks of a replica are not world_size "
                      "{} of {}",
                      *replicas, ModelRanks(*values), *world, Place(named->where)),
          "world_size = tp x pp x cp x data_parallel_size"}});
  if (!world || values->contains("nodes") || target == kAccelerate) return;
  const Location where = named->where;
  const auto dp = *world / ModelRanks(*values);
  values->insert_or_assign("dp", Value{Text(dp), where, "world_size"});
  // The cluster's nodes, used whole where there are several; a flag, then the files, then the cluster say how many GPUs.
  const auto flag = given.find("gpus_per_node");
  const bool said = flag != given.end() && !flag->second.key.empty();
  const int64_t of_cluster = NumberOf(given, "gpus_per_node", 0);
  const int64_t gpus = said ? of_cluster : NumberOf(*values, "gpus_per_node", of_cluster);
  if (gpus == 0 || given.contains("nodes") || (*world > gpus && *world % gpus != 0)) {
    notes->push_back(fmt::format("{}: world size {}; how many GPUs a node has is not said",
                                 Place(where), *world));
    return;
  }
  const int64_t each = std::min(*world, gpus);
  values->insert_or_assign("nodes", Value{Text(*world / each), where, "world_size"});
  if (each < gpus)
    values->insert_or_assign("gpus_per_node", Value{Text(each), where, "world_size"});
  notes->push_back(fmt::format(
      "{}: world size {}, on the cluster {} of {} GPU{}", Place(where), *world,
      *world / each == 1 ? "1 node" : Text(*world / each) + " nodes", each, each == 1 ? "" : "s"));
}

}  // namespace orrery::exchange
