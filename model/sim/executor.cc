// SPDX-License-Identifier: Apache-2.0
// The executor: streams, counters, rendezvous.
#include "model/sim/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/input/check.h"
#include "model/input/diagnostics.h"
#include "model/sim/index.h"

namespace orrery::sim {
namespace {

constexpr int kMostStuck = 8;  // streams that a deadlock message names

// Uniform in [-1, 1), the same for the same numbers (SplitMix64, Steele, Lea, Flood 2014).
double Noise(uint64_t seed, uint64_t rank, uint64_t task) {
  uint64_t z = seed * 0x9E3779B97F4A7C15u + rank * 0xD1B54A32D192ED03u + task * 0x8CB92BA72F3D8DD7u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1.0;
}

class Executor {
 public:
  Executor(const ir::Plan& plan, const PlanTasks& tasks, MeetingTable* table,
           double overlap_slowdown, const Perturbation& perturbation, Timeline* timeline)
      : plan_(plan),
        perturbation_(perturbation),
        tasks_(tasks),
        table_(*table),
        network_(*table->network),
        streams_(tasks.streams),
        slow_rate_(1.0 - overlap_slowdown),
        timeline_(timeline) {
    PrepareRanks();
    rendezvous_.resize(table_.meetings.size());
    arrivals_.resize(At(table_.arrivals));
  }

  StepResult Run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t s = 0; s < streams_; ++s)
        TryHead(static_cast<uint32_t>(r), static_cast<uint32_t>(s));
      Drain();
    }
    network_.Run();
    CheckAllDone();
    return Result();
  }

 private:
  struct Stream {
    uint32_t head = 0;  // into on_stream
    bool busy = false;  // the head has started
    bool computing = false;
    uint32_t version = 0;  // of the pending end of a compute task
    double left = 0;       // device seconds of the running compute task
    double since = 0;      // when `left` was right
  };
  struct Rank {
    const StageTasks* stage = nullptr;
    std::size_t first_wait = 0;  // into waits_
    int32_t computing = 0, communicating = 0;
    double changed = 0;  // when one of the two last did
    RankTime time;
  };
  struct Arrival {
    uint32_t rank = 0;
    int32_t task = 0;
  };
  struct Rendezvous {
    int32_t arrived = 0;
    int32_t message = 0;
    int32_t phase = 0;
    int32_t jobs = 0;  // of the phase, under way
  };
  struct Ended {
    uint32_t rank;
    int32_t task;
  };
  // What comes due at one date. Ranks in step ask for the same delay at the same instant: they
  // share one timer.
  struct Due {
    uint32_t subject;  // compute: rank and stream; else a meeting
    uint32_t version;
  };
  struct OpenBatch {
    int32_t batch = -1;
    double now = 0, delay = 0;
  };

  void PrepareRanks() {
    ranks_.resize(table_.ranks.size());
    stream_.resize(ranks_.size() * streams_);
    std::size_t waits = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto stage = At(plan_.mesh.Coords(table_.ranks[r])[At(plan_.mesh.program_axis)]);
      ranks_[r].stage = &tasks_.stages[stage];
      ranks_[r].first_wait = waits;
      waits += ranks_[r].stage->tasks.size();
    }
    waits_.reserve(waits);
    if (timeline_ != nullptr) {
      timeline_->clear();
      for (const Rank& rank : ranks_) timeline_->emplace_back(rank.stage->tasks.size());
    }
    for (const Rank& rank : ranks_) {
      for (const Task& task : rank.stage->tasks) waits_.push_back(task.waits);
    }
  }

  Stream& StreamOf(uint32_t rank, std::size_t stream) { return stream_[rank * streams_ + stream]; }

  void Note(uint32_t r, int32_t id, double TaskSpan::*date) {
    if (timeline_ != nullptr) (*timeline_)[r][At(id)].*date = network_.Now().value;
  }

  // Starts the head of a stream if nothing holds it back.
  void TryHead(uint32_t r, uint32_t s) {
    const Rank& rank = ranks_[r];
    Stream& stream = StreamOf(r, s);
    const std::vector<int32_t>& order = rank.stage->on_stream[s];
    if (stream.busy || stream.head >= order.size()) return;
    const int32_t id = order[stream.head];
    if (waits_[rank.first_wait + At(id)] > 0) return;
    stream.busy = true;
    const Task& task = rank.stage->tasks[At(id)];
    if (task.line >= 0) return StartCommunication(r, id, task);
    Note(r, id, &TaskSpan::start);
    if (task.seconds <= 0 && task.earliest <= network_.Now().value)
      return ended_.push_back({r, id});
    StartCompute(r, id, task, &stream);
  }

  double Factor(uint32_t r, int32_t id) const {
    const auto rank = At(table_.ranks[r]);
    double factor = rank < perturbation_.slowdown.size() ? perturbation_.slowdown[rank] : 1.0;
    // A uniform variable on [-sqrt 3, sqrt 3) has the standard deviation 1.
    if (perturbation_.jitter > 0) {
      factor *= std::max(0.0, 1.0 + perturbation_.jitter * std::sqrt(3.0) *
                                        Noise(perturbation_.seed, rank, At(id)));
    }
    return factor;
  }

  void StartCompute(uint32_t r, int32_t id, const Task& task, Stream* stream) {
    const double now = network_.Now().value;
    // Where the host is late, the device idles inside the task: that counts as its time.
    stream->left = std::max(task.seconds * Factor(r, id), task.earliest - now);
    stream->since = now;
    stream->computing = true;
    Count(r, 1, 0);
    ScheduleEnd(r, task.stream, stream);
  }

  double RateOf(const Rank& rank) const { return rank.communicating > 0 ? slow_rate_ : 1.0; }

  void ScheduleEnd(uint32_t r, std::size_t s, Stream* stream) {
    AddDue({static_cast<uint32_t>(r * streams_ + s), ++stream->version},
           stream->left / RateOf(ranks_[r]), true);
  }

  void AddDue(Due due, double delay, bool compute) {
    OpenBatch& open = compute ? open_compute_ : open_exchange_;
    const double now = network_.Now().value;
    if (open.batch < 0 || open.now != now || open.delay != delay) {
      open = {NewBatch(), now, delay};
      const int32_t batch = open.batch;
      network_.After(Seconds(delay), [this, batch, compute] { EndBatch(batch, compute); });
    }
    batches_[At(open.batch)].push_back(due);
  }

  int32_t NewBatch() {
    if (free_batches_.empty()) {
      batches_.emplace_back();
      return static_cast<int32_t>(batches_.size()) - 1;
    }
    const int32_t batch = free_batches_.back();
    free_batches_.pop_back();
    return batch;
  }

  void EndBatch(int32_t batch, bool compute) {
    OpenBatch& open = compute ? open_compute_ : open_exchange_;
    if (open.batch == batch) open.batch = -1;
    std::vector<Due> dues = std::move(batches_[At(batch)]);
    for (const Due& due : dues) {
      if (compute) {
        EndCompute(due);
      } else {
        FinishExchange(static_cast<int32_t>(due.subject));
      }
    }
    dues.clear();
    batches_[At(batch)] = std::move(dues);  // keeps its memory
    free_batches_.push_back(batch);
    Drain();
  }

  void EndCompute(const Due& due) {
    Stream& stream = stream_[due.subject];
    if (stream.version != due.version) return;
    const auto r = static_cast<uint32_t>(due.subject / streams_);
    stream.computing = false;
    Count(r, -1, 0);
    ended_.push_back({r, ranks_[r].stage->on_stream[due.subject % streams_][stream.head]});
  }

  // Books the time since the last change of a rank's activity.
  void Count(uint32_t r, int computing, int communicating) {
    Rank& rank = ranks_[r];
    const double now = network_.Now().value;
    const double spent = now - rank.changed;
    rank.changed = now;
    double& account = rank.computing > 0
                          ? (rank.communicating > 0 ? rank.time.overlapped : rank.time.compute)
                          : (rank.communicating > 0 ? rank.time.exposed : rank.time.idle);
    account += spent;
    const bool slowed = rank.communicating > 0;
    if (slow_rate_ < 1.0 && communicating != 0 && rank.computing > 0 &&
        slowed != (rank.communicating + communicating > 0)) {
      Retime(r, communicating);
      return;
    }
    rank.computing += computing;
    rank.communicating += communicating;
  }

  // Compute that runs goes on at another rate.
  void Retime(uint32_t r, int communicating) {
    Rank& rank = ranks_[r];
    const double before = RateOf(rank);
    const double now = network_.Now().value;
    rank.communicating += communicating;
    for (std::size_t s = 0; s < streams_; ++s) {
      Stream& stream = StreamOf(r, s);
      if (!stream.computing) continue;
      stream.left = std::max(0.0, stream.left - (now - stream.since) * before);
      stream.since = now;
      ScheduleEnd(r, s, &stream);
    }
  }

  void StartCommunication(uint32_t r, int32_t id, const Task& task) {
    const double late = task.earliest - network_.Now().value;
    if (late <= 0) return Arrive(r, id);
    network_.After(Seconds(late), [this, r, id] {
      Arrive(r, id);
      Drain();
    });
  }

  void Arrive(uint32_t r, int32_t id) {
    Note(r, id, &TaskSpan::start);
    const Task& task = ranks_[r].stage->tasks[At(id)];
    const int32_t m = table_.of[At(2 * task.line + task.receives)][r];
    ORRERY_CHECK(m >= 0, "rank {} is no member of line {}", table_.ranks[r], task.line);
    const Meeting& meeting = table_.meetings[At(m)];
    Rendezvous& rendezvous = rendezvous_[At(m)];
    if (rendezvous.arrived == 0) rendezvous.message = task.message;
    arrivals_[At(meeting.first_arrival + rendezvous.arrived)] = {r, id};
    if (task.message != rendezvous.message) Disagree(meeting, r, task);
    if (++rendezvous.arrived == meeting.needed) StartExchange(m);
  }

  [[noreturn]] void Disagree(const Meeting& meeting, uint32_t r, const Task& task) const {
    const Arrival& first = arrivals_[At(meeting.first_arrival)];
    throw InputError(
        fmt::format("rank {} ({}) meets rank {} ({}) with another kind or size of message",
                    table_.ranks[first.rank], Where(first.rank, first.task), table_.ranks[r],
                    Where(r, static_cast<int32_t>(&task - ranks_[r].stage->tasks.data()))));
  }

  std::string Where(uint32_t r, int32_t task) const {
    const auto stage = At(ranks_[r].stage - tasks_.stages.data());
    return Describe(plan_, stage, ranks_[r].stage->tasks[At(task)]);
  }

  void StartExchange(int32_t m) {
    const Meeting& meeting = table_.meetings[At(m)];
    Rendezvous& rendezvous = rendezvous_[At(m)];
    const Exchange& exchange = table_.exchanges[At(meeting.first_exchange + rendezvous.message)];
    for (int32_t i = 0; timeline_ != nullptr && i < meeting.needed; ++i) {
      const Arrival& arrival = arrivals_[At(meeting.first_arrival + i)];
      Note(arrival.rank, arrival.task, &TaskSpan::met);
    }
    if (exchange.route < 0) return EndExchange(m);
    for (int32_t i = 0; i < meeting.needed; ++i)
      Count(arrivals_[At(meeting.first_arrival + i)].rank, 0, 1);
    const Route& route = table_.routes[At(exchange.route)];
    rendezvous.phase = 0;
    if (route.alone >= 0) {
      AddDue({static_cast<uint32_t>(m), 0}, exchange.latency + route.alone * exchange.bytes, false);
    } else {
      network_.After(Seconds(exchange.latency), [this, m] { StartPhase(m); });
    }
  }

  void StartPhase(int32_t m) {
    Rendezvous& rendezvous = rendezvous_[At(m)];
    const Exchange& exchange =
        table_.exchanges[At(table_.meetings[At(m)].first_exchange + rendezvous.message)];
    const Route& route = table_.routes[At(exchange.route)];
    const auto& jobs = route.phases[At(rendezvous.phase)];
    rendezvous.jobs = static_cast<int32_t>(jobs.size());
    for (const Route::Job& job : jobs) {
      network_.Start(job.path, Bytes(job.bytes * exchange.bytes), [this, m] { EndJob(m); });
    }
  }

  void EndJob(int32_t m) {
    Rendezvous& rendezvous = rendezvous_[At(m)];
    if (--rendezvous.jobs > 0) return;
    const Exchange& exchange =
        table_.exchanges[At(table_.meetings[At(m)].first_exchange + rendezvous.message)];
    const Route& route = table_.routes[At(exchange.route)];
    if (At(++rendezvous.phase) < route.phases.size()) return StartPhase(m);
    FinishExchange(m);
    Drain();
  }

  // Leaves the members' tasks to Drain().
  void FinishExchange(int32_t m) {
    const Meeting& meeting = table_.meetings[At(m)];
    for (int32_t i = 0; i < meeting.needed; ++i)
      Count(arrivals_[At(meeting.first_arrival + i)].rank, 0, -1);
    EndExchange(m);
  }

  void EndExchange(int32_t m) {
    const Meeting& meeting = table_.meetings[At(m)];
    rendezvous_[At(m)].arrived = 0;
    for (int32_t i = 0; i < meeting.needed; ++i) {
      const Arrival& arrival = arrivals_[At(meeting.first_arrival + i)];
      ended_.push_back({arrival.rank, arrival.task});
    }
  }

  // Lets go whatever waited for the tasks that have ended.
  void Drain() {
    while (!ended_.empty()) {
      const Ended ended = ended_.back();
      ended_.pop_back();
      Release(ended.rank, ended.task);
    }
  }

  void Release(uint32_t r, int32_t id) {
    Rank& rank = ranks_[r];
    const Task& task = rank.stage->tasks[At(id)];
    Stream& stream = StreamOf(r, task.stream);
    ++stream.head;
    stream.busy = false;
    ++done_;
    rank.time.end = network_.Now().value;
    Note(r, id, &TaskSpan::end);
    for (uint32_t i = task.successors; i < task.successors_end; ++i) {
      const int32_t next = rank.stage->successors[i];
      if (--waits_[rank.first_wait + At(next)] == 0) TryHead(r, rank.stage->tasks[At(next)].stream);
    }
    TryHead(r, task.stream);
  }

  void CheckAllDone() const {
    std::string stuck;
    int named = 0;
    for (std::size_t i = 0; i < stream_.size() && named < kMostStuck; ++i) {
      const auto r = static_cast<uint32_t>(i / streams_);
      const std::vector<int32_t>& order = ranks_[r].stage->on_stream[i % streams_];
      if (stream_[i].head >= order.size()) continue;
      const int32_t id = order[stream_[i].head];
      stuck += fmt::format("\n  rank {}, {}: {}", table_.ranks[r], Where(r, id), WaitsFor(r, id));
      ++named;
    }
    if (named > 0)
      throw InputError("deadlock: the step never ends" + stuck, "plan show --ir prints the plan");
  }

  std::string WaitsFor(uint32_t r, int32_t id) const {
    const Task& task = ranks_[r].stage->tasks[At(id)];
    const int waits = waits_[ranks_[r].first_wait + At(id)];
    if (waits > 0) return fmt::format("waits for {} ops on other streams", waits);
    if (task.line < 0) return "computes";
    const Meeting& meeting = table_.meetings[At(table_.of[At(2 * task.line + task.receives)][r])];
    const Rendezvous& at = rendezvous_[At(&meeting - table_.meetings.data())];
    std::string missing;
    for (int32_t i = 0; i < meeting.members; ++i) {
      const int64_t member = table_.members[At(meeting.first_member + i)];
      bool here = false;
      for (int32_t k = 0; k < at.arrived; ++k) {
        here |= table_.ranks[arrivals_[At(meeting.first_arrival + k)].rank] == member;
      }
      const bool executed = std::ranges::binary_search(table_.ranks, member);
      if (!here && executed) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", member);
    }
    return "waits for rank " + missing;
  }

  StepResult Result() {
    StepResult result;
    result.ranks = table_.ranks;
    for (const Rank& rank : ranks_) result.seconds = std::max(result.seconds, rank.time.end);
    for (Rank& rank : ranks_) {
      rank.time.idle += result.seconds - rank.changed;
      result.times.push_back(rank.time);
      result.ops += rank.stage->ops;
    }
    result.tasks = done_;
    result.paths = network_.paths();
    return result;
  }

  const ir::Plan& plan_;
  const Perturbation& perturbation_;
  const PlanTasks& tasks_;
  MeetingTable& table_;
  net::Network& network_;
  const std::size_t streams_;
  const double slow_rate_;
  Timeline* const timeline_;  // null: nobody asks
  std::vector<Rank> ranks_;
  std::vector<Stream> stream_;  // by rank and stream
  std::vector<uint8_t> waits_;  // by rank and task: how many it still waits for
  std::vector<Rendezvous> rendezvous_;
  std::vector<Arrival> arrivals_;
  std::vector<Ended> ended_;
  std::vector<std::vector<Due>> batches_;
  std::vector<int32_t> free_batches_;
  OpenBatch open_compute_, open_exchange_;
  int64_t done_ = 0;
};

}  // namespace

StepResult Execute(const ir::Plan& plan, const PlanTasks& tasks, MeetingTable* meetings,
                   double overlap_slowdown, const Perturbation& perturbation, Timeline* timeline) {
  for (const double slowdown : perturbation.slowdown) {
    if (!(slowdown > 0))
      throw InputError(fmt::format("a rank cannot be {} times as slow", slowdown));
  }
  return Executor(plan, tasks, meetings, overlap_slowdown, perturbation, timeline).Run();
}

StepResult SimulateStep(const ir::Plan& plan, const Cluster& cluster, const net::Wires& wires,
                        const CostSetting& setting, const StepOptions& options) {
  const OpTime op_time(*setting.gpu, *setting.stack, options.precision, cluster.nodes > 1);
  const CommTime comm_time(setting);
  const PlanTasks tasks = MakeTasks(plan, op_time);
  MeetingTable meetings = MakeMeetings(plan, tasks, cluster, wires, comm_time, options.meetings);
  return Execute(plan, tasks, &meetings, setting.gpu->overlap_slowdown, options.perturbation);
}

}  // namespace orrery::sim
