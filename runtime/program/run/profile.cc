// SPDX-License-Identifier: Apache-2.0
// Sums spans, gathers them from all ranks, prints them.
#include "runtime/program/run/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/base/text.h"
#include "model/plan/ir/text_words.h"
#include "model/price/op_term.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"
#include "runtime/comm/gather.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProfileBarWidth = 22;
constexpr const char* kClassNames[] = {
    "matrix products", "attention", "memory-bound kernels",       "optimizer", "collectives",
    "point-to-point",  "input",     "copies to and from the host"};

const char* ClassName(ir::OpClass op_class) {
  return kClassNames[static_cast<std::size_t>(op_class)];
}
std::string PhaseName(ir::Phase phase) {
  return std::string(ir::kPhaseWords[static_cast<std::size_t>(phase)]);
}
bool Communicates(const exec::Task& task) { return task.line >= 0 || task.channel >= 0; }

// How much of the time before a moment kernels took.
class KernelTime {
 public:
  explicit KernelTime(std::vector<exec::OpSpan> spans) : spans_(std::move(spans)) {
    std::sort(spans_.begin(), spans_.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    before_.push_back(0);
    for (const exec::OpSpan& span : spans_)
      before_.push_back(before_.back() + span.end - span.begin);
  }
  int64_t Before(int64_t moment) const {
    const auto next =
        std::upper_bound(spans_.begin(), spans_.end(), moment,
                         [](int64_t at, const exec::OpSpan& span) { return at < span.begin; });
    if (next == spans_.begin()) return 0;
    const auto last = static_cast<std::size_t>(next - spans_.begin()) - 1;
    return before_[last] + std::min(moment, spans_[last].end) - spans_[last].begin;
  }

 private:
  std::vector<exec::OpSpan> spans_;
  std::vector<int64_t> before_;
};

std::vector<double Breakdown::*> AllTerms() {
  std::vector<double Breakdown::*> terms;
  for (const BreakdownTerm& term : BreakdownTerms()) terms.push_back(term.seconds);
  for (const CommAxis axis : kCommAxes) terms.push_back(HiddenOf(axis));
  return terms;
}

Json ToJson(const StepProfile& profile) {
  Json ops = Json::array();
  for (const auto& [key, times] : profile.ops) {
    ops.push_back({static_cast<int>(key.first), static_cast<int>(key.second), times.kernels,
                   times.in_flight, times.exposed});
  }
  Json terms = Json::array();
  for (double Breakdown::*const term : AllTerms()) terms.push_back(profile.breakdown.*term);
  return {{"steps", profile.steps}, {"seconds", profile.seconds}, {"ops", ops}, {"terms", terms}};
}

void AddRank(const std::string& text, double weight, StepProfile* mean) {
  const Json json = Json::parse(text);
  mean->steps = json["steps"];
  if (mean->steps == 0) return;
  weight /= static_cast<double>(mean->steps);
  mean->seconds += weight * json["seconds"].get<double>();
  for (const Json& op : json["ops"]) {
    const std::pair key(static_cast<ir::Phase>(op[0].get<int>()),
                        static_cast<ir::OpClass>(op[1].get<int>()));
    mean->ops[key].Add({op[2], op[3], op[4]}, weight);
  }
  std::size_t i = 0;
  for (double Breakdown::*const term : AllTerms())
    mean->breakdown.*term += weight * json["terms"][i++].get<double>();
}

std::string Part(double seconds, double step) {
  if (seconds == 0) return "";
  return fmt::format("{} ({})", Format(Seconds(seconds)), report::Percent(seconds / step));
}

std::string PhaseTable(const StepProfile& profile) {
  std::map<ir::Phase, OpTimes> phases;
  for (const auto& [key, times] : profile.ops) phases[key.first].Add(times);
  report::Table table({{"phase"},
                       {"kernels", true},
                       {"communication\nexposed", true},
                       {"communication\nin flight", true}});
  for (const auto& [phase, times] : phases) {
    table.Row({PhaseName(phase), Part(times.kernels, profile.seconds),
               Part(times.exposed, profile.seconds), Part(times.in_flight, profile.seconds)});
  }
  return table.Text();
}

std::string ClassTable(const StepProfile& profile) {
  std::map<ir::OpClass, double> classes;
  for (const auto& [key, times] : profile.ops) classes[key.second] += times.kernels + times.exposed;
  report::Table table({{""}, {"", true}, {"", true}, {""}});
  for (const auto& [op_class, seconds] : classes) {
    const double share = seconds / profile.seconds;
    table.Row({ClassName(op_class), Format(Seconds(seconds)), report::Percent(share),
               report::Bar(share, kProfileBarWidth)});
  }
  return table.Text(2, false);
}

}  // namespace

void OpTimes::Add(const OpTimes& other, double weight) {
  kernels += weight * other.kernels;
  in_flight += weight * other.in_flight;
  exposed += weight * other.exposed;
}

OpTimes StepProfile::total() const {
  OpTimes total;
  for (const auto& [key, times] : ops) total.Add(times);
  return total;
}

void AddStep(const ir::Plan& plan, const exec::Executor& executor, double seconds,
             StepProfile* profile) {
  const std::vector<exec::Task>& tasks = executor.image().tasks;
  const std::vector<exec::OpSpan>& spans = executor.spans();
  Breakdown step;
  std::vector<exec::OpSpan> kernels;
  std::vector<std::size_t> messages;
  const auto times = [&](std::size_t t) -> OpTimes& {
    const ir::Op& op = *tasks[t].op;
    return profile->ops[{op.phase, ir::Info(op.kind).op_class}];
  };
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (Communicates(tasks[t])) {
      messages.push_back(t);
      continue;
    }
    kernels.push_back(spans[t]);
    const double kernel = 1e-9 * static_cast<double>(spans[t].end - spans[t].begin);
    times(t).kernels += kernel;
    step.*TermOf(plan, *tasks[t].op) += kernel;
  }
  const KernelTime kernel_time(std::move(kernels));
  std::sort(messages.begin(), messages.end(),
            [&](std::size_t a, std::size_t b) { return spans[a].begin < spans[b].begin; });
  int64_t counted = 0;  // what is in flight before this moment has been counted
  for (const std::size_t t : messages) {
    const exec::OpSpan& span = spans[t];
    const CommAxis axis = AxisOf(plan, *tasks[t].op);
    const double in_flight = 1e-9 * static_cast<double>(span.end - span.begin);
    times(t).in_flight += in_flight;
    step.*HiddenOf(axis) += in_flight;
    const int64_t begin = std::max(span.begin, counted);
    if (begin >= span.end) continue;
    const int64_t covered = kernel_time.Before(span.end) - kernel_time.Before(begin);
    const double exposed = 1e-9 * static_cast<double>(span.end - begin - covered);
    times(t).exposed += exposed;
    step.*ExposedOf(axis) += exposed;
    step.*HiddenOf(axis) -= exposed;
    counted = span.end;
  }
  step.host = std::max(0.0, seconds - step.Total());
  for (double Breakdown::*const term : AllTerms()) profile->breakdown.*term += step.*term;
  ++profile->steps;
  profile->seconds += seconds;
}

void ProfileHook::AfterStep(exec::Executor* executor, const launch::StepRecord& record) {
  if (!wanted_) return;
  if (sum_.steps == 1 && first_) {
    sum_ = {};
    first_ = false;
  }
  AddStep(plan_, *executor, record.result.seconds, &sum_);
}

void ProfileHook::AfterTraining(exec::Executor*) {
  if (wanted_) GatherProfile(sum_, endpoint_, deadline_s_, result_);
}

void GatherProfile(const StepProfile& own, comm::Endpoint* endpoint, double deadline_s,
                   StepProfile* mean) {
  const auto texts = comm::GatherText(endpoint, ToJson(own).dump(), deadline_s);
  if (endpoint->rank() != 0) return;
  mean->ranks = static_cast<int64_t>(texts.size());
  for (const std::string& text : texts)
    AddRank(text, 1.0 / static_cast<double>(texts.size()), mean);
}

std::string ProfileText(const StepProfile& profile) {
  if (profile.steps == 0) return "";
  return fmt::format("\nWhere the step of {} goes: mean of {} rank{} and {} step{}\n",
                     Format(Seconds(profile.seconds)), profile.ranks, profile.ranks == 1 ? "" : "s",
                     profile.steps, profile.steps == 1 ? "" : "s") +
         report::BreakdownTable(profile.breakdown, profile.seconds) +
         "\nBy phase; exposed: no kernel runs meanwhile\n" + PhaseTable(profile) +
         "\nBy kind of op\n" + ClassTable(profile);
}

Json ProfileJson(const StepProfile& profile) {
  const OpTimes total = profile.total();
  const double step = profile.steps == 0 ? 1 : profile.seconds;
  Json ops = Json::array();
  for (const auto& [key, times] : profile.ops) {
    ops.push_back({{"phase", PhaseName(key.first)},
                   {"class", ClassName(key.second)},
                   {"kernels_s", times.kernels},
                   {"in_flight_s", times.in_flight},
                   {"exposed_s", times.exposed}});
  }
  return {{"ranks", profile.ranks},
          {"steps", profile.steps},
          {"step_s", profile.seconds},
          {"share_of_kernels", total.kernels / step},
          {"share_of_communication", total.exposed / step},
          {"ops", ops}};
}

}  // namespace orrery::cli
