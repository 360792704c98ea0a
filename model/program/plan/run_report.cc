// SPDX-License-Identifier: Apache-2.0
// Days, dollars and the details of a run.
#include "model/program/plan/run_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/provision/batch_range.h"

namespace orrery::report {
namespace {

constexpr double kSecondsPerDay = 86400;
constexpr double kSlowWrite = 3600;  // a checkpoint that takes longer asks for another file system

std::string Item(const std::string& words) { return fmt::format("  - {}\n", Fold(words, 4)); }

std::string ShrinkingWords(const RunEstimate& run, const Conditions& conditions) {
  if (conditions.failures.rate.value == 0)
    return fmt::format("failures: none (--failures 0); goodput {}", Percent(run.goodput));
  return fmt::format(
      "failures: {} expected (one in {}); the other replicas go on after {}, the batch shrinks "
      "until the node is back; goodput {}{} (--failures, --recovery)",
      ThreeDigits(run.expected_stops), Days(run.stops.between), Format(conditions.recovery.pause),
      Percent(run.goodput),
      run.shared_states ? "; ZeRO spreads the states over all replicas: this needs a copy of them "
                          "in the memory of peers"
                        : "");
}

std::string StopWords(const RunEstimate& run, const Conditions& conditions, double spot_rate) {
  const StopModel& stops = run.stops;
  const Seconds lost = stops.background + (run.interval + stops.blocking) * 0.5;
  const bool waits = run.spares == 0 && stops.detection > conditions.recovery.detection * 10;
  const std::string spot =
      spot_rate > 0 ? fmt::format(", and {} spot interruptions{}", ThreeDigits(spot_rate),
                                  spot_rate == conditions.spot.rate.value
                                      ? ", a floor: no source knows the rate of large groups"
                                      : "")
                    : "";
  if (conditions.failures.rate.value == 0 && spot_rate == 0)
    return fmt::format("failures: none (--failures 0); goodput {}", Percent(run.goodput));
  return fmt::format(
      "failures: {} stops expected, one in {} ({} per 1000 node-days, {}{}); each costs {} in the "
      "mean: detection and replacement {}{}, restart {}, lost work {}; goodput {} (--failures, "
      "--recovery)",
      ThreeDigits(run.expected_stops), Days(stops.between),
      ThreeDigits(conditions.failures.rate.value), conditions.failures.title, spot,
      Format(lost + stops.detection + stops.restart), Format(stops.detection),
      waits ? " (no spare: it waits for the repair, --spares)" : "", Format(stops.restart),
      Format(lost), Percent(run.goodput));
}

std::string CheckpointWords(const RunEstimate& run, const Conditions& conditions) {
  const CheckpointCost& checkpoint = run.checkpoint;
  constexpr double kGb = 1e9;
  std::string text = Item(fmt::format(
      "checkpoints: {:.3g} GB every {} ({} step{}), {} blocked{}; file system of {}{} "
      "(--checkpoint, --storage)",
      checkpoint.bytes.value / kGb, Format(run.interval), run.interval_steps,
      run.interval_steps == 1 ? "" : "s", Format(checkpoint.blocking),
      checkpoint.background.value > 0
          ? fmt::format(", {} written behind the steps", Format(checkpoint.background))
          : "",
      Format(checkpoint.file_system), checkpoint.to_be_ordered ? ", to be ordered" : ""));
  if (conditions.storage.per_tib)
    text +=
        Item(fmt::format("storage: {} bring that rate with {:.1f} TiB", conditions.storage.title,
                         checkpoint.file_system / *conditions.storage.per_tib));
  if (checkpoint.background.value > kSlowWrite)
    text +=
        Item(fmt::format("storage: a checkpoint takes {} to write: order a faster file "
                         "system; {} write it in a minute",
                         Format(checkpoint.background), Format(checkpoint.bytes / Seconds(60))));
  return text;
}

std::string InputWords(const RunEstimate& run, const Conditions& conditions,
                       double tokens_per_second) {
  const InputNeed& input = run.input;
  if (input.bound())
    return fmt::format(
        "INPUT-BOUND: limit of the {}: {} tokens/s, the GPUs take {}: the run goes at {} of their "
        "speed ({}; {})",
        input.limit, Scaled(*input.most), Scaled(input.tokens_per_second),
        Percent(*input.most / input.tokens_per_second), conditions.input.title,
        conditions.input.source);
  return fmt::format(
      "input: storage and hosts must deliver {} ({} tokens/s of {}{})", Format(input.read),
      Scaled(tokens_per_second), conditions.input.title,
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

std::string Days(Seconds time) { return ThreeDigits(time.value / kSecondsPerDay) + " d"; }

std::string Money(Dollars money) {
  const double value = money.value;
  if (std::abs(value) >= 999.5e3) return ThreeDigits(value / 1e6) + " MUSD";
  if (std::abs(value) >= 999.5) return ThreeDigits(value / 1e3) + " kUSD";
  return ThreeDigits(value) + " USD";
}

std::string DaysWithInterval(const RunEstimate& run) {
  return fmt::format("{} ({} to {})", Days(run.time), ThreeDigits(run.low.value / kSecondsPerDay),
                     ThreeDigits(run.high.value / kSecondsPerDay));
}

std::string MoneyWithInterval(const RunEstimate& run) {
  const double unit = run.cost.value >= 999.5e3 ? 1e6 : run.cost.value >= 999.5 ? 1e3 : 1;
  return fmt::format("{} ({} to {})", Money(run.cost), ThreeDigits(run.low_cost.value / unit),
                     ThreeDigits(run.high_cost.value / unit));
}

std::string RunDetails(const RunEstimate& run, const Conditions& conditions,
                       double tokens_per_second, double spot_rate) {
  const LongRunFacts& facts = conditions.run;
  return Item(fmt::format("time: {} steps x {} x {} for the slowest node (--straggler) / goodput, "
                          "and {} before the first step (--setup)",
                          run.steps, Format(Seconds(run.step_seconds)),
                          ThreeDigits(facts.straggler.value), Format(facts.setup))) +
         Item(run.elastic ? ShrinkingWords(run, conditions)
                          : StopWords(run, conditions, spot_rate)) +
         CheckpointWords(run, conditions) + Item(InputWords(run, conditions, tokens_per_second));
}

std::string LargeBatch(double batch_tokens, double tokens, const BatchFacts& facts) {
  const BatchRange range = BatchRangeFor(facts, tokens);
  if (batch_tokens <= range.most * 1.001) return "";
  return fmt::format(
      "batch: {} tokens per step are beyond what dense models published for {} tokens (up to {}): "
      "expect "
      "more tokens for the same loss (--global-batch). {}",
      Scaled(batch_tokens), Count(tokens), Scaled(range.most), facts.source);
}

nlohmann::ordered_json RunJson(const RunEstimate& run) {
  using Json = nlohmann::ordered_json;
  Json json = {{"spares", run.spares},
               {"steps", run.steps},
               {"step_time_s", run.step_seconds},
               {"ideal_s", run.ideal.value},
               {"goodput", run.goodput},
               {"mtbf_s", run.stops.between.value},
               {"expected_failures", run.expected_stops},
               {"elastic", run.elastic}};
  json["checkpoint"] = {{"bytes", run.checkpoint.bytes.value},
                        {"blocking_s", run.checkpoint.blocking.value},
                        {"background_s", run.checkpoint.background.value},
                        {"load_s", run.checkpoint.load.value},
                        {"interval_s", run.interval.value},
                        {"interval_steps", run.interval_steps},
                        {"file_system_bytes_per_s", run.checkpoint.file_system.value},
                        {"file_system_to_be_ordered", run.checkpoint.to_be_ordered}};
  json["recovery"] = {{"detect_s", run.stops.detection.value},
                      {"restart_s", run.stops.restart.value}};
  json["input"] = {{"tokens_per_s", run.input.tokens_per_second},
                   {"read_bytes_per_s", run.input.read.value},
                   {"limit_tokens_per_s", run.input.most ? Json(*run.input.most) : Json()},
                   {"limited_by", run.input.limit},
                   {"input_bound", run.input.bound()}};
  json["time_s"] = run.time.value;
  json["time_interval_s"] = {run.low.value, run.high.value};
  json["luck_s"] = run.luck.value;
  json["billed_s"] = run.billed.value;
  json["cost_usd"] = run.cost.value;
  json["cost_interval_usd"] = {run.low_cost.value, run.high_cost.value};
  return json;
}

}  // namespace orrery::report
