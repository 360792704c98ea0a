// SPDX-License-Identifier: Apache-2.0
// The work of a micro-batch on one stage, and how device and host take turns at it.
#include <algorithm>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

namespace {

// A host that is ahead when a pass begins, or that gets ahead while the first weights are gathered, lets the device run until it
// has lost its lead: of this share of the pass messages are exposed as without a host.
double ShareAhead(const PassWork& pass, double lead) {
  const double behind = pass.host - pass.device();
  return behind > 0 ? std::clamp((lead + pass.front) / (behind + pass.front), 0.0, 1.0) : 1.0;
}

// What a pass shows of its messages.
void Show(const PassWork& pass, double lead, bool late, Turn* turn) {
  const double ahead = late ? ShareAhead(pass, lead) : 1.0;
  turn->shards += ahead * pass.shards.seconds + (1 - ahead) * pass.BesideHost();
  turn->context_early += (1 - ahead) * pass.context_early;
}

}  // namespace

Turn BehindHost(const Work& w, double lead_before) {
  Turn turn;
  turn.seconds = lead_before;
  double issued = 0;
  const auto run = [&](const PassWork& pass) {
    const double lead = turn.seconds - issued;
    const double late = issued + pass.behind;
    turn.seconds += pass.device();
    issued += pass.host;
    const double end = std::max(late, issued);
    Show(pass, lead, end > turn.seconds, &turn);
    turn.seconds = std::max(turn.seconds, end);
  };
  run(w.forward), run(w.head);
  turn.backward = -turn.seconds;
  run(w.backward);
  turn.backward += turn.seconds;
  run(w.weight);
  turn.seconds += w.last.seconds;
  turn.shards += w.last.seconds;
  return turn;
}

std::array<Stage, 3> Fold::Stages() const {
  if (outline_.stages == 1) {
    const Stage all{table_.layers, true, true};
    return {all, all, all};
  }
  const double v = outline_.chunks;
  const bool together = outline_.order.in_a_v;  // both ends on the first stage
  const PlanOutline& o = outline_;
  const auto stage = [&](double layers, bool first, bool last, double more, double plain,
                         int used) {
    return Stage{layers, first, last, v, 1, -1, more, plain, double(used)};
  };
  return {stage(o.first_layers, true, together, o.first_more, o.first_plain, o.first_used),
          stage(o.last_layers, false, !together, o.last_more, o.last_plain, o.last_used),
          stage(o.middle_layers, false, false, o.middle_more, o.middle_plain, o.middle_used)};
}

// Each on its own, where they differ in speed.
std::vector<Stage> Fold::StagesBySpeed() const {
  std::vector<Stage> all;
  for (int s = 0; s < outline_.stages; ++s) {
    const bool in_a_v = outline_.order.in_a_v;
    double layers = 0, more = 0, plain = 0, used = 0;
    for (int chunk = 0; chunk < outline_.chunks; ++chunk) {
      const int place = VirtualStage(in_a_v, outline_.stages, s, chunk);
      const int held = (*outline_.layout)[static_cast<std::size_t>(place)];
      layers += held;
      used += held > 0;
      more += outline_.MoreRecomputed(outline_.recompute, held);
      plain += outline_.MorePlain(static_cast<std::size_t>(place));
    }
    const bool last = in_a_v ? s == 0 : s + 1 == outline_.stages;
    all.push_back(
        {layers, s == 0, last, double(outline_.chunks), SlowdownOf(s), s, more, plain, used});
  }
  return all;
}

Work Fold::WorkOf(const Stage& stage) const {
  const LayerTime& layer = table_.layer;
  Work work;
  work.forward.kernels = stage.layers * forward_;
  work.backward.kernels = stage.layers * (backward_ - put_off_);
  work.weight.kernels = stage.layers * put_off_;
  work.forward.context_early = stage.layers * layer.forward.context_early;
  work.backward.context_early = stage.layers * layer.backward.context_early;
  work.forward.host =
      stage.layers * (layer.forward.host + gathered_forward_.host + IssueGathers(LayerGathers()));
  work.backward.host = stage.layers * (layer.backward.host + gathered_backward_.host) +
                       ReadBackward(stage) * IssueGathers(LayerGathers());
  (outline_.order.fills_bubble ? work.weight : work.backward).host +=
      stage.layers * IssueScatters(LayerScatters(), table_.layer_tail);
  if (outline_.order.fills_bubble) {
    work.backward.host -= stage.layers * layer.weight_gradient_host;
    work.weight.host += stage.layers * layer.weight_gradient_host;
  }
  if (stage.first) {
    const LayerTime& t = table_.embedding;
    PassWork& gradients = outline_.order.fills_bubble ? work.weight : work.backward;
    work.forward.kernels += t.forward.busy();
    gradients.kernels += t.backward.busy() + embedding_extra_;
    const double units =
        (table_.table_parameters > 0) + (table_.embedding_parameters > table_.table_parameters);
    work.forward.host += t.forward.host + Hooks(t.gathered_forward) + IssueGathers(units);
    gradients.host += t.backward.host + Hooks(t.gathered_backward) +
                      IssueEndScatters(units, table_.embedding_tail);
  }
  if (table_.relative_parameters > 0) {
    work.forward.host += IssueGathers(1);
    work.backward.host += IssueGathers(1) + IssueEndScatters(1, {});
  }
  if (stage.last) {
    const LayerTime& t = table_.head;
    work.head.kernels = t.forward.busy() + t.backward.busy() + head_extra_;
    work.head.host = t.forward.host + t.backward.host + Hooks(t.gathered_forward) +
                     Hooks(t.gathered_backward) +
                     IssueGathers(HeadUnits() + (outline_.frees_head ? 1 : 0)) +
                     IssueEndScatters(HeadUnits(), table_.head_tail);
  }
  if (outline_.stages > 1 && table_.boundary_cut > 0) {
    const double before = stage.chunks - (stage.first ? 1 : 0);
    const double behind = stage.chunks - (stage.last ? 1 : 0);
    work.forward.kernels += before * table_.boundary_forward.busy() + behind * table_.boundary_cut;
    work.backward.kernels +=
        behind * table_.boundary_backward.busy() + before * table_.boundary_cut;
    work.forward.host += before * table_.boundary_forward.host;
    work.backward.host += behind * table_.boundary_backward.host;
  }
  if (stage.recomputed != 0) {
    const LayerTime& more = table_.recomputing;
    const PassTime& gathered = more.gathered_backward;
    work.backward.kernels +=
        stage.recomputed * (more.backward.busy() + (fetches_ ? gathered.device : 0.0));
    work.backward.host += stage.recomputed * (more.backward.host + HostOfGathered(more));
  }
  if (stage.plain != 0) AddPlain(stage, &work);
  if (stage.slowdown != 1) SlowDown(stage, &work);
  ExposeShards(stage, &work);
  if (outline_.moves_activations && !copies_apart_) AwaitActivations(stage, &work);
  if (outline_.stages == 1 || form_.host_waits) FollowHost(stage, &work);
  return work;
}

void Fold::AddPlain(const Stage& stage, Work* work) const {
  const LayerTime& more = table_.plain_more;
  const bool apart = outline_.order.fills_bubble;
  const double put_off = apart ? more.weight_gradient : 0.0;
  const double issued = apart ? more.weight_gradient_host : 0.0;
  const double cast_forward = fetches_ ? more.gathered_forward.device : 0.0;
  const double cast_backward = fetches_ ? more.gathered_backward.device : 0.0;
  work->forward.kernels += stage.plain * (more.forward.busy() + cast_forward);
  work->backward.kernels += stage.plain * (more.backward.busy() - put_off + cast_backward);
  work->weight.kernels += stage.plain * put_off;
  work->forward.host += stage.plain * more.forward.host;
  work->backward.host += stage.plain * (more.backward.host - issued);
  work->weight.host += stage.plain * issued;
}

namespace {

// Ops in two parts, one behind the other: seconds of the host, of the device, and from the start of the one to the end of
// the other. An op starts when it is issued and the one before has ended, which of many is a maximum of sums.
struct Issued {
  double host = 0, device = 0, behind = 0;

  Issued Then(const Issued& next) const {
    return {host + next.host, device + next.device,
            std::max(behind + next.device, host + next.behind)};
  }
};

Issued OfPass(const PassTime& pass) { return {pass.host, pass.busy(), pass.behind}; }

// So many layers that share what a pass takes.
Issued OfLayers(const PassTime& layer, double layers, double host, double device) {
  const double longer = std::max(host, device);
  if (layers <= 0) return {host, device, longer};
  const double each = 1 / layers;
  const double issued = each * host - layer.host, ran = each * device - layer.busy();
  double behind = layer.behind + (host > device ? issued : ran);
  // While the device waits for messages in front of a layer's kernels, the host issues them.
  if (host <= device && ran > 0)
    behind = std::max(layer.behind + std::max(0.0, issued), each * device);
  return {host, device, behind + longer - each * longer};
}

}  // namespace

void Fold::FollowHost(const Stage& stage, Work* work) const {
  const LayerTime& layer = table_.layer;
  const auto of = [&](const PassTime& each, const PassWork& pass, const PassTime& ends) {
    return OfLayers(each, stage.layers, std::max(0.0, pass.host - ends.host),
                    std::max(0.0, pass.device() - ends.busy()));
  };
  const PassTime none;
  const bool first = stage.first;
  const PassTime& embed = first ? table_.embedding.forward : none;
  work->forward.behind = OfPass(embed).Then(of(layer.forward, work->forward, embed)).behind;
  const bool at_end = first && !outline_.order.fills_bubble;
  const PassTime& scatter = at_end ? table_.embedding.backward : none;
  work->backward.behind = of(layer.backward, work->backward, scatter).Then(OfPass(scatter)).behind;
  if (stage.last) {
    work->head.behind = OfPass(table_.head.forward).Then(OfPass(table_.head.backward)).behind +
                        std::max(0.0, work->head.device() - table_.head.forward.busy() -
                                          table_.head.backward.busy());
  }
}

// Kernels alone: messages inside of layers take no longer.
void Fold::SlowDown(const Stage& stage, Work* work) const {
  const auto slow = [&](double* kernels, double messages) {
    *kernels = stage.slowdown * (*kernels - messages) + messages;
  };
  const auto messages = [](const PassTime& pass) { return pass.tensor + pass.context; };
  const LayerTable& t = table_;
  double forward = stage.layers * messages(t.layer.forward);
  double backward = stage.layers * messages(t.layer.backward) +
                    stage.recomputed * messages(t.recomputing.backward) +
                    stage.plain * messages(t.plain_more.backward);
  forward += stage.plain * messages(t.plain_more.forward);
  if (stage.first) forward += messages(t.embedding.forward);
  if (stage.first && !outline_.order.fills_bubble) backward += messages(t.embedding.backward);
  slow(&work->forward.kernels, forward);
  double weights = 0;
  if (outline_.order.fills_bubble) {
    weights = stage.layers * t.layer.weight_gradient_messages;
    backward -= weights;
    if (stage.first) weights += messages(t.embedding.backward);
  }
  slow(&work->backward.kernels, std::min(backward, work->backward.kernels));
  slow(&work->weight.kernels, weights);
  if (stage.last) slow(&work->head.kernels, messages(t.head.forward) + messages(t.head.backward));
}

// The same chunk by chunk, where the host waits in front of each pass: in some of them the device may be later, in others the
// host. Chunks are alike but for the ends of the model.
double Fold::InChunks(const Stage& stage) const {
  const double layers = stage.layers / stage.chunks;
  const auto pass = [&](const PassTime& layer, double busy, double host, const PassTime& end,
                        const PassTime& other) {
    const double device = layers * busy + end.busy() + other.busy();
    const double issued = layers * host + end.host + other.host;
    const double lag = layer.behind - std::max(layer.host, layer.busy());
    return std::max(device, issued) + std::max(0.0, lag);
  };
  const LayerTime& layer = table_.layer;
  const double gathers = IssueGathers(LayerGathers());
  const double host_forward = layer.forward.host + gathered_forward_.host + gathers;
  const double host_backward = layer.backward.host + gathered_backward_.host + gathers +
                               IssueScatters(LayerScatters(), table_.layer_tail);
  const PassTime none;
  const auto forward = [&](const PassTime& end) {
    return pass(layer.forward, forward_, host_forward, end, none);
  };
  const auto backward = [&](const PassTime& end, const PassTime& other) {
    return pass(layer.backward, backward_, host_backward, end, other);
  };
  return forward(stage.first ? table_.embedding.forward : none) +
         backward(stage.first ? table_.embedding.backward : none, none) +
         (stage.chunks - 1) * forward(none) + (stage.chunks - 2) * backward(none, none) +
         (stage.last ? backward(table_.head.forward, table_.head.backward) : backward(none, none));
}

// Device and host side by side, of one micro-batch of many. The host runs ahead, without end or up to its next wait:
// for a micro-batch to load and, between stages, for what the neighbour sends.
Turn Fold::Together(const Work& w) const {
  Turn turn;
  if (!form_.host_waits) {
    turn = outline_.stages > 1 ? OnDevice(w) : Later(OnDevice(w), OnHost(w));
    turn.forward = w.forward.device();
    return turn;
  }
  if (outline_.stages == 1) return BehindHost(w);
  const double forward = std::max(w.forward.device(), w.forward.behind);
  Work rest = w;
  rest.forward = {};
  turn = BehindHost(rest);
  turn.forward = forward;
  turn.seconds += turn.forward;
  Show(w.forward, 0, forward > w.forward.device(), &turn);
  return turn;
}

// A host that never waits is ahead or behind once per step, not once per micro-batch.
double Fold::HostOnce(const Work& w) const {
  if (form_.host_waits || outline_.stages > 1) return 0;
  return BehindHost(w).seconds - std::max(w.device(), w.host());
}

double Fold::IssueTime() const {
  double most = 0;
  for (const Stage& stage : Stages()) {
    const Work work = WorkOf(stage);
    most = std::max(most, work.host());
  }
  return most;
}

}  // namespace orrery::closed
