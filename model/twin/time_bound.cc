// SPDX-License-Identifier: Apache-2.0
// Lower bounds of a step from the times of layers.
#include "model/twin/time_bound.h"

#include <algorithm>
#include <cmath>

namespace orrery {

namespace {

// Of a stage that waits for a gradient: the layer that it recomputes meanwhile.
double Ahead(const LayerTable& table) {
  return table.recomputed > 0 && table.boundary_cut == 0
             ? table.layer.leading.busy() / table.recomputed
             : 0.0;
}

}  // namespace

double WorkOf(const LayerTable& table) {
  const auto device = [](const LayerTime& time) {
    return time.forward.busy() + time.backward.busy();
  };
  const auto host = [](const LayerTime& time) { return time.forward.host + time.backward.host; };
  return std::max(table.layers * device(table.layer) + device(table.embedding) + device(table.head),
                  table.layers * host(table.layer) + host(table.embedding) + host(table.head));
}

// The stages before stage i have a tensor to compute and a gradient to pass on while it is idle, and it computes all
// micro-batches: max over i of B(i) + M t(i), see the header. Gradients of weights that it has put off when its last
// gradient leaves may fill that time: at most i + 1 of them, 2 p in a V.
double TimeBound(const LayerTable& slowest, const Strategy& s, const PipelineLayers& pipeline,
                 double micro_batches) {
  if (s.pp == 1) return micro_batches * WorkOf(slowest.Fastest());
  const LayerTable& table = slowest.Least();
  const std::vector<int>& layout = *pipeline.layout;
  const double pass = table.layer.forward.busy() + table.layer.backward.busy();
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  const double put_off = SplitsBackward(s.schedule) ? table.layer.weight_gradient : 0.0;
  const double embedding = table.embedding.forward.busy() + table.embedding.backward.busy();
  const double head = table.head.forward.busy() + table.head.backward.busy();
  const double again = table.recomputing.backward.busy();
  const std::size_t p = static_cast<std::size_t>(s.pp);
  double before = embedding, bound = 0;
  for (std::size_t stage = 0; stage < p; ++stage) {
    double layers = 0, more = 0;
    for (int chunk = 0; chunk < s.vpp; ++chunk) {
      const int held = layout[static_cast<std::size_t>(
          VirtualStage(in_a_v, s.pp, static_cast<int>(stage), chunk))];
      layers += held;
      more += pipeline.MoreRecomputed(s.recompute, held);
    }
    const bool first = stage == 0, last = in_a_v ? first : stage + 1 == p;
    const double own =
        layers * pass + more * again + (first ? embedding : 0.0) + (last ? head : 0.0);
    const double most = in_a_v ? 2.0 * s.pp : static_cast<double>(stage) + 1;
    const double filled = std::min(micro_batches, most) * put_off * layers;
    bound = std::max(bound, micro_batches * own + (first ? 0.0 : std::max(0.0, before - filled)));
    before += layout[stage] * (pass - put_off) +
              pipeline.MoreRecomputed(s.recompute, layout[stage]) * again;
    if (table.RecomputesAhead(s.recompute, layout[stage])) before -= Ahead(table);
  }
  return std::max(bound, micro_batches * WorkOf(table) / s.pp);
}

namespace {

// Seconds of a micro-batch on a stage. Weight gradients that are put off may have messages to hide behind.
double OnStage(const LayerTime& time, const Strategy& s, double slowdown) {
  const double kernels = time.forward.device + time.backward.device;
  const double all = time.forward.busy() + time.backward.busy();
  return slowdown * kernels + (SplitsBackward(s.schedule) ? 0.0 : all - kernels);
}

}  // namespace

StageCost CostOnStage(const LayerTable& slowest, const Strategy& s, double slowdown) {
  const LayerTable& table = slowest.Least();
  return {OnStage(table.layer, s, slowdown) -
              table.recomputed * OnStage(table.recomputing, s, slowdown),
          OnStage(table.embedding, s, slowdown), OnStage(table.head, s, slowdown)};
}

double TimeBound(const LayerTable& slowest, const Strategy& s, const PipelineLayers& pipeline,
                 double micro_batches, const std::vector<double>& slowdown) {
  const LayerTable& table = slowest.Least();
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  double most = 0;
  for (int stage = 0; stage < s.pp; ++stage) {
    const double slower = slowdown[static_cast<std::size_t>(stage)];
    double layers = s.pp == 1 ? table.layers : 0, more = 0;
    for (int chunk = 0; s.pp > 1 && chunk < s.vpp; ++chunk) {
      const int held =
          (*pipeline.layout)[static_cast<std::size_t>(VirtualStage(in_a_v, s.pp, stage, chunk))];
      layers += held;
      more += pipeline.MoreRecomputed(s.recompute, held);
    }
    double own = layers * OnStage(table.layer, s, slower);
    if (more != 0) own += more * OnStage(table.recomputing, s, slower);
    if (stage == 0) own += OnStage(table.embedding, s, slower);
    if (stage == (in_a_v ? 0 : s.pp - 1)) own += OnStage(table.head, s, slower);
    most = std::max(most, own);
  }
  return micro_batches * most;
}

// Stages that end together: all layers and ends over what all stages together compute per second.
double LeastTime(const LayerTable& slowest, const Strategy& s, double micro_batches,
                 const std::vector<double>& slowdown) {
  const LayerTable& table = slowest.Least();
  const double last =
      s.schedule == PipelineSchedule::kZeroBubbleV ? slowdown.front() : slowdown.back();
  double rate = 0, least = 1e30, most = 0;
  for (const double slower : slowdown) {
    const double layer = OnStage(table.layer, s, slower);
    rate += 1 / layer;
    const double again = OnStage(table.recomputing, s, slower) / layer;
    least = std::min(least, again), most = std::max(most, again);
  }
  // At worst all layers that are recomputed are where that takes the smallest part of a layer's time.
  const double layers =
      table.layers * (1 - table.recomputed * (most - least)) +
      OnStage(table.embedding, s, slowdown.front()) / OnStage(table.layer, s, slowdown.front()) +
      OnStage(table.head, s, last) / OnStage(table.layer, s, last);
  return micro_batches * layers / rate;
}

namespace {

// Of a pipeline's messages, from the first virtual stage to the last.
double SecondsOfWay(const StageMessages& messages, double bytes, int chunks, bool in_a_v) {
  const double inside = messages.inside.Time(bytes), between = messages.between.Time(bytes);
  double way = messages.hops_inside * inside + messages.hops_between * between;
  for (std::size_t hop = 0; hop + 1 < messages.hops.size(); ++hop) {
    const int kind = messages.hops[hop] - StageMessages::kNarrow;
    if (kind >= 0) way += messages.narrow[static_cast<std::size_t>(kind)].Time(bytes);
  }
  if (in_a_v) return 2 * way;  // the last stage hands over to itself
  return chunks * way + (chunks - 1) * (messages.hops_between > 0 ? between : inside);
}

}  // namespace

double JourneyBound(const LayerTable& slowest, const Strategy& s, const PipelineLayers& pipeline,
                    double micro_batches, const StageMessages& messages) {
  const LayerTable& table = slowest.Least();
  const PassRules rules = RulesOf(s.schedule);
  if (s.pp == 1 || !(rules.interleaved || rules.in_a_v) || slowest.least) return 0;
  const std::vector<int>& layout = *pipeline.layout;
  const double put_off = rules.fills_bubble ? table.layer.weight_gradient : 0.0;
  const double forward = table.layer.forward.busy();
  const double backward = table.layer.backward.busy() - put_off;
  const double head = table.head.forward.busy() + table.head.backward.busy();
  double journey = table.layers * (forward + backward) + head + table.embedding.forward.busy() +
                   table.embedding.backward.busy() +
                   2 * SecondsOfWay(messages, table.boundary_bytes, s.vpp, rules.in_a_v);
  const double ahead = Ahead(table);
  for (std::size_t i = 0; ahead > 0 && i + 1 < layout.size(); ++i) {
    if (table.RecomputesAhead(s.recompute, layout[i])) journey -= ahead;
  }
  // Of more micro-batches than a walk takes, rounds of the busiest stage stand for the others.
  const double walked = ScheduleClock::Walked(rules, s.pp, micro_batches);
  const double later = (micro_batches - walked) * WorkOf(table) / s.pp;
  // Of a chunk, whose layers may be recomputed more or less often than the average one.
  const auto pass = [&](int held, double of_layer) {
    return held * of_layer +
           pipeline.MoreRecomputed(s.recompute, held) * table.recomputing.backward.busy();
  };
  if (rules.in_a_v)
    return journey + (walked - 1) * (pass(layout.back(), backward) + head) +
           layout.front() * put_off + later;
  double others = 0;  // other chunks of the last stage
  for (int chunk = 0; chunk + 1 < s.vpp; ++chunk)
    others += pass(layout[static_cast<std::size_t>(VirtualStage(false, s.pp, s.pp - 1, chunk))],
                   forward + backward);
  return journey + (walked - s.pp) * others +
         (walked - 1) * (pass(layout.back(), forward + backward) + head) + later;
}

namespace {

// Chunks of a stage that hold a layer or an end of the model, of the stage with the fewest: the others pass tensors on.
double FewestInUse(const Strategy& s, const PipelineLayers& pipeline) {
  if (s.pp == 1 || s.vpp == 1) return s.vpp;
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  const std::vector<int>& layout = *pipeline.layout;
  const int last = static_cast<int>(layout.size()) - 1;
  int fewest = s.vpp;
  for (int stage = 0; stage < s.pp; ++stage) {
    int used = 0;
    for (int chunk = 0; chunk < s.vpp; ++chunk) {
      const int at = VirtualStage(in_a_v, s.pp, stage, chunk);
      used += at == 0 || at == last || layout[static_cast<std::size_t>(at)] > 0;
    }
    fewest = std::min(fewest, std::max(1, used));
  }
  return fewest;
}

}  // namespace

StageBounds BoundsOf(const LayerTable& slowest, const Strategy& s, const PipelineLayers& pipeline,
                     double micro_batches) {
  const LayerTable& table = slowest.Least();
  const double chunks = s.vpp;
  const double again = table.recomputing.backward.busy();
  const auto form = [&](double least, double layers, double of_chunks) {
    return StageBounds::Form{least, micro_batches * std::max(0.0, layers - of_chunks),
                             micro_batches * std::max(0.0, layers - 2 * of_chunks)};
  };
  StageBounds bounds;
  bounds.chunks = micro_batches * (FewestInUse(s, pipeline) - 1);
  const double pass = table.layer.forward.busy() + table.layer.backward.busy();
  const double embedding = table.embedding.forward.busy() + table.embedding.backward.busy();
  const double head = table.head.forward.busy() + table.head.backward.busy();
  bounds.forms[0] = form(micro_batches * (table.layers * pass + embedding + head) / s.pp,
                         table.layers / s.pp, chunks);
  if (s.pp == 1) return bounds;
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  const auto stage = [&](double layers, double more, double ends) {
    return form(micro_batches * (layers * pass + more * again + ends), layers, chunks);
  };
  bounds.forms[1] =
      stage(pipeline.first_layers, pipeline.first_more, embedding + (in_a_v ? head : 0.0));
  bounds.forms[2] = stage(pipeline.last_layers, pipeline.last_more, in_a_v ? 0.0 : head);
  bounds.forms[3] = stage(pipeline.middle_layers, pipeline.middle_more, 0.0);
  return bounds;
}

// Of one chunk, t(i) that fall by (1 - 1 / M) from stage to stage make the bound of stages the least. Of several, the first
// may hold any part of a stage's layers, or none. Ordered by where its first layer is, the r-th of q stages that hold layers
// waits for r - 1 layers of the others, and behind its last gradient they have as many to pass on: sum over these stages,
//   q T >= M layers + (q - 1) q / 2 passes of a layer.
double LeastTime(const LayerTable& slowest, const Strategy& s, double micro_batches) {
  const LayerTable& table = slowest.Least();
  const double work = WorkOf(table), mean = micro_batches * work / s.pp;
  const double put_off = SplitsBackward(s.schedule) ? table.layer.weight_gradient : 0.0;
  const double busy = work - table.layers * put_off;
  if (s.vpp == 1) {
    const double falling = 1.0 - std::pow(1.0 - 1.0 / micro_batches, s.pp);
    return std::max(std::max(0.0, busy - s.pp * Ahead(table)) / falling, mean);
  }
  const double pass = table.layer.forward.busy() + table.layer.backward.busy() - put_off -
                      table.recomputed * table.recomputing.backward.busy() - Ahead(table);
  const double ends = table.embedding.forward.busy() + table.embedding.backward.busy() +
                      table.head.forward.busy() + table.head.backward.busy();
  const auto of = [&](double of_stages, double stages) {
    return micro_batches * of_stages / stages + (stages - 1) / 2 * std::max(0.0, pass);
  };
  double least = of(busy, s.pp);
  // The embedding and the head may lie apart from all layers.
  for (int stages = 1; stages < s.pp; ++stages) least = std::min(least, of(busy - ends, stages));
  return std::max(least, mean);
}

}  // namespace orrery
