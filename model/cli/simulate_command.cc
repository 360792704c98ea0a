// SPDX-License-Identifier: Apache-2.0
// The program behind `plan simulate`: one given layout, played op by op with contention. A program
// of its own, so that `plan` loads without SimGrid.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/cli/commands.h"
#include "model/cli/simulate_flags.h"
#include "model/input/plain_text.h"
#include "model/lower/lower.h"
#include "model/report/names.h"
#include "model/report/simulate_report.h"
#include "model/report/trace_json.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kAfterName = 2;  // plan simulate
constexpr std::size_t kBusiestLinks = 5;
constexpr double kMostSlowdown = 1000;
constexpr int64_t kMostMicroBatches = 1'000'000;
constexpr int64_t kMostOps = 20'000'000;  // of one stage
constexpr int64_t kMostExecuted = 300'000'000;
constexpr int64_t kMostTraced = 20'000'000;  // 4 GB

double ReadJitter(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return 0;
  std::string_view text = flag.text;
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  double jitter = 0;
  if (ParseNumber(text, &jitter) != NumberFault::kNone) {
    diagnostics->Error(flag.where, fmt::format("--jitter: '{}' is not a share", flag.text),
                       "write 2% or 0.02");
    return 0;
  }
  jitter *= percent ? 0.01 : 1;
  if (!(jitter >= 0 && jitter <= 1)) {
    diagnostics->Error(flag.where, fmt::format("--jitter: {} is out of range", flag.text),
                       "from 0% to 100%");
    return 0;
  }
  return jitter;
}

struct SlowGpu {
  int64_t rank = 0;
  double factor = 1;
};

std::vector<SlowGpu> ReadSlowGpus(const Flag& flag, Diagnostics* diagnostics) {
  std::vector<SlowGpu> slow;
  for (std::size_t begin = 0; flag.given && begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    const std::string_view item = std::string_view(flag.text).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = std::min(item.find(':'), item.size());
    SlowGpu gpu;
    if (colon == item.size() ||
        ParseInteger(item.substr(0, colon), &gpu.rank) != NumberFault::kNone ||
        ParseNumber(item.substr(colon + 1), &gpu.factor) != NumberFault::kNone || gpu.rank < 0 ||
        !(gpu.factor > 0 && gpu.factor <= kMostSlowdown)) {
      diagnostics->Error(
          flag.where, fmt::format("--slow-gpu: '{}' is no rank and factor", item),
          fmt::format("write RANK:FACTOR with a factor up to {}, such as 3:1.5", kMostSlowdown));
      return {};
    }
    slow.push_back(gpu);
  }
  return slow;
}

struct Wishes {
  net::Backend backend = net::Backend::kFluid;
  double jitter = 0;
  uint64_t seed = 1;
  std::vector<SlowGpu> slow;

  bool perturbed() const { return jitter > 0 || !slow.empty(); }
  std::string Words() const {
    std::string words;
    if (jitter > 0) words = fmt::format("jitter {:.3g} % (seed {})", 100 * jitter, seed);
    for (const SlowGpu& gpu : slow) {
      words += fmt::format("{}rank {} {:.3g} times as slow", words.empty() ? "" : ", ", gpu.rank,
                           gpu.factor);
    }
    return words;
  }
};

Wishes ReadWishes(const SimulateFlags& flags) {
  Diagnostics diagnostics;
  Wishes wishes;
  wishes.backend = ReadChoice<net::Backend>(flags.network, kNetworkNames, &diagnostics)
                       .value_or(net::Backend::kFluid);
  wishes.jitter = ReadJitter(flags.jitter, &diagnostics);
  wishes.seed =
      static_cast<uint64_t>(ReadInteger(flags.seed, 0, int64_t{1} << 62, &diagnostics).value_or(1));
  wishes.slow = ReadSlowGpus(flags.slow_gpu, &diagnostics);
  if (flags.trace.given && flags.trace.text.empty())
    diagnostics.Error(flags.trace.where, "--trace wants a file name", "--trace step.json");
  if (wishes.backend == net::Backend::kSimGrid && !net::HasSimGrid()) {
    diagnostics.Error(flags.network.where, "this build has no SimGrid backend",
                      "install libsimgrid-dev and build again, or --network fluid");
  }
  diagnostics.ThrowIfAny();
  return wishes;
}

// Ops that a schedule issues, at most; nothing is unfolded for it.
double OpsOf(const ir::Program& program, const std::vector<ir::Item>& items) {
  double ops = 0;
  for (const ir::Item& item : items) {
    ops +=
        item.block >= 0
            ? static_cast<double>(program.blocks[static_cast<std::size_t>(item.block)].ops.size())
            : item.count * OpsOf(program, item.body);
  }
  return ops;
}

void RefuseHuge(const ir::Plan& plan, int64_t executed) {
  double most = 0;
  for (const ir::Program& program : plan.programs)
    most = std::max(most, OpsOf(program, program.schedule));
  if (most <= kMostOps && most * static_cast<double>(executed) <= kMostExecuted) return;
  throw InputError(
      fmt::format("the step has {:.2g} ops on each of {} executed rank{}: too many to simulate",
                  most, executed, executed == 1 ? "" : "s"),
      "fewer micro-batches (--global-batch, --micro-batch) or fewer --nodes; without "
      "--all-ranks, --jitter and --slow-gpu replicas are executed once");
}

// One simulation with all that it needs and leaves behind.
class Twin {
 public:
  Twin(const report::Job& job, ir::Plan plan, const Wishes& wishes)
      : plan_(std::move(plan)),
        cluster_(BuildCluster(job.request.topology, job.cluster.nodes, job.cluster.gpus_per_node)),
        setting_{&job.profiles.gpu, &job.profiles.fabric, &job.profiles.stack, &job.cluster},
        op_time_(job.profiles.gpu, job.profiles.stack, job.request.work.precision,
                 job.cluster.nodes > 1) {
    options_.backend = wishes.backend;
    options_.keep_links = true;
    perturbation_.jitter = wishes.jitter;
    perturbation_.seed = wishes.seed;
  }

  void SlowDown(const std::vector<SlowGpu>& slow, const Flag& flag) {
    if (slow.empty()) return;
    perturbation_.slowdown.assign(static_cast<std::size_t>(plan_.mesh.ranks()), 1.0);
    for (const SlowGpu& gpu : slow) {
      if (gpu.rank >= plan_.mesh.ranks()) {
        throw InputError({{flag.where, fmt::format("--slow-gpu: there is no rank {}", gpu.rank),
                           fmt::format("ranks are 0 to {}", plan_.mesh.ranks() - 1)}});
      }
      perturbation_.slowdown[static_cast<std::size_t>(gpu.rank)] = gpu.factor;
    }
  }

  // Replicas of the data do the same at the same time.
  void MergeReplicas() {
    for (const char* name : {"dp", "dpo"}) {
      const int axis = plan_.mesh.AxisIndex(name);
      if (axis >= 0) options_.merged = static_cast<sim::AxisMask>(options_.merged | 1 << axis);
    }
  }

  void Run(bool with_timeline, report::Simulation* simulation) {
    int64_t executed = plan_.mesh.ranks();
    for (std::size_t a = 0; a < plan_.mesh.axes.size(); ++a) {
      if ((options_.merged >> a & 1) != 0) executed /= plan_.mesh.axes[a].size;
    }
    RefuseHuge(plan_, executed);
    const auto begin = std::chrono::steady_clock::now();
    tasks_ = sim::MakeTasks(plan_, op_time_);
    meetings_ = sim::MakeMeetings(plan_, tasks_, cluster_, net::WiresOf(cluster_),
                                  sim::CommTime(setting_), options_);
    simulation->result = sim::Execute(plan_, tasks_, &meetings_, setting_.gpu->overlap_slowdown,
                                      perturbation_, with_timeline ? &timeline_ : nullptr);
    simulation->wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    simulation->ranks = plan_.mesh.ranks();
    for (const int64_t rank : simulation->result.ranks) {
      simulation->stages.push_back(
          plan_.mesh.Coords(rank)[static_cast<std::size_t>(plan_.mesh.program_axis)]);
    }
    simulation->links = Busiest(simulation->result.seconds);
  }

  void WriteTrace(std::ostream* out) const {
    report::WriteTrace({&plan_, &tasks_, &meetings_, &timeline_, &op_time_}, out);
  }

 private:
  std::vector<report::LinkBusy> Busiest(double seconds) const {
    const std::vector<Bytes> bytes =
        sim::LinkBytes(plan_, tasks_, meetings_, cluster_.links.size());
    std::vector<std::pair<double, LinkId>> order;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i].value > 0)
        order.emplace_back(-bytes[i].value / cluster_.links[i].capacity.value / seconds, i);
    }
    const std::size_t count = std::min(order.size(), kBusiestLinks);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                      order.end());
    std::vector<report::LinkBusy> busiest;
    for (std::size_t i = 0; i < count; ++i) {
      const LinkId link = order[i].second;
      busiest.push_back({net::LinkName(cluster_, link), bytes[static_cast<std::size_t>(link)].value,
                         -order[i].first});
    }
    return busiest;
  }

  ir::Plan plan_;
  Cluster cluster_;
  CostSetting setting_;
  sim::OpTime op_time_;
  sim::MeetingOptions options_;
  sim::Perturbation perturbation_;
  sim::PlanTasks tasks_;
  sim::MeetingTable meetings_;
  sim::Timeline timeline_;
};

// Under another name first: nobody finds half a trace.
void SaveTrace(const Twin& twin, int64_t ops, const Flag& flag) {
  if (ops > kMostTraced) {
    throw InputError({{flag.where, fmt::format("a trace of {} ops is too large to open", ops),
                       fmt::format("up to {}: fewer micro-batches or nodes", kMostTraced)}});
  }
  const std::string aside = flag.text + ".part";
  errno = 0;
  std::ofstream file(aside, std::ios::binary);
  if (file) twin.WriteTrace(&file);
  file.close();
  std::error_code error(errno, std::generic_category());
  if (file) std::filesystem::rename(aside, flag.text, error);
  if (file && !error) return;
  std::error_code ignored;
  std::filesystem::remove(aside, ignored);
  throw InputError({{flag.where, fmt::format("cannot write '{}': {}", flag.text, error.message()),
                     "--trace names a file in a folder that exists"}});
}

ir::Plan LowerOrThrow(const report::Job& job, const Strategy& strategy) {
  LowerResult lowered = Lower(job.request.model, job.request.work, strategy);
  if (const auto* refusal = std::get_if<Refusal>(&lowered))
    throw InputError(refusal->reason, refusal->hint);
  return std::get<ir::Plan>(std::move(lowered));
}

Answer Simulate(const CommandLine& line) {
  SimulateFlags flags;
  if (flags.set.Parse(line, kAfterName)) return {ExitCode::kOk, DescribeSimulate().help};
  const Wishes wishes = ReadWishes(flags);
  const report::Job job = flags.job.Resolve();
  const Strategy strategy = OneStrategy(flags.layout, job);
  const auto assessed = Assess(job.request, job.profiles, strategy);
  if (const auto* refusal = std::get_if<Refusal>(&assessed))
    throw InputError(refusal->reason, refusal->hint);
  report::Simulation simulation{.candidate = std::get<Candidate>(assessed)};
  if (simulation.candidate.micro_batches > kMostMicroBatches) {
    throw InputError(fmt::format("{} micro-batches are too many to simulate",
                                 simulation.candidate.micro_batches),
                     "a smaller --global-batch, or a larger --micro-batch");
  }
  simulation.network = report::NameIn(kNetworkNames, wishes.backend);
  simulation.perturbation = wishes.Words();
  Twin twin(job, LowerOrThrow(job, strategy), wishes);
  twin.SlowDown(wishes.slow, flags.slow_gpu);
  if (!wishes.perturbed() && !flags.all_ranks.given) twin.MergeReplicas();
  twin.Run(flags.trace.given, &simulation);
  if (flags.trace.given) SaveTrace(twin, simulation.result.ops, flags.trace);
  const auto& memory = simulation.candidate.memory;
  return Deliver(memory && !memory->fits ? ExitCode::kInfeasible : ExitCode::kOk,
                 report::SimulationText(job, simulation), report::SimulationJson(job, simulation),
                 flags.json);
}

}  // namespace
}  // namespace orrery::cli

int main(int argc, char** argv) {
  std::vector<std::string> words = {"plan", "simulate"};
  words.insert(words.end(), argv + std::min(argc, 1), argv + argc);
  return orrery::cli::Main(std::move(words), orrery::cli::Simulate);
}
