// SPDX-License-Identifier: Apache-2.0
// What a step waits for of states and activations on the host; formulas: closed_form.h.
#include "model/plan/lower/offload.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

// Of trained parameters, in the order of the lowering.
std::vector<double> Fold::UnitsOn(const Stage& stage) const {
  const double table = table_.TrainedOfEnds(table_.table_parameters);
  const double rest = table_.TrainedOfEnds(table_.embedding_parameters) - table;
  const double norm = table_.TrainedOfEnds(table_.final_norm_parameters);
  const double head = table_.TrainedOfEnds(table_.head_parameters) - norm;
  std::vector<double> units;
  if (stage.first) units.insert(units.end(), {table, rest});
  units.insert(units.end(), static_cast<std::size_t>(stage.layers), table_.TrainedOfLayer());
  if (stage.last) units.insert(units.end(), {norm, head});
  if (stage.last && !stage.first && table_.tied) units.push_back(table);
  std::erase(units, 0.0);
  return units;
}

namespace {

// When a queue has done what it was given so far, and how long of it copies, the CPU and gathers took on the way there.
struct Chain {
  double end = 0, offload = 0, gathers = 0;
};

}  // namespace

double Fold::ToHost(double parameters) const {
  if (!outline_.gradients_on_host) return 0;
  return outline_.states_on_host * parameters / outline_.shards * outline_.gradient_bytes *
         form_.host.copy;
}

Beside Fold::ScatterToHost(double parameters) const {
  Beside scatter = Scatter(parameters);
  scatter.copies = (1 + (M_ - 1) / M_) * ToHost(parameters);
  return scatter;
}

// Of the ends of the model: what goes to the host behind it runs beside the next layer, where it can. `summed`: a sum is there in
// the first micro-batch, too.
Beside Fold::EndScatter(double parameters, bool summed) const {
  Beside scatter = Scatter(parameters);
  const double down = outline_.scatter_overlaps ? 0.0 : 1.0;
  scatter.copies = (down + (summed ? 1.0 : (M_ - 1) / M_)) * ToHost(parameters);
  return scatter;
}

// Of a stage's units, one whose gradients go to the host in the passes: those of a table that stages add up together stay.
bool Fold::StreamsUnit(const Stage& stage, std::size_t unit, std::size_t units) const {
  const bool table = stage.first ? unit == 0 : stage.last && unit + 1 == units;
  return outline_.gradients_on_host && !(outline_.ties_stages && table);
}

// `kernels`: of the whole update, were all states on the device; `gathers`: seconds of all gathers, of which the stage waits for
// those of the first units (`awaited`) behind the update. Both run beside what goes through the host.
Fold::HostUpdate Fold::UpdateOnHost(const Stage& stage, double kernels, double gathers,
                                    double awaited) const {
  const std::vector<double> units = UnitsOn(stage);
  const std::vector<char> on_host = UnitsOnHost(units, outline_.states_on_host);
  const double parameters = std::max(1.0, std::accumulate(units.begin(), units.end(), 0.0));
  std::array<Chain, 4> queues;  // down, update, up, gather
  HostUpdate update;
  double moved = 0, copies = 0;
  if (outline_.gradients_on_host && outline_.scatter_overlaps) {  // what is under way
    const double last = ToHost(table_.TrainedOfLayer()) + (stage.first ? down_embedding_ : 0.0);
    queues.front() = {last, last, 0};
  }
  for (std::size_t u = 0; u < units.size(); ++u)
    if (on_host[u] != 0) moved += units[u];
  update.kernels = kernels * (1 - moved / parameters);
  double updated = 0;  // by kernels, so far
  for (std::size_t u = 0; u < units.size(); ++u) {
    const double share = units[u] / outline_.shards;
    const double gather = std::min(units[u] / parameters * gathers, awaited);
    awaited -= gather;
    Chain& gathered = queues.back();
    if (on_host[u] == 0) {
      updated += kernels * units[u] / parameters;
      if (gather > 0 && gathered.end < updated) gathered = {updated, 0, 0};
      gathered.end += gather;
      gathered.gathers += gather;
      continue;
    }
    const std::array<double, 4> steps{
        StreamsUnit(stage, u, units.size()) ? 0.0
                                            : share * outline_.gradient_bytes * form_.host.copy,
        share * form_.host.update,
        outline_.weights_on_host ? 0.0 : share * outline_.weight_bytes * form_.host.copy, gather};
    Chain before;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      Chain& queue = queues[step];
      if (before.end > queue.end) queue = before;
      queue.end += steps[step];
      (step < 3 ? queue.offload : queue.gathers) += steps[step];
      if (step < 3) copies += steps[step];
      before = queue;
    }
  }
  const Chain& last =
      queues[3].gathers > 0 && queues[3].end >= queues[2].end ? queues[3] : queues[2];
  const double exposed = std::max(0.0, last.end - update.kernels);
  update.gathers = std::min(last.gathers, exposed);
  update.offload = exposed - update.gathers;
  update.hidden = std::max(0.0, copies - update.offload);
  return update;
}

double Fold::CopiesOf(const Stage& stage) const {
  double moved = stage.layers - stage.used;
  if (outline_.moved_layers > 0)
    moved = std::min(moved, static_cast<double>(stage.used * outline_.moved_layers));
  return 2 * moved * table_.kept_bytes * form_.host.copy;
}

// Of one layer, by whether it is recomputed: the mean over kinds of layers.
Fold::MovingLayer Fold::LayerOf(bool recomputed) const {
  MovingLayer layer;
  double share = 0;
  for (const LayerShare& kind : table_.kinds) {
    if (kind.recomputed != recomputed) continue;
    share += kind.share;
    for (const PassPart& part : kind.forward)
      layer.forward += kind.share * (part.kernels + part.message);
    for (const PassPart& part : kind.backward)
      layer.backward += kind.share * (part.kernels + part.message);
    layer.copy += kind.share * kind.kept_bytes * form_.host.copy;
  }
  if (share <= 0) return LayerOf(!recomputed);
  layer.forward = layer.forward / share + gathered_forward_.device + beside_forward_.seconds;
  layer.backward =
      layer.backward / share + backward_ - table_.layer.backward.busy() + beside_backward_.seconds;
  layer.copy /= share;
  return layer;
}

// As they are walked.
std::vector<MovedLayer> Fold::LayersOf(const Stage& chunk) const {
  if (!outline_.moves_activations || chunk.layers < 2) return {};
  const MovingLayer whole = LayerOf(false), recomputed = LayerOf(true);
  const auto count = static_cast<std::size_t>(chunk.layers);
  std::vector<MovedLayer> layers;
  for (std::size_t l = 0; l < count; ++l) {
    const MovingLayer& of =
        outline_.recompute.Of(static_cast<int64_t>(l)) != 0 ? recomputed : whole;
    layers.push_back({of.forward, of.backward, of.copy, Moves(l, count)});
  }
  return layers;
}

bool Fold::Moves(std::size_t layer, std::size_t layers) const {
  return layer + 1 < layers &&
         (outline_.moved_layers == 0 || layer < static_cast<std::size_t>(outline_.moved_layers));
}

// Passes of a chunk, forward and backward in turns: a link that is behind at the end of one catches up in the other, where
// nothing goes its way. The second turn stands for all. What comes back takes the memory of what goes: of the same micro-batch
// on the last stage, of a later one on others. `between`: seconds of messages behind each layer of the backward pass.
Fold::CopyWaits Fold::WaitsForCopies(const Stage& stage, double between) const {
  const auto layers = static_cast<std::size_t>(std::max(0.0, stage.layers / stage.chunks));
  CopyWaits waits;
  if (layers < 2) return waits;
  const MovingLayer whole = LayerOf(false), recomputed = LayerOf(true);
  const auto of = [&](std::size_t l) -> const MovingLayer& {
    return outline_.recompute.Of(static_cast<int64_t>(l)) != 0 ? recomputed : whole;
  };
  const auto moves = [&](std::size_t l) { return Moves(l, layers); };
  std::vector<double> sent(layers);
  double now = 0, down = 0, up = 0;
  const auto forward = [&] {
    double waited = 0;
    std::ranges::fill(sent, 0.0);
    for (std::size_t l = 0; l < layers; ++l) {
      if (l >= 2 && sent[l - 2] > now) {
        waited += sent[l - 2] - now;
        now = sent[l - 2];
      }
      const double begin = now;
      now += of(l).forward;
      if (moves(l)) sent[l] = down = std::max(std::max(down, begin) + of(l).copy, now);
    }
    return waited;
  };
  const bool in_turns = !outline_.order.forward_first;
  const auto backward = [&] {
    double waited = 0, back = 0;
    for (std::size_t l = layers; l-- > 0;) {
      double start = now;
      if (moves(l)) start = std::max(now, back);
      if (l > 0 && moves(l - 1))
        back = up = std::max({up, now, in_turns ? sent[l - 1] : 0.0}) + of(l - 1).copy;
      waited += start - now;
      now = start + of(l).backward + between;
    }
    return waited;
  };
  for (int turn = 0; turn < 2; ++turn) {
    waits.forward = stage.chunks * forward();
    if (in_turns) waits.backward = stage.chunks * backward();
  }
  for (int turn = 0; !in_turns && turn < 2; ++turn) waits.backward = stage.chunks * backward();
  return waits;
}

void Fold::AwaitActivations(const Stage& stage, Work* work) const {
  const CopyWaits waits = WaitsForCopies(stage, 0);
  work->forward.copies = waits.forward;
  work->backward.copies = waits.backward;
}

// Copies go on beside reductions that stand between the kernels of the last backward pass: seconds by which it then waits less.
double Fold::CopiesAhead(double in_pass) const {
  if (!outline_.moves_activations || outline_.stages > 1 || in_pass <= 0) return 0;
  const double between = in_pass / std::max(1.0, stage_.layers - 1);
  return std::max(0.0, work_.backward.copies - WaitsForCopies(stage_, between).backward);
}

}  // namespace orrery::closed
