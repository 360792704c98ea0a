// SPDX-License-Identifier: Apache-2.0
// Runs a search and explains why none of its layouts is legal.
#include "model/program/plan/search_run.h"

#include <fmt/format.h>

#include "model/program/common/terminal.h"

namespace orrery::cli {
namespace {

// No layout is legal at all, whatever the memory: the numbers contradict each other.
[[noreturn]] void ThrowContradiction(const JobFlags& job_flags, const LayoutFlags& layout,
                                     const report::Job& job, const SearchResult& result) {
  std::string reasons;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, result.rejections.size()); ++i) {
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", result.rejections[i].reason);
  }
  const int64_t gpus = job.cluster.ranks();
  const int64_t batch = job.request.global_batches[0];
  std::string hint = "fix fewer axes, or change --nodes or --global-batch";
  if (batch % gpus != 0 && !layout.any()) {
    hint = fmt::format("a global batch that {} GPUs divide, such as --global-batch {}", gpus,
                       (batch / gpus + 1) * gpus);
  }
  const Flag* culprit = job_flags.global_batch.given ? &job_flags.global_batch : &job_flags.nodes;
  if (reasons.empty() && job.request.fixed.layout) {
    culprit = &layout.layout;
    reasons = fmt::format("no number of stages on offer divides the {} chunks of --layout",
                          job.request.fixed.layout->size());
    hint = "as many numbers as stages x chunks per stage; stages divide the number of GPUs";
  }
  throw InputError({{culprit->where,
                     fmt::format("no layout of {} sequences per step on {} GPUs is possible: {}",
                                 batch, gpus, reasons),
                     hint}});
}

}  // namespace

SearchOutcome RunSearchOf(const JobFlags& flags, const LayoutFlags& layout,
                          const SearchSettings& settings) {
  SearchOutcome outcome{flags.Resolve(), {}};
  report::Job& job = outcome.job;
  job.request.fixed = layout.Read();
  CheckStatedFacts(layout, job.request.fixed, job);
  job.request.objective = settings.objective;
  job.request.input = settings.input;
  if (job.request.objective != Objective::kTime && !job.request.node_price &&
      !job.request.topology.node_price) {
    throw InputError(
        {{settings.objective_flag.where, fmt::format("{} has no price", job.request.topology.name),
          "--node-price PRICE of a node, such as 20USD/h"}});
  }
  job.request.top = settings.top;
  job.request.refine = settings.refine;
  job.request.refine_ops *= std::max(1.0, static_cast<double>(settings.refine) / kRefine);
  outcome.result = [&] {
    Progress progress;
    SearchRequest request = job.request;
    request.progress = [&](const char* what, double share) { progress.At(what, share); };
    return Search(request, job.profiles);
  }();
  const SearchResult& result = outcome.result;
  const bool memory = result.counts.over_memory + result.counts.exact_over_memory > 0;
  if (!result.feasible() && !memory) ThrowContradiction(flags, layout, job, result);
  constexpr std::size_t kPlacedRows = 3;
  for (std::size_t row = 0; layout.searches_placement() && row < result.ranked.size(); ++row) {
    if (row == kPlacedRows) break;
    const Candidate& candidate = result.ranked[row];
    const orrery::Job twin =
        JobOf(job.request, job.profiles, candidate.nodes, candidate.global_batch);
    PlacementOptions options;
    options.layers = job.request.fixed.layout == nullptr;
    outcome.placed.push_back(
        {static_cast<int>(row) + 1, ChoosePlacement(twin, candidate.strategy, options)});
  }
  return outcome;
}

Candidate PlacedCandidate(const report::Job& job, const SearchResult& result,
                          std::span<const report::PlacedRow> placed) {
  Candidate candidate = result.ranked.front();
  Strategy strategy = candidate.strategy;
  if (!placed.empty()) strategy = placed.front().choice.strategy;
  if (job.request.fixed.placement) strategy.placement = job.request.fixed.placement;
  if (!strategy.placement && strategy.layout == candidate.strategy.layout) return candidate;
  auto predicted =
      Predict(JobOf(job.request, job.profiles, candidate.nodes, candidate.global_batch), strategy);
  if (const auto* refusal = std::get_if<Refusal>(&predicted))
    throw InputError(refusal->reason, refusal->hint);
  static_cast<Prediction&>(candidate) = std::get<Prediction>(std::move(predicted));
  return candidate;
}

}  // namespace orrery::cli
