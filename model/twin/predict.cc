// SPDX-License-Identifier: Apache-2.0
// Prices a layout, lowers it, simulates it where asked.
#include "model/twin/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/arch/parameters.h"
#include "model/base/check.h"
#include "model/plan/ir/hazards.h"
#include "model/plan/ir/plan_facts.h"
#include "model/plan/lower/lower.h"

namespace orrery {

Prediction PredictionOf(const Job& job, const Strategy& layout, const StepTime& time) {
  Prediction prediction;
  prediction.strategy = layout;
  prediction.nodes = job.cluster.nodes;
  prediction.global_batch = job.work.global_batch;
  prediction.micro_batches = MicroBatches(job.work, layout);
  const double sequences = static_cast<double>(job.work.global_batch);
  prediction.tokens = sequences * static_cast<double>(job.work.seq_len);
  prediction.model_flops = (ModelFlopsPerSequence(job.model, job.work.seq_len,
                                                  job.work.masked_positions, job.work.lora) *
                            sequences)
                               .value;
  prediction.masked_flops = MaskedFlopsPerSequence(job.model, job.work.seq_len).value * sequences;
  const double own_peak = job.gpu->Peak(job.work.precision).value;
  prediction.peak_flops = static_cast<double>(layout.ranks()) * own_peak;
  if (job.topology != nullptr) {
    const auto& peaks = job.topology->gpu_peak;
    for (std::size_t n = 0; n < std::min<std::size_t>(peaks.size(), job.cluster.nodes); ++n)
      prediction.peak_flops += (peaks[n].value - own_peak) * job.cluster.gpus_per_node;
  }
  prediction.dollars_per_second = job.price();
  if (layout.pp > 1 && job.model.layers > 0) {
    std::vector<int> shares = LayersByStage(job.model, layout);
    const bool alike =
        std::ranges::all_of(shares, [&](int layers) { return layers == shares.front(); });
    if (!alike || layout.layout != nullptr || StageGpusOf(job, layout).differ())
      prediction.shares = std::move(shares);
  }
  prediction.SetTime(time);
  return prediction;
}

void Prediction::SetTime(const StepTime& step) {
  time = step;
  tokens_per_second = tokens / step.total;
  mfu = model_flops / (step.total * peak_flops);
  if (!dollars_per_second) return;
  price_per_step = Dollars(*dollars_per_second * step.total);
  price_per_billion_tokens = Dollars(*dollars_per_second * step.total / tokens * 1e9);
}

ir::Plan LowerLegal(const Job& job, const Strategy& layout) {
  LowerResult lowered = Lower(job.model, job.work, layout);
  auto* plan = std::get_if<ir::Plan>(&lowered);
  ORRERY_CHECK(plan != nullptr, "{} is refused: {}", DescribeLayout(layout),
               std::get<Refusal>(lowered).reason);
  return std::move(*plan);
}

void AddMemory(const Job& job, const ir::Plan& plan, Prediction* prediction) {
  prediction->memory =
      ReportMemory(plan, LimitsOf(job, prediction->strategy), Communicators(prediction->strategy));
}

void AddMemoryOfLayout(const Job& job, const ir::Plan& plan, Prediction* prediction) {
  const auto shorter = ShorterPlan(job, prediction->strategy, plan);
  AddMemory(job, shorter ? *shorter : plan, prediction);
}

Confidence ConfidenceOf(const Job& job, const Strategy& layout, Window window, const Trust& trust,
                        ShapeCache* shapes) {
  const auto predict = [&](const CostSetting& prices) {
    Job varied(job.model, job.work, prices);
    varied.topology = job.topology;
    StepPredictor predictor(varied, shapes);
    return std::get<StepTime>(predictor.Predict(layout, window)).total;
  };
  const Situation at = SituationOf(job.model, job.work, layout, job.cluster.nodes);
  return ConfidenceOf(trust, job.prices(), IdentityOf(job.prices(), job.work, layout, at),
                      predict(job.prices()), predict);
}

void AddConfidence(const Job& job, const Trust& trust, Prediction* prediction, ShapeCache* shapes) {
  ShapeCache own;
  Confidence confidence = ConfidenceOf(job, prediction->strategy, Window::kStep, trust,
                                       shapes != nullptr ? shapes : &own);
  StepTime& closed = prediction->closed_form ? *prediction->closed_form : prediction->time;
  closed.low = confidence.low;
  closed.high = confidence.high;
  if (prediction->closed_form) prediction->time = WithInterval(prediction->time, closed);
  prediction->outside = std::move(confidence.outside);
  prediction->interval_basis = std::move(confidence.basis);
  constexpr std::size_t kNearest = 3;
  prediction->nearest = NearestRuns(job, prediction->strategy, kNearest);
  prediction->difference = confidence.difference;
  prediction->difference_pairs = confidence.pairs;
}

namespace {

// Executed ops that take as long as unfolding one, and as routing one rank's traffic of one group.
constexpr double kOpsPerUnfolded = 2;
constexpr double kOpsPerRoute = 20;

// Unfolding each stage, executing its ranks, routing for all ranks. `ops`: of all stages.
double EffortOf(const ir::Plan& plan, double ops, bool alike) {
  const double per_stage = static_cast<double>(sim::ExecutedRanks(plan.mesh, alike)) /
                           static_cast<double>(plan.programs.size());
  const double routes =
      static_cast<double>(plan.mesh.ranks()) * static_cast<double>(plan.groups.size());
  return ops * (kOpsPerUnfolded + per_stage) + kOpsPerRoute * routes;
}

}  // namespace

double SimulationEffort(const ir::Plan& plan, bool alike) {
  double ops = 0;
  for (const ir::Program& program : plan.programs) ops += ir::ScheduledOps(program);
  return EffortOf(plan, ops, alike);
}

double SimulationEffort(const ir::Plan& plan, const Strategy& layout, bool alike) {
  const std::vector<ShortSteps> tries = ShortStepsOf(layout, plan.micro_batches);
  if (tries.empty()) return SimulationEffort(plan, alike);
  const double both = static_cast<double>(tries.front().fewer + tries.front().more);
  double ops = 0;
  for (const ir::Program& program : plan.programs) {
    double once = 0;  // what no micro-batch repeats runs in each of the two
    for (const ir::Block& block : program.blocks) once += static_cast<double>(block.ops.size());
    ops += std::max(2 * once,
                    ir::ScheduledOps(program) * both / static_cast<double>(plan.micro_batches));
  }
  return EffortOf(plan, ops, alike);
}

void Settle(const Job& job, const ir::Plan& plan, const Cluster& cluster, Prediction* prediction,
            Learn learn) {
  const bool alike = sim::MergesReplicas(plan, cluster);
  const auto too_large = [&](double effort) {
    if (effort > job.most_effort) {
      prediction->not_simulated =
          fmt::format("too large: effort of {:.3g} ops, at most {:.3g}", effort, job.most_effort);
    }
    return effort > job.most_effort;
  };
  if (too_large(SimulationEffort(plan, prediction->strategy, alike))) return;
  try {
    SimulatedStep step;
    std::optional<StepTime> time =
        SimulateCycle(job, prediction->strategy, plan, cluster, &step, learn);
    if (!time) {
      if (too_large(SimulationEffort(plan, alike))) return;
      time = SimulateStep(plan, cluster, job.prices(), &step, learn);
    }
    TakeSimulated(*time, std::move(step), prediction);
  } catch (const InputError& error) {  // such as no route between two ranks
    prediction->not_simulated = error.what();
  }
}

bool Prediction::EnginesDiffer() const {
  return closed_form && !(simulated && simulated->perturbed) &&
         std::abs(closed_form->total / time.total - 1) > kEnginesDiffer;
}

Cluster ClusterOf(const Job& job) {
  return BuildCluster(*job.topology, job.cluster.nodes, job.cluster.gpus_per_node);
}

StepTime WithInterval(StepTime simulated, const StepTime& closed) {
  const double ratio = simulated.total / closed.total;
  simulated.low = closed.low * ratio;
  simulated.high = closed.high * ratio;
  if (std::abs(1 / ratio - 1) > kEnginesDiffer) {
    simulated.low = std::min(simulated.low, closed.total);
    simulated.high = std::max(simulated.high, closed.total);
  }
  return simulated;
}

void TakeSimulated(const StepTime& time, SimulatedStep step, Prediction* prediction) {
  prediction->closed_form = prediction->time;
  prediction->SetTime(WithInterval(time, prediction->time));
  prediction->simulated = std::move(step);
}

std::variant<Prediction, Refusal> Predict(const Job& job, const Strategy& layout, Engine engine) {
  if (layout.ranks() != job.cluster.ranks()) {
    return Refusal{fmt::format("{} takes {} GPUs, the cluster has {}", DescribeLayout(layout),
                               layout.ranks(), job.cluster.ranks()),
                   "tp x pp x dp must be the number of GPUs"};
  }
  const auto closed = StepPredictor(job).Predict(layout);
  if (const auto* refusal = std::get_if<Refusal>(&closed)) return *refusal;
  Prediction prediction = PredictionOf(job, layout, std::get<StepTime>(closed));
  const ir::Plan plan = LowerLegal(job, layout);
  AddMemoryOfLayout(job, plan, &prediction);
  prediction.digest = ir::Digest(plan);
  AddConfidence(job, LoadTrust(), &prediction);
  if (engine == Engine::kAuto) Settle(job, plan, ClusterOf(job), &prediction);
  if (engine == Engine::kEvent) {
    SimulatedStep step;
    const StepTime time = SimulateLayout(job, layout, plan, ClusterOf(job), &step);
    TakeSimulated(time, std::move(step), &prediction);
  }
  return prediction;
}

Workload WorkOf(const ir::Plan& plan) {
  const ir::PlanFacts facts = ir::FactsOf(plan);
  Workload work;
  work.global_batch = facts.samples;
  work.seq_len = facts.tokens / std::max<int64_t>(1, facts.samples);
  work.precision = PrecisionOf(plan);
  work.fp8 = Fp8Of(plan);
  return work;
}

namespace {

// Of Job::most_effort: a plan has its interval by that many simulations.
constexpr double kMostVaried = 0.2;

// Tensor ranks gather in passes what sequence parallelism has cut.
bool GathersSequences(const ir::Plan& plan) {
  for (const ir::Program& program : plan.programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops) {
        if (op.kind == ir::OpKind::kAllGather && op.phase == ir::Phase::kForward &&
            plan.groups[static_cast<std::size_t>(op.group)].name == "tp")
          return true;
      }
    }
  }
  return false;
}

// With the slopes of the simulated step, contention included.
void AddPlanConfidence(const Job& job, const ir::Plan& plan, Prediction* prediction) {
  if (SimulationEffort(plan) > kMostVaried * job.most_effort) {
    prediction->no_interval = "too many ops to simulate once per constant";
    return;
  }
  ModelSpec model = job.model;
  model.layers = static_cast<int64_t>(LayersOf(plan));
  model.hidden = ir::FactsOf(plan).hidden;
  const Cluster cluster = ClusterOf(job);
  sim::SimulationOptions options;
  options.record = false;
  const FrameworkProfile& framework = *job.prices().framework;
  Strategy ran = framework.preset->Complete(prediction->strategy, job.work);
  FollowFramework(framework, &ran);
  ran.flash_attention = ir::FactsOf(plan).fused_attention;
  ran.sequence_parallel = GathersSequences(plan);
  const Confidence confidence = ConfidenceOf(
      LoadTrust(), job.prices(),
      IdentityOf(job.prices(), job.work, ran, SituationOf(model, job.work, ran, job.cluster.nodes)),
      prediction->time.total, [&](const CostSetting& prices) {
        return sim::Simulation(plan, cluster, prices, options).Run();
      });
  prediction->time.low = confidence.low;
  prediction->time.high = confidence.high;
  prediction->outside = confidence.outside;
  prediction->interval_basis = confidence.basis;
}

}  // namespace

Prediction PredictPlan(const Job& job, const ir::Plan& plan) {
  if (plan.mesh.ranks() != job.cluster.ranks()) {
    throw InputError(fmt::format("the plan is for {} GPUs, the cluster has {}", plan.mesh.ranks(),
                                 job.cluster.ranks()),
                     "--nodes and --gpus-per-node that make up this number, or leave them out");
  }
  Strategy degrees;
  for (const auto& [name, degree] : {std::pair{"tp", &degrees.tp},
                                     {"pp", &degrees.pp},
                                     {"dp", &degrees.dp},
                                     {"dpo", &degrees.dp_outer},
                                     {"cp", &degrees.cp},
                                     {"ep", &degrees.ep}}) {
    const int axis = plan.mesh.AxisIndex(name);
    if (axis >= 0) *degree = plan.mesh.axes[static_cast<std::size_t>(axis)].size;
  }
  degrees.micro_batch = static_cast<int>(
      std::max<int64_t>(1, job.work.global_batch / degrees.data_parallel() / plan.micro_batches));
  SimulatedStep step;
  const StepTime time = SimulateStep(plan, ClusterOf(job), job.prices(), &step);
  Prediction prediction = PredictionOf(job, degrees, time);
  prediction.model_flops = ir::FactsOf(plan).flops;
  prediction.masked_flops = 0;  // not to be seen
  prediction.SetTime(time);
  prediction.simulated = std::move(step);
  AddPlanConfidence(job, plan, &prediction);
  AddMemory(job, plan, &prediction);
  prediction.digest = ir::Digest(plan);
  return prediction;
}

}  // namespace orrery
