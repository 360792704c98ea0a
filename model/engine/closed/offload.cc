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

void Fold::AwaitActivations(const Stage& stage, Work* work) const {
  const auto layers = static_cast<std::size_t>(std::max(0.0, stage.layers / stage.chunks));
  if (layers < 2) return;
  const double copy = table_.kept_bytes * form_.host.copy;
  const double forward = forward_, backward = backward_ - put_off_;
  std::vector<double> sent(layers, 0.0);
  const auto moves = [&](std::size_t l) {
    return l + 1 < layers &&
           (outline_.moved_layers == 0 || l < static_cast<std::size_t>(outline_.moved_layers));
  };
  double now = 0, link = 0;
  for (std::size_t l = 0; l < layers; ++l) {
    if (l >= 2) now = std::max(now, sent[l - 2]);
    now += forward;
    if (!moves(l)) continue;
    link = std::max(link + copy, now);
    sent[l] = link;
  }
  work->forward.copies = stage.chunks * std::max(0.0, now - static_cast<double>(layers) * forward);
  const double begin = now;
  double back = 0;
  for (std::size_t l = layers; l-- > 0;) {
    const double start = moves(l) ? std::max(now, back) : now;
    if (l > 0 && moves(l - 1)) back = std::max({back, now, sent[l - 1]}) + copy;
    now = start + backward;
  }
  work->backward.copies =
      stage.chunks * std::max(0.0, now - begin - static_cast<double>(layers) * backward);
}

}  // namespace orrery::closed
