// SPDX-License-Identifier: Apache-2.0
// Days, dollars and the details of a run.
#include "model/program/plan/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/provision/batch_range.h"
#include "model/report/short_number.h"

namespace orrery::report {
namespace {

constexpr double kSecondsPerDay = 86400;
constexpr double kSlowWrite = 300;  // a checkpoint that takes longer asks for another file system

std::string SpotWords(const RunEstimate& run, const Conditions& conditions) {
  return fmt::format(", and {} spot interruptions{}", ThreeDigits(run.spot_rate),
                     run.spot_rate == conditions.spot.rate.value
                         ? ", a floor: no source knows the rate of large groups"
                         : "");
}

// What each stop does to the replicas.
std::string AbsenceWords(const RunEstimate& run, const Conditions& conditions) {
  std::string words = fmt::format("the batch shrinks until a failed node is repaired ({})",
                                  Format(conditions.recovery.repair));
  if (run.spares > 0)
    words = fmt::format(
        "{} spare{} the place of failed nodes; {} of the failures find none, and the batch shrinks "
        "until a node is repaired ({})",
        run.spares, run.spares == 1 ? " takes" : "s take", ThreeDigits(run.short_of_spares),
        Format(conditions.recovery.repair));
  if (run.spot_rate > 0)
    words +=
        fmt::format(", or one that is reclaimed replaced ({})", Format(run.shrinking.replacement));
  return words;
}

std::string ShrinkingWords(const RunEstimate& run, const Conditions& conditions) {
  if (run.expected_stops == 0)
    return fmt::format("failures: none (--failures 0); goodput {}", Percent(run.goodput));
  return fmt::format(
      "failures: {} stops expected, one in {} ({} per 1000 node-days, {}{}); the other replicas go "
      "on after {}: {}; goodput {}{} (--failures, --recovery, --spares)",
      ThreeDigits(run.expected_stops), Days(run.stops.between),
      ThreeDigits(conditions.failures.rate.value), conditions.failures.title,
      run.spot_rate > 0 ? SpotWords(run, conditions) : "", Format(conditions.recovery.pause),
      AbsenceWords(run, conditions), Percent(run.goodput),
      run.shared_states ? "; ZeRO spreads the states over all replicas: this needs a copy of them "
                          "in the memory of peers"
                        : "");
}

// Whether what spot capacity announces saves the work.
std::string NoticeWords(const RunEstimate& run) {
  const Seconds checkpoint = run.checkpoint.blocking + run.checkpoint.background;
  if (run.spot_notice.value <= 0)
    return "spot: no notice of interruptions is known: each loses the work since the last "
           "checkpoint";
  return run.stops.with_notice > 0
             ? fmt::format(
                   "spot: the notice of {} suffices for a checkpoint ({}): interruptions lose no "
                   "work, failures do",
                   Format(run.spot_notice), Format(checkpoint))
             : fmt::format(
                   "spot: the notice of {} is too short for a checkpoint ({}): each interruption "
                   "loses the work since the last one (--storage)",
                   Format(run.spot_notice), Format(checkpoint));
}

std::string WaitWords(const RunEstimate& run) {
  const StopModel& stops = run.stops;
  if (stops.MeanWait() < stops.detection * 0.5) {
    return stops.MeanWait().value < 1
               ? ""
               : fmt::format(", wait for a node {}", Format(stops.MeanWait()));
  }
  return fmt::format(", wait for {} {} ({}{}: --spares)", run.spares == 0 ? "the repair" : "a node",
                     Format(stops.MeanWait()),
                     run.spares == 0 ? "no spare" : "spares are in repair, too",
                     run.spot_rate > 0 ? "; after failures alone" : "");
}

std::string StopWords(const RunEstimate& run, const Conditions& conditions) {
  const StopModel& stops = run.stops;
  if (conditions.failures.rate.value == 0 && run.spot_rate == 0)
    return fmt::format("failures: none (--failures 0); goodput {}", Percent(run.goodput));
  const Seconds lost =
      (stops.background + (run.interval + stops.blocking) * 0.5) * (1 - stops.with_notice);
  return fmt::format(
      "failures: {} stops expected, one in {} of running ({} per 1000 node-days, {}{}); each costs "
      "{} in the "
      "mean: detection and replacement {}{}, restart {}, lost work {}; goodput {} (--failures, "
      "--recovery)",
      ThreeDigits(run.expected_stops), Days(stops.between),
      ThreeDigits(conditions.failures.rate.value), conditions.failures.title,
      run.spot_rate > 0 ? SpotWords(run, conditions) : "",
      Format(lost + stops.detection + stops.MeanWait() + stops.restart), Format(stops.detection),
      WaitWords(run), Format(stops.restart), Format(lost), Percent(run.goodput));
}

// A checkpoint that is written for minutes, or so long that the next one waits for it; "": neither.
std::string SlowWriteWords(const RunEstimate& run) {
  const CheckpointCost& checkpoint = run.checkpoint;
  const Seconds writes = std::max(checkpoint.background, checkpoint.blocking);
  const Seconds wanted = checkpoint.blocking.value > 0
                             ? ExactInterval(run.between_restores, checkpoint.blocking)
                             : Seconds(0);
  const bool in_turn = wanted + checkpoint.blocking < checkpoint.background;
  if (writes.value <= kSlowWrite && !in_turn) return "";
  return fmt::format(
      "storage: a checkpoint takes {} to write{}: order a faster file system; {} write it in a "
      "minute (--storage)",
      Format(writes),
      in_turn
          ? fmt::format(", longer than from one to the next would be best ({}): {}", Format(wanted),
                        run.interval_steps >= run.steps ? "the run ends before the next one"
                                                        : "each waits for the one before")
      : checkpoint.background.value > 0 ? ""
                                        : ", and the GPUs wait for it",
      Format(checkpoint.bytes / Seconds(60)));
}

// "": the offer brings no file system, or it is used.
std::string ReplacedWords(const CheckpointCost& checkpoint) {
  return checkpoint.replaced
             ? fmt::format(", in place of the offer's own of {}", Format(*checkpoint.replaced))
             : "";
}

// A job that shrinks goes on from the memory of its replicas.
std::string IntervalWords(const RunEstimate& run) {
  const std::string every = fmt::format("every {} ({} step{})", Format(run.interval),
                                        run.interval_steps, run.interval_steps == 1 ? "" : "s");
  if (!run.elastic) return every;
  return fmt::format("{}, for a stop needs one only where no replica is left{}",
                     run.interval_steps >= run.steps ? "at the end of the run only" : every,
                     run.between_restores > run.time * 1000
                         ? ""
                         : fmt::format(", once in {}", Days(run.between_restores)));
}

std::vector<std::string> CheckpointWords(const RunEstimate& run, const Conditions& conditions) {
  const CheckpointCost& checkpoint = run.checkpoint;
  std::vector<std::string> lines = {fmt::format(
      "checkpoints: {} {}, {} blocked{}; file system of {}{} "
      "(--checkpoint, --storage)",
      OnStorage(checkpoint.bytes.value), IntervalWords(run), Format(checkpoint.blocking),
      checkpoint.background.value > 0
          ? fmt::format(", {} written behind the steps", Format(checkpoint.background))
          : "",
      Format(checkpoint.file_system),
      (checkpoint.to_be_ordered ? ", to be ordered" : "") + ReplacedWords(checkpoint))};
  if (conditions.storage.per_tib)
    lines.push_back(fmt::format("storage: {} bring that rate with {:.1f} TiB",
                                conditions.storage.title,
                                checkpoint.file_system / *conditions.storage.per_tib));
  if (const std::string slow = SlowWriteWords(run); !slow.empty()) lines.push_back(slow);
  return lines;
}

// Never 0 of what goes on.
std::string ShareWords(double share) { return share < 5e-4 ? "less than 0.1 %" : Percent(share); }

std::string InputWords(const RunEstimate& run, const Conditions& conditions) {
  const InputNeed& input = run.input;
  if (input.bound())
    return fmt::format(
        "INPUT-BOUND: limit of the {}: {} tokens/s, the GPUs take {}: the run goes at {} of their "
        "speed ({}; {})",
        input.limit, Scaled(*input.most), Scaled(input.taken),
        ShareWords(*input.most / input.taken), conditions.input.title, conditions.input.source);
  return fmt::format(
      "input: storage and hosts must deliver {} ({} tokens/s, as the slowest node takes them; "
      "{}{})",
      Format(input.read), Scaled(input.taken), conditions.input.title,
      input.most ? fmt::format("; limit of the {}: {} tokens/s", input.limit, Scaled(*input.most))
                 : "");
}

}  // namespace

namespace {

double UpToThreeDigits(double value) {
  if (!(value > 0)) return value;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::ceil(value / unit - 1e-9) * unit;
}

}  // namespace

Dollars EnoughMoney(Dollars money) { return Dollars(UpToThreeDigits(money.value)); }

Seconds EnoughDays(Seconds time) {
  // Days() has two decimals below ten.
  const double days = time.value / kSecondsPerDay;
  const double up = days < 10 ? std::ceil(days * 100 - 1e-9) / 100 : UpToThreeDigits(days);
  return Seconds(up * kSecondsPerDay);
}

std::string Days(Seconds time) { return DaysOf(time.value); }
std::string GivenDays(Seconds time) { return GivenDaysOf(time.value); }
std::string GivenMoney(Dollars money) { return GivenDollarsOf(money.value); }

std::string Money(Dollars money) { return DollarsOf(money.value); }

namespace {

// "24.9 d (22.0 to 28.5)"; with units where they differ.
std::string WithInterval(const std::string& value, const std::string& low,
                         const std::string& high) {
  std::string span = SpanOf(low, high);
  const std::size_t blank = value.rfind(' ');
  const std::string unit = blank == std::string::npos ? "" : value.substr(blank);
  if (low.ends_with(unit) && high.ends_with(unit)) span.resize(span.size() - unit.size());
  return fmt::format("{} ({})", value, span);
}

}  // namespace

std::string DaysWithInterval(const RunEstimate& run) {
  return WithInterval(Days(run.time), Days(run.low), Days(run.high));
}

std::string MoneyWithInterval(const RunEstimate& run) {
  return WithInterval(Money(run.cost), Money(run.low_cost), Money(run.high_cost));
}

namespace {

// The last checkpoint counts once it is written.
std::string LastWriteWords(const RunEstimate& run) {
  const Seconds write = run.stops.background;
  return write.value > 0 ? fmt::format("{} until the last checkpoint is written, ", Format(write))
                         : "";
}

}  // namespace

namespace {

std::string SlowestWords(const RunEstimate& run, const LongRunFacts& facts) {
  return ThreeDigits(run.slowest) +
         (run.slowest < facts.straggler.value
              ? fmt::format(" for the slowest node (of {}: it waits for its input, too)",
                            ThreeDigits(facts.straggler.value))
              : " for the slowest node");
}

// A mean may lie outside its own interval; nobody who is not told why believes either.
std::string MeanWords(const RunEstimate& run) {
  if (run.time <= run.high && run.time >= run.low) return "";
  return fmt::format(
      "{} is the mean, outside the interval of 80 %: {} runs meet few stops, and what the others "
      "lose to them is {}",
      Days(run.time), run.time > run.high ? "most" : "a few",
      run.time > run.high ? "much" : "little");
}

}  // namespace

std::vector<std::string> RunLines(const RunEstimate& run, const Conditions& conditions) {
  const LongRunFacts& facts = conditions.run;
  std::vector<std::string> lines = {
      fmt::format("time: {} step{} x {} x {} (--straggler) / goodput, {}and {} before the first "
                  "step (--setup)",
                  run.steps, run.steps == 1 ? "" : "s", Format(Seconds(run.step_seconds)),
                  SlowestWords(run, facts), LastWriteWords(run), Format(facts.setup))};
  if (const std::string mean = MeanWords(run); !mean.empty()) lines.push_back(mean);
  lines.push_back(run.elastic ? ShrinkingWords(run, conditions) : StopWords(run, conditions));
  if (run.spot_rate > 0 && !run.elastic) lines.push_back(NoticeWords(run));
  for (std::string& line : CheckpointWords(run, conditions)) lines.push_back(std::move(line));
  lines.push_back(InputWords(run, conditions));
  return lines;
}

std::string Bullets(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += fmt::format("  - {}\n", Fold(line, 4));
  return text;
}

std::string RangeWords(const BatchRange& range, const BatchFacts& facts) {
  std::string words;
  if (range.below > 0)
    words = fmt::format(
        "extrapolated: no published dense run had fewer than {} tokens, and batches grow with "
        "them; ",
        Count(range.below));
  if (range.beyond > 0)
    return fmt::format(
        "extrapolated: published dense runs had up to {} tokens, and no larger batches; {}",
        Count(range.beyond), facts.source);
  if (!range.by)
    return words + fmt::format("up to the published {} of {} tokens, scaled with tokens^{}: {}",
                               Scaled(facts.anchor_batch), Count(facts.anchor_tokens),
                               facts.exponent, facts.source);
  words += fmt::format("at most {}'s {}", range.by->run, Scaled(range.by->published.batch));
  if (range.by->more)
    words += fmt::format(
        " of {} tokens, less with the square of fewer tokens, as published batches fell there",
        Count(range.by->published.tokens));
  return words;
}

std::string LargeBatch(double batch_tokens, double tokens, const BatchFacts& facts) {
  const BatchRange range = BatchRangeFor(facts, tokens);
  if (batch_tokens <= range.most * 1.001) return "";
  return fmt::format(
      "batch: {} tokens per step are beyond what dense models published for {} tokens (up to {}): "
      "expect more tokens for the same loss (--global-batch). {}",
      Scaled(batch_tokens), range.beyond > 0 ? "up to " + Count(range.beyond) : Count(tokens),
      Scaled(range.most), facts.source);
}

nlohmann::ordered_json RunJson(const RunEstimate& run) {
  nlohmann::ordered_json json = {{"spares", run.spares},
                                 {"steps", run.steps},
                                 {"step_time_s", run.step_seconds},
                                 {"slowest_node", run.slowest},
                                 {"ideal_s", run.ideal.value},
                                 {"goodput", run.goodput},
                                 {"mtbf_s", run.stops.between.value},
                                 {"expected_failures", run.expected_stops},
                                 {"elastic", run.elastic}};
  if (run.elastic) json["failures_without_spare"] = run.short_of_spares;
  json["checkpoint"] = {{"bytes", run.checkpoint.bytes.value},
                        {"blocking_s", run.checkpoint.blocking.value},
                        {"background_s", run.checkpoint.background.value},
                        {"load_s", run.checkpoint.load.value},
                        {"interval_s", run.interval.value},
                        {"interval_steps", run.interval_steps},
                        {"file_system_bytes_per_s", run.checkpoint.file_system.value},
                        {"file_system_to_be_ordered", run.checkpoint.to_be_ordered},
                        {"file_system_words", ReplacedWords(run.checkpoint)},
                        {"warning", SlowWriteWords(run)}};
  json["recovery"] = run.elastic ? nlohmann::ordered_json{{"pause_s", run.shrinking.pause.value}}
                                 : nlohmann::ordered_json{{"detect_s", run.stops.detection.value},
                                                          {"wait_s", run.stops.MeanWait().value},
                                                          {"restart_s", run.stops.restart.value}};
  if (run.elastic)
    json["shrinking"] = {{"between_restores_s", run.between_restores.value},
                         {"away", run.shrinking.Away()}};
  if (run.spot_rate > 0)
    json["spot"] = {{"interruptions_per_1000_node_days", run.spot_rate},
                    {"notice_s", run.spot_notice.value},
                    {"notice_saves_the_work", run.stops.with_notice > 0},
                    {"words", NoticeWords(run)}};
  json["input"] = {{"tokens_per_s", run.input.taken},
                   {"read_bytes_per_s", run.input.read.value},
                   {"limit_tokens_per_s", run.input.most ? nlohmann::ordered_json(*run.input.most)
                                                         : nlohmann::ordered_json()},
                   {"limited_by", run.input.limit},
                   {"input_bound", run.input.bound()}};
  json["time_s"] = run.time.value;
  json["time_interval_s"] = {run.low.value, run.high.value};
  json["luck_s"] = run.luck.value;
  json["billed_s"] = run.billed.value;
  json["cost_usd"] = run.cost.value;
  json["cost_interval_usd"] = {run.low_cost.value, run.high_cost.value};
  json["energy_kwh"] =
      run.energy_kwh ? nlohmann::ordered_json(*run.energy_kwh) : nlohmann::ordered_json();
  return json;
}

}  // namespace orrery::report
