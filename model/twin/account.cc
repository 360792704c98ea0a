// SPDX-License-Identifier: Apache-2.0
// Sweeps over one rank's spans: what communication it waits for, how much of it is contention.
#include "model/twin/account.h"

#include <algorithm>
#include <array>
#include <map>

#include "model/engine/network/wires.h"

namespace orrery {
namespace {

// Rows of the account.
enum Row { kCompute, kTensor, kData, kPipeline, kWaiting, kRows };
constexpr std::array<const char*, kRows> kRowNames = {"compute", "tensor-parallel communication",
                                                      "data-parallel communication",
                                                      "transfers between stages", "waiting"};

std::size_t At(int64_t index) { return static_cast<std::size_t>(index); }

// Which axes' ranks meet on a line decides where its communication is booked.
Row RowOf(const ir::Plan& plan, const sim::Line& line) {
  const uint16_t axes =
      line.axis >= 0 ? static_cast<uint16_t>(1 << line.axis) : plan.groups[At(line.group)].axes;
  const auto along = [&](const char* name) {
    const int axis = plan.mesh.AxisIndex(name);
    return axis >= 0 && (axes >> axis & 1) != 0;
  };
  if (along("dp") || along("dpo")) return kData;
  return along("pp") ? kPipeline : kTensor;
}

class Account {
 public:
  Account(const PlayedStep& step, std::vector<SimulatedTerm>* terms)
      : step_(step), terms_(*terms), rank_(Busiest()) {
    const auto stage =
        At(step.plan.mesh.Coords(step.result.ranks[rank_])[At(step.plan.mesh.program_axis)]);
    tasks_ = &step.tasks.stages[stage];
    for (const sim::LineMessages& line : step.tasks.lines)
      rows_.push_back(RowOf(step.plan, line.line));
  }

  void Fill() {
    const sim::RankTime& time = step_.result.times[rank_];
    terms_[kCompute].simulated = time.compute + time.overlapped;
    Sweep();
    double booked = terms_[kCompute].simulated;
    for (const Row row : {kTensor, kData, kPipeline}) booked += terms_[row].simulated;
    terms_[kWaiting].simulated = std::max(0.0, step_.result.seconds - booked);
    AddContention();
    for (const Row row : {kTensor, kData, kPipeline}) NameSharedLink(row);
  }

 private:
  struct Edge {
    double date = 0;
    int row = 0;
    int change = 0;
  };

  std::size_t Busiest() const {
    const std::vector<sim::RankTime>& times = step_.result.times;
    std::size_t busiest = 0;
    for (std::size_t r = 1; r < times.size(); ++r) {
      if (times[r].compute + times[r].overlapped >
          times[busiest].compute + times[busiest].overlapped)
        busiest = r;
    }
    return busiest;
  }

  // Time with communication and without compute, shared evenly among what is under way.
  void Sweep() {
    std::vector<Edge> edges;
    const std::vector<sim::TaskSpan>& spans = step_.timeline[rank_];
    for (std::size_t t = 0; t < spans.size(); ++t) {
      const int32_t line = tasks_->tasks[t].line;
      const int row = line < 0 ? kCompute : rows_[At(line)];
      const double begin = line < 0 ? spans[t].start : spans[t].met;
      if (spans[t].end <= begin) continue;
      edges.push_back({begin, row, 1});
      edges.push_back({spans[t].end, row, -1});
    }
    std::stable_sort(edges.begin(), edges.end(),
                     [](const Edge& a, const Edge& b) { return a.date < b.date; });
    std::array<int, kRows> under_way{};
    double since = 0;
    for (const Edge& edge : edges) {
      const int messages = under_way[kTensor] + under_way[kData] + under_way[kPipeline];
      if (under_way[kCompute] == 0 && messages > 0) {
        for (const Row row : {kTensor, kData, kPipeline})
          terms_[row].simulated += (edge.date - since) * under_way[row] / messages;
      }
      under_way[At(edge.row)] += edge.change;
      since = edge.date;
    }
  }

  const sim::Meeting& MeetingOf(const sim::Task& task) const {
    return step_.meetings.meetings[At(step_.meetings.of[At(2 * task.line + task.receives)][rank_])];
  }

  // What exchanges took beyond their time with all links to themselves.
  void AddContention() {
    std::map<const sim::Exchange*, double> alone;
    for (std::size_t t = 0; t < tasks_->tasks.size(); ++t) {
      const sim::Task& task = tasks_->tasks[t];
      if (task.line < 0) continue;
      const sim::Exchange& exchange =
          step_.meetings.exchanges[At(MeetingOf(task).first_exchange + task.message)];
      if (exchange.route < 0 || step_.meetings.routes[At(exchange.route)].alone >= 0) continue;
      const auto [at, added] = alone.try_emplace(&exchange, 0.0);
      if (added) at->second = Alone(exchange);
      const sim::TaskSpan& span = step_.timeline[rank_][t];
      terms_[rows_[At(task.line)]].contention += std::max(0.0, span.end - span.met - at->second);
    }
  }

  double Alone(const sim::Exchange& exchange) const {
    double seconds = exchange.latency;
    for (const auto& phase : step_.meetings.routes[At(exchange.route)].phases) {
      double longest = 0;
      for (const sim::Route::Job& job : phase) {
        longest = std::max(longest, job.bytes * exchange.bytes /
                                        step_.meetings.network->AloneRate(job.path).value);
      }
      seconds += longest;
    }
    return seconds;
  }

  // The link of this row's own traffic that is loaded most.
  void NameSharedLink(Row row) {
    if (terms_[row].contention <= 0) return;
    const std::vector<double> own = SecondsOnLinks(row, true);
    std::array<std::vector<double>, kRows> all;
    for (const Row other : {kTensor, kData, kPipeline}) all[other] = SecondsOnLinks(other, false);
    std::size_t fullest = 0;
    double most = 0;
    for (std::size_t link = 0; link < own.size(); ++link) {
      const double load = all[kTensor][link] + all[kData][link] + all[kPipeline][link];
      if (own[link] <= 0 || load <= most) continue;
      most = load, fullest = link;
    }
    if (most <= 0) return;
    terms_[row].shared_link = net::LinkName(step_.cluster, static_cast<LinkId>(fullest));
    for (const Row other : {kTensor, kData, kPipeline}) {
      if (other != row && all[other][fullest] > 0)
        terms_[row].shared_with.push_back(kRowNames[other]);
    }
  }

  // By link: seconds at full rate that exchanges of a row keep it busy; of this rank's meetings
  // only, or of all.
  std::vector<double> SecondsOnLinks(Row row, bool own) const {
    std::vector<double> through(step_.meetings.routes.size(), 0.0);
    const auto add = [&](std::size_t r, const sim::StageTasks& stage) {
      for (const sim::Task& task : stage.tasks) {
        if (task.line < 0 || rows_[At(task.line)] != row) continue;
        const int32_t m = step_.meetings.of[At(2 * task.line + task.receives)][r];
        const sim::Meeting& meeting = step_.meetings.meetings[At(m)];
        const sim::Exchange& exchange =
            step_.meetings.exchanges[At(meeting.first_exchange + task.message)];
        if (exchange.route < 0) continue;
        through[At(exchange.route)] += exchange.bytes / (own ? 1 : meeting.needed);
      }
    };
    for (std::size_t r = 0; r < step_.result.ranks.size(); ++r) {
      if (own && r != rank_) continue;
      add(r, step_.tasks.stages[At(
                 step_.plan.mesh.Coords(step_.result.ranks[r])[At(step_.plan.mesh.program_axis)])]);
    }
    std::vector<double> seconds(step_.cluster.links.size(), 0.0);
    for (std::size_t route = 0; route < through.size(); ++route) {
      if (through[route] <= 0) continue;
      for (const net::LinkUse& use : step_.meetings.link_shares[route]) {
        seconds[At(use.link)] +=
            use.weight * through[route] / step_.cluster.links[At(use.link)].capacity.value;
      }
    }
    return seconds;
  }

  const PlayedStep& step_;
  std::vector<SimulatedTerm>& terms_;
  const std::size_t rank_;  // index into ranks
  const sim::StageTasks* tasks_ = nullptr;
  std::vector<Row> rows_;  // by line
};

}  // namespace

std::vector<SimulatedTerm> AccountStep(const PlayedStep& step, const StepTime& time) {
  std::vector<SimulatedTerm> terms(kRows);
  for (std::size_t row = 0; row < kRows; ++row) terms[row].term = kRowNames[row];
  terms[kCompute].closed = time.compute + time.host + time.optimizer;
  terms[kTensor].closed = time.tensor_exposed;
  terms[kData].closed = time.data_exposed + time.gather_exposed;
  terms[kPipeline].closed = time.pipeline_exposed;
  terms[kWaiting].closed = time.bubble;
  Account(step, &terms).Fill();
  return terms;
}

}  // namespace orrery
