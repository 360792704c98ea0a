// SPDX-License-Identifier: Apache-2.0
// The fold of one layout's prices over its outline; formulas: closed_form.h.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "model/engine/closed/closed_form.h"
#include "model/engine/closed/work.h"

namespace orrery::closed {

constexpr double kForEver = 1e30;                   // seconds
constexpr double kMasterBytes = 4, kCodeBytes = 1;  // of a weight held in 8 bits

// What the passes of a layer take, whatever the pipeline: it follows from the layer table, the messages and what the outline
// says of weights and gradients.
struct LayerPrices {
  bool sharded_ = false, fetches_ = false, scatters_ = false;
  double inside_ = 0,
         between_ = 0;  // seconds of a transfer between stages: in a node, between nodes
  PassTime gathered_forward_, gathered_backward_;  // of one layer's gathered weights: casts, hooks
  // Of one layer: kernels and messages inside of it; of the backward pass, those that the schedule puts off; kernels that
  // sharding adds; gathers and scatters.
  double forward_ = 0, backward_ = 0, put_off_ = 0, extra_ = 0, embedding_extra_ = 0,
         head_extra_ = 0;
  Beside gather_, gather_table_, gather_rest_;
  Beside gather_head_, gather_ends_;  // of the head: before it, beside it
  Beside gather_again_;               // of the head's table, in front of its gradients
  Beside scatter_, scatter_embedding_, scatter_head_;
  double down_embedding_ = 0, down_head_ = 0;  // seconds of copies to the host behind them
  // Beside one layer: of its forward pass, of its backward pass, of those of a chunk's first and last layer.
  Exposed beside_forward_, beside_backward_, beside_ends_;
  Exposed beside_first_;  // of the backward pass of its last layer, the gather alone
  // Ranks that shard weights are those that share sequences, with one communicator for both: a collective of a pass waits for
  // the gathers, scatters and reductions that came before it, so that only kernels in front of the first one hide those.
  bool one_communicator_ = false;
  double hides_backward_ = 0;  // of one layer's backward pass, what can
  // Flat units with gradients: each is cleared, measured and updated by a kernel of its own.
  double units_of_layer_ = 0, units_of_embedding_ = 0, units_of_head_ = 0;
  // Where gradients of weights are put off: beside the rest of its backward pass, and beside them.
  Exposed beside_gradients_, beside_weights_;
};

// pipeline.cc: whether passes are few enough to be walked; whether formulas cannot stand for them.
bool CanWalk(const PlanOutline& outline, double micro_batches);
bool Uneven(const PlanOutline& outline, double micro_batches);

class Fold : private LayerPrices {
 public:
  Fold(const ClosedForm& form, const LayerTable& table, const PlanOutline& outline,
       const DataMessages& data, const StageMessages& stages, double micro_batches)
      : form_(form),
        table_(table),
        outline_(outline),
        data_(&data),
        stages_(stages),
        M_(micro_batches) {
    PriceLayer();
    PriceHops();
  }
  // With the prices of another one whose table, messages and treatment of weights and gradients are the same.
  Fold(const ClosedForm& form, const LayerTable& table, const PlanOutline& outline,
       const DataMessages& data, const StageMessages& stages, double micro_batches,
       const LayerPrices& prices)
      : LayerPrices(prices),
        form_(form),
        table_(table),
        outline_(outline),
        data_(&data),
        stages_(stages),
        M_(micro_batches) {
    PriceHops();
  }
  const LayerPrices& prices() const { return *this; }

  // `parts`: of what the busiest stage waits for; else all of it is said to be messages.
  StepTime WholeStep(bool parts = true);
  // The same in two parts, of which the first does not depend on messages that are not sent inside the passes. Where passes
  // have to be walked (`true`), a lower bound.
  bool ByFormula(StepTime* passes);
  double Total(StepTime passes, const DataMessages& data);
  // The passes of WholeStep(), walked where they have to be: valid for Total() until the next walk. False: the step takes more
  // than `most`, and `passes` is as much as that leaves for them, a lower bound; Total() is one, too.
  bool WalkedPasses(double most, StepTime* passes);
  // At least what a walked step takes beyond its passes, whatever those take: of the outline it reads layers and sharding, of
  // the prices none.
  double LeastOnce();
  StepTime MicroStep();
  // What the host issues for one micro-batch on the stage where that takes longest.
  double IssueTime() const;

 private:
  // shards.cc: sharded weights and gradients in the passes.
  double ExtraKernels(double parameters) const;
  // Of one layer, once per step: weights that stay are cast when the first micro-batch needs them.
  double WeightCasts() const { return fetches_ ? 0.0 : table_.layer.weight_casts; }
  double CastsOf(const Stage& stage) const {
    return fetches_ ? 0.0
                    : stage.layers * table_.layer.weight_casts +
                          stage.plain * table_.plain_more.weight_casts;
  }

  // Of the embedding's and the head's gathered weights, which nothing casts.
  double Hooks(const PassTime& gathered) const {
    return outline_.gathers_weights ? gathered.host : 0.0;
  }

  // The same of a layer's backward pass, with the casts.
  double HostOfGathered(const LayerTime& time) const {
    if (fetches_) return time.gathered_backward.host;
    return outline_.gathers_weights ? time.hooks_backward : 0.0;
  }

  // What the host issues for so many sharded units: to gather their weights, to clear and scatter their gradients.
  double IssueGathers(double units) const {
    return outline_.gathers_weights && sharded_ ? units * form_.issue_message : 0.0;
  }
  double IssueScatters(double units, const TailTime& tail) const {
    return scatters_ ? units * ((sharded_ ? form_.issue_message : 0.0) + form_.issue_fill) +
                           tail.messages * form_.issue_message
                     : 0.0;
  }
  double IssueEndScatters(double units, const TailTime& tail) const {
    return table_.frozen ? 0.0 : IssueScatters(units, tail);
  }
  void PriceLayer();
  void PriceScatters(double transform, double rest);
  // The head's table, which is the embedding's where they are tied; what else it reads are units of their own.
  double HeadTable() const { return table_.tied ? table_.table_parameters : table_.head_table; }
  double HeadUnit() const {
    return table_.head_parameters + (table_.tied ? table_.table_parameters : 0.0);
  }
  double HeadTransform() const { return HeadUnit() - HeadTable() - table_.final_norm_parameters; }
  double HeadUnits() const {
    return (HeadTable() > 0) + (table_.final_norm_parameters > 0) + (HeadTransform() > 0);
  }
  double LayerGathers() const {  // packed weights and adapters travel apart
    return (table_.layer_parameters > table_.packed_parameters + table_.coded_parameters) +
           (table_.adapter_parameters > 0) + (table_.packed_parameters > 0) +
           (table_.coded_parameters > 0);
  }
  // Layers of a stage whose weights its backward pass reads.
  double ReadBackward(const Stage& stage) const {
    return stage.layers - (stage.first && table_.first_unread ? 1 : 0);
  }
  double LayerScatters() const {
    return (table_.TrainedOfLayer() > table_.coded_parameters) + (table_.coded_parameters > 0);
  }
  static Beside Price(const PreparedMessage& message, double bytes) {
    if (bytes <= 0) return {};
    const double seconds = message.Time(bytes);
    return {seconds, message.terms.Lost(bytes, seconds)};
  }
  Beside Gather(double parameters) const { return Fetch(parameters * outline_.weight_bytes); }
  // The rank's shard from the host, the whole from the other ranks.
  Beside Fetch(double bytes) const {
    Beside fetch = sharded_ ? Price(data_->layer_gather, bytes) : Beside{};
    if (outline_.weights_on_host) fetch.copies = bytes / outline_.shards * form_.host.copy;
    return fetch;
  }
  Beside Scatter(double parameters) const {
    return sharded_ ? Price(data_->layer_scatter, parameters * outline_.gradient_bytes) : Beside{};
  }
  // offload.cc: a scatter, what comes back from the host to be added to it, and what then goes there.
  Beside ScatterToHost(double parameters) const;
  Beside EndScatter(double parameters, bool summed) const;
  double ToHost(double parameters) const;
  // Of gradients, the share that is added to what is on the device, in the mean over micro-batches.
  double AddedOnDevice() const {
    return outline_.gradients_on_host ? 1 - outline_.states_on_host / M_ : 1.0;
  }
  static Beside Behind(const TailTime& tail, Beside scatter) {
    scatter.tail += tail.seconds;
    scatter.tail_lost += tail.lost;
    return scatter;
  }
  void ExposeShards(const Stage& stage, Work* work) const;
  void ExposeHead(const Stage& stage, Work* work) const;
  void ExposeLastScatters(const Stage& stage, double chunks, Work* work) const;
  Exposed BesideNext(double kernels, const Beside& gather) const;
  void BetweenStacks(double times, double ends, double embedding, Work* work) const;
  // A gather that goes when its layer is due waits on the same communicator for the scatter of the layer before.
  bool ScattersHide() const {
    return outline_.scatter_overlaps && (outline_.gather_overlaps || !fetches_);
  }
  // Of gathers and scatters beside kernels.
  Exposed Shown(double kernels, const Beside& gather, const Beside& scatter) const {
    const bool gathers = outline_.gather_overlaps, scatters = ScattersHide();
    if (gathers && scatters) return Cover(kernels, Combined(gather, scatter), true);
    Exposed exposed = Cover(kernels, gather, gathers);
    exposed.Add(1, Cover(kernels, scatter, scatters));
    return exposed;
  }
  // Beside the parts of a pass, with more kernels in front of them.
  Exposed Shown(double first, std::span<const PassPart> parts, const Beside& gather,
                const Beside& scatter) const;
  double MessagesOf(const Stage& stage) const { return Of(stage, &Beside::seconds); }
  double FetchesOf(const Stage& stage) const { return Of(stage, &Beside::copies); }
  double Of(const Stage& stage, double Beside::*part) const;

  // stage_work.cc: a micro-batch on one stage.
  std::array<Stage, 3> Stages() const;
  std::vector<Stage> StagesBySpeed() const;
  double SlowdownOf(int stage) const {
    return outline_.slowdown == nullptr ? 1.0
                                        : (*outline_.slowdown)[static_cast<std::size_t>(stage)];
  }
  Work WorkOf(const Stage& stage) const;
  void AddPlain(const Stage& stage, Work* work) const;
  void SlowDown(const Stage& stage, Work* work) const;
  void FollowHost(const Stage& stage, Work* work) const;
  double InChunks(const Stage& stage) const;
  Turn Together(const Work& w) const;
  double HostOnce(const Work& w) const;

  // passes.cc: all micro-batches by formulas; the step.
  StepTime Passes(Work* of_busiest);
  double TailsOf(const Turn& turn, const Work& work) const;
  void BookTurns(const Stage& stage, const Work& work, const Turn& turn, StepTime* time) const;
  void BookEarly(const Turn& turn, StepTime* time) const;
  void AddKernels(const Stage& stage, StepTime* time) const;
  void Finish(StepTime* time) const;
  void Crowd(StepTime* time) const;

  // pipeline.cc: seconds by which messages hold the busiest stage up.
  double AddPipeline(const Turn& all, const Turn& longest, const Work& work, StepTime* time);
  // Where all forward passes run before the first backward pass: of one of either kind, the slowest stage's seconds, and what a
  // host that waits issues of it before it receives the next tensor.
  struct Phases {
    double forward = 0, backward = 0, host_forward = 0, host_backward = 0;
    // Seconds of a micro-batch where its slowest stage, or a transfer of so long, holds up either phase.
    double InPhases(double hop) const {
      return std::max(forward, hop > 0 ? host_forward + hop : 0.0) +
             std::max(backward, hop > 0 ? host_backward + hop : 0.0);
    }
  };
  void AddPhases(const Turn& turn, const Stage& stage, const Work& work);
  void PriceHops();
  // Seconds of a transfer from a stage to the next one, or of the last stage to the first.
  double Hop(int stage) const;
  double HopOfKind(int kind) const;
  double HopInto(int virtual_stage) const;  // on the way of forward passes
  double WayOfStages() const;               // of transfers from the first stage to the last
  double SlowestHop() const;
  double HandingOver(const Turn& turn, const Turn& other, const Work& work, double inside,
                     double between) const;
  std::pair<double, double> LongestRound(double sum, double pass, double busiest, double inside,
                                         double between) const;
  double SlowestChunks(const Turn& longest) const;
  PassSeconds PassOf(const Stage& chunk) const;
  // The ranks of a layer lie on nodes in different ways.
  bool StagesUnlike() const {
    return !table_.faster.empty() && !stages_.ways.empty() && !stages_.ways[0].layers.empty();
  }
  // Of a shape: 0, or which of the faster tables it has, from one on.
  int KindOf(const GroupShape& shape) const;
  int KindOf(std::size_t way, int stage) const;
  int KindOf(int stage) const;
  int SlowestKind(int stage) const;
  Fold OfKind(int kind, const DataMessages& data) const {
    return Like(*table_.faster[static_cast<std::size_t>(kind - 1)], data);
  }
  // With another table and other messages.
  Fold Like(const LayerTable& table, const DataMessages& data) const {
    Fold fold(form_, table, outline_, data, stages_, M_);
    fold.copies_apart_ = copies_apart_;
    return fold;
  }
  const std::vector<int>& Hops() const {
    return stages_.ways.empty() ? stages_.hops : stages_.ways[way_].hops;
  }
  bool NoSlower(std::size_t way, std::size_t other) const;
  std::vector<std::size_t> SlowWays() const;
  std::size_t WatchedWay() const;
  void FindPasses(PipelineTimes* times);
  void AskOfWay(PipelineTimes* times);
  void AskOfWatched(PipelineTimes* times);
  bool FindSlowestWay(PipelineTimes* times, double most);
  void FindSlots(PipelineTimes* times) const;
  // At most what a pass saves where its first gather goes beside the pass before.
  double GatherAhead() const {
    if (!fetches_ || outline_.gather_slots < 2) return 0;
    return gather_.seconds + gather_.copies - (table_.recomputed > 0 ? 0.0 : gather_.Lost());
  }
  double AheadOf(const Stage& stage, const Work& work) const;
  struct Early {
    double device = 0, host = 0;  // of a pass, what wants no tensor of another stage: seconds
    double gathered = 0;          // of the device's, messages behind all kernels
  };
  Early EarlyForward() const;
  Early EarlyBackward(double layers) const;
  void SecondOf(const Early& forward, const Early& backward, PassSeconds* pass) const;
  double SavedOnTheWay() const;
  bool FindHeaviest(Work* work);
  int Watched() const;  // the stage of the breakdown
  void WatchHeaviest(Work* work, StepTime* time);
  void WatchInstead(Work work, StepTime* time);
  bool WalkPasses(Work work, bool parts, StepTime* time, double most = kForEver);
  double LeastBehind() const;
  void BoundPasses(const Work& work, StepTime* time) const;

  // update.cc: gradients that are reduced, weights that are gathered for the next step, the update.
  struct Fullest {
    double parameters = 0, layers = 0;
  };
  Fullest FullestTrained() const;
  double TrainedOn(const Stage& stage) const;
  double UnitsOf(const Stage& stage) const {
    return stage.layers * units_of_layer_ +
           (stage.first || (stage.last && table_.tied) ? units_of_embedding_ : 0.0) +
           (stage.last ? units_of_head_ : 0.0);
  }
  double Beyond(double message, double pass, double lap) const;
  double Reduction(double parameters) const;
  double ReductionToHost(double parameters) const;
  double HeldBack(double layers, double passes) const;
  double BesideLayer(const PassTime& pass, double busy) const;
  double LeftWhenIssued(double pass, double late) const;
  Turn LastTurn(double late) const;
  struct ReducedParts {
    double all = 0, last = 0,
           head = 0;  // seconds: of all gradients, those ready last, those of the head
  };
  double ExposedReduction(const ReducedParts& parts, double share, double pass, double layers,
                          double late) const;
  struct Reduced {
    double exposed = 0;  // the step waits for it
    double in_pass = 0;  // of it, inside the last backward pass: a host that issues it gets ahead
    double own = 0;      // of it, or beside it, messages of the stage that the breakdown is of
    double pipeline = 0, bubble = 0;  // of those terms, what that stage waits for reductions
    double beside = 0;                // its transfers beside them, when its passes have ended
  };
  Reduced ReducedByFormulas(double parameters, double late) const;
  // Seconds by which the device waits less for the host, and by which it waits for messages instead.
  struct HostGain {
    double seconds = 0, shown = 0;
  };
  HostGain HostAhead(double forward, double backward) const;
  double Tied(const PreparedMessage& message) const;
  double TiedStages() const { return Tied(stages_.tied); }
  double TiedOfWatched() const;
  Reduced ReducedBehindWalk() const;
  double LeastReduced() const;
  double TrainedOfChunk(int place) const;
  std::pair<double, double> HeadOf(int place) const;
  double Rate() const;
  struct Reducing {
    double from = 0,
           to = 0;  // behind the end of all passes: a stage's own end, when it has reduced
    double pipeline = 0, bubble = 0, beside = 0;  // of the watched stage: as Reduced
  };
  Reducing ReducingOf(int stage) const;
  const AwaitedShares& Awaited() const {
    return outline_.whole_replicas ? form_.awaited_replicas : form_.awaited;
  }
  // gathers.cc: of weights for the next step.
  struct GatheredBytes {
    double plain = 0, codes = 0;  // codes: weights in 8 bits, which come behind all others
  };
  struct NextGathers {
    double all = 0;    // seconds
    double codes = 0;  // of them, the last ones
    double awaited =
        0;  // of them, behind the update; the others go beside the next step's forward passes,
    double late = 0;   // by so much too late
    double waits = 0;  // behind the update, for those of slower stages
    GatheredBytes bytes;
    double left() const { return all - awaited; }
    double OfPlain(double bytes_of) const {
      return (all - codes) * bytes_of / std::max(1.0, bytes.plain);
    }
    double OfCodes(double bytes_of) const { return codes * bytes_of / std::max(1.0, bytes.codes); }
  };
  GatheredBytes BytesOn(int stage) const;
  NextGathers GathersAtEnd(double parameters, double layers) const;
  NextGathers GathersOf(int stage, const GatheredBytes& bytes) const;
  double LateInPass(const NextGathers& gathers) const;
  double LateInWalk(const NextGathers& own, int chunks) const;
  GatheredBytes BytesGathered(double parameters, double layers) const;
  double BesideGathers(int kind = 0) const;
  double WaitedBeside(const NextGathers& gathers, StepTime* time) const;
  double KernelsOfUpdate(double parameters, double layers) const;
  double BookReduced(const Reduced& reduced, StepTime* time) const;
  void AddUpdate(StepTime* time) const;
  double Cleared() const;
  void AddSmall(double parameters, StepTime* time) const;
  void AddCodes(double layers, StepTime* time) const;

  // offload.cc: states, weights and activations on the host.
  std::vector<double> UnitsOn(const Stage& stage) const;
  struct HostUpdate {
    double kernels = 0, offload = 0, gathers = 0;  // one behind the other
    double hidden = 0;                             // copies and the CPU beside kernels and gathers
    double seconds() const { return kernels + offload + gathers; }
  };
  bool StreamsUnit(const Stage& stage, std::size_t unit, std::size_t units) const;
  HostUpdate UpdateOnHost(const Stage& stage, double kernels, double gathers, double awaited) const;
  double UpdateThroughHost(double parameters, const NextGathers& gathers, StepTime* time) const;
  struct MovingLayer {
    double forward = 0, backward = 0;  // seconds of its passes, gathers and scatters included
    double copy = 0;                   // of its activations, one way
  };
  MovingLayer LayerOf(bool recomputed) const;
  struct CopyWaits {
    double forward = 0, backward = 0;  // seconds of a micro-batch's passes
  };
  CopyWaits WaitsForCopies(const Stage& stage, double between) const;
  void AwaitActivations(const Stage& stage, Work* work) const;
  double CopiesAhead(double in_pass) const;
  std::vector<MovedLayer> LayersOf(const Stage& chunk) const;
  bool Moves(std::size_t layer, std::size_t layers) const;  // of one of a chunk's
  double CopiesOf(const Stage& stage) const;

  // While it lives, messages of the data axes are those of a stage, or others.
  class With {
   public:
    With(const Fold& fold, const DataMessages& other) : fold_(fold), all_(fold.data_) {
      fold_.data_ = &other;
    }
    With(const Fold& fold, int stage) : With(fold, fold.data_->Of(stage)) {}
    ~With() { fold_.data_ = all_; }
    With(const With&) = delete;
    const Fold& fold() const { return fold_; }

   private:
    const Fold& fold_;
    const DataMessages* const all_;
  };

  const ClosedForm& form_;
  const LayerTable& table_;
  const PlanOutline& outline_;
  mutable const DataMessages* data_;
  const StageMessages& stages_;
  std::vector<double> narrow_;  // seconds of a transfer, by kind of StageMessages::narrow
  const double M_;
  bool copies_apart_ = false;  // what passes wait for activations is no part of their work
  bool walks_ = false, walked_ = false, parts_ = false;
  Stage stage_, here_;    // the busiest; that of the breakdown
  Work work_;             // of the busiest, where it is the only one
  double fill_ = 0;       // what it waits for its first pass
  double saved_ = 0;      // SavedOnTheWay()
  double head_lead_ = 0;  // of the host, behind the head's passes
  // Of interleaved chunks: seconds of a micro-batch in one chunk of all stages, with its transfers.
  double lap_forward_ = 0, lap_backward_ = 0;
  Phases phases_;
  double tails_ = 0;             // among the time of `tensor`
  double early_ = 0;             // of `context`, among the time of `host`
  int watched_ = 0;              // of a walk, the stage of the breakdown
  std::size_t way_ = 0;          // of StageMessages::ways, the replica that is looked at
  std::size_t watched_way_ = 0;  // that of the breakdown
};

}  // namespace orrery::closed
