// SPDX-License-Identifier: Apache-2.0
// Finds the best layouts of a training job on a cluster: exact over the space that the request spans.
//
// Space: all factorisations tp x pp x dp (x dp_outer) of the ranks x micro-batch (every divisor) x
// schedule x vpp x ZeRO x recomputation x sequence parallelism, cut to what the framework offers and to
// the axes that the request fixes. Plans that fill the memory further than published runs did rank below
// all others. Every strategy is either evaluated in closed form, or rejected by a
// rule, or by a lower bound of its memory, or by a lower bound of its time; the ranked ones have
// their memory from the lowered plan. The same request gives the same result, with any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/framework/presets.h"
#include "model/hardware/spec.h"
#include "model/twin/predict.h"

namespace orrery {

enum class Objective {
  kTime,             // least time per token (at one global batch: least step time)
  kCost,             // least dollars per optimizer step
  kTokensPerDollar,  // most tokens per dollar
};

// Axes that the user fixes; empty: searched. `dp` is the whole data-parallel degree (dp x dp_outer of Strategy).
struct FixedAxes {
  std::optional<int> tp, pp, dp, dp_outer, vpp, zero, micro_batch;
  std::optional<int> cp, cp_inner;  // of ranks that share sequences; inner: a2a_ring
  std::optional<CpMethod> cp_method;
  std::optional<bool> zigzag;
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;  // empty: nothing; a search looks at no other
  std::optional<bool> sequence_parallel;
  std::optional<PipelineSchedule> schedule;
  std::vector<PipelineSchedule> schedules;  // that may be chosen; empty: all of the framework
  std::shared_ptr<const std::vector<int>> layout;  // of Strategy; fixes pp x vpp
  std::shared_ptr<const Placement>
      placement;  // of one layout; a search looks at the plain one alone
};

// The plainest layout with what is fixed: what a framework refuses of it, it refuses of all.
Strategy LeastStrategy(const FixedAxes& fixed, const FrameworkPreset& preset);

// Tokens/s that the input of a run delivers, times `slowest`; 0: no limit.
struct InputRates {
  double reader = 0;   // to each replica
  double storage = 0;  // to all of them
  // Of the slowest node's step over that of a layout: it holds up the others, and an input need only keep up with it. So layouts
  // rank by max(step, fed) as their runs do by max(step x slowest, fed x slowest), which is what words say.
  double slowest = 1;
  bool limited() const { return reader > 0 || storage > 0; }
};

// What a whole run takes by the step that its layout takes, with the input: seconds or dollars, by the objective. Both
// increase with each other. Safe for concurrent use.
class RunValue {
 public:
  virtual ~RunValue() = default;
  // `replicas`: of the layout; a job that shrinks loses one of them with a node.
  virtual double Of(const Job& job, int64_t replicas, double step_seconds) const = 0;
  // The longest step with at most this value.
  virtual double StepOf(const Job& job, int64_t replicas, double value) const = 0;
};

struct SearchRequest {
  ModelSpec model;
  Workload work;                        // global_batch is replaced by each of global_batches
  std::vector<int64_t> global_batches;  // empty: work.global_batch alone
  TopologySpec topology;
  std::vector<int64_t> nodes;  // node counts to compare; empty: topology.nodes
  int gpus_per_node = 0;       // 0: all
  std::string framework = "orrery";
  Objective objective = Objective::kTime;
  InputRates input;                     // layouts rank by the time with their input
  std::shared_ptr<const RunValue> run;  // they rank by their run, not by their step; may be null
  int top = 5;                          // ranked candidates wanted
  bool variants = false;  // rank every strategy; false: the best of each (tp, pp, dp, micro-batch)
  FixedAxes fixed;
  bool shares = true;  // move layers between stages where it may gain; false: the space as it is
  bool flash_attention = true;
  std::optional<Bytes> memory_limit;         // per GPU; empty: the capacity in the GPU's profile
  std::optional<DollarsPerHour> node_price;  // empty: the topology's
  int threads = 0;                           // 0: as many as the machine has
  int refine =
      0;  // simulate at least the best so many and rank by simulated time; 0: closed form only
  double most_effort = kMostEffort;  // that the simulation of one layout may take
  double refine_ops =
      1e7;  // effort of all simulations; what rows leave of it, at least half, is for others
  // Learns, from any thread, what is done and which share of it; may be empty.
  std::function<void(const char* what, double share)> progress;
};

// Those that the request names. Throws InputError: unknown GPU, fabric or framework.
Profiles LoadProfiles(const SearchRequest& request);
// The request's job at its first node count and batch, or at others. Request and profiles must outlive it.
Job JobOf(const SearchRequest& request, const Profiles& profiles);
Job JobOf(const SearchRequest& request, const Profiles& profiles, int64_t nodes,
          int64_t global_batch);

// A candidate whose stages hold as many layers as suits them, with the framework's split instead.
struct EqualShares {
  double seconds = 0;  // simulated where the candidate is
  bool fits = false;
  double bound = 0;  // seconds, closed form: no shares of the layers take less
};

// Memory, confidence and simulation are set for printed ones; the digest is left to those who print it.
struct Candidate : Prediction {
  Bytes memory_bound;  // lower bound of the total, framework overhead included
  bool tie_with_first =
      false;  // 80 % intervals: of their difference, if known, else of both step times
  std::shared_ptr<const ir::Plan> plan;  // lowered; set together with `memory`
  int closed_rank =
      0;  // place by the closed form among the simulated ones, from 1; 0: not ranked by simulation
  std::optional<EqualShares> equals;  // of the first rows, where their shares differ from it
};

// Strategies that one reason kept out, with the best example.
struct Rejection {
  std::string reason;  // "attention heads do not divide by tp", "memory"
  int64_t strategies = 0;
  std::string example;  // layout, and for memory what it asks
};

inline constexpr char kOutOfMemory[] = "out of memory";

// Layouts with stages whose framework lets them hold as many layers as anyone likes.
struct ShareCounts {
  int64_t moved = 0;     // layouts whose layers were moved between stages
  int64_t priced = 0;    // steps
  int64_t faster = 0;    // of those layouts
  int64_t bounded = 0;   // whatever their shares, too slow for the rows by a lower bound
  int64_t too_long = 0;  // more passes than are walked: formulas do not tell stages apart

  ShareCounts& operator+=(const ShareCounts& other) {
    moved += other.moved, priced += other.priced, faster += other.faster;
    bounded += other.bounded, too_long += other.too_long;
    return *this;
  }
};

struct SearchCounts {
  int64_t space = 0;              // strategies in the space, before any rule
  int64_t illegal = 0;            // cannot be lowered
  int64_t over_memory = 0;        // lower bound of the memory above the capacity
  int64_t bounded = 0;            // lower bound of the time above the best known
  int64_t evaluated = 0;          // closed form computed
  int64_t exact_memory = 0;       // lowered and laid out
  int64_t exact_over_memory = 0;  // of these, did not fit after all
  ShareCounts shares;
  double seconds = 0;  // wall
};

// Where the winner gains and loses against another layout; seconds, positive: the winner is faster there. On other nodes or
// at another batch, seconds of the other count as the objective counts them.
struct TermDifference {
  std::string term;  // "compute", "pipeline bubble", ...
  double seconds = 0;
};
struct Comparison {
  Candidate other;                    // best of another (tp, pp, dp)
  std::vector<TermDifference> terms;  // largest first by magnitude
  std::string words;  // "the winner saves 0.8 s of bubble and pays 0.2 s of tensor parallelism"
};

// What would help the winner: its own step with one resource changed, by evaluation.
struct Limit {
  std::string resource;     // "GPU memory", "arithmetic", "network between nodes", ...
  double step_seconds = 0;  // with twice as much of it; of the input: of the slowest node
  double gain = 0;          // 1 - step / winner's step, of the input: with its input
  std::string words;
};

// A smallest change under which something fits.
struct Remedy {
  std::string change;   // "use 8 nodes instead of 4"
  std::string flag;     // "--nodes 8"
  Candidate candidate;  // best plan with it, memory exact
};

// How far simulation went and what it changed.
struct Refinement {
  int asked = 0;      // rows that had to be simulated
  int simulated = 0;  // layouts altogether: rows, what they are compared with, possible winners
  bool ranked_by_simulation =
      false;  // all rows could be simulated; else see Prediction::not_simulated
  // Layouts are left that were not simulated, although their closed form is below the winner's step.
  bool open = false;
  double disagreement = 0;           // largest |closed form / simulation - 1| of the simulated rows
  std::vector<std::string> changes;  // of the order, in words
};

struct SearchResult {
  std::vector<Candidate> ranked;        // best first, at most `top`; empty: nothing fits
  std::vector<Comparison> comparisons;  // against the best of up to three other layouts
  std::vector<Limit> limits;            // what helps most first
  std::optional<Candidate>
      unlimited;  // fastest if memory were no limit; memory_bound says what it asks
  // Fastest of the plans that fit but leave less memory than published runs did (memory_nearly_full), where it is
  // faster than the winner; such plans rank below all others.
  std::optional<Candidate> nearly_full;
  std::vector<Candidate>
      near_misses;  // over memory by little and faster than the winner, memory exact
  std::vector<Rejection> rejections;     // most strategies first
  std::vector<Remedy> remedies;          // when nothing fits
  std::optional<Candidate> closest;      // when nothing fits: least memory, report exact
  std::optional<Refinement> refinement;  // when the request asks for it
  std::shared_ptr<ShapeCache> shapes;    // for who asks more of the same model and workload
  SearchCounts counts;
  bool complete = true;  // every strategy of the space is accounted for: the first is optimal

  bool feasible() const { return !ranked.empty(); }
};

// "16 nodes, batch 1024, ", of what the request has several of; to stand before a layout.
std::string ChosenWords(const SearchRequest& request, int64_t nodes, int64_t global_batch);

// Throws InputError when the request contradicts itself (a fixed axis that the framework lacks, a
// degree that does not divide, a cost objective without a price).
SearchResult Search(const SearchRequest& request);
SearchResult Search(const SearchRequest& request, const Profiles& profiles);

}  // namespace orrery
