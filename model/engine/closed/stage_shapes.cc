// SPDX-License-Identifier: Apache-2.0
// Where the groups of each stage lie, and which neighbouring stages share a node.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "model/engine/closed/closed_form.h"

namespace orrery {
namespace {

// Ranks by stage, data rank and place inside of a layer.
struct Mesh {
  DataAxes axes;
  int64_t stages, layer, data;

  int64_t Rank(int64_t stage, int64_t of_data, int64_t place) const {
    return place +
           layer * (axes.stages_inside > 1 ? stage + stages * of_data : of_data + data * stage);
  }
};

// Of one kind of groups, which take `size` data ranks from each `first` on, `stride` apart.
struct AxisKind {
  int size, stride, block;
  GroupShape DataShapes::*shape;
  Collective collective;  // that decides which is the slowest
};

void FindShapes(const Mesh& mesh, const AxisKind& kind, int domain_gpus,
                const GroupSeconds& seconds, std::vector<DataShapes>* of) {
  if (kind.size < 2) return;
  GroupShapes shapes(domain_gpus);
  std::vector<int64_t> domains(static_cast<std::size_t>(kind.size));
  const auto stages = static_cast<int64_t>(of->size());
  for (const bool adds : {true, false}) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      std::vector<GroupShape> kinds;
      for (int64_t first = 0; first < mesh.data; ++first) {
        if (first % kind.block >= kind.stride) continue;
        for (int64_t place = 0; place < mesh.layer; ++place) {
          for (int i = 0; i < kind.size; ++i)
            domains[static_cast<std::size_t>(i)] =
                mesh.Rank(stage, first + int64_t{i} * kind.stride, place) / domain_gpus;
          if (adds) {
            shapes.Add(domains);
            continue;
          }
          const GroupShape shape = shapes.Of(domains);
          if (std::ranges::find(kinds, shape) == kinds.end()) kinds.push_back(shape);
        }
      }
      if (adds) continue;
      (*of)[static_cast<std::size_t>(stage)].*kind.shape =
          kinds.size() == 1 ? kinds.front()
                            : *std::ranges::max_element(kinds, {}, [&](const GroupShape& shape) {
                                return seconds(kind.collective, shape);
                              });
    }
  }
}

}  // namespace

DataShapes ShapesOf(const DataAxes& axes, int domain_gpus) {
  const auto [dp, dp_outer, inner, stages_inside] = axes;
  return {ShapeOfAxis(dp, inner, domain_gpus), ShapeOfAxis(dp * dp_outer, inner, domain_gpus),
          ShapeOfAxis(dp_outer, inner * dp, domain_gpus)};
}

std::vector<DataShapes> ShapesByStage(const DataAxes& axes, int domain_gpus, int64_t ranks,
                                      const GroupSeconds& seconds) {
  const DataShapes alike = ShapesOf(axes, domain_gpus);
  const int replicas = axes.dp * axes.dp_outer;
  const bool inside = axes.stages_inside > 1;
  const int64_t stages = inside
                             ? axes.stages_inside
                             : std::max<int64_t>(1, ranks / (int64_t{1} * axes.inner * replicas));
  if (LieAlike(axes.dp, axes.inner, domain_gpus) && LieAlike(replicas, axes.inner, domain_gpus))
    return {alike};
  const Mesh mesh{axes, stages, axes.inner / axes.stages_inside, replicas};
  // Stages of so many ranks lie as those before.
  const int64_t block = mesh.layer * replicas;
  const int64_t unlike =
      inside ? stages : std::min(stages, std::lcm<int64_t>(block, domain_gpus) / block);
  std::vector<DataShapes> of(static_cast<std::size_t>(unlike), alike);
  for (const AxisKind& kind :
       {AxisKind{axes.dp, 1, axes.dp, &DataShapes::shards, Collective::kAllGather},
        {replicas, 1, replicas, &DataShapes::replicas, Collective::kAllReduce},
        {axes.dp_outer, axes.dp, replicas, &DataShapes::between, Collective::kAllReduce}})
    FindShapes(mesh, kind, domain_gpus, seconds, &of);
  if (std::ranges::all_of(of, [&](const DataShapes& one) { return one == of.front(); }))
    return {of.front()};
  for (std::size_t stage = of.size(); stage < static_cast<std::size_t>(stages); ++stage) {
    const DataShapes known = of[stage % static_cast<std::size_t>(unlike)];
    of.push_back(known);
  }
  return of;
}

namespace {

// By stage, whether the hop of these ranks of a replica to the next stage leaves a domain; the last one's to the first.
std::vector<char> HopsOf(int64_t first, int ranks, int64_t stride, int pp, int domain_gpus) {
  std::vector<char> leaves(static_cast<std::size_t>(pp), 0);
  for (int64_t rank = first; rank < first + ranks; ++rank) {
    for (int64_t stage = 0; stage < pp; ++stage) {
      const int64_t next = rank + (stage + 1) % pp * stride;
      char& of = leaves[static_cast<std::size_t>(stage)];
      of = of || (rank + stage * stride) / domain_gpus != next / domain_gpus;
    }
  }
  return leaves;
}

}  // namespace

// Of pairs of one rank each, which are on one node where all stages are.
GroupShape ShapeOfEnds(const StageAxes& axes, int domain_gpus, int64_t ranks,
                       std::optional<int64_t> of) {
  if (LieAlike(axes.pp, axes.inner, domain_gpus)) {
    if (domain_gpus / std::max(axes.inner, 1) >= axes.pp)
      return {2, 2, std::clamp(axes.inner, 1, domain_gpus)};
    return ShapeOfAxis(2, axes.inner * (axes.pp - 1), domain_gpus);
  }
  const int64_t block = int64_t{1} * axes.inner * axes.pp;
  GroupShapes shapes(domain_gpus);
  GroupShape slowest;
  for (const bool adds : {true, false}) {
    for (int64_t first = 0; first + block <= ranks; first += block) {
      for (int64_t rank = first; rank < first + axes.inner; ++rank) {
        const std::array<int64_t, 2> ends = {rank / domain_gpus,
                                             (rank + block - axes.inner) / domain_gpus};
        if (adds) {
          shapes.Add(ends);
          continue;
        }
        const GroupShape shape = shapes.Of(ends);
        if (rank == of) return shape;
        if (slowest.ranks == 1 || Slower(shape, slowest)) slowest = shape;
      }
    }
  }
  return slowest;
}

namespace {

int64_t CountOf(const std::vector<char>& of) {
  return std::accumulate(of.begin(), of.end(), int64_t{0});
}

}  // namespace

std::vector<ReplicaWay> WaysOfReplicas(const StageAxes& axes, int domain_gpus, int64_t ranks) {
  const int64_t block = int64_t{1} * axes.inner * axes.pp;
  if (axes.pp < 2 || LieAlike(axes.pp, axes.inner, domain_gpus)) return {};
  std::vector<ReplicaWay> ways;
  const bool alike = axes.together < 2 || LieAlike(axes.together, 1, domain_gpus);
  const NeighbourGroups layers(axes.together, domain_gpus, ranks);
  // From there on replicas lie as before.
  const int64_t end = std::min(ranks / block * block, std::lcm<int64_t>(block, domain_gpus));
  for (int64_t first = 0; first < end; first += block) {
    for (int64_t rank = first; rank < first + axes.inner; rank += axes.together) {
      ReplicaWay way{HopsOf(rank, axes.together, axes.inner, axes.pp, domain_gpus),
                     {},
                     rank,
                     HopsOf(rank, 1, axes.inner, axes.pp, domain_gpus)};
      for (int64_t stage = 0; !alike && stage < axes.pp; ++stage)
        way.layers.push_back(layers.Of(rank + stage * axes.inner));
      if (std::ranges::none_of(ways, [&](const ReplicaWay& of) { return of.SameAs(way); }))
        ways.push_back(std::move(way));
    }
  }
  std::ranges::stable_sort(ways, std::greater<>(),
                           [](const ReplicaWay& way) { return CountOf(way.leaves); });
  return ways;
}

}  // namespace orrery
