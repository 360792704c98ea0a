// SPDX-License-Identifier: Apache-2.0
// Best-first branch and bound over the splits of one job.
#include "model/twin/fastest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "model/memory/software_memory.h"

namespace orrery {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The objective of a split whose replicas wait for readers.
double FedIn(const Split& split, const Job& job, double reader) {
  return ObjectiveValue(Objective::kTime, orrery::FedIn({reader, 0}, job, split.data), job);
}

// Splits of a job, least bound first.
std::vector<std::pair<double, Split>> OrderedSplits(const SearchRequest& request,
                                                    const FrameworkPreset& preset, const Job& job,
                                                    double reader, Evaluator* evaluator) {
  const Space space(request, preset);
  std::vector<std::pair<double, Split>> ordered;
  for (const Split& degrees : space.Degrees(job.cluster.ranks(), job.cluster.domain_gpus())) {
    for (const Split& split : space.Splits(degrees, job.work.global_batch)) {
      const double bound = std::max(evaluator->Bound(split), FedIn(split, job, reader));
      if (bound < kInfinity) ordered.emplace_back(bound, split);
    }
  }
  std::ranges::stable_sort(ordered, {}, &std::pair<double, Split>::first);
  return ordered;
}

}  // namespace

FastestLayouts::FastestLayouts(const SearchRequest& request, const Profiles& profiles,
                               std::shared_ptr<MemoryModel> memory)
    : request_(request),
      profiles_(profiles),
      preset_(FindFramework(request.framework)),
      limits_(LimitsOf(profiles.gpu, profiles.framework)),
      memory_(std::move(memory)) {
  if (request.memory_limit) limits_.capacity = *request.memory_limit;
  if (!memory_)
    memory_ = std::make_shared<MemoryModel>(request.model, request.work, limits_.allocation);
}

std::optional<FastestLayouts::Found> FastestLayouts::Find(int64_t nodes, int64_t global_batch,
                                                          ShapeCache* shapes, double below,
                                                          double reader) const {
  Found found{{}, JobOf(request_, profiles_, nodes, global_batch)};
  Evaluator evaluator(request_, preset_, limits_, found.job, *memory_, shapes);
  const auto splits = OrderedSplits(request_, preset_, found.job, reader, &evaluator);
  std::set<std::string> misfits;  // whose memory is within the margin by its bound alone
  for (;;) {
    std::optional<Entry> best;
    double least = below;
    for (std::size_t i = 0; i < splits.size(); ++i) {
      EvaluateOptions options;
      options.below = least;
      if (splits[i].first >= options.below) break;
      options.keep = 1 + misfits.size();
      options.fits_in = limits_.capacity.value * limits_.nearly_full;
      for (const Entry& entry :
           evaluator.Run(splits[i].second, static_cast<int64_t>(i), options).best) {
        if (misfits.contains(DescribeLayout(entry.strategy))) continue;
        const double value = std::max(entry.rank.value, FedIn(splits[i].second, found.job, reader));
        if (!best || value < least) best = entry, least = value;
        break;
      }
    }
    if (!best) return std::nullopt;
    found.candidate = Complete(found.job, *best);
    if (found.candidate.memory->fits && !found.candidate.memory->nearly_full) return found;
    misfits.insert(DescribeLayout(best->strategy));
  }
}

Candidate FastestLayouts::Complete(const Job& job, const Entry& entry) const {
  StepPredictor predictor(job);
  Candidate candidate{
      PredictionOf(job, entry.strategy, std::get<StepTime>(predictor.Predict(entry.strategy)))};
  candidate.memory_bound = MemoryBoundOf(job, entry.strategy, memory_.get()).total;
  auto plan = std::make_shared<const ir::Plan>(LowerLegal(job, entry.strategy));
  AddLayout(job, *plan, request_.window, &candidate);
  candidate.plan = std::move(plan);
  return candidate;
}

double FastestLayouts::LeastGpuSeconds(int64_t nodes, int64_t most_sequences,
                                       ShapeCache* shapes) const {
  const Job job = JobOf(request_, profiles_, nodes, 1);
  const Space space(request_, preset_);
  Evaluator evaluator(request_, preset_, limits_, job, *memory_, shapes);
  double least = kInfinity;
  for (const Split& degrees : space.Degrees(job.cluster.ranks(), job.cluster.domain_gpus())) {
    if (degrees.pp > 1) continue;  // the work of a layer does not depend on it
    for (int64_t size = 1; size <= most_sequences; ++size) {
      int64_t rest = size;
      for (const int factor : {2, 3, 5}) {
        while (rest % factor == 0) rest /= factor;
      }
      if (rest != 1) continue;
      Split split = degrees;
      split.micro_batch = static_cast<int>(size);
      least = std::min(least, evaluator.Work(split) * split.tp / static_cast<double>(size));
    }
  }
  return least;
}

}  // namespace orrery
