// SPDX-License-Identifier: Apache-2.0
// What a step waits for of states and activations on the host; formulas: closed_form.h.
#include "model/plan/lower/offload.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

// Of the stage with most trained parameters, in the order of its units.
std::vector<double> Fold::UnitsOfFullest() const {
  const double table = table_.TrainedOfEnds(table_.table_parameters);
  const double rest = table_.TrainedOfEnds(table_.embedding_parameters) - table;
  const double norm = table_.TrainedOfEnds(table_.final_norm_parameters);
  const double head = table_.TrainedOfEnds(table_.head_parameters) - norm;
  const double layer = table_.TrainedOfLayer();
  double layers = table_.layers;
  bool first = true, last = true;
  const auto sum = [&](double n, bool embeds, bool heads) {
    return n * layer + (embeds ? table + rest : 0.0) + (heads ? norm + head : 0.0);
  };
  if (outline_.stages > 1) {
    const double tied = table_.tied ? table + rest : 0.0;
    const bool together = outline_.order.in_a_v;  // both ends on the first stage
    const std::array<double, 3> of{
        sum(outline_.first_layers, true, together),
        sum(outline_.last_layers, false, !together) + (together ? 0.0 : tied),
        sum(outline_.middle_layers, false, false)};
    const auto most = std::ranges::max_element(of) - of.begin();
    first = most == 0, last = most == 1;
    layers = first ? outline_.first_layers : last ? outline_.last_layers : outline_.middle_layers;
    if (together) {
      last = first;
    } else if (last && table_.tied) {
      first = true;
    }
  }
  std::vector<double> units;
  if (first) units.insert(units.end(), {table, rest});
  units.insert(units.end(), static_cast<std::size_t>(layers), layer);
  if (last) units.insert(units.end(), {norm, head});
  std::erase(units, 0.0);
  return units;
}

// Takes what the CPU updates off the kernels of the update. Returns what the step waits for of gathers behind it.
double Fold::UpdateOnHost(double parameters, double gathers, StepTime* time) const {
  const std::vector<double> units = UnitsOfFullest();
  const std::vector<char> on_host = UnitsOnHost(units, outline_.states_on_host);
  std::array<double, 4> end{};  // of the last unit so far, by step: down, update, up, gather
  double moved = 0, copies = 0;
  double left = gathers;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const double share = units[u] / outline_.shards;
    const double gather = std::min(left, gathers > 0 ? units[u] / parameters * gathers : 0.0);
    left -= gather;
    if (on_host[u] == 0) {
      end[3] += gather;
      continue;
    }
    moved += units[u];
    const std::array<double, 4> steps{
        share * outline_.gradient_bytes * form_.host.copy, share * form_.host.update,
        outline_.weights_on_host ? 0.0 : share * outline_.weight_bytes * form_.host.copy, gather};
    double before = 0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      before = end[step] = std::max(end[step], before) + steps[step];
      if (step < 3) copies += steps[step];
    }
  }
  time->optimizer *= 1 - moved / std::max(1.0, parameters);
  const double exposed = std::max(0.0, end[2] - time->optimizer);
  time->offload += exposed;
  time->offload_hidden += std::max(0.0, copies - exposed);
  return std::max(0.0, end[3] - std::max(end[2], time->optimizer));
}

double Fold::CopiesOf(const Stage& stage) const {
  double moved = stage.layers - stage.chunks;
  if (outline_.moved_layers > 0)
    moved = std::min(moved, static_cast<double>(stage.chunks * outline_.moved_layers));
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

// Passes of a chunk, forward and backward in turns: a link that is behind at the end of one catches up in the other, where
// nothing goes its way. The second turn stands for all. What comes back takes the memory of what goes: of the same micro-batch
// on the last stage, of a later one on others.
void Fold::AwaitActivations(const Stage& stage, Work* work) const {
  const auto layers = static_cast<std::size_t>(std::max(0.0, stage.layers / stage.chunks));
  if (layers < 2) return;
  const MovingLayer whole = LayerOf(false), recomputed = LayerOf(true);
  const auto of = [&](std::size_t l) -> const MovingLayer& {
    return outline_.recompute.Of(static_cast<int64_t>(l)) != 0 ? recomputed : whole;
  };
  const auto moves = [&](std::size_t l) {
    return l + 1 < layers &&
           (outline_.moved_layers == 0 || l < static_cast<std::size_t>(outline_.moved_layers));
  };
  std::vector<double> sent(layers);
  double now = 0, down = 0, up = 0;
  const auto forward = [&] {
    double waits = 0;
    std::ranges::fill(sent, 0.0);
    for (std::size_t l = 0; l < layers; ++l) {
      if (l >= 2 && sent[l - 2] > now) {
        waits += sent[l - 2] - now;
        now = sent[l - 2];
      }
      const double begin = now;
      now += of(l).forward;
      if (moves(l)) sent[l] = down = std::max(std::max(down, begin) + of(l).copy, now);
    }
    return waits;
  };
  const bool in_turns = !outline_.order.forward_first;
  const auto backward = [&] {
    double waits = 0, back = 0;
    for (std::size_t l = layers; l-- > 0;) {
      double start = now;
      if (moves(l)) start = std::max(now, back);
      if (l > 0 && moves(l - 1))
        back = up = std::max({up, now, in_turns ? sent[l - 1] : 0.0}) + of(l - 1).copy;
      waits += start - now;
      now = start + of(l).backward;
    }
    return waits;
  };
  for (int turn = 0; turn < 2; ++turn) {
    work->forward.copies = stage.chunks * forward();
    if (in_turns) work->backward.copies = stage.chunks * backward();
  }
  for (int turn = 0; !in_turns && turn < 2; ++turn)
    work->backward.copies = stage.chunks * backward();
}

}  // namespace orrery::closed
