// SPDX-License-Identifier: Apache-2.0
// Step time of a layout in closed form: prices of one layer's ops and messages, folded over the outline of its plan.
//
// It reads prices and the outline, no constant and no strategy. What the simulator plays event by event, in formulas:
//   segment    kernels c beside messages m that slow them by s: P(c, m) = m where m > c / (1 - s), else c + s m. Messages
//              of a segment (a layer's pass, the embedding, the head) are those of its neighbours: weights gathered for
//              the next one, gradients scattered of the one before
//   stage      S: segments of its layers (+ embedding on the first, + head on the last). A host that waits for what it
//              loads or receives: the device, or the host up to a pass and the device from there on, what is longer; one
//              that never waits is late once per step
//   tail       where gradients are scattered inside the passes, ranks of a layer first add up those of its norms (sequence
//              parallelism), on the communicator of the layer's own collectives: the next collective waits for it
//   pipeline   M max S + f (sum of the other S) + 2 (p v - 1) t (Narayanan et al. 2021, section 2); f: layers of the first
//              chunk / all layers, 1 / v where chunks are alike; zero-bubble: what weight gradients leave (Qi et al. 2023).
//              Forward passes all first: (M - 1) (max F + max B) instead, F and B no less than a transfer.
//              Also (M - 1) times what exceeds max S: the slowest stage of each chunk, added up; what a waiting host hands
//              over; v > 1: a lap of all stages / p; one forward, one backward: a way back / the micro-batches under way.
//              A host that waits does so in each chunk: the sum over its passes of the later one of device and host.
//              Uplinks that are narrower than NICs: each hop takes what those take that it crosses itself, each stage's
//              groups of the data axes what theirs take; one price for all made steps 5 to 18 % longer than simulated.
//              Pass by pass (schedule_time.h) where stages or chunks differ, where weight gradients fill bubbles, and where
//              messages or a host hold the busiest stage up
//   reduction  r beside the last backward pass B: l + x (r - l) + max(0, (1 - x) (r - l) - B), l: that of the last layer
//              and the embedding, ready last; x: share that the framework waits for. But for the head's it begins behind the
//              first layer, and without a reducer no earlier than the host has issued all passes. Of a stage i this begins
//              when its last gradient leaves it, the backward passes of the stages before i ahead of the end; a host that
//              waits gets ahead while the head runs, and B of the last stage is shorter by that. Where the schedule is walked,
//              stage by stage and chunk by chunk beside the last micro-batch's passes (of weight gradients, where those are
//              put off). After the passes: r. Gather g of weights for the next step beside its forward pass F, without
//              messages that take turns with it, with the kernels that clear gradients in front and the casts of weights
//              inside: x g + max(0, (1 - x) g - F), F without the last layer where no head is gathered behind it, and no less
//              than its first layer waits. Weights in 8 bits come behind all others, in shorter buckets. Where the schedule is
//              walked, a chunk's first pass waits for its own layers from when it starts: the latest of all.
//   contention where tensor-parallel groups span nodes: how much longer the step is if their messages hold the NICs, so that
//              gathers, scatters and reductions hide behind kernels alone
//   optimizer  gradient norm and update of the fullest stage's parameters / shards
//   offload    updates by the CPU: units pass through gradients down d, update a, weights up u, gathers g in order, each
//              step of a unit behind the unit before: the last one's end less the kernels of the update, on the stage where
//              that is latest. Gradients that each backward pass sends (d = 0 then): a scatter s has copies behind it, d to the host and
//              (M - 1) / M times as long back; those of the last layer and the embedding are under way when the updates begin. Activations: layer
//              l + 2 of a chunk overwrites what layer l sends, and layer l's backward pass waits for what comes back from
//              the start of that of layer l + 1 on: what passes wait for copies; in pipelines pass by pass. Weights: a copy c of the rank's shard in
//              front of each gather g in its queue, beside scatters s: g + max(c, s), of which the copy hides first
//   fixed      once per step
//   micro-step as printed where the timer does not wait for the device: what the host issues
//   crowding   r ranks per processor core: compute + max(0, (r - 1) (compute + optimizer) - bubble)
// M micro-batches, p stages, v chunks per stage. More bandwidth, more FLOP/s or less latency never makes a step longer.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "model/collectives/group_shapes.h"
#include "model/engine/closed/schedule_time.h"
#include "model/plan/lower/outline.h"
#include "model/price/breakdown.h"
#include "model/price/layer_table.h"
#include "model/price/pricer.h"

namespace orrery {

enum class Window {
  kStep,       // one optimizer step
  kMicrostep,  // forward and backward of one micro-batch, as the framework's timer prints it: no
               // reduction, no optimizer
  kSustained,  // the same in the long run; differs where that timer does not wait for the device
};

// Messages along the data axes, prepared once per (dp, dp_outer, inner ranks).
struct DataMessages {
  PreparedMessage all_reduce, reduce_scatter, all_gather;  // gradients and weights of a step
  PreparedMessage layer_gather, layer_scatter;             // of one layer, inside the passes
  PreparedMessage outer_all_reduce;                        // between sharding groups
  double dp = 1;                                           // ranks that share weights
  bool shards_on_nics = false;                             // and are on several nodes
  // Seconds of a few bytes among: replicas and stages; ranks that share a replica's weights; the same where states are
  // sharded; those of one stage. 0: one rank.
  double loss = 0, norm = 0, norm_of_shards = 0, norm_of_tensors = 0;
  // By stage, where their groups cross other uplinks or lie on other nodes: this is then what the slowest stage has, and
  // `fastest` no more than any of them. Empty: all are alike.
  std::vector<const DataMessages*> of_stage;
  const DataMessages* fastest = nullptr;

  const DataMessages& Of(int stage) const {
    return of_stage.empty() ? *this : *of_stage[static_cast<std::size_t>(stage)];
  }
};

struct StageAxes {
  int pp = 1, inner = 1;  // ranks between neighbouring stages
  int together = 1;       // of them, neighbours that wait for each other in each layer
  auto operator<=>(const StageAxes&) const = default;
};
// By stage, of the ranks of a replica that hand over together: whether their hop to the next stage leaves a node (of the last
// stage, to the first), and their shape.
struct ReplicaWay {
  std::vector<char> leaves;
  std::vector<GroupShape> layers;  // empty where all are alike
  // Of the first of these replicas: its first rank, and of the hops of that rank alone whether they leave a node.
  int64_t first = 0;
  std::vector<char> own_leaves;
  bool SameAs(const ReplicaWay& other) const {
    return leaves == other.leaves && layers == other.layers;
  }
};

// Transfers between stages, prepared once per (pp, inner ranks).
struct StageMessages {
  PreparedMessage inside, between;           // of a node, nodes
  double hops_inside = 0, hops_between = 0;  // neighbouring stages of each kind
  std::vector<PreparedMessage> narrow;       // of each kind of uplinks that are slower than NICs
  enum Hop { kInside, kBetween, kNarrow };   // the first kind, and so on
  // By stage: what the hop to the next one is, of the last one to the first. Empty: as `on_node` says, and none is narrow.
  std::vector<int> hops;
  double on_node = 1;  // neighbouring stages on one node
  // Replicas that lie otherwise, the first with these hops. The slowest counts, and where replicas wait for each other in the
  // passes the slowest of each stage.
  struct Way {
    std::vector<int> hops;
    std::vector<GroupShape> layers;  // by stage, of the ranks of a layer; empty: all are alike
    int64_t first = 0;               // its first rank, whose own hops are these
    std::vector<int> own_hops;
    PreparedMessage tied;  // as below, of that rank
  };
  std::vector<Way> ways;
  PreparedMessage tied;  // first and last stage add up a table's gradients, of the slowest rank
};

struct DataAxes {
  int dp = 1, dp_outer = 1;
  int inner = 1;          // ranks between neighbours
  int stages_inside = 1;  // pipeline stages among these

  auto operator<=>(const DataAxes&) const = default;
};
// Of what sends along them on one stage: shards of a group, all replicas, the same shard of all groups.
struct DataShapes {
  GroupShape shards, replicas, between;
  auto operator<=>(const DataShapes&) const = default;
};
DataShapes ShapesOf(const DataAxes& axes,
                    int domain_gpus);  // where stages fill nodes, or parts that divide one
// What a message takes that decides which groups are the slowest: fewer ranks on a node are not always slower, where NCCL takes
// another algorithm for them.
using GroupSeconds = std::function<double(Collective, const GroupShape&)>;
// By stage, of the slowest group of each kind; of one, where all stages are alike. `ranks`: of the cluster.
std::vector<DataShapes> ShapesByStage(const DataAxes& axes, int domain_gpus, int64_t ranks,
                                      const GroupSeconds& seconds);

// Of all replicas, each way once: first the one whose hops leave nodes most often. Empty: the same for all, stages fill nodes or
// parts that divide one.
std::vector<ReplicaWay> WaysOfReplicas(const StageAxes& axes, int domain_gpus, int64_t ranks);
// Of a rank of the first stage, or the slowest of them, and its copy on the last one.
GroupShape ShapeOfEnds(const StageAxes& axes, int domain_gpus, int64_t ranks,
                       std::optional<int64_t> of = std::nullopt);

// Settings differ in what uplinks leave to messages: of sharding groups and between them; of reductions between the first and the
// last stage. `hops`: by stage, how much longer uplinks take than NICs; empty: none does.
DataMessages PrepareData(const CostSetting& setting, const CostSetting& between_groups,
                         const DataAxes& axes, const DataShapes& shapes);
StageMessages PrepareStages(const CostSetting& setting, const CostSetting& ends,
                            const std::vector<double>& hops, const StageAxes& axes);

// Prices that do not depend on the layout. Not for concurrent use.
struct ClosedForm {
  ClosedForm(const CostSetting& setting, const Workload& work, double layers);

  StepTime Evaluate(const LayerTable& table, const PlanOutline& outline, const DataMessages& data,
                    const StageMessages& stages, Window window = Window::kStep) const;
  // Total of a step, without its parts.
  double StepSeconds(const LayerTable& table, const PlanOutline& outline, const DataMessages& data,
                     const StageMessages& stages) const;
  double update = 0;                         // seconds per parameter
  StreamPrice norm, fill, add;               // kernels on gradients
  StreamPrice code_amax, code_cast;          // on master copies of weights held in 8 bits
  bool scans_codes = true;                   // a pass of its own finds their magnitudes
  double issue_message = 0, issue_fill = 0;  // host: of a gather or scatter, of clearing a gradient
  HostPrices host;                           // copies to and from the host, updates by the CPU
  bool clips = false;                        // the update wants the gradient's norm
  bool host_waits = true, timer_waits = true;
  AwaitedShares awaited, awaited_replicas;  // of sharded layouts, of whole replicas
  double fixed = 0;
  double crowding = 1;  // ranks per core, at least 1
  ResidualInterval residuals;
  mutable ScheduleClock clock;

 private:
  StepTime WithInterval(StepTime time) const;
};

}  // namespace orrery
