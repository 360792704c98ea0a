// SPDX-License-Identifier: Apache-2.0
// Weights that the update left sharded, gathered for the next step.
//
// Units follow each other in the order in which the next step reads them. Behind the update the software waits for the first
// ones; the others go beside the next step's forward passes, and a pass waits for each of its layers.
#include <algorithm>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

Fold::GatheredBytes Fold::BytesGathered(double parameters, double layers) const {
  const double coded = layers * table_.coded_parameters;
  return {(parameters - coded) * outline_.weight_bytes, coded * kCodeBytes};
}

// Seconds of a layer's forward pass that hide a gather. On one communicator they take turns with collectives of the sequence.
// `kind`: how the ranks of the layer lie.
double Fold::BesideGathers(int kind) const {
  if (kind > 0) return OfKind(kind, *data_).BesideGathers();
  const PassTime& pass = table_.layer.forward;
  const double turns = one_communicator_ ? pass.context + pass.context_hidden : 0.0;
  return std::max(0.0, BesideLayer(pass, forward_) - turns);
}

// What goes beside the passes of the busiest stage, behind kernels that clear gradients, beside casts of weights that stay, and
// beside what passes of the only stage wait for the host's memory. Where its host issues slower than they arrive, its kernels
// wait for the host alone: one that waits begins when gradients are cleared. The first layer waits for all that stands in front
// of its own weights, and nothing is left to hide the last layer's but what the head reads behind it.
double Fold::LateInPass(const NextGathers& gathers) const {
  const bool only = outline_.stages == 1, codes = gathers.codes > 0;
  const double cleared = Cleared();
  double left = gathers.left() - cleared;
  if (only && left + (form_.host_waits ? 0.0 : cleared) <= work_.forward.host) return 0;
  const double issued = only ? 0.0 : table_.layer.forward.host;
  const double copies = only ? work_.forward.copies : 0.0;
  const double layer = std::max(BesideGathers() + WeightCasts(), issued);
  const double pass = stage_.layers * layer + copies;
  const double embedding = stage_.first ? table_.embedding.forward.busy() : 0.0;
  left -= embedding;
  double late = Beyond(left, pass, lap_forward_);
  if (stage_.layers <= 0) return late;
  const double rows = table_.TrainedOfEnds(table_.embedding_parameters) * outline_.weight_bytes;
  if (outline_.chunks == 1) {
    const double head = table_.TrainedOfEnds(table_.head_parameters) * outline_.weight_bytes;
    const double behind = stage_.last && !codes ? gathers.OfPlain(head) : 0.0;
    late = std::max(late, left - behind - (pass - layer));
  }
  if (!stage_.first) return late;
  const GatheredBytes one = BytesGathered(table_.TrainedOfLayer(), 1);
  const double first = codes ? gathers.all - gathers.codes + gathers.OfCodes(one.codes)
                             : gathers.OfPlain(rows + one.plain);
  return std::max(late, first - gathers.awaited - cleared - embedding);
}

// Where passes are walked: each chunk's first forward pass waits for its own layers, and starts when the schedule lets it. What
// comes behind a pass that is late is as late, so that the latest one counts. `own`: of the stage of the breakdown. `chunks`: the first ones of each stage. Of
// passes that are not walked yet: the first one alone, which starts at once.
double Fold::LateInWalk(const NextGathers& own, int chunks) const {
  const GatheredBytes layer_bytes = BytesGathered(table_.TrainedOfLayer(), 1);
  const double ends = table_.TrainedOfEnds(table_.embedding_parameters) * outline_.weight_bytes;
  const double cleared = Cleared();
  const bool copies = table_.tied && !outline_.order.in_a_v;  // of the table, on the last stage
  const double head =
      table_.TrainedOfEnds(table_.head_parameters) * outline_.weight_bytes + (copies ? ends : 0.0);
  const double issued = table_.layer.forward.host;
  // A layer overwrites what the second one before it sends to the host, where all are sent.
  const bool sends = outline_.moves_activations && outline_.moved_layers == 0;
  const double sent = sends ? LayerOf(false).copy : 0.0;
  const int stages = walked_ ? outline_.stages : 1;
  double late = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const NextGathers gathers = data_->of_stage.empty() ? own : GathersOf(stage, own.bytes);
    const bool codes = gathers.codes > 0;
    const double layer =
        codes ? gathers.OfCodes(layer_bytes.codes) : gathers.OfPlain(layer_bytes.plain);
    const double rows = stage == 0 ? gathers.OfPlain(ends) : 0.0;
    const double behind = gathers.awaited + cleared;  // of what is sent, when passes begin
    double ready = (codes ? gathers.OfPlain(BytesOn(stage).plain) : rows) - behind;
    const double kernels = BesideGathers(walked_ ? KindOf(stage) : 0) + WeightCasts();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int place = VirtualStage(outline_.order.in_a_v, outline_.stages, stage, chunk);
      const double layers = (*outline_.layout)[static_cast<std::size_t>(place)];
      double start = walked_ ? form_.clock.FirstPass(place) : 0.0;
      // A host that waits, or begins, issues a layer's kernels no faster.
      double beside = form_.host_waits || place == 0 ? std::max(kernels, issued) : kernels;
      if (layers > 2) beside = std::max(beside, sent);
      if (place == 0) {
        late = std::max(late, rows - behind - start);
        start += table_.embedding.forward.busy();
      }
      if (layers > 0) {
        late = std::max(late, ready + layer - start);
        ready += layers * layer;
        late = std::max(late, ready - start - (layers - 1) * beside);
      }
      // The head reads its weights right behind the last chunk.
      if (walked_ && place + 1 == static_cast<int>(outline_.layout->size()))
        late =
            std::max(late, ready + (codes ? 0.0 : gathers.OfPlain(head)) - start - layers * beside);
    }
  }
  return late;
}

// Codes travel in buckets of as many weights as others, which are half as long or less.
Fold::NextGathers Fold::GathersOf(int stage, const GatheredBytes& bytes) const {
  NextGathers gathers;
  gathers.bytes = bytes;
  const PreparedMessage& message = data_->Of(stage).all_gather;
  if (bytes.codes > 0) gathers.codes = message.InBuckets(bytes.codes, kCodeBytes);
  gathers.all = message.InBuckets(bytes.plain, outline_.weight_bytes) + gathers.codes;
  gathers.awaited = gathers.all;
  if (!outline_.end_gather_overlaps) return gathers;
  if (gathers.codes <= 0) {
    gathers.awaited = Awaited().gathers * gathers.all;
    return gathers;
  }
  const double first = Awaited().gathers * (bytes.plain + bytes.codes);
  gathers.awaited = gathers.OfPlain(std::min(first, bytes.plain)) +
                    gathers.OfCodes(std::max(0.0, first - bytes.plain));
  return gathers;
}

Fold::GatheredBytes Fold::BytesOn(int stage) const {
  double trained = 0, layers = 0;
  for (int chunk = 0; chunk < outline_.chunks; ++chunk) {
    const int place = VirtualStage(outline_.order.in_a_v, outline_.stages, stage, chunk);
    trained += TrainedOfChunk(place);
    layers += (*outline_.layout)[static_cast<std::size_t>(place)];
  }
  return BytesGathered(trained, layers);
}

// Of the stage of the breakdown, as if it were the fullest one; what a stage with slower links takes longer for its own.
Fold::NextGathers Fold::GathersAtEnd(double parameters, double layers) const {
  if (!outline_.gathers_at_end || !sharded_) return {};
  const GatheredBytes bytes = BytesGathered(parameters, layers);
  NextGathers gathers = GathersOf(Watched(), bytes);
  for (int stage = 0; stage < static_cast<int>(data_->of_stage.size()); ++stage) {
    const GatheredBytes on = BytesOn(stage);
    const GatheredBytes own{std::min(bytes.plain, on.plain), std::min(bytes.codes, on.codes)};
    gathers.waits = std::max(gathers.waits, GathersOf(stage, own).awaited - gathers.awaited);
  }
  if (!outline_.end_gather_overlaps) return gathers;
  gathers.late = !walks_ ? LateInPass(gathers) : LateInWalk(gathers, walked_ ? outline_.chunks : 1);
  return gathers;
}

// Of the stage of the breakdown: while it waits, for its first passes or for tensors that nobody has sent, it waits for its own
// gather as long as that travels. Returns the seconds that are data, and takes what it finds off the other terms. A chunk that
// is later than the one before puts off what follows.
double Fold::WaitedBeside(const NextGathers& gathers, StepTime* time) const {
  if (!walked_) {
    const double filling =
        std::clamp(std::min(fill_, gathers.left() - Cleared() - gathers.late), 0.0, time->bubble);
    time->bubble -= filling;
    return gathers.late + filling;
  }
  const double left = gathers.left() - Cleared();  // when passes begin
  if (!parts_ || left <= 0) return gathers.late;
  double until = kForEver, put_off = 0, data = 0;
  for (int chunk = 0; chunk < outline_.chunks && until == kForEver; ++chunk) {
    const int place = VirtualStage(outline_.order.in_a_v, outline_.stages, watched_, chunk);
    // When what it waits for was sent, or was to start.
    const double start = form_.clock.FirstPass(place) - HopInto(place);
    const double late = LateInWalk(gathers, chunk + 1) - put_off;
    const double travels = left - start - put_off;
    if (travels <= late) until = start + std::min(0.0, travels);
    data += std::clamp(travels, 0.0, late);
    put_off += late;
  }
  time->bubble += gathers.late - data;
  const ScheduleTime idle = form_.clock.IdleUntil(until == kForEver ? left - put_off : until);
  const double bubble = std::min(idle.bubble, time->bubble);
  const double pipeline = std::min(idle.pipeline, time->pipeline);
  time->bubble -= bubble;
  time->pipeline -= pipeline;
  return data + bubble + pipeline;
}

}  // namespace orrery::closed
