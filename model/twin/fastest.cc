// SPDX-License-Identifier: Apache-2.0
// Best-first branch and bound over the splits of one job.
#include "model/twin/fastest.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <string>

#include "model/base/check.h"
#include "model/memory/software_memory.h"

namespace orrery {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Times the fastest: no layout is slower and yet the fastest once layers are moved between its stages.
constexpr double kNear = 1.25;
// The same where its own layers have been moved already.
constexpr double kMoves = 1.02;
// So many rivals, not slower than this in closed form, are simulated in any case: what they show of the engines' difference says
// how far to go.
constexpr std::size_t kSimulated = 3;
constexpr double kEnginesApart = 1.01;

// The margin that a long run wants.
bool Keeps(const Candidate& candidate) {
  return candidate.memory->fits && !candidate.memory->nearly_full;
}

std::string NameOf(const Entry& entry, const Split& split) {
  return DescribeLayout(entry.strategy, split.micro_batches);
}

}  // namespace

// What feeds the replicas of a layout.
struct FastestLayouts::Readers {
  double rate = 0;  // tokens/s of each; 0: no limit
  // Seconds per sequence: what is fed more slowly does not count, what is not is ranked by its own time. Infinity: all count, and
  // take at least as long as they are fed.
  double most = kInfinity;

  double Fed(const Job& job, int64_t replicas) const {
    return ObjectiveValue(Objective::kTime, FedIn({rate, 0}, job, replicas), job);
  }
};

// Splits of a job at all its batches, least bound first.
class FastestLayouts::Queue {
 public:
  // `fits_in`: bytes; what surely needs more is left out.
  Queue(const SearchRequest& request, const FrameworkPreset& preset, const BatchSpan& batches,
        const Readers& readers, double fits_in, Job* job, Evaluator* evaluator)
      : space_(request, preset),
        batches_(batches),
        readers_(readers),
        job_(*job),
        evaluator_(*evaluator) {
    for (const Split& degrees : space_.Degrees(job_.cluster.ranks(), job_.cluster.domain_gpus())) {
      if (evaluator_.LeastMemory(degrees) > fits_in) continue;
      for (const Split& split : space_.Splits(degrees, batches)) Push(split);
    }
  }

  // Of the next split, which is the job's from here on; infinity: there is none.
  double Least() const { return open_.empty() ? kInfinity : open_.front().bound; }
  Split Next() {
    std::ranges::pop_heap(open_, Open::Later);
    const Split split = open_.back().split;
    open_.pop_back();
    Split fewer = split;
    fewer.micro_batches = space_.FewerMicroBatches(split, batches_);
    if (fewer.micro_batches > 0) Push(fewer);
    Take(split);
    return split;
  }
  // The objective of a split whose replicas wait for readers.
  double Fed(const Split& split) const {
    return readers_.most < kInfinity ? 0 : readers_.Fed(job_, split.data);
  }

 private:
  // A split that is still to be looked at, where no layout has a lower objective than `bound`.
  struct Open {
    double bound;
    int64_t place;  // of equal ones the first goes first
    Split split;

    static bool Later(const Open& a, const Open& b) {
      return a.bound != b.bound ? a.bound > b.bound : a.place > b.place;
    }
  };

  void Take(const Split& split) {
    job_.work.global_batch = split.global_batch();
    evaluator_.predictor().SetGlobalBatch(split.global_batch());
  }
  double BoundOf(const Split& split) {
    Take(split);
    return std::max(evaluator_.Bound(split), Fed(split));
  }
  void Push(Split split) {
    if (readers_.Fed(job_, split.data) > readers_.most) return;
    double bound = BoundOf(split);
    if (bound == kInfinity) {  // where interleaving is fixed whole rounds are legal
      split.micro_batches -= split.micro_batches % split.pp;
      if (split.micro_batches > 0 && split.global_batch() >= batches_.least) bound = BoundOf(split);
    }
    if (bound == kInfinity) return;
    open_.push_back({bound, pushed_++, split});
    std::ranges::push_heap(open_, Open::Later);
  }

  const Space space_;
  const BatchSpan& batches_;
  const Readers readers_;
  Job& job_;
  Evaluator& evaluator_;
  std::vector<Open> open_;
  int64_t pushed_ = 0;
};

struct FastestLayouts::Known {
  Entry entry;
  Split split;
};

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

std::optional<FastestLayouts::Found> FastestLayouts::Find(int64_t nodes, const BatchSpan& batches,
                                                          ShapeCache* shapes, double reader,
                                                          double below) const {
  auto found = FindAmong(nodes, batches, shapes, {reader}, below);
  if (!found) return found;
  const double own = ObjectiveValue(Objective::kTime, found->candidate.time.total, found->job);
  if (own >= found->seconds) return found;
  // Its replicas wait for readers. Of those that are fed as fast the one that computes least.
  auto least = FindAmong(nodes, batches, shapes, {reader, found->seconds}, own);
  if (!least || least->seconds >= own) return found;
  least->seconds = std::max(
      least->seconds, Readers{reader}.Fed(least->job, least->candidate.strategy.data_parallel()));
  return least;
}

std::optional<FastestLayouts::Found> FastestLayouts::FindAmong(int64_t nodes,
                                                               const BatchSpan& batches,
                                                               ShapeCache* shapes,
                                                               const Readers& readers,
                                                               double below) const {
  Found found{{}, JobOf(request_, profiles_, nodes, batches.most)};
  Evaluator evaluator(request_, preset_, limits_, found.job, *memory_, shapes, &kernels_);
  const double fits_in = limits_.WithMargin().value;
  const Queue all(request_, preset_, batches, readers, fits_in, &found.job, &evaluator);
  if (below < kInfinity && !AnyBelow(all, fits_in, readers, below, &evaluator, &found))
    return std::nullopt;
  std::map<std::string, bool> fits;  // exactly, of what is within the margin by its bound
  // The exact memory is asked for at the end, of the fastest alone. Where that does not fit, there may be many more such: a
  // second time through it is asked for before anything is ruled out.
  for (const bool exactly : {false, true}) {
    std::optional<Known> best;
    std::vector<Known> fastest;  // in turn
    EvaluateOptions options;
    options.fits_in = fits_in;
    double least = kInfinity;  // known
    Queue queue = all;
    for (int64_t i = 0; queue.Least() < least; ++i) {
      const Split split = queue.Next();
      options.below = least;
      const auto taken = [&](const Entry& entry) {
        const double value = std::max(entry.rank.value, queue.Fed(split));
        if (value >= options.below) return true;  // so are those behind it
        const auto known = fits.find(NameOf(entry, split));
        if (known == fits.end() && exactly) {
          if (!Keeps(Complete(found.job, entry, &evaluator)))
            return fits[NameOf(entry, split)] = false;
        } else if (known != fits.end() && !known->second) {
          return false;
        }
        best = {entry, split}, least = options.below = value;
        fastest.push_back({entry, split});
        return true;
      };
      RunUntil(taken, split, i, &options, &evaluator);
    }
    if (!best) return std::nullopt;
    found.job.work.global_batch = best->split.global_batch();
    found.seconds = least;
    found.candidate = Complete(found.job, best->entry, &evaluator);
    if (Keeps(found.candidate)) {
      constexpr std::size_t kLast = 3;
      fastest.erase(fastest.begin(), fastest.end() - std::min(kLast, fastest.size()));
      if (request_.shares) {
        if (evaluator.predictor().narrow())
          AddNearOnes(all, fits_in, found.seconds, &evaluator, &fastest);
        found.job.work.global_batch = best->split.global_batch();
        MoveLayers(fastest, readers.most < kInfinity ? Readers{} : readers, &evaluator, &found);
      }
      return found;
    }
    fits[NameOf(best->entry, best->split)] = false;
  }
  ORRERY_CHECK(false, "a layout fits exactly and does not");
}

// More of a split's strategies each time, until one is taken or there are none.
void FastestLayouts::RunUntil(const std::function<bool(const Entry&)>& taken, const Split& split,
                              int64_t index, EvaluateOptions* options, Evaluator* evaluator) const {
  for (options->keep = 1;; options->keep *= 2) {
    ++looked_;
    const SplitResult result = evaluator->Run(split, index, *options);
    if (std::ranges::any_of(result.best, taken) || result.best.size() < options->keep) return;
  }
}

// Some layout takes fewer seconds per sequence: the first that is met will do. Where none is without layers moved, those that were the
// fastest on the way are moved.
bool FastestLayouts::AnyBelow(const Queue& all, double fits_in, const Readers& readers,
                              double below, Evaluator* evaluator, Found* found) const {
  std::vector<Known> near;
  EvaluateOptions options;
  options.fits_in = fits_in;
  options.any_shares_below = below;
  double least = below * (request_.shares ? kNear : 1);
  bool any = false;
  Queue queue = all;
  for (int64_t i = 0; !any && queue.Least() < below; ++i) {
    const Split split = queue.Next();
    options.below = split.pp == 1 ? below : least;  // without stages none move
    const auto taken = [&](const Entry& entry) {
      const double value = std::max(entry.rank.value, queue.Fed(split));
      if (value >= options.below) return true;
      if (value < below) return any = Keeps(Complete(found->job, entry, evaluator));
      least = options.below = value;
      near.push_back({entry, split});
      return true;
    };
    RunUntil(taken, split, i, &options, evaluator);
  }
  if (any || near.empty() || !request_.shares) return any;
  if (evaluator->predictor().narrow()) AddNearOnes(all, fits_in, below, evaluator, &near);
  found->seconds = below;
  MoveLayers(near, readers.most < kInfinity ? Readers{} : readers, evaluator, found);
  return found->seconds < below;
}

// What narrow uplinks cost is in no lower bound, and moving layers saves much of it: there each split that may be faster so is
// looked at again, up to some way above the fastest.
void FastestLayouts::AddNearOnes(Queue queue, double fits_in, double below, Evaluator* evaluator,
                                 std::vector<Known>* near) const {
  constexpr std::size_t kKinds = 6;  // of a split
  EvaluateOptions options;
  options.fits_in = fits_in, options.keep = kKinds, options.below = below * kNear;
  for (int64_t i = 0; queue.Least() < below; ++i) {
    const Split split = queue.Next();
    if (split.pp == 1) continue;
    const int layer = split.tp * split.cp;
    if (evaluator->predictor().Stages(split.pp, layer * split.data, layer)->narrow.empty())
      continue;
    const SplitResult result = evaluator->Run(split, i, options);
    for (const Entry& entry : result.best) near->push_back({entry, split});
  }
}

void FastestLayouts::MoveLayers(const std::vector<Known>& near, const Readers& readers,
                                Evaluator* evaluator, Found* found) const {
  const int64_t batch = found->job.work.global_batch;
  const auto take = [&](int64_t sequences) {
    found->job.work.global_batch = sequences;
    evaluator->predictor().SetGlobalBatch(sequences);
  };
  const auto fed = [&](const Split& split) { return readers.Fed(found->job, split.data); };
  std::optional<Known> best;
  double below = found->seconds;
  for (const Known& one : near) {
    take(one.split.global_batch());
    if (fed(one.split) >= below) continue;
    SplitResult result;
    result.best = {one.entry};
    evaluator->MoveLayers(one.split, below, Moves::kGiven, &result);
    if (result.best.front().rank.value >= below) continue;
    best = {result.best.front(), one.split};
    below = std::max(best->entry.rank.value, fed(one.split));
  }
  take(best ? best->split.global_batch() : batch);
  if (!best) return;
  Candidate candidate = Complete(found->job, best->entry, evaluator);
  if (!Keeps(candidate)) return take(batch);
  found->candidate = std::move(candidate);
  found->seconds = below;
}

std::vector<Candidate> FastestLayouts::Rivals(const Found& found, double below, double reader,
                                              std::size_t most, ShapeCache* shapes) const {
  Job job = found.job;
  Evaluator evaluator(request_, preset_, limits_, job, *memory_, shapes, &kernels_);
  const double fits_in = limits_.WithMargin().value;
  const BatchSpan batch{job.work.global_batch, job.work.global_batch};
  Queue queue(request_, preset_, batch, {reader}, fits_in, &job, &evaluator);
  const double reach = request_.shares ? kMoves : 1;
  std::vector<Entry> entries;
  for (int64_t i = 0; queue.Least() < below; ++i) {
    const Split split = queue.Next();
    EvaluateOptions options;
    // With its layers moved it may keep the margin that it does not keep without.
    options.fits_in = reach > 1 && split.pp > 1 ? limits_.capacity.value : fits_in;
    options.below = split.pp == 1 ? below : below * reach;
    options.any_shares_below = below;
    SplitResult result = evaluator.Run(split, i, options);
    if (request_.shares && split.pp > 1) evaluator.MoveLayers(split, below, Moves::kBest, &result);
    std::ranges::copy_if(result.best, std::back_inserter(entries),
                         [&](const Entry& entry) { return entry.rank.value < below; });
  }
  std::ranges::sort(entries, {}, &Entry::rank);
  const std::string own = DescribeLayout(found.candidate.strategy);
  std::vector<Candidate> rivals;
  for (const Entry& entry : entries) {
    if (rivals.size() == most) break;
    if (DescribeLayout(entry.strategy) == own) continue;
    Candidate candidate = Complete(job, entry, &evaluator);
    if (Keeps(candidate)) rivals.push_back(std::move(candidate));
  }
  return rivals;
}

void FastestLayouts::MoveMoreLayers(Found* found, ShapeCache* shapes, double reader) const {
  if (!request_.shares) return;
  std::vector<Candidate> faster = Rivals(*found, found->seconds, reader, 1, shapes);
  if (faster.empty()) return;
  found->candidate = std::move(faster.front());
  found->seconds =
      std::max(ObjectiveValue(Objective::kTime, found->candidate.time.total, found->job),
               Readers{reader}.Fed(found->job, found->candidate.strategy.data_parallel()));
}

double FastestLayouts::Settle(Found* found, ShapeCache* shapes, double reader,
                              std::size_t most_rivals) const {
  const Job& job = found->job;
  const Cluster cluster = ClusterOf(job);
  double effort = 0;
  double least = 1;  // of simulated to closed form
  const auto settle = [&](Candidate* candidate) {
    orrery::Settle(job, *candidate->plan, cluster, candidate, Learn::kNoLinks);
    if (!candidate->simulated) return;
    effort += SimulationEffort(*candidate->plan, candidate->strategy);
    least = std::min(least, candidate->time.total / candidate->ClosedForm().total);
  };
  if (!found->candidate.plan)
    found->candidate.plan =
        std::make_shared<const ir::Plan>(LowerLegal(job, found->candidate.strategy));
  settle(&found->candidate);
  const auto value = [&](const Candidate& candidate, double seconds) {
    return std::max(ObjectiveValue(Objective::kTime, seconds, job),
                    Readers{reader}.Fed(job, candidate.strategy.data_parallel()));
  };
  const auto now = [&] { return value(found->candidate, found->candidate.time.total); };
  if (found->candidate.simulated && most_rivals > 0) {
    const double closed = value(found->candidate, found->candidate.ClosedForm().total);
    std::vector<Candidate> rivals = Rivals(*found, std::max(now() / least, closed * kEnginesApart),
                                           reader, most_rivals, shapes);
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      if (i >= kSimulated && value(rivals[i], rivals[i].time.total) >= now() / least) break;
      settle(&rivals[i]);
      if (rivals[i].simulated && value(rivals[i], rivals[i].time.total) < now())
        found->candidate = std::move(rivals[i]);
    }
  }
  found->seconds = now();
  found->candidate.plan = nullptr;
  return effort;
}

Candidate FastestLayouts::Complete(const Job& job, const Entry& entry, Evaluator* evaluator) const {
  StepPredictor& predictor = evaluator->predictor();
  predictor.SetGlobalBatch(job.work.global_batch);
  Candidate candidate{
      PredictionOf(job, entry.strategy, std::get<StepTime>(predictor.Predict(entry.strategy)))};
  candidate.memory_bound = MemoryBoundOf(job, entry.strategy, memory_.get()).total;
  auto plan = std::make_shared<const ir::Plan>(LowerLegal(job, entry.strategy));
  AddMemoryOfLayout(job, *plan, &candidate);
  candidate.plan = std::move(plan);
  return candidate;
}

double FastestLayouts::LeastGpuSeconds(int64_t nodes, ShapeCache* shapes) const {
  const Job job = JobOf(request_, profiles_, nodes, 1);
  const Space space(request_, preset_);
  Evaluator evaluator(request_, preset_, limits_, job, *memory_, shapes, &kernels_);
  double least = kInfinity;
  for (const Split& degrees : space.Degrees(job.cluster.ranks(), job.cluster.domain_gpus())) {
    if (degrees.pp > 1) continue;  // the work of a layer does not depend on it
    for (const int size : MicroBatchSizes(request_.work.seq_len)) {
      Split split = degrees;
      split.micro_batch = size;
      least = std::min(least, evaluator.Work(split) * split.tp / static_cast<double>(size));
    }
  }
  return least;
}

}  // namespace orrery
