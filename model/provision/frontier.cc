// SPDX-License-Identifier: Apache-2.0
// Evaluates (topology, nodes) units in waves, skips what bounds rule out, keeps the frontier.
#include "model/provision/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "model/base/diagnostics.h"
#include "model/base/parallel.h"
#include "model/base/text.h"
#include "model/provision/choices.h"
#include "model/provision/points.h"

namespace orrery {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Units looked at before the frontier is drawn again: the same for any number of threads.
constexpr std::size_t kWave = 4;
constexpr double kSameTime = 1e-6;      // a second in two weeks is no choice
constexpr double kLeastGoodput = 0.01;  // a run below it does not finish

struct Unit {
  std::size_t site = 0;
  int64_t nodes = 0;
  std::vector<std::size_t> quotes;
  double least_cost = kInfinity;  // of its quotes, for the order
};

Point PointOf(const Row& row) { return {row.run.time.value, row.run.cost.value}; }

// What one unit found: the layout of the best batch, for all its quotes.
struct Found {
  std::optional<FastestLayouts::Found> best;
  std::vector<Row> rows;
  bool below_bound = false;
};

class FrontierSearch {
 public:
  FrontierSearch(const Question& question, const std::vector<Quote>& quotes,
                 const std::vector<std::size_t>& site_of, const std::vector<Site>& sites)
      : question_(question), quotes_(quotes), site_of_(site_of), sites_(sites) {
    effort_left_ = question.simulation_effort;
    threads_ = question.threads > 0
                   ? question.threads
                   : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    shapes_.resize(static_cast<std::size_t>(threads_));
    MakeLayouts();
    result_.bounds.resize(quotes.size());
    result_.no_layout.resize(quotes.size());
    MakeUnits();
  }

  Provisioned Run() {
    int64_t before = -1;
    while (before < result_.evaluated) {  // simulated rows may be slower than what ruled a unit out
      before = result_.evaluated;
      Evaluate(Pending());
      for (const std::size_t site : contradicted_) least_[site] = 0;  // its bound was none
      Evaluate(Pending());
      SettleOffers();
      DrawFrontier();
      Simulate();
      frontier_ = {};
      for (const Row& row : result_.rows) frontier_.Add(PointOf(row));
    }
    Finish();
    return std::move(result_);
  }

 private:
  // Models and memory forms are shared by topologies that compute in the same precision and allocate alike.
  void MakeLayouts() {
    std::map<std::pair<std::string, Allocation>, std::shared_ptr<MemoryModel>> memories;
    for (const Site& site : sites_) {
      const Allocation allocation = AllocationOf(site.profiles.framework);
      const Workload& work = site.request.work;
      kinds_.push_back(std::to_string(static_cast<int>(work.precision)) + "/" +
                       std::to_string(static_cast<int>(work.optimizer)) + "/" +
                       std::to_string(work.seq_len) + "/" + std::to_string(work.masked_positions) +
                       "/" + std::to_string(work.dropout) + "/" + std::to_string(work.clip_norm));
      const std::pair key(kinds_.back(), allocation);
      layouts_.push_back(
          std::make_unique<FastestLayouts>(site.request, site.profiles, memories[key]));
      memories[key] = layouts_.back()->memory();
    }
  }

  Job JobAt(std::size_t site, int64_t nodes, int64_t batch) const {
    return JobOf(sites_[site].request, sites_[site].profiles, nodes, batch);
  }

  void MakeUnits() {
    std::map<std::pair<std::size_t, int64_t>, Unit> units;
    for (std::size_t q = 0; q < quotes_.size(); ++q) {
      for (const int64_t nodes : NodesOf(question_, quotes_[q], sites_[site_of_[q]])) {
        Unit& unit = units[{site_of_[q], nodes}];
        unit.site = site_of_[q];
        unit.nodes = nodes;
        unit.quotes.push_back(q);
      }
    }
    least_.assign(sites_.size(), -1);
    for (auto& [key, unit] : units) {
      for (const std::size_t q : unit.quotes) {
        for (const LeastRun& least : LeastOf(unit, q)) {
          if (!std::isfinite(least.cost.value)) continue;
          unit.least_cost = std::min(unit.least_cost, least.cost.value);
          QuoteBounds& bounds = result_.bounds[q];
          if (!bounds.known || least.time < bounds.least_time) bounds.least_time = least.time;
          if (!bounds.known || least.cost < bounds.least_cost) bounds.least_cost = least.cost;
          bounds.known = true;
        }
      }
      units_.push_back(std::move(unit));
    }
    std::ranges::stable_sort(units_, {}, &Unit::least_cost);
    result_.units = static_cast<int64_t>(units_.size());
  }

  // GPU seconds of a sequence at least; found once per topology.
  double LeastWork(std::size_t site, int64_t nodes) {
    if (least_[site] < 0) {
      least_[site] = layouts_[site]->LeastGpuSeconds(nodes, &shapes_[0][kinds_[site]]);
    }
    return least_[site];
  }

  // By number of spares; kept, for it is asked each time that the frontier has moved.
  const std::vector<LeastRun>& LeastOf(const Unit& unit, std::size_t quote) {
    const double work = LeastWork(unit.site, unit.nodes);
    KnownBound& known = known_bounds_[{quote, unit.nodes}];
    if (known.work == work) return known.runs;
    const Job job = JobAt(unit.site, unit.nodes, 1);
    const double per_token = work / static_cast<double>(job.cluster.ranks() * job.work.seq_len);
    known = {work, BoundRuns(question_.conditions, job, per_token, quotes_[quote])};
    return known.runs;
  }

  bool RuledOut(const Unit& unit) {
    if (question_.every) return false;
    return std::ranges::all_of(unit.quotes, [&](std::size_t q) {
      return std::ranges::all_of(LeastOf(unit, q), [&](const LeastRun& least) {
        return frontier_.Dominates({least.time.value, least.cost.value});
      });
    });
  }

  std::vector<Unit> Pending() const {
    std::vector<Unit> pending;
    for (const Unit& unit : units_) {
      if (!done_.contains({unit.site, unit.nodes})) pending.push_back(unit);
    }
    return pending;
  }

  void Evaluate(const std::vector<Unit>& units) {
    for (std::size_t next = 0; next < units.size();) {
      std::vector<const Unit*> wave;
      for (; next < units.size() && wave.size() < kWave; ++next) {
        if (!RuledOut(units[next])) wave.push_back(&units[next]);
      }
      Say("looking for layouts", static_cast<double>(next) / static_cast<double>(units.size()));
      EvaluateWave(wave);
    }
  }

  void Say(const char* what, double share) const {
    if (question_.progress) question_.progress(what, share);
  }

  void EvaluateWave(const std::vector<const Unit*>& wave) {
    std::vector<Found> found(wave.size());
    std::atomic<std::size_t> at{0};
    OnThreads(static_cast<int>(std::min(shapes_.size(), wave.size())), [&](int thread) {
      for (std::size_t i = at++; i < wave.size(); i = at++)
        found[i] = Best(*wave[i], static_cast<std::size_t>(thread));
    });
    for (std::size_t i = 0; i < wave.size(); ++i) Take(*wave[i], std::move(found[i]));
  }

  // An offer that is on no frontier is compared by its cheapest run within the limits: evaluates the node counts that
  // may be cheaper than what is known of it, the most promising of each offer at a time.
  void SettleOffers() {
    for (;;) {
      // By cost, and of equal cost (terms are paid whatever a run takes) by time.
      using Price = std::pair<double, double>;
      constexpr Price kNone = {kInfinity, kInfinity};
      std::vector<Price> cheapest(quotes_.size(), kNone);
      for (const Row& row : result_.rows) {
        if (InTime(row.run.time))
          cheapest[row.quote] =
              std::min(cheapest[row.quote], Price{row.run.cost.value, row.run.time.value});
      }
      std::vector<std::pair<Price, const Unit*>> next(quotes_.size(), {kNone, nullptr});
      for (const Unit& unit : units_) {
        if (done_.contains({unit.site, unit.nodes})) continue;
        for (const std::size_t q : unit.quotes) {
          for (const LeastRun& least : LeastOf(unit, q)) {
            if (!InTime(least.time) || !InBudget(least.cost)) continue;
            const Price price{least.cost.value, least.time.value};
            if (price < std::min(cheapest[q], next[q].first)) next[q] = {price, &unit};
          }
        }
      }
      std::set<const Unit*> wave;
      for (const auto& [cost, unit] : next) {
        if (unit != nullptr) wave.insert(unit);
      }
      if (wave.empty()) return;
      Say("comparing the other offers",
          static_cast<double>(done_.size()) / static_cast<double>(units_.size()));
      EvaluateWave({wave.begin(), wave.end()});
    }
  }

  Found Best(const Unit& unit, std::size_t thread) {
    Found found;
    double least = std::numeric_limits<double>::infinity();
    for (const BatchSpan& batches : SearchedBatches(question_, sites_[unit.site])) {
      auto best =
          layouts_[unit.site]->Find(unit.nodes, batches, &shapes_[thread][kinds_[unit.site]],
                                    SearchInput(question_.conditions).reader);
      if (!best) continue;
      if (const double seconds = RunSeconds(question_, *best); seconds < least) {
        least = seconds;
        found.best = std::move(best);
      }
    }
    if (!found.best) return found;
    found.best->candidate.plan = nullptr;  // made again where it is simulated
    const double work = found.best->candidate.time.total *
                        static_cast<double>(found.best->job.cluster.ranks()) /
                        static_cast<double>(found.best->candidate.global_batch);
    found.below_bound = work < least_[unit.site] * (1 - 1e-12);
    for (const std::size_t q : unit.quotes) {
      for (const int64_t spares : SpareCounts(question_.conditions, found.best->job, &quotes_[q])) {
        Row row;
        row.quote = q;
        row.site = unit.site;
        row.nodes = unit.nodes;
        row.run.spares = spares;
        row.candidate = found.best->candidate;
        Renew(found.best->job, &row);
        found.rows.push_back(std::move(row));
      }
    }
    return found;
  }

  void Take(const Unit& unit, Found found) {
    done_.insert({unit.site, unit.nodes});
    ++result_.evaluated;
    if (found.below_bound) contradicted_.insert(unit.site);
    for (Row& row : found.rows) {
      if (row.run.goodput < kLeastGoodput) {
        const auto [best, fresh] = endless_.try_emplace(row.quote, row.run);
        if (!fresh && row.run.goodput > best->second.goodput) best->second = row.run;
        continue;
      }
      frontier_.Add(PointOf(row));
      result_.rows.push_back(std::move(row));
    }
  }

  void Finish() {
    DropSpares(question_, &result_.rows);
    DrawFrontier();
    AddIntervals();
    Choose();
    for (std::size_t q = 0; q < quotes_.size(); ++q) {
      const bool any =
          std::ranges::any_of(result_.rows, [&](const Row& row) { return row.quote == q; });
      const std::vector<int64_t> nodes = NodesOf(question_, quotes_[q], sites_[site_of_[q]]);
      if (any) continue;
      if (nodes.empty()) {
        result_.no_layout[q] = WhyNotSold(question_, quotes_[q], sites_[site_of_[q]]);
      } else if (std::ranges::all_of(nodes, [&](int64_t n) {
                   return done_.contains({site_of_[q], n});
                 })) {
        result_.no_layout[q] =
            !endless_.contains(q) ? NoLayoutWords(site_of_[q], nodes) : WhyEndless(endless_.at(q));
      }
    }
  }

  // Once for all offers of a topology and node counts.
  const std::string& NoLayoutWords(std::size_t site, const std::vector<int64_t>& nodes) {
    std::string& words = no_layout_[{site, nodes}];
    if (words.empty()) words = WhyNoLayout(question_, sites_[site], nodes);
    return words;
  }

  // Cheapest first; of equal cost the faster one.
  void DrawFrontier() {
    std::ranges::stable_sort(result_.rows, [](const Row& a, const Row& b) {
      return std::pair(a.run.cost.value, a.run.time.value) <
             std::pair(b.run.cost.value, b.run.time.value);
    });
    result_.frontier.clear();
    double fastest = kInfinity;
    for (std::size_t i = 0; i < result_.rows.size(); ++i) {
      Row& row = result_.rows[i];
      row.on_frontier = row.run.time.value < fastest * (1 - kSameTime);
      if (!row.on_frontier) continue;
      fastest = row.run.time.value;
      result_.frontier.push_back(i);
    }
  }

  Job JobOfRow(const Row& row) const {
    return JobAt(row.site, row.nodes, row.candidate.global_batch);
  }

  // Every row of the frontier gets the step time that `plan predict` gives, as far as the effort reaches; what is slower
  // than its closed form may leave the frontier, and what comes forward is simulated in turn.
  void Simulate() {
    auto& settled = settled_;
    double& left = effort_left_;
    for (bool again = left > 0; again;) {
      again = false;
      for (const std::size_t i : std::vector<std::size_t>(result_.frontier)) {
        Row& row = result_.rows[i];
        const std::pair key{row.site, row.nodes};
        if (row.candidate.settled()) continue;
        if (!settled.contains(key)) {
          const Job job = JobOfRow(row);
          const ir::Plan plan = LowerLegal(job, row.candidate.strategy);
          const double effort = SimulationEffort(plan, row.candidate.strategy);
          if (effort > left) continue;
          Say("simulating the frontier", 1 - left / question_.simulation_effort);
          Candidate candidate = row.candidate;
          Settle(job, plan, ClusterOf(job), &candidate);
          if (candidate.simulated) left -= effort;
          result_.simulated += candidate.simulated.has_value();
          settled.emplace(key, std::move(candidate));
        }
        const Job job = JobOfRow(row);
        for (Row& other : result_.rows) {
          if (std::pair{other.site, other.nodes} != key) continue;
          other.candidate = settled.at(key);
          Renew(job, &other);
        }
        again = true;
      }
      DrawFrontier();
    }
  }

  // After its step time has changed. Prices per step are those of the offer.
  void Renew(const Job& job, Row* row) const {
    Candidate& step = row->candidate;
    step.dollars_per_second =
        quotes_[row->quote].price.price.value / 3600 * static_cast<double>(row->nodes);
    step.SetTime(step.time);
    row->run = EstimateRun(question_.conditions, job, row->candidate, &quotes_[row->quote],
                           row->run.spares);
  }

  void AddIntervals() {
    const Trust trust = LoadTrust();
    std::map<std::pair<std::size_t, int64_t>, Candidate> known;
    for (const std::size_t i : result_.frontier) {
      Row& row = result_.rows[i];
      const auto [at, fresh] = known.try_emplace({row.site, row.nodes}, row.candidate);
      if (fresh) AddConfidence(JobOfRow(row), trust, &at->second);
      row.candidate = at->second;
      Renew(JobOfRow(row), &row);
    }
  }

  bool InTime(Seconds time) const { return !question_.deadline || time <= *question_.deadline; }
  bool InTime(const Row& row) const { return InTime(row.run.time); }
  bool InBudget(Dollars cost) const { return !question_.budget || cost <= *question_.budget; }
  bool InBudget(const Row& row) const { return InBudget(row.run.cost); }

  void Choose() {
    for (const std::size_t i : result_.frontier) {
      const Row& row = result_.rows[i];
      if (!result_.cheapest && InTime(row)) result_.cheapest = i;
      if (!result_.sure && question_.deadline &&
          row.run.ProbabilityWithin(*question_.deadline) >= kSure)
        result_.sure = i;
      if (InBudget(row)) result_.fastest = i;  // ever faster along the frontier
    }
    result_.feasible = std::ranges::any_of(result_.frontier, [&](std::size_t i) {
      return InTime(result_.rows[i]) && InBudget(result_.rows[i]);
    });
    if (!result_.cheapest) return;
    const Row& best = result_.rows[*result_.cheapest];
    for (Row& row : result_.rows) {
      row.tie = InTime(row) && row.run.low_cost <= best.run.high_cost &&
                best.run.low_cost <= row.run.high_cost;
    }
  }

  const Question& question_;
  const std::vector<Quote>& quotes_;
  const std::vector<std::size_t>& site_of_;
  const std::vector<Site>& sites_;
  int threads_ = 1;
  std::vector<std::map<std::string, ShapeCache>> shapes_;  // by thread and kind of work
  std::vector<std::string> kinds_;                         // by site
  std::vector<std::unique_ptr<FastestLayouts>> layouts_;   // by site
  std::vector<double> least_;                              // by site; below 0: not found yet
  struct KnownBound {
    double work = -1;  // GPU seconds of a sequence that it is for
    std::vector<LeastRun> runs;
  };
  std::map<std::pair<std::size_t, int64_t>, KnownBound> known_bounds_;  // by quote and nodes
  std::vector<Unit> units_;
  std::set<std::pair<std::size_t, int64_t>> done_;
  std::set<std::size_t> contradicted_;
  std::map<std::size_t, RunEstimate> endless_;  // by quote: the best of runs below kLeastGoodput
  std::map<std::pair<std::size_t, std::vector<int64_t>>, std::string> no_layout_;
  Frontier frontier_;
  double effort_left_ = 0;
  std::map<std::pair<std::size_t, int64_t>, Candidate> settled_;  // simulated, by site and nodes
  Provisioned result_;
};

}  // namespace

Provisioned Provision(const Question& question, const std::vector<Quote>& quotes,
                      const std::vector<std::size_t>& site_of, const std::vector<Site>& sites) {
  Provisioned result = FrontierSearch(question, quotes, site_of, sites).Run();
  result.setup_too_long = question.deadline && question.conditions.run.setup >= *question.deadline;
  return result;
}

}  // namespace orrery
