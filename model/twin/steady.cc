// SPDX-License-Identifier: Apache-2.0
// Simulates two short steps of a layout and goes on from their difference.
#include "model/twin/steady.h"

#include <algorithm>

#include "model/engine/event/cycle.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

// Micro-batches of the shorter step: as many as fill a pipeline, drain it and show cycles in between.
constexpr int64_t kFewest = 8, kPerStage = 4;
// A cycle may begin to repeat later than that: steps of so many half lengths are tried, one after another.
constexpr int64_t kHalfLengths[] = {2, 3, 5};
// The two short steps together have at most this share of the micro-batches.
constexpr double kWorthwhile = 0.6;

constexpr CommAxis kAxes[] = {CommAxis::kTensor, CommAxis::kData, CommAxis::kPipeline};

sim::SimulationOptions OptionsFor(bool links, bool terms) {
  sim::SimulationOptions options;
  options.merge_alike = true;
  options.keep_links = links;
  options.terms = terms;
  return options;
}

// The two short steps of a layout.
struct ShortRun {
  ShortRun(const Job& job, const Strategy& layout, const ir::Plan& plan, const Cluster& cluster,
           const ShortSteps& steps, bool links, bool terms)
      : cycles(static_cast<double>(plan.micro_batches - steps.more) /
               static_cast<double>(steps.more - steps.fewer)),
        fewer_plan(WithMicroBatches(plan, job.work, layout, steps.fewer)),
        more_plan(WithMicroBatches(plan, job.work, layout, steps.more)),
        fewer(fewer_plan, cluster, job.prices(), OptionsFor(false, terms)),
        more(more_plan, cluster, job.prices(), OptionsFor(links, terms)) {
    fewer.Run();
    more.Run();
  }

  bool Repeats() const { return sim::CycleOf(fewer, more).has_value(); }
  StepTime Whole() const { return Extend(fewer.time(), more.time(), cycles); }

  const double cycles;  // of the whole step beyond the longer one
  const ir::Plan fewer_plan, more_plan;
  sim::Simulation fewer, more;
};

}  // namespace

Breakdown Extend(const Breakdown& fewer, Breakdown more, double cycles) {
  const auto extend = [&](double Breakdown::*term) {
    more.*term += cycles * (more.*term - fewer.*term);
  };
  for (const BreakdownTerm& term : BreakdownTerms()) extend(term.seconds);
  for (const CommAxis axis : kAxes) extend(HiddenOf(axis));
  return more;
}

StepTime Extend(const StepTime& fewer, StepTime more, double cycles) {
  const Breakdown terms =
      Extend(static_cast<const Breakdown&>(fewer), static_cast<const Breakdown&>(more), cycles);
  static_cast<Breakdown&>(more) = terms;
  more.total += cycles * (more.total - fewer.total);
  return more;
}

std::vector<ShortSteps> ShortStepsOf(const Strategy& layout, int64_t micro_batches) {
  std::vector<ShortSteps> tries;
  if (layout.schedule == PipelineSchedule::kGpipe) return tries;
  // Interleaved schedules turn through their chunks with pp micro-batches at a time.
  const int64_t cycle = layout.schedule == PipelineSchedule::kInterleaved ? layout.pp : 1;
  for (const int64_t halves : kHalfLengths) {
    const int64_t wanted = halves * std::max<int64_t>(kFewest, kPerStage * layout.pp) / 2;
    const int64_t fewer = (wanted + cycle - 1) / cycle * cycle + micro_batches % cycle;
    const ShortSteps steps{fewer, fewer + cycle};
    const double both = static_cast<double>(steps.fewer + steps.more);
    if (both > kWorthwhile * static_cast<double>(micro_batches)) break;
    tries.push_back(steps);
  }
  return tries;
}

std::optional<ir::Plan> ShorterPlan(const Job& job, const Strategy& layout, const ir::Plan& plan) {
  const std::vector<ShortSteps> tries = ShortStepsOf(layout, plan.micro_batches);
  if (tries.empty()) return std::nullopt;
  return WithMicroBatches(plan, job.work, layout, tries.front().more);
}

StepTime SimulateStep(const ir::Plan& plan, const Cluster& cluster, const CostSetting& prices,
                      SimulatedStep* step, Learn learn) {
  const bool links = step != nullptr && learn == Learn::kAll;
  sim::Simulation simulation(plan, cluster, prices, OptionsFor(links, true));
  simulation.Run();
  if (step != nullptr) step->ops = simulation.result().ops;
  if (links) {
    step->shared = simulation.SharedLinks();
    step->uneven = sim::UnevennessOf(plan, simulation.tasks(), simulation.communicators());
  }
  return simulation.time();
}

std::optional<StepTime> SimulateCycle(const Job& job, const Strategy& layout, const ir::Plan& plan,
                                      const Cluster& cluster, SimulatedStep* step, Learn learn) {
  const bool links = step != nullptr && learn == Learn::kAll;
  for (const ShortSteps& steps : ShortStepsOf(layout, plan.micro_batches)) {
    const ShortRun run(job, layout, plan, cluster, steps, links, true);
    if (!run.Repeats()) continue;
    const sim::Simulation &fewer = run.fewer, &more = run.more;
    const StepTime time = run.Whole();
    if (step != nullptr) {
      const double contention = more.breakdown().contention;
      *step = {more.result().ops +
                   static_cast<int64_t>(run.cycles) * (more.result().ops - fewer.result().ops),
               links ? more.SharedLinks() : std::vector<sim::SharedLink>(), true, false,
               links ? sim::UnevennessOf(more.plan(), more.tasks(), more.communicators())
                     : sim::Unevenness()};
      for (sim::SharedLink& shared : step->shared)
        shared.seconds *= contention > 0 ? time.contention / contention : 1;
    }
    return time;
  }
  return std::nullopt;
}

StepTime SimulateLayout(const Job& job, const Strategy& layout, const ir::Plan& plan,
                        const Cluster& cluster, SimulatedStep* step) {
  const std::optional<StepTime> time = SimulateCycle(job, layout, plan, cluster, step);
  return time ? *time : SimulateStep(plan, cluster, job.prices(), step);
}

double SimulateTotal(const Job& job, const Strategy& layout, const ir::Plan& plan,
                     const Cluster& cluster) {
  for (const ShortSteps& steps : ShortStepsOf(layout, plan.micro_batches)) {
    const ShortRun run(job, layout, plan, cluster, steps, false, false);
    if (run.Repeats()) return run.Whole().total;
  }
  sim::SimulationOptions options = OptionsFor(false, false);
  options.record = false;
  return sim::Simulation(plan, cluster, job.prices(), options).Run();
}

}  // namespace orrery
