// SPDX-License-Identifier: Apache-2.0
// Times as tables and bars.
#include "model/report/time_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "model/base/text.h"
#include "model/report/table.h"

namespace orrery::report {
namespace {

constexpr int kTimeBarWidth = 22;
constexpr double kLeastTimeShown = 5e-4;  // of the total

constexpr std::pair<const char*, double> kTimeUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3},
                                                         {"s", 1},     {"min", 60},  {"h", 3600}};

constexpr TimeTerm kTerms[] = {
    {"compute_s", "compute: kernels of forward, backward and recomputation", &StepTime::compute},
    {"host_s", "GPU waits for the host that issues its kernels", &StepTime::host},
    {"tensor_exposed_s", "tensor-parallel communication", &StepTime::tensor_exposed},
    {"gather_exposed_s", "ZeRO 3: weights gathered, gradients scattered",
     &StepTime::gather_exposed},
    {"data_exposed_s", "gradient reduction and weight gathering between replicas",
     &StepTime::data_exposed},
    {"pipeline_exposed_s", "transfers between pipeline stages", &StepTime::pipeline_exposed},
    {"bubble_s", "pipeline bubble: stages wait for each other", &StepTime::bubble},
    {"optimizer_s", "optimizer update", &StepTime::optimizer},
    {"fixed_s", "fixed costs of a step", &StepTime::fixed},
};

}  // namespace

std::span<const TimeTerm> TimeTerms() { return kTerms; }

std::string TimeWithInterval(const StepTime& time) {
  const std::string total = Format(Seconds(time.total));
  const std::string unit = total.substr(total.find(' ') + 1);
  double factor = 1;
  for (const auto& [name, seconds] : kTimeUnits) {
    if (unit == name) factor = seconds;
  }
  const auto in_unit = [&](double seconds) {
    const double number = seconds / factor;
    return fmt::format("{:.{}f}", number, number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2);
  };
  return fmt::format("{} ({} to {})", total, in_unit(time.low), in_unit(time.high));
}

std::string Breakdown(const StepTime& time) {
  std::vector<const TimeTerm*> terms;
  for (const TimeTerm& term : kTerms) {
    if (time.*term.seconds > kLeastTimeShown * time.total) terms.push_back(&term);
  }
  std::stable_sort(terms.begin(), terms.end(), [&](const TimeTerm* a, const TimeTerm* b) {
    return time.*a->seconds > time.*b->seconds;
  });
  Table table({{""}, {"", true}, {"", true}, {""}});
  for (const TimeTerm* term : terms) {
    const double seconds = time.*term->seconds;
    table.Row({term->words, Format(Seconds(seconds)), Percent(seconds / time.total),
               Bar(seconds / time.total, kTimeBarWidth)});
  }
  std::string text = table.Text(2, false);
  if (time.overlapped > 0) {
    text += fmt::format("  Beside compute, at no cost of its own: {} of communication.\n",
                        Format(Seconds(time.overlapped)));
  }
  return text;
}

nlohmann::ordered_json TimeJson(const StepTime& time) {
  nlohmann::ordered_json json;
  for (const TimeTerm& term : kTerms) json[term.key] = time.*term.seconds;
  json["overlapped_s"] = time.overlapped;
  return json;
}

}  // namespace orrery::report
