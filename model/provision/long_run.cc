// SPDX-License-Identifier: Apache-2.0
// Failures, checkpoints, input, bills and energy of a run.
#include "model/provision/long_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "model/arch/parameters.h"
#include "model/provision/run_stops.h"

namespace orrery {
namespace {

constexpr double kDay = 86400;
constexpr double kDecile =
    1.2815515655446004;  // of the normal distribution: 80 % lie within +- so many deviations

double MomentBytes(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kMuon:
      return 4;
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
    case Optimizer::kLamb:
      return 8;
    case Optimizer::kAdam8bit:
      return 2;
  }
  return 8;
}

// Of the nodes together; empty: no NIC is known, as of a single machine.
std::optional<BytesPerSecond> FrontEnd(const Conditions& conditions, const Job& job) {
  BytesPerSecond rate = job.cluster.node_rate() * conditions.checkpoint.front_end_share;
  if (rate.value <= 0) return std::nullopt;
  if (conditions.storage.client) rate = std::min(rate, *conditions.storage.client);
  return rate * static_cast<double>(job.cluster.nodes);
}

BytesPerSecond HostLink(const Job& job) {
  if (job.cluster.node && job.cluster.node->gpu_to_host.value > 0)
    return job.cluster.node->gpu_to_host;
  return job.cluster.pcie_rate;
}

ElasticModel ElasticOf(const Conditions& conditions, const Job& job, double group_nodes,
                       double step_seconds, const Quote* quote, double rate, int64_t spares) {
  ElasticModel model;
  model.nodes = static_cast<double>(job.cluster.nodes);
  model.group_nodes = group_nodes;
  model.node_rate = rate / 1000 / kDay;
  model.repair = conditions.recovery.repair;
  model.pause = conditions.recovery.pause;
  model.step = Seconds(step_seconds);
  model.spares = spares;
  model.interruptions = SpotRate(conditions, quote) / 1000 / kDay;
  model.replacement = conditions.recovery.detection;
  return model;
}

// Nodes that leave with one of them: those of a replica.
double GroupNodes(const Job& job, const Strategy& layout) {
  return static_cast<double>(NodesOfReplica(job, int64_t{1} * layout.tp * layout.pp * layout.cp));
}

bool CanShrink(const Conditions& conditions, const Job& job, const Strategy& layout) {
  return conditions.recovery.elastic &&
         static_cast<double>(job.cluster.nodes) >= 2 * GroupNodes(job, layout) &&
         layout.data_parallel() >= 2;
}

double QuantumOf(const OfferPrice& price) { return std::max(1.0, price.quantum.value); }

Seconds Billed(const OfferPrice& price, Seconds time) {
  const double quantum = QuantumOf(price);
  const Seconds whole(std::ceil(time.value / quantum - 1e-9) * quantum);
  return std::max(whole, price.term);
}

// One run at one rate of failures.
struct Played {
  Seconds interval, time, luck;
  int64_t interval_steps = 1;
  double goodput = 0, stops = 0;
  ElasticModel shrinking;  // of a job that shrinks
  double written = 1;      // share of the time that checkpoints leave
  Seconds between_restores;
  double short_of_spares = 0;
  StopLosses losses;
};

// So that mean and deviation of what FinishTime makes of them are those of `played`.
StopLosses LossesOf(const StopModel& stops, const Played& played, Seconds work) {
  StopLosses losses;
  losses.without = work * ((played.interval + stops.blocking) / played.interval) + stops.background;
  losses.wait = stops.wait;
  losses.wait_deviation = stops.wait_deviation;
  losses.waiting = played.stops * stops.waits;
  losses.others = played.stops - losses.waiting;
  const double count = std::max(played.stops, 1e-300);
  const double lost = (played.time - losses.without).value / count;
  const double each = std::max(0.0, lost - stops.MeanWait().value),
               longer = each + stops.wait.value;
  losses.each = Seconds(each);
  // Lost work is uniform in a period; what varies beyond is the number of stops.
  losses.each_deviation =
      (played.interval + stops.blocking) * std::sqrt((1 - stops.with_notice) / 12);
  const double counted = losses.waiting * longer * longer + losses.others * each * each;
  const double luck = played.luck.value * played.luck.value -
                      played.stops * losses.each_deviation.value * losses.each_deviation.value -
                      losses.waiting * stops.wait_deviation.value * stops.wait_deviation.value;
  if (luck > counted) losses.repeats = (luck - counted) / (luck + counted);
  return losses;
}

// Whole steps, no fewer than a write takes.
void SetInterval(const StopModel& restores, int64_t steps, double step, Played* played) {
  const Seconds work(static_cast<double>(steps) * step);
  const auto set = [&](double count) {
    played->interval_steps = static_cast<int64_t>(count);
    played->interval = Seconds(static_cast<double>(played->interval_steps) * step);
  };
  const double best = OptimalInterval(restores, work).value / step;
  set(std::clamp(std::round(best), 1.0, std::max(1.0, static_cast<double>(steps))));
  const Seconds least = std::min(restores.background - restores.blocking, work * (1 - 1e-12));
  if (played->interval < least) set(std::ceil(least.value / step));
}

// Stops that take a job that shrinks back to a checkpoint, at least `kHardlyEver` apart: where the last group goes.
StopModel RestoresOf(const StopModel& stops, const ElasticModel& shrinking, Seconds work) {
  constexpr double kHardlyEver = 1e9;  // times the run
  StopModel restores = stops;
  restores.between = Seconds(1 / std::max(AllAwayRate(shrinking), 1 / (kHardlyEver * work.value)));
  restores.with_notice = restores.waits = 0;
  return restores;
}

// Which part of the last write the share of a period that it ends does not count: the end lies anywhere in a period where
// that varies by much of one.
double LastWrite(const ElasticTime& time, Seconds period, bool one_write) {
  if (one_write) return 1;
  const double periods = time.mean / period, spread = time.deviation / period;
  double writes = 0;
  const double first = std::max(0.0, std::floor(periods - 6 * spread));
  for (double n = first; n <= periods + 6 * spread; ++n)
    writes += 0.5 * std::erfc((n - periods) / (std::sqrt(2.0) * std::max(spread, 1e-9)));
  return first + writes - periods;
}

// Goes on with fewer replicas; `stops` as if it restarted.
Played PlayShrinking(const StopModel& stops, const ElasticModel& shrinking, int64_t steps,
                     double step) {
  Played played;
  played.shrinking = shrinking;
  const Seconds work(static_cast<double>(steps) * step);
  const StopModel restores = RestoresOf(stops, shrinking, work);
  SetInterval(restores, steps, step, &played);
  played.between_restores = restores.between;
  const Seconds period = played.interval + stops.blocking;
  // One write, at the end, of a run of one interval; it may shrink and take longer.
  const bool one_write = played.interval_steps == steps;
  played.written = one_write ? 1 : played.interval / period;
  const Seconds run = work / played.written / ElasticGoodput(shrinking);
  SetRestore(restores, one_write ? run : period, run, &played.shrinking);
  const ElasticTime time = ElasticTimeOf(played.shrinking, work / played.written);
  const Seconds last = stops.blocking * LastWrite(time, period, one_write);
  played.time = time.mean + last + stops.background;
  played.goodput = work / (time.mean + last);
  played.stops = time.failures + time.interruptions;
  played.short_of_spares = time.short_of_spares;
  played.luck = time.deviation;
  played.losses = LossesOf(played.shrinking, time);
  played.losses.without += last + stops.background;
  return played;
}

Played Play(const Conditions& conditions, const Job& job, const Strategy& layout,
            const RunEstimate& run, const Quote* quote, double rate) {
  const StopModel stops =
      StopsOf(conditions, job, run.checkpoint, quote, rate, run.spares, run.Work());
  const double step = run.step_seconds * run.slowest;
  if (CanShrink(conditions, job, layout))
    return PlayShrinking(
        stops, ElasticOf(conditions, job, GroupNodes(job, layout), step, quote, rate, run.spares),
        run.steps, step);
  Played played;
  SetInterval(stops, run.steps, step, &played);
  played.between_restores = stops.between;
  const Seconds work(static_cast<double>(run.steps) * step);
  const JobTime time = TimeOf(stops, played.interval, work);
  played.goodput = Goodput(stops, played.interval);
  played.time = time.mean;
  played.luck = time.deviation;
  played.stops = time.stops;
  played.losses = LossesOf(stops, played, work);
  return played;
}

// A step that takes so many seconds until its tokens are there.
double Paced(const InputNeed& input, double tokens, double seconds) {
  return input.most ? std::max(seconds, tokens / *input.most) : seconds;
}

// Of all GPUs in use; 0: of one of them it is not known.
double RatedWatts(const EnergyFacts& facts, const Job& job) {
  const auto of = [&](const std::string& gpu) {
    const auto known = facts.power.find(gpu);
    return known == facts.power.end() ? 0 : known->second;
  };
  std::vector<double> nodes(static_cast<std::size_t>(job.cluster.nodes), of(job.cluster.gpu));
  if (job.topology != nullptr) {
    for (const OtherNodes& other : job.topology->other_nodes) {
      const int64_t end = std::min(other.last + 1, job.cluster.nodes);
      for (int64_t node = other.first; node < end && !other.gpu.empty(); ++node)
        nodes[static_cast<std::size_t>(node)] = of(other.gpu);
    }
  }
  if (std::ranges::count(nodes, 0) > 0) return 0;
  return std::accumulate(nodes.begin(), nodes.end(), 0.0) *
         static_cast<double>(job.cluster.gpus_per_node);
}

}  // namespace

int64_t StepsOf(const Conditions& conditions, double tokens) {
  return static_cast<int64_t>(std::ceil(conditions.tokens / tokens * (1 - 1e-12)));
}

int64_t NodesOfReplica(const Job& job, int64_t gpus) {
  return (gpus - 1) / job.cluster.gpus_per_node + 1;
}

Dollars CostOf(const Quote& quote, int64_t nodes, Seconds time) {
  return quote.price.price * Billed(quote.price, time) * static_cast<double>(nodes);
}

Seconds LongestFor(const Quote& quote, int64_t nodes, Dollars cost) {
  const Dollars a_second = quote.price.price * Seconds(1) * static_cast<double>(nodes);
  if (a_second.value <= 0) return Seconds(std::numeric_limits<double>::infinity());
  const Seconds paid(cost / a_second);
  if (paid < quote.price.term * (1 - 1e-12)) return Seconds(0);
  const double quantum = QuantumOf(quote.price);
  return Seconds((std::floor(paid.value / quantum + 1e-9) + 1e-9) * quantum);
}

Conditions DefaultConditions() {
  Conditions conditions;
  conditions.failures = LoadFailures("default");
  conditions.spot = LoadFailures("spot");
  conditions.recovery = LoadRecovery("automatic");
  conditions.checkpoint = LoadCheckpoint("asynchronous");
  conditions.storage = LoadStorage("sized");
  conditions.input = LoadInput("token-ids");
  conditions.run = LoadLongRun();
  conditions.energy = LoadEnergy();
  return conditions;
}

double CheckpointBytesPerParameter(Precision precision, Optimizer optimizer) {
  const bool half = precision == Precision::kFp16 || precision == Precision::kBf16;
  return (half ? 2 : 0) + 4 + MomentBytes(optimizer);
}

std::vector<int64_t> SpareCounts(const Conditions& conditions, const Job& job, const Quote* quote) {
  if (conditions.spares) return {*conditions.spares};
  const int64_t nodes = job.cluster.nodes;
  const int64_t enough =
      SparesFor(InRepair(conditions, static_cast<double>(nodes), conditions.failures.rate.value),
                conditions.run.shortage);
  std::vector<int64_t> counts;
  for (int64_t spares = 0; counts.empty() || counts.back() < enough; ++spares) {
    if (quote == nullptr || quote->Sells(nodes + spares)) counts.push_back(spares);
    if (quote != nullptr && nodes + spares >= quote->MostSold()) break;
  }
  return counts;
}

CheckpointCost CheckpointOf(const Conditions& conditions, const Job& job, const Offer* offer) {
  CheckpointCost cost;
  const double parameters = static_cast<double>(CountParameters(job.model).total);
  cost.bytes =
      Bytes(parameters * CheckpointBytesPerParameter(job.work.precision, job.work.optimizer));
  const StorageFacts& storage = conditions.storage;
  const auto offered = offer != nullptr ? offer->storage : std::nullopt;
  const bool offers_own = offered && !conditions.storage_given;
  if (!offers_own) cost.replaced = offered;
  cost.to_be_ordered = !offers_own && !storage.write;
  cost.file_system = offers_own      ? *offered
                     : storage.write ? *storage.write
                                     : cost.bytes / storage.write_within;
  BytesPerSecond write = cost.file_system;
  BytesPerSecond read = storage.read.value_or(cost.file_system);
  if (const auto front_end = FrontEnd(conditions, job)) {
    write = std::min(write, *front_end);
    read = std::min(read, *front_end);
  }
  const Seconds writing = cost.bytes / write;
  const Bytes per_gpu = cost.bytes / static_cast<double>(job.cluster.ranks());
  const BytesPerSecond link = HostLink(job) * conditions.checkpoint.copy_efficiency;
  cost.blocking = conditions.checkpoint.overhead;
  if (conditions.checkpoint.blocks)
    cost.blocking += writing;
  else if (link.value > 0)
    cost.blocking += per_gpu / link;
  cost.background = conditions.checkpoint.blocks ? Seconds(0) : writing;
  cost.load = cost.bytes / read;
  return cost;
}

InputNeed InputOf(const Conditions& conditions, const Job& job, const Strategy& layout,
                  double step_seconds) {
  InputNeed need;
  const double tokens =
      static_cast<double>(job.work.global_batch) * static_cast<double>(job.work.seq_len);
  need.taken = tokens / (step_seconds * conditions.run.straggler.value);
  need.read = BytesPerSecond(need.taken * conditions.input.bytes_per_token);
  if (conditions.input.reader) {
    // Ranks of one replica share their samples: one reader feeds them.
    need.most = *conditions.input.reader * static_cast<double>(layout.data_parallel());
    need.limit = "readers";
  }
  if (conditions.storage.read) {
    const double from_storage =
        conditions.storage.read->value / std::max(conditions.input.bytes_per_token, 1e-12);
    if (!need.most || from_storage < *need.most) {
      need.most = from_storage;
      need.limit = "storage";
    }
  }
  return need;
}

InputRates SearchInput(const Conditions& conditions) {
  const double straggler = conditions.run.straggler.value;
  InputRates rates;
  rates.slowest = straggler;
  rates.reader = conditions.input.reader.value_or(0) * straggler;
  if (conditions.storage.read)
    rates.storage = conditions.storage.read->value /
                    std::max(conditions.input.bytes_per_token, 1e-12) * straggler;
  return rates;
}

// Spares cost money and save waits.
RunEstimate BestRun(const Conditions& conditions, const Job& job, const Prediction& step,
                    const Quote* quote, const std::function<bool(const RunEstimate&)>& keeps) {
  std::optional<RunEstimate> best;
  std::pair<bool, double> least;
  for (const int64_t spares : SpareCounts(conditions, job, quote)) {
    RunEstimate run = EstimateRun(conditions, job, step, quote, spares);
    const auto paid = static_cast<double>(job.cluster.nodes + spares);
    const Seconds billed = quote != nullptr ? Billed(quote->price, run.time) : run.time;
    const std::pair value(!keeps(run), paid * billed.value * run.time.value);
    if (best && value >= least) continue;
    best = std::move(run);
    least = value;
  }
  return *best;
}

RunEstimate MeanRun(const Conditions& conditions, const Job& job, const Prediction& step,
                    const Quote* quote, int64_t spares, StopLosses* losses) {
  RunEstimate run;
  run.steps = StepsOf(conditions, step.tokens);
  run.checkpoint = CheckpointOf(conditions, job, quote != nullptr ? &quote->offer : nullptr);
  run.input = InputOf(conditions, job, step.strategy, step.time.total);
  run.step_seconds = run.input.bound() ? step.tokens / *run.input.most : step.time.total;
  run.slowest = Paced(run.input, step.tokens, step.time.total * conditions.run.straggler.value) /
                run.step_seconds;
  run.spot_rate = SpotRate(conditions, quote);
  if (run.spot_rate > 0) run.spot_notice = quote->offer.spot_notice.value_or(Seconds(0));
  run.spares = spares;
  run.ideal = Seconds(static_cast<double>(run.steps) * run.step_seconds);
  const double rate = conditions.failures.rate.value;
  run.stops = StopsOf(conditions, job, run.checkpoint, quote, rate, run.spares, run.Work());
  run.elastic = CanShrink(conditions, job, step.strategy);
  run.shared_states = run.elastic && step.strategy.zero > 0 && step.strategy.dp_outer == 1;
  const Played played = Play(conditions, job, step.strategy, run, quote, rate);
  run.interval = played.interval;
  run.interval_steps = played.interval_steps;
  run.goodput = played.goodput;
  run.expected_stops = played.stops;
  run.short_of_spares = played.short_of_spares;
  run.luck = played.luck;
  run.shrinking = played.shrinking;
  run.written = played.written;
  run.between_restores = played.between_restores;
  run.time = conditions.run.setup + played.time;
  if (losses != nullptr) *losses = played.losses;
  if (const double watts = RatedWatts(conditions.energy, job); watts > 0)
    run.energy_kwh =
        watts * conditions.energy.node_factor * conditions.energy.pue * run.time.value / 3.6e6;
  if (quote == nullptr) return run;
  run.billed = Billed(quote->price, run.time);
  run.cost = CostOf(*quote, job.cluster.nodes + run.spares, run.time);
  return run;
}

RunEstimate EstimateRun(const Conditions& conditions, const Job& job, const Prediction& step,
                        const Quote* quote, std::optional<int64_t> spares) {
  if (!spares)
    return BestRun(conditions, job, step, quote, [](const RunEstimate&) { return true; });
  StopLosses losses;
  RunEstimate run = MeanRun(conditions, job, step, quote, *spares, &losses);
  const bool interval = step.time.low > 0 && step.time.high > 0;
  const Range& straggler = conditions.run.straggler;
  // Of logarithms, in quadrature; what readers limit neither varies.
  const auto deviation = [&](double computed, double slowest) {
    const auto paced = [&](double seconds) { return Paced(run.input, step.tokens, seconds); };
    const double best = paced(step.time.total * straggler.value);
    return std::hypot(std::log(paced(computed * straggler.value) / best),
                      std::log(paced(step.time.total * slowest) / best)) /
           kDecile;
  };
  run.finish.SetSetup(conditions.run.setup);
  run.finish.SetFactor(deviation(interval ? step.time.low : step.time.total, straggler.low),
                       deviation(interval ? step.time.high : step.time.total, straggler.high));
  const Range& rate = conditions.failures.rate;
  const double rates[] = {rate.low, rate.value, rate.high};
  for (std::size_t i = 0; i < std::size(rates); ++i) {
    run.finish.AddRate(kWeightOfRate[i],
                       rates[i] == rate.value
                           ? losses
                           : Play(conditions, job, step.strategy, run, quote, rates[i]).losses);
  }
  run.low = run.finish.Quantile(0.1);
  run.high = run.finish.Quantile(0.9);
  if (quote == nullptr) return run;
  run.low_cost = CostOf(*quote, job.cluster.nodes + run.spares, run.low);
  run.high_cost = CostOf(*quote, job.cluster.nodes + run.spares, run.high);
  return run;
}

std::vector<LeastRun> BoundRuns(const Conditions& conditions, const Job& job,
                                double seconds_per_token, const Quote& quote) {
  const CheckpointCost checkpoint = CheckpointOf(conditions, job, &quote.offer);
  const double rate = conditions.failures.rate.value;
  std::vector<LeastRun> least;
  for (const int64_t spares : SpareCounts(conditions, job, &quote)) {
    const Seconds work(conditions.tokens * seconds_per_token *
                       conditions.run.straggler.value);  // or its readers'
    const StopModel stops = StopsOf(conditions, job, checkpoint, &quote, rate, spares, work);
    double goodput = Goodput(stops, OptimalInterval(stops, work));
    if (conditions.recovery.elastic)
      goodput = 1;  // a bound of what a job that shrinks loses is hardly worth its time
    const Seconds time = conditions.run.setup + work / goodput + stops.background;
    least.push_back({time, CostOf(quote, job.cluster.nodes + spares, time)});
  }
  return least;
}

// What rounds to nothing is said to be less than the least that is shown.
std::string WhyEndless(const RunEstimate& run) {
  // Would it finish if checkpoints were written and loaded at once?
  constexpr double kFinishes = 0.1, kDay = 86400;
  StopModel at_once = run.stops;
  at_once.background = Seconds(0);
  at_once.blocking = std::min(at_once.blocking, Seconds(60));
  at_once.restart = run.stops.restart - run.checkpoint.load;
  if (Goodput(at_once, OptimalInterval(at_once)) > kFinishes)
    return fmt::format("{}{:.3g} d to load, a stop comes every {:.3g} d (--storage)", kSlowStorage,
                       run.checkpoint.load.value / kDay, run.stops.between.value / kDay);
  const double goodput = run.goodput;
  return fmt::format(
      "does not finish: failures leave {} of the time",
      goodput < 0.0001 ? "less than 0.01 %" : fmt::format("{:.2g} %", 100 * goodput));
}

}  // namespace orrery
