// SPDX-License-Identifier: Apache-2.0
// From the time of one step to the days, dollars and kilowatt-hours of a run with failures.
//
//   time   = setup + steps x max(computed x straggler, fed by the input pipeline) / goodput + last write
//   steps  = ceil(tokens / (global batch x sequence length)); a slow GPU does not slow the readers
//   M      = 1000 days / (nodes x stops per 1000 node-days); spares stop nothing; spot interruptions are stops, too
// A failed node is in repair, and without a spare the job waits for it. One that is reclaimed is not: another is there after
// detection and replacement; a notice long enough for a checkpoint saves the work.
//   cost   = (nodes + spares) x price x billed time, whole quanta of the price and at least its term
//   energy = GPUs x rated power x node factor x PUE x time
//   checkpoint bytes = parameters x (16-bit weights 2 + fp32 master weights 4 + moments of the optimizer), without the
//                      16-bit copy in fp32 training: 14 with Adam in bf16, as Megatron-LM and DeepSpeed write
//   blocking = overhead + bytes of one GPU / (PCIe rate x efficiency); write = bytes / least of file system and nodes' NICs
// A job that shrinks goes on from the memory of its other replicas: it needs a checkpoint where the last group goes, and the
// best interval is that of these stops.
// The interval is that of finish_time.h: step time, straggler, failure rate and luck.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/provision/elastic.h"
#include "model/provision/facts.h"
#include "model/provision/finish_time.h"
#include "model/provision/goodput.h"
#include "model/provision/offers.h"
#include "model/twin/predict.h"
#include "model/twin/search.h"

namespace orrery {

// What holds for every offer of a question.
struct Conditions {
  FailureFacts failures, spot;
  RecoveryFacts recovery;
  CheckpointFacts checkpoint;
  StorageFacts storage;
  bool storage_given = false;  // by the user: replaces what an offer brings
  InputFacts input;
  LongRunFacts run;
  EnergyFacts energy;
  std::optional<int64_t> spares;  // empty: SpareCounts() are compared
  double tokens = 0;
};
Conditions DefaultConditions();

// Of so many nodes, those in wait among them.
Dollars CostOf(const Quote& quote, int64_t nodes, Seconds time);
// The longest time that costs so much at most; 0: none does.
Seconds LongestFor(const Quote& quote, int64_t nodes, Dollars cost);

double CheckpointBytesPerParameter(Precision precision, Optimizer optimizer);

struct CheckpointCost {
  Bytes bytes;
  Seconds blocking, background, load;
  BytesPerSecond file_system;              // that the write needs
  bool to_be_ordered = true;               // neither the offer nor the user names one
  std::optional<BytesPerSecond> replaced;  // the offer's own, where the user's takes its place
};
CheckpointCost CheckpointOf(const Conditions& conditions, const Job& job, const Offer* offer);

// What hosts and storage must deliver for a step time: they need only keep up with the slowest node.
struct InputNeed {
  double taken =
      0;  // tokens/s: a slower node holds up all others, which then take no more than it does
  BytesPerSecond read;         // of that
  std::optional<double> most;  // tokens/s that readers or storage deliver; empty: no limit is known
  std::string limit;           // "readers", "storage"; "" without one
  bool bound() const { return most && *most < taken; }
};
InputNeed InputOf(const Conditions& conditions, const Job& job, const Strategy& layout,
                  double step_seconds);

// For a search.
InputRates SearchInput(const Conditions& conditions);

// Steps of so many tokens that a run takes.
int64_t StepsOf(const Conditions& conditions, double tokens);
// Of `gpus` that hold a copy of the model and share its sequences.
int64_t NodesOfReplica(const Job& job, int64_t gpus);

struct RunEstimate {
  int64_t steps = 0, spares = 0;
  double spot_rate = 0;     // interruptions per 1000 node-days; 0: not on spot capacity
  Seconds spot_notice;      // ahead of them
  double step_seconds = 0;  // with the input pipeline
  double slowest =
      1;  // times that, with the slowest node: the straggler's factor, or less where readers are slower
  InputNeed input;
  CheckpointCost checkpoint;
  StopModel stops;
  Seconds interval;  // between checkpoints, whole steps
  int64_t interval_steps = 0;
  bool elastic = false;
  ElasticModel shrinking;  // elastic
  Seconds
      between_restores;  // between stops that need a checkpoint; as stops.between where the job does not shrink
  bool shared_states = false;  // elastic: ZeRO spreads the states over all replicas
  double goodput = 0;
  double written = 1;  // elastic: share of the time that checkpoints leave
  double expected_stops = 0;
  double short_of_spares = 0;  // elastic: of them, failures that find no spare
  Seconds ideal;               // steps x step, nothing else
  Seconds Work() const { return ideal * slowest; }
  Seconds time;       // setup included
  Seconds luck;       // standard deviation of the failures' cost
  Seconds low, high;  // 80 %, of `finish`
  Dollars cost, low_cost, high_cost;
  Seconds billed;
  std::optional<double> energy_kwh;  // empty: the GPU's power is not known

  FinishTime finish;

  double ProbabilityWithin(Seconds deadline) const { return finish.Below(deadline); }
  // That it costs no more. `nodes`: that are paid for, spares included.
  double ProbabilityWithin(const Quote& quote, int64_t nodes, Dollars budget) const {
    return finish.Below(LongestFor(quote, nodes, budget));
  }
};

// How many nodes may wait besides those that work, ascending: what the user said, else from none to the first that suffice
// but for `run.shortage`; with those that work they are as many as are sold. Empty: so many nodes are not sold.
std::vector<int64_t> SpareCounts(const Conditions& conditions, const Job& job, const Quote* quote);

// Without its distribution, its interval and that of its cost; `losses`: of its stops, may be null.
RunEstimate MeanRun(const Conditions& conditions, const Job& job, const Prediction& step,
                    const Quote* quote, int64_t spares, StopLosses* losses = nullptr);
// `quote`: null: no price, on-demand failures. `spares`: empty: BestRun() that keeps anything.
RunEstimate EstimateRun(const Conditions& conditions, const Job& job, const Prediction& step,
                        const Quote* quote, std::optional<int64_t> spares = {});
// With the SpareCounts() of least cost x time among the runs that `keeps` takes; where it takes none, among all.
RunEstimate BestRun(const Conditions& conditions, const Job& job, const Prediction& step,
                    const Quote* quote, const std::function<bool(const RunEstimate&)>& keeps);

// No run on so many nodes of the job's cluster takes less time or money when a token takes at least `seconds_per_token`;
// by SpareCounts().
struct LeastRun {
  Seconds time;
  Dollars cost;
};
std::vector<LeastRun> BoundRuns(const Conditions& conditions, const Job& job,
                                double seconds_per_token, const Quote& quote);

// For a run of which hardly anything is progress: failures, or a file system that is too slow for them.
inline constexpr const char* kSlowStorage = "does not finish: a checkpoint takes ";
std::string WhyEndless(const RunEstimate& run);

}  // namespace orrery
