// SPDX-License-Identifier: Apache-2.0
// Runs a search and explains why none of its layouts is legal.
#include "model/program/plan/search_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "model/base/parallel.h"
#include "model/hardware/node_order.h"
#include "model/program/common/terminal.h"
#include "model/program/plan/run_report.h"
#include "model/program/plan/training_report.h"
#include "model/provision/batch_range.h"
#include "model/provision/run_values.h"
#include "model/report/short_number.h"
#include "model/twin/evaluator.h"
#include "model/twin/explain.h"
#include "model/twin/fastest.h"

namespace orrery::cli {
namespace {

// No layout is legal at all, whatever the memory: the numbers contradict each other.
[[noreturn]] void ThrowContradiction(const JobFlags& job_flags, const LayoutFlags& layout,
                                     const report::Job& job, const SearchResult& result) {
  CheckLayersHeld(layout, job.request.fixed, job.request.model);
  const int64_t gpus = job.cluster.ranks();
  const int64_t batch = job.request.global_batches[0];
  std::string words = WhyNothingIsLegal(result, batch, gpus);
  std::string hint = "fix fewer axes, or change --nodes or --global-batch";
  if (batch % gpus != 0 && !layout.any()) {
    hint = fmt::format("a global batch that {} GPUs divide, such as --global-batch {}", gpus,
                       BatchThatDivides(batch, gpus));
  }
  if (!job.request.flash_attention && job.request.fixed.cp.value_or(1) > 1)
    hint = "--attention flash, which fp32 does not take by itself, or --cp 1";
  const Flag* culprit = job_flags.global_batch.given ? &job_flags.global_batch : &job_flags.nodes;
  if (result.rejections.empty() && job.request.fixed.layout) {
    culprit = &layout.layout;
    words += fmt::format(": no number of stages on offer divides the {} chunks of --layout",
                         job.request.fixed.layout->size());
    hint = "as many numbers as stages x chunks per stage; stages divide the number of GPUs";
  }
  if (result.rejections.size() == 1) {  // which the axes that are given may make by themselves
    Strategy least = LeastStrategy(job.request.fixed, FindFramework(job.request.framework));
    least.flash_attention = job.request.flash_attention;
    const std::vector<const Flag*> culprits =
        CulpritsOf({result.rejections.front().reason, ""}, job_flags, layout, job, least);
    if (!culprits.empty()) culprit = culprits.front();
  }
  throw InputError({{culprit->where, words, hint}});
}

// By the engine of the row's own step.
PlacementOptions OptionsFor(const report::Job& job, const Candidate& candidate) {
  PlacementOptions options;
  options.layers = job.request.fixed.layout == nullptr;
  options.given = job.request.fixed.placement;
  options.engine = candidate.simulated ? Engine::kAuto : Engine::kClosed;
  return options;
}

// The row in the default order of ranks, and in the one that the user gives, with layers for that one; nullopt: this layout
// cannot have it.
std::optional<PlacementChoice> GivenPlacement(const orrery::Job& job, const Candidate& candidate,
                                              const PlacementOptions& options) {
  Strategy given = candidate.strategy;
  given.placement = options.given;
  if (CheckStrategy(job.model, job.work, given)) return std::nullopt;
  PlacementChoice choice = ChoosePlacement(job, candidate.strategy, options);
  choice.strategy.placement = choice.placed.strategy.placement = options.given;
  return choice;
}

// The first rows in an order of ranks of their own, or in the one that is given.
std::vector<report::PlacedRow> PlaceRows(const LayoutFlags& layout, const report::Job& job,
                                         const SearchResult& result) {
  const std::size_t count = std::min(report::kMostPlacedRows, result.ranked.size());
  std::vector<std::optional<PlacementChoice>> choices(count);
  const bool given = job.request.fixed.placement != nullptr;
  const auto place = [&](std::size_t row) -> std::optional<PlacementChoice> {
    const Candidate& candidate = result.ranked[row];
    const orrery::Job twin =
        JobOf(job.request, job.profiles, candidate.nodes, candidate.global_batch);
    const PlacementOptions options = OptionsFor(job, candidate);
    return given ? GivenPlacement(twin, candidate, options)
                 : ChoosePlacement(job.request, job.profiles, candidate.nodes,
                                   candidate.global_batch, candidate.strategy, options);
  };
  AtFlag(layout.placement, [&] {
    Progress progress;
    std::atomic<std::size_t> next{0};
    const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
    OnThreads(static_cast<int>(std::min(threads, count)), [&](int) {
      for (std::size_t row = next++; row < count; row = next++) {
        progress.At("placing", static_cast<double>(row) / static_cast<double>(count));
        choices[row] = place(row);
      }
    });
  });
  std::vector<report::PlacedRow> rows;
  for (std::size_t row = 0; row < count; ++row) {
    if (!choices[row]) continue;
    const Candidate& candidate = result.ranked[row];
    const double value =
        ObjectiveValue(job.request, choices[row]->placed.time.total,
                       JobOf(job.request, job.profiles, candidate.nodes, candidate.global_batch),
                       candidate.strategy.data_parallel());
    rows.push_back({static_cast<int>(row) + 1, std::move(*choices[row]), given, value,
                    candidate.memory && candidate.memory->nearly_full});
  }
  return rows;
}

// What the fastest layouts of a run say before the search: by what to rank all of them, and, where none is given, the
// batch: the fastest of the advised range at each node count. Returns why a run of one of them never ends; "": all end.
std::string PrepareRun(const LongRun& run, bool batch_given, report::Job* job) {
  SearchRequest& request = job->request;
  const BatchRange advised = BatchRangeFor(LoadBatch(), run.conditions.tokens);
  const BatchSpan range = batch_given
                              ? BatchSpan{std::ranges::min(request.global_batches),
                                          std::ranges::max(request.global_batches)}
                              : SequencesOf(advised, std::max<int64_t>(1, request.work.seq_len));
  std::vector<int64_t> nodes = request.nodes;
  if (nodes.empty()) nodes = {request.topology.nodes};
  const FastestLayouts fastest(request, job->profiles);
  ShapeCache shapes;
  std::set<int64_t> batches;
  std::string endless;
  const auto values = std::make_shared<RunValues>(
      run.conditions, request.objective, report::QuoteOf(*job),
      [run, priced = report::QuoteOf(*job).has_value()](const RunEstimate& estimate) {
        return run.Keeps(estimate, priced);
      });
  for (const int64_t count : nodes) {
    const auto found = fastest.Find(count, range, &shapes, request.input.reader);
    if (found) {
      const RunEstimate estimate = values->SetFastest(found->job, found->candidate);
      if (!std::isfinite(estimate.time.value)) endless = WhyEndless(estimate);
    }
    const int64_t gpus = JobOf(request, job->profiles, count, 1).cluster.ranks();
    batches.insert(found ? found->candidate.global_batch : DividingBatch(range, gpus));
  }
  request.run = values;
  if (batch_given) return endless;
  request.global_batches.assign(batches.begin(), batches.end());
  request.work.global_batch = request.global_batches.front();
  std::erase_if(job->decisions,
                [](const report::Decision& decision) { return decision.flag == "--global-batch"; });
  job->decisions.push_back({fmt::format("global batch {} sequence{}", fmt::join(batches, ", "),
                                        *batches.rbegin() == 1 ? "" : "s"),
                            "--global-batch",
                            fmt::format("the fastest of {} to {}, {}", range.least, range.most,
                                        report::RangeWords(advised, LoadBatch()))});
  return endless;
}

// "A..B" of --global-batch is any batch of the range, here as for `plan provision`: to A, 2 A, 4 A, ... and B, which a search
// compares, comes what is the fastest of all of them at each node count.
void AddFastestOfRanges(const Flag& flag, report::Job* job) {
  SearchRequest& request = job->request;
  const std::vector<BatchSpan> spans = BatchSpansOf(flag, request.work.global_batch);
  if (std::ranges::all_of(spans, [](const BatchSpan& s) { return s.least == s.most; })) return;
  std::vector<int64_t> nodes = request.nodes;
  if (nodes.empty()) nodes = {request.topology.nodes};
  const FastestLayouts fastest(request, job->profiles);
  ShapeCache shapes;
  std::set<int64_t> batches(request.global_batches.begin(), request.global_batches.end());
  for (const BatchSpan& span : spans) {
    if (span.least == span.most) continue;
    for (const int64_t count : nodes) {
      const auto found = fastest.Find(count, span, &shapes, request.input.reader);
      if (found) batches.insert(found->candidate.global_batch);
    }
  }
  request.global_batches.assign(batches.begin(), batches.end());
}

// An order of nodes that is none is refused before the search, with the reason.
void RequireNodeOrder(const LayoutFlags& layout, const report::Job& job) {
  const auto& given = job.request.fixed.placement;
  if (!given) return;
  std::vector<int64_t> counts = job.request.nodes;
  if (counts.empty()) counts = {job.request.topology.nodes};
  AtFlag(layout.placement, [&] {
    for (const int64_t count : counts) {
      const ClusterSummary cluster = JobOf(job.request, job.profiles, count, 1).cluster;
      CheckNodeOrder(given->nodes, cluster.nodes, cluster.domain_nodes,
                     job.request.topology.fabric);
    }
  });
}

}  // namespace

SearchOutcome RunSearchOf(const JobFlags& flags, const LayoutFlags& layout,
                          const SearchSettings& settings) {
  SearchOutcome outcome{flags.Resolve(), {}};
  report::Job& job = outcome.job;
  job.request.fixed = layout.Read(&job.request.topology.fabric);
  if (!job.request.fixed.schedule) job.request.fixed.schedules = settings.schedules;
  CheckStatedFacts(layout, job.request.fixed, job);
  const FrameworkPreset& preset = FindFramework(job.request.framework);
  CheckFramework(layout, preset, LeastStrategy(job.request.fixed, preset));
  RequireNodeOrder(layout, job);
  job.request.objective = settings.objective;
  const LongRun* run =
      settings.run != nullptr && settings.run->tokens_given ? settings.run : nullptr;
  if (run != nullptr) job.request.input = run->InputLimits();
  if (job.request.objective != Objective::kTime && !job.request.node_price &&
      !job.request.topology.node_price) {
    throw InputError(
        {{settings.objective_flag.where, fmt::format("{} has no price", job.request.topology.name),
          "--node-price PRICE of a node, such as 20USD/h"}});
  }
  AddFastestOfRanges(flags.global_batch, &job);
  std::string endless;
  if (run != nullptr)
    endless = PrepareRun(
        *run, flags.global_batch.given || job.model.spec.family != Family::kDecoder, &job);
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
  // What never ends is no layout to be ranked.
  if (!result.feasible() && !endless.empty())
    throw InputError(
        fmt::format("a run of {} tokens {}", report::Count(run->conditions.tokens), endless));
  if (NothingIsLegal(result)) ThrowContradiction(flags, layout, job, result);
  if (layout.searches_placement() || job.request.fixed.placement)
    outcome.placed = PlaceRows(layout, job, result);
  if (job.request.fixed.placement && outcome.placed.empty() && result.feasible())
    throw InputError(
        {{layout.placement.where, "none of the first layouts can have this order of ranks",
          "`plan predict` says why for one layout; --placement search finds an order"}});
  return outcome;
}

Candidate PlacedCandidate(const report::Job& job, const SearchResult& result,
                          std::span<const report::PlacedRow> placed, int row) {
  Candidate candidate = result.ranked[static_cast<std::size_t>(row) - 1];
  Strategy strategy = candidate.strategy;
  const auto own = std::ranges::find(placed, row, &report::PlacedRow::row);
  if (own != placed.end()) strategy = own->choice.strategy;
  if (job.request.fixed.placement) strategy.placement = job.request.fixed.placement;
  if (!strategy.placement && strategy.layout == candidate.strategy.layout) return candidate;
  auto predicted =
      Predict(JobOf(job.request, job.profiles, candidate.nodes, candidate.global_batch), strategy);
  if (const auto* refusal = std::get_if<Refusal>(&predicted))
    throw InputError(refusal->reason, refusal->hint);
  static_cast<Prediction&>(candidate) = std::get<Prediction>(std::move(predicted));
  candidate.plan =
      nullptr;  // that was the plan without placement; the prediction has its own digest
  return candidate;
}

}  // namespace orrery::cli
