// SPDX-License-Identifier: Apache-2.0
// Evaluates (topology, nodes) units in waves, skips what bounds rule out, keeps the frontier.
#include "model/provision/frontier.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "model/base/diagnostics.h"
#include "model/base/text.h"
#include "model/provision/choices.h"
#include "model/provision/chosen_rows.h"
#include "model/provision/points.h"
#include "model/provision/site_layouts.h"
#include "model/provision/unit_bounds.h"

namespace orrery {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Units looked at before the frontier is drawn again: the same for any number of threads.
constexpr std::size_t kWave = 4;
constexpr std::size_t kComparedAtOnce = 8;  // of other offers
constexpr double kLeastGoodput = 0.01;      // a run below it does not finish

// What one unit found: the layout of the best batch, for all its quotes.
struct Found {
  std::optional<FastestLayouts::Found> best;
  std::vector<Row> rows;
  bool below_bound = false;
  bool none_below = false;  // what it was asked to be below
};

class FrontierSearch {
 public:
  FrontierSearch(const Question& question, const std::vector<Quote>& quotes,
                 const std::vector<std::size_t>& site_of, const std::vector<Site>& sites)
      : question_(question),
        quotes_(quotes),
        site_of_(site_of),
        sites_(sites),
        layouts_(question, sites),
        bounds_(question, quotes, sites) {
    effort_left_ = question.simulation_effort;
    least_ratios_.assign(sites.size(), 1.0);
    result_.bounds.resize(quotes.size());
    result_.no_layout.resize(quotes.size());
    MakeUnits();
  }

  Provisioned Run() {
    int64_t before = -1;
    while (before < result_.evaluated) {  // simulated rows may be slower than what ruled a unit out
      before = result_.evaluated;
      Evaluate(Pending());
      for (const std::size_t site : contradicted_) bounds_.SetWork(site, 0);  // its bound was none
      Evaluate(Pending());
      SettleOffers();
      DrawFrontier(&result_);
      Simulate();
      frontier_ = {};
      for (const Row& row : result_.rows) frontier_.Add(SurelyAt(row));
    }
    Finish();
    return std::move(result_);
  }

 private:
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
    std::vector<std::pair<std::size_t, int64_t>> first;  // of each topology
    for (const auto& [key, unit] : units) {
      if (first.empty() || first.back().first != unit.site) first.push_back(key);
    }
    const std::vector<double> work = layouts_.OnThreads<double>(
        first.size(), [](std::size_t) { return 0; },
        [&](std::size_t i, std::size_t thread) {
          return layouts_.LeastGpuSeconds(first[i].first, first[i].second, thread);
        });
    for (std::size_t i = 0; i < first.size(); ++i) bounds_.SetWork(first[i].first, work[i]);
    for (auto& [key, unit] : units) {
      for (const std::size_t q : unit.quotes) {
        for (const LeastRun& least : bounds_.RunsOf(unit, q)) {
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

  // Of the fastest layouts of 48 questions (4 models, 3 offers) simulated times are 0.971 to 1.016 of the closed form.
  static constexpr double kFaster = 1.03, kSlower = 1.02;

  // The least that simulation makes of a closed form: where a site's network says more, so do its other rows, and up to 0.3 % seen
  // beyond it.
  double GainOf(std::size_t site) const {
    return std::min(1 / kFaster, least_ratios_[site] / 1.01);
  }

  // Where its steps take `factor` times as long: what is billed by the hour may cost less by more than that.
  Point At(const Row& row, double factor) const {
    const Seconds time = row.run.time * factor;
    return {time.value, CostOf(quotes_[row.quote], row.nodes + row.run.spares, time).value};
  }

  // What rules others out: as long as it is not simulated it may take longer.
  Point SurelyAt(const Row& row) const {
    return At(row, row.candidate.settled() || question_.simulation_effort <= 0 ? 1 : kSlower);
  }

  bool RuledOut(const Unit& unit) {
    return !question_.every && bounds_.Beaten(unit, frontier_, GainOf(unit.site));
  }

  std::vector<Unit> Pending() const {
    std::vector<Unit> pending;
    for (const Unit& unit : units_) {
      if (!done_.contains({unit.site, unit.nodes})) pending.push_back(unit);
    }
    return pending;
  }

  // Of those that bounds do not rule out. A layout that is fast enough for the frontier is looked for first: to see that there is
  // none takes a fraction of the time of finding the fastest.
  void Evaluate(const std::vector<Unit>& units) {
    for (std::size_t next = 0; next < units.size();) {
      std::vector<const Unit*> wave;
      std::vector<double> below;
      for (; next < units.size() && wave.size() < kWave; ++next) {
        const Unit& unit = units[next];
        if (RuledOut(unit)) continue;
        wave.push_back(&unit);
        below.push_back(question_.every
                            ? kInfinity
                            : bounds_.SecondsToReach(unit, frontier_, GainOf(unit.site)));
      }
      Say("looking for layouts", static_cast<double>(next) / static_cast<double>(units.size()));
      EvaluateWave(wave, below);
    }
  }

  void Say(const char* what, double share) const {
    if (question_.progress) question_.progress(what, share);
  }

  // Those that have a layout with fewer seconds for a sequence; of the others that is a bound from then on.
  void EvaluateWave(const std::vector<const Unit*>& wave, const std::vector<double>& below) {
    std::vector<Found> found = layouts_.OnThreads<Found>(
        wave.size(), [&](std::size_t i) { return wave[i]->nodes; },
        [&](std::size_t i, std::size_t thread) { return Best(*wave[i], below[i], thread); });
    for (std::size_t i = 0; i < wave.size(); ++i) {
      if (found[i].none_below)
        bounds_.SetNoneBelow(*wave[i], below[i]);
      else
        Take(*wave[i], std::move(found[i]));
    }
  }

  // An offer that is on no frontier is compared by its cheapest run within the limits: evaluates the node counts that
  // may be cheaper than what is known of it, the most promising of each offer at a time, as long as the request has effort for
  // it.
  void SettleOffers() {
    for (;;) {
      const std::vector<Price> cheapest = CheapestRuns(question_, result_.rows, quotes_.size());
      std::vector<std::pair<Price, const Unit*>> next(quotes_.size(), {kNoPrice, nullptr});
      for (const Unit& unit : units_) {
        if (done_.contains({unit.site, unit.nodes})) continue;
        for (const std::size_t q : unit.quotes) {
          const Price price = LeastPrice(question_, bounds_.RunsOf(unit, q));
          if (price < std::min(cheapest[q], next[q].first)) next[q] = {price, &unit};
        }
      }
      result_.open.assign(quotes_.size(), false);
      std::set<const Unit*> wave;
      for (std::size_t q = 0; q < next.size(); ++q) {
        const Unit* unit = next[q].second;
        if (unit == nullptr) continue;
        result_.open[q] = true;
        if (wave.size() < kComparedAtOnce) wave.insert(unit);
      }
      if (wave.empty() || compared_ >= question_.comparison_effort) return;
      const int64_t before = layouts_.looked();
      Say("comparing the other offers", static_cast<double>(done_.size() + bounds_.closed()) /
                                            static_cast<double>(units_.size()));
      std::vector<double> below;
      for (const Unit* unit : wave) below.push_back(bounds_.SecondsToBeat(*unit, cheapest));
      EvaluateWave({wave.begin(), wave.end()}, below);
      compared_ += layouts_.looked() - before;
    }
  }

  // Nothing where no layout takes fewer seconds for a sequence than `below`.
  Found Best(const Unit& unit, double below, std::size_t thread) {
    Found found;
    found.best = layouts_.Fastest(unit.site, unit.nodes, below, thread);
    found.none_below = !found.best && below < kInfinity;
    if (!found.best) return found;
    found.best->candidate.plan = nullptr;  // made again where it is simulated
    const double work = found.best->candidate.time.total *
                        static_cast<double>(found.best->job.cluster.ranks()) /
                        static_cast<double>(found.best->candidate.global_batch);
    found.below_bound = work < bounds_.Work(unit.site) * (1 - 1e-12);
    for (const std::size_t q : unit.quotes) {
      for (const int64_t spares : SpareCounts(question_.conditions, found.best->job, &quotes_[q])) {
        Row row{q, unit.site, unit.nodes, found.best->candidate, {}};
        row.run.spares = spares;
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
      frontier_.Add(SurelyAt(row));
      result_.rows.push_back(std::move(row));
    }
  }

  void Finish() {
    DropSpares(question_, &result_.rows);
    DrawFrontier(&result_);
    AddIntervals();
    Choose(question_, quotes_, &result_);
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

  Job JobOfRow(const Row& row) const {
    return layouts_.JobAt(row.site, row.nodes, row.candidate.global_batch);
  }

  struct ToSettle {
    const Row* row;
    std::shared_ptr<const ir::Plan> plan;
    double effort;
  };
  struct Settled {
    Candidate candidate;
    double effort = 0;
  };

  // Every row of the frontier, and what may come to lie on it, gets the step time that `plan predict` gives, as far as the effort
  // reaches; what is slower than its closed form may leave the frontier, and what comes forward is simulated in turn.
  void Simulate() {
    while (SimulateWave()) DrawFrontier(&result_);
  }

  // By site, the least of simulated to closed form so far: engines differ by a site's network more than from row to row.
  void FindLeastRatios() {
    for (const Row& row : result_.rows) {
      if (!row.candidate.simulated) continue;
      double& least = least_ratios_[row.site];
      least = std::min(least, row.candidate.time.total / row.candidate.ClosedForm().total);
    }
  }

  // Rows of the frontier, and those that may come to lie on it. Those that may be an answer go first.
  std::vector<std::size_t> ToSimulate() {
    FindLeastRatios();
    Frontier frontier;
    for (const std::size_t i : result_.frontier) frontier.Add(SurelyAt(result_.rows[i]));
    std::vector<std::size_t> rows = result_.frontier;
    for (std::size_t i = 0; i < result_.rows.size(); ++i) {
      const Row& row = result_.rows[i];
      if (row.candidate.settled()) continue;
      if (!frontier.Dominates(At(row, GainOf(row.site)))) rows.push_back(i);
    }
    std::stable_partition(rows.begin(), rows.end(), [&](std::size_t i) {
      const RunEstimate& run = result_.rows[i].run;
      return InTime(question_, run.time) && InBudget(question_, run.cost);
    });
    return rows;
  }

  // Those that are next; false: there are none.
  bool SimulateWave() {
    std::vector<ToSettle> wave;
    std::set<std::pair<std::size_t, int64_t>> known;
    double left = effort_left_;
    for (const std::size_t i : ToSimulate()) {
      Row& row = result_.rows[i];
      if (wave.size() == kWave) break;
      if (row.candidate.settled() || !known.insert({row.site, row.nodes}).second) continue;
      auto plan =
          std::make_shared<const ir::Plan>(LowerLegal(JobOfRow(row), row.candidate.strategy));
      const double effort = SimulationEffort(*plan, row.candidate.strategy);
      if (effort > left) continue;
      left -= effort;
      wave.push_back({&row, std::move(plan), effort});
    }
    if (wave.empty()) return false;
    Say("simulating the frontier", 1 - effort_left_ / question_.simulation_effort);
    const std::vector<Settled> settled = layouts_.OnThreads<Settled>(
        wave.size(), [&](std::size_t i) { return wave[i].effort; },
        [&](std::size_t i, std::size_t thread) { return Settle(wave[i], thread); });
    for (std::size_t i = 0; i < wave.size(); ++i) Take(*wave[i].row, settled[i]);
    return true;
  }

  // Of machines with a run that keeps the limits, or nearly, the fastest layout by simulation; of what is shown beside it, the one by closed form.
  Settled Settle(const ToSettle& next, std::size_t thread) {
    const Row& row = *next.row;
    constexpr double kNearly = 0.95;  // of its time: rivals were up to 2.3 % faster
    const bool may_answer = std::ranges::any_of(result_.rows, [&](const Row& other) {
      const Point near = At(other, kNearly);
      return other.site == row.site && other.nodes == row.nodes &&
             InTime(question_, Seconds(near.time)) && InBudget(question_, Dollars(near.cost));
    });
    FastestLayouts::Found found{row.candidate, JobOfRow(row)};
    found.candidate.plan = next.plan;
    const double effort =
        layouts_.Settle(row.site, &found, may_answer ? FastestLayouts::kRivals : 0, thread);
    return {std::move(found.candidate), effort};
  }

  // All rows of the same machines get it.
  void Take(const Row& settled, const Settled& now) {
    effort_left_ -= now.effort;
    result_.simulated += now.candidate.simulated.has_value();
    const std::pair key{settled.site, settled.nodes};
    const Job job = JobOfRow(settled);
    for (Row& row : result_.rows) {
      if (std::pair{row.site, row.nodes} != key) continue;
      row.candidate = now.candidate;
      Renew(job, &row);
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
    std::map<std::pair<std::size_t, int64_t>, std::vector<Row*>> alike;
    for (Row& row : result_.rows) alike[{row.site, row.nodes}].push_back(&row);
    std::vector<std::vector<Row*>> units;
    for (auto& [key, rows] : alike) units.push_back(std::move(rows));
    layouts_.OnThreads<char>(
        units.size(), [&](std::size_t i) { return units[i].front()->nodes; },
        [&](std::size_t i, std::size_t) {
          const Job job = JobOfRow(*units[i].front());
          AddConfidence(job, trust, &units[i].front()->candidate);
          for (Row* row : units[i]) {
            if (row != units[i].front()) row->candidate = units[i].front()->candidate;
            Renew(job, row);
          }
          return 0;
        });
  }

  const Question& question_;
  const std::vector<Quote>& quotes_;
  const std::vector<std::size_t>& site_of_;
  const std::vector<Site>& sites_;
  SiteLayouts layouts_;
  UnitBounds bounds_;
  std::vector<double> least_ratios_;  // by site
  std::vector<Unit> units_;
  std::set<std::pair<std::size_t, int64_t>> done_;
  std::set<std::size_t> contradicted_;
  std::map<std::size_t, RunEstimate> endless_;  // by quote: the best of runs below kLeastGoodput
  std::map<std::pair<std::size_t, std::vector<int64_t>>, std::string> no_layout_;
  Frontier frontier_;
  double effort_left_ = 0;
  int64_t compared_ = 0;  // splits looked at for offers off the frontier
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
