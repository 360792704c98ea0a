// SPDX-License-Identifier: Apache-2.0
// From flags to a plan that can be run.
#include "runtime/program/run/run_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/exchange/setting.h"
#include "model/hardware/catalog.h"
#include "model/plan/lower/check_low_precision.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/names.h"
#include "model/price/pricer.h"
#include "model/program/common/names.h"
#include "model/program/common/wait_flags.h"
#include "model/twin/search.h"
#include "runtime/launch/host_memory.h"
#include "runtime/launch/hostfile.h"
#include "runtime/program/common/rank_flags.h"

namespace orrery::cli {
namespace {

constexpr int64_t kMostRunRanks = 4096, kMostTracedSteps = 1000;

double ReadNumber(const Flag& flag, double otherwise, double least, Diagnostics* diagnostics) {
  if (!flag.given) return otherwise;
  double number = 0;
  if (ParseNumber(flag.text, &number) != NumberFault::kNone || !(number >= least)) {
    diagnostics->Error(
        flag.where, fmt::format("{}: '{}' is no number from {} up", flag.name, flag.text, least));
    return otherwise;
  }
  return number;
}

// Plans a layout for this machine: in fp32 and with this project's own presets unless said
// otherwise.
class Planner {
 public:
  Planner(RunFlags* flags, const LowerOptions& options, std::optional<double> clip)
      : flags_(*flags), options_(options), clip_(clip) {}

  // 0 ranks: as many as the degrees make up. `hosts`: of a hostfile; 0: none.
  void Plan(int64_t ranks, int64_t hosts, RunJob* job) {
    ranks = ChooseRanks(ranks, job);
    Default(&flags_.job.topology, "localhost");
    Default(&flags_.job.framework, "orrery");
    Default(&flags_.job.precision, "fp32");
    report::Job planned = flags_.job.Resolve();
    CheckTrains(planned);
    if (clip_) planned.request.work.clip_norm = *clip_;
    const int64_t nodes = PlacedNodes(ranks, hosts);
    planned.cluster.nodes = nodes;
    planned.cluster.gpus_per_node = static_cast<int>(ranks / nodes);
    if (flags_.layout.searches_placement()) {
      planned.request.nodes = {nodes};
      planned.request.gpus_per_node = static_cast<int>(ranks / nodes);
    }
    const Strategy strategy =
        flags_.best_layout.given ? Fastest(&planned) : OneStrategy(flags_.layout, planned);
    LowerResult lowered = Lower(planned.request.model, planned.request.work, strategy, options_);
    if (const auto* refusal = std::get_if<Refusal>(&lowered))
      RefuseLayout(*refusal, flags_.job, flags_.layout, planned, strategy);
    job->plan = std::get<ir::Plan>(std::move(lowered));
    job->layout = Layout(planned, strategy);
    job->name = planned.model.spec.name;
    job->model = std::move(planned.model);
  }

 private:
  // Of the layouts on as many ranks as there are; where there is none, on fewer.
  static Strategy Fastest(report::Job* job) {
    const int most = job->cluster.gpus_per_node;
    SearchRequest& request = job->request;
    request.nodes = {1};
    request.refine = 0;
    request.top = 1;
    for (int ranks = std::min(most, request.topology.node.gpus); ranks > 0; --ranks) {
      request.gpus_per_node = ranks;
      job->cluster.gpus_per_node = ranks;
      const SearchResult found = Search(request);
      if (found.feasible()) return found.ranked.front().strategy;
    }
    throw InputError(fmt::format("no layout on 1 to {} ranks fits", most),
                     "more memory, or another --global-batch");
  }

  static void Default(Flag* flag, const char* text) {
    if (flag->given) return;
    flag->given = true;
    flag->text = text;
  }

  // What shapes and prices do not depend on, but the numbers do.
  static void CheckTrains(const report::Job& job) {
    if (!job.request.model.untrained.empty()) {
      throw InputError(fmt::format("{} cannot be trained here yet: {}", job.model.spec.name,
                                   job.request.model.untrained.front()),
                       "`plan predict` and `plan simulate` price it");
    }
    if (job.request.model.residual_scale != 1 && job.request.work.lora.on()) {
      throw InputError(fmt::format("{} cannot be trained with adapters here yet: its sublayers' "
                                   "outputs are scaled",
                                   job.model.spec.name),
                       "`plan predict` and `plan simulate` price it");
    }
    const Optimizer optimizer = job.request.work.optimizer;
    if (optimizer == Optimizer::kMuon || optimizer == Optimizer::kAdam8bit) {
      throw InputError(
          fmt::format("optimizer {} is priced only: no rank runs it yet", report::Name(optimizer)),
          "--optimizer adamw");
    }
  }

  // Ranks of the files' job, as a prediction has it: nodes x GPUs. This machine takes them all, however many nodes they have
  // there. 0 ranks: the files do not say, or none are of other programs.
  struct FileRanks {
    int64_t count = 0;
    Location where;
  };
  FileRanks TakeRanksOfFiles() {
    JobFlags& job = flags_.job;
    if (!job.foreign || !job.nodes.given || !job.gpus_per_node.given) return {};
    Diagnostics diagnostics;
    const auto nodes = ReadInteger(job.nodes, 1, kMostRunRanks, &diagnostics),
               each = ReadInteger(job.gpus_per_node, 1, kMostRunRanks, &diagnostics);
    diagnostics.ThrowIfAny();
    const FileRanks ranks{nodes.value_or(0) * each.value_or(0),
                          OfFile(job.nodes) ? job.nodes.where : job.gpus_per_node.where};
    for (Flag* flag : {&job.nodes, &job.gpus_per_node})
      if (!job.topology.given && OfFile(*flag)) flag->given = false;
    return ranks;
  }
  // Flags and defaults of a file's program stand at the command line.
  bool OfFile(const Flag& flag) const {
    return flag.where.source != flags_.job.from.front().where.source;
  }
  bool OnCommandLine(const Flag& flag) const {
    const Location& from = flags_.job.from.front().where;
    return flag.given && !OfFile(flag) &&
           (flag.where.line != from.line || flag.where.column != from.column);
  }

  // `ranks` that the command line, mpirun or a hostfile asks for; 0: none.
  int64_t ChooseRanks(int64_t ranks, RunJob* job) {
    const FileRanks of_files = TakeRanksOfFiles();
    if (of_files.count == 0) return ranks > 0 ? ranks : RanksOfDegrees();
    const bool replicas = OnCommandLine(flags_.layout.dp) || OnCommandLine(flags_.layout.dp_outer);
    if (ranks == 0) ranks = replicas ? RanksOfDegrees() : of_files.count;
    if (ranks != of_files.count)
      job->notes.push_back(fmt::format("{} rank{} replace{} the {} of {}", ranks,
                                       ranks == 1 ? "" : "s", ranks == 1 ? "s" : "", of_files.count,
                                       exchange::Place(of_files.where)));
    return ranks;
  }

  int64_t RanksOfDegrees() const {
    const FixedAxes axes = flags_.layout.Read();
    return int64_t{1} * axes.tp.value_or(1) * axes.pp.value_or(1) * axes.cp.value_or(1) *
           axes.dp.value_or(axes.dp_outer.value_or(1));
  }

  // Nodes that a placement orders; 1 without one.
  int64_t PlacedNodes(int64_t ranks, int64_t hosts) const {
    const Flag& flag = flags_.layout.placement;
    if (!flag.given) return 1;
    int64_t nodes = 1;
    if (flags_.layout.searches_placement()) {
      Diagnostics diagnostics;
      const std::optional<int64_t> named =
          ReadInteger(flags_.job.nodes, 1, kMostRunRanks, &diagnostics);
      diagnostics.ThrowIfAny();
      nodes = named.value_or(std::max<int64_t>(hosts, 1));
    } else if (const auto axes = flags_.layout.Read(); axes.placement) {
      nodes = std::max<int64_t>(static_cast<int64_t>(axes.placement->nodes.size()), 1);
    }
    if (ranks % nodes != 0)
      throw InputError(
          {{flag.where, fmt::format("{} ranks are not as many on each of {} nodes", ranks, nodes),
            "--ranks, --nodes or the placement"}});
    return nodes;
  }

  static std::string Layout(const report::Job& job, const Strategy& s) {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (s.tp > 1) add(fmt::format("tp {}{}", s.tp, s.sequence_parallel ? " with sequence" : ""));
    if (s.pp > 1) {
      add(fmt::format("pp {} {}", s.pp, report::NameIn(report::kScheduleNames, s.schedule)));
    }
    if (s.cp > 1)
      add(fmt::format("cp {} {}", s.cp, report::NameIn(kCpMethodNames, s.context.method)));
    if (s.data_parallel() > 1) add(fmt::format("dp {}", s.data_parallel()));
    if (s.zero > 0) add(fmt::format("ZeRO {}", s.zero));
    if (s.recompute != Recompute::kNone)
      add(fmt::format("recompute {}", RecomputeText(s.recompute)));
    if (s.offload.on()) add(fmt::format("offload {}", OffloadText(s.offload)));
    if (s.placement) add("placement " + PlacementText(*s.placement));
    add(fmt::format("micro-batch {} of {}", s.micro_batch, job.request.work.global_batch));
    add(report::NameIn(report::kPrecisionNames, job.request.work.precision));
    if (job.request.work.fp8 != Fp8::kOff)
      add(fmt::format("fp8 {}{}", NameIn(kFp8Names, job.request.work.fp8),
                      RoundingOfParts(job.request.work, s).empty()
                          ? ""
                          : " (scales of each rank: losses are not those of one rank)"));
    return text;
  }

  RunFlags& flags_;
  LowerOptions options_;
  std::optional<double> clip_;
};

// What of low precision this runtime cannot do.
void CheckLowPrecision(const RunJob& job) {
  const Fp8 recipe = Fp8Of(job.plan);
  const bool packed = std::ranges::any_of(job.plan.params, [](const ir::Param& p) {
    return p.frozen && p.packing != ir::Packed::kNone;
  });
  if (packed && job.on_cuda)
    throw InputError(
        "frozen weights in few bits run on CPU ranks only, which emulate their rounding",
        "--device cpu, or no --lora-base");
  if (recipe == Fp8::kOff) return;
  if (job.on_cuda) {
    throw InputError(fmt::format("fp8 {} runs on CPU ranks only, which emulate its rounding",
                                 NameIn(kFp8Names, recipe)),
                     "--device cpu, or --fp8 off");
  }
  if (recipe == Fp8::kDelayed && (!job.save.empty() || !job.resume.empty())) {
    throw InputError("snapshots do not hold the histories of delayed scales",
                     "--fp8 current, whose scales need none");
  }
}

double LargestArena(const ir::Plan& plan) {
  double largest = 0;
  for (const ir::Program& program : plan.programs) {
    largest = std::max(largest, static_cast<double>(ir::ComputeLayout(plan, program).arena_bytes));
  }
  return largest;
}

// An arena that does not fit would end in a killed process, most likely somebody else's.
void CheckMemory(double largest, int64_t here) {
  const double needed = largest * static_cast<double>(here), free = launch::FreeMemory();
  if (free == 0 || needed <= free) return;
  throw InputError(fmt::format("{} rank{} on this machine need {}, and {} are free", here,
                               here == 1 ? "" : "s", Format(Bytes{needed}), Format(Bytes{free})),
                   "a smaller --micro-batch or --seq-len, ZeRO, recompute, or more machines");
}

// How the learning rate changes.
train::LrSchedule ReadLrSchedule(const RunFlags& flags, double lr, int64_t steps,
                                 Diagnostics* diagnostics) {
  constexpr train::LrShape kShapes[] = {train::LrShape::kConstant, train::LrShape::kCosine,
                                        train::LrShape::kPolynomial};
  train::LrSchedule schedule;
  const auto shape = ReadName(flags.lr_schedule, {"constant", "cosine", "polynomial"}, diagnostics);
  if (shape) schedule.shape = kShapes[*shape];
  constexpr int64_t kMost = int64_t{1} << 40;
  schedule.warmup = ReadInteger(flags.warmup, 0, kMost, diagnostics).value_or(0);
  schedule.steps = ReadInteger(flags.lr_steps, 1, kMost, diagnostics).value_or(steps);
  const double end = ReadNumber(flags.lr_end, 0, 0, diagnostics);
  schedule.end = lr > 0 ? end / lr : 0;
  schedule.power = ReadNumber(flags.lr_power, 1, 0, diagnostics);
  const bool falls = schedule.shape != train::LrShape::kConstant;
  for (const Flag* flag : {&flags.lr_steps, &flags.lr_end}) {
    if (flag->given && !falls)
      diagnostics->Error(flag->where, flag->name + " needs a schedule that falls",
                         "--lr-schedule cosine");
  }
  if (flags.lr_power.given && schedule.shape != train::LrShape::kPolynomial)
    diagnostics->Error(flags.lr_power.where, "--lr-power is that of a polynomial",
                       "--lr-schedule polynomial");
  if (falls && schedule.warmup >= schedule.steps) {
    diagnostics->Error(flags.warmup.where,
                       fmt::format("the warm-up of {} steps leaves none of {} to fall in",
                                   schedule.warmup, schedule.steps),
                       "a smaller --warmup, or a larger --lr-steps");
  }
  if (end > lr)
    diagnostics->Error(flags.lr_end.where, fmt::format("--lr-end is above --lr {}", lr),
                       "a rate from 0 to --lr");
  return schedule;
}

// What --supervise and --hostfile need.
void CheckSupervision(const RunFlags& flags, const RunJob& job) {
  Diagnostics diagnostics;
  if (flags.supervise.given && job.save.empty())
    diagnostics.Error(flags.supervise.where, "--supervise continues from snapshots", "--save DIR");
  if (flags.supervise.given && job.place.size > 0)
    diagnostics.Error(flags.supervise.where, "--supervise starts the ranks itself",
                      "run it once, without mpirun, srun or torchrun");
  if (flags.host_test.given && (!flags.supervise.given || job.hostfile.empty()))
    diagnostics.Error(flags.host_test.where, "--host-test needs --supervise and --hostfile", "");
  if (flags.host_wait.given && (!flags.supervise.given || job.hostfile.empty()))
    diagnostics.Error(flags.host_wait.where, "--host-wait needs --supervise and --hostfile", "");
  if (flags.max_restarts.given && !flags.supervise.given)
    diagnostics.Error(flags.max_restarts.where, "--max-restarts needs --supervise", "");
  if (flags.best_layout.given && flags.plan.given)
    diagnostics.Error(flags.best_layout.where, "a plan has its layout already", "--model NAME");
  if (flags.hostfile.given && job.comm == Comm::kTcp)
    diagnostics.Error(flags.hostfile.where, "a hostfile is for mpirun, and ranks are there already",
                      "omit it");
  diagnostics.ThrowIfAny();
}

// Which hosts are the nodes of the plan: line k of the hostfile is node k, else the launcher says so.
void PlaceHosts(const RunFlags& flags, const std::vector<launch::HostSlots>& hosts, RunJob* job) {
  const std::vector<int32_t>& nodes = job->plan.nodes;
  if (nodes.empty()) return;
  job->order = nodes;
  if (std::getenv(kHostsArePlaced) != nullptr)
    std::iota(job->order.begin(), job->order.end(), 0);  // by StartRanks()
  if (hosts.empty() || job->place.size > 0) return;
  const auto each = job->ranks() / static_cast<int64_t>(nodes.size());
  if (hosts.size() < nodes.size())
    throw InputError({{flags.hostfile.where,
                       fmt::format("'{}' names {} hosts, and the placement {} nodes", job->hostfile,
                                   hosts.size(), nodes.size()),
                       "line k is node k; further lines are not used"}});
  for (const int32_t node : nodes) {
    launch::HostSlots host = hosts[static_cast<std::size_t>(node)];
    if (host.slots < each)
      throw InputError(
          {{flags.hostfile.where,
            fmt::format("'{}' gives {} {} slot{}, and the placement {} ranks", job->hostfile,
                        host.host, host.slots, host.slots == 1 ? "" : "s", each),
            "as many slots as ranks on each node"}});
    host.slots = each;
    job->placed.push_back(std::move(host));
  }
}

void CheckRanks(const RunFlags& flags, int64_t asked, const launch::Place& place,
                const RunJob& job) {
  const std::string plan =
      fmt::format("the plan is for {} rank{}", job.ranks(), job.ranks() == 1 ? "" : "s");
  if (job.ranks() > kMostRunRanks)
    throw InputError(fmt::format("{}, and a run has at most {}", plan, kMostRunRanks),
                     "`plan simulate` answers for more");
  if (place.size > 0 && place.size != job.ranks()) {
    throw InputError(
        fmt::format("{}, and {} were started", plan, place.size),
        fmt::format("start {} ({}{}), or plan for {}", job.ranks(),
                    place.launcher == launch::Launcher::kTcp ? "WORLD_SIZE=" : "mpirun -n ",
                    job.ranks(), place.size));
  }
  if (asked > 0 && asked != job.ranks() && !flags.best_layout.given) {
    throw InputError({{flags.ranks.where, fmt::format("{}, not {}", plan, asked),
                       fmt::format("-n {}, or omit it", job.ranks())}});
  }
}

}  // namespace

RunJob ReadRunJob(RunFlags* flags, const launch::Place& place) {
  Diagnostics diagnostics;
  RunJob job;
  const int64_t asked = ReadInteger(flags->ranks, 1, kMostRunRanks, &diagnostics).value_or(0);
  const int64_t least = flags->export_hf.given && flags->resume.given ? 0 : 1;
  if (int64_t steps = -1; flags->export_hf.given && least > 0 &&
                          ParseInteger(flags->steps.text, &steps) == NumberFault::kNone &&
                          steps == 0)
    throw InputError(
        {{flags->steps.where, "--steps 0 trains nothing, and no snapshot is named to export",
          "--resume DIR exports its newest snapshot; or train a step: --steps 1"}});
  job.steps = ReadInteger(flags->steps, least, int64_t{1} << 40, &diagnostics).value_or(10);
  job.trace_steps = ReadInteger(flags->trace_steps, 1, kMostTracedSteps, &diagnostics).value_or(1);
  if (flags->trace_steps.given && !flags->trace.given)
    diagnostics.Error(flags->trace_steps.where, "--trace-steps needs --trace FILE", "");
  job.log_every = ReadInteger(flags->log_every, 1, int64_t{1} << 40, &diagnostics).value_or(1);
  job.seed = static_cast<uint64_t>(
      ReadInteger(flags->seed, 0, int64_t{1} << 62, &diagnostics).value_or(1));
  job.timeout_s = ReadTimeout(flags->timeout, &diagnostics);
  LowerOptions options;
  options.optimizer.lr = ReadNumber(flags->lr, options.optimizer.lr, 0, &diagnostics);
  options.optimizer.weight_decay =
      ReadNumber(flags->weight_decay, options.optimizer.weight_decay, 0, &diagnostics);
  job.lr_schedule = ReadLrSchedule(*flags, options.optimizer.lr, job.steps, &diagnostics);
  if (const auto limit = ReadWait(flags->time_limit, &diagnostics)) job.time_limit_s = *limit;
  std::optional<double> clip;
  if (flags->clip_norm.given) clip = ReadNumber(flags->clip_norm, 1, 0, &diagnostics);
  TakeCheckpointModel(flags);
  if (!flags->plan.given && !flags->job.model.given && !flags->job.own_model &&
      !flags->job.no_model) {
    diagnostics.Error(flags->plan.where, "which plan?",
                      "a file that `plan show --ir` printed, --model NAME, or --from a launch "
                      "script");
  }
  diagnostics.ThrowIfAny();
  int64_t ranks = asked > 0 ? asked : place.size;
  std::vector<launch::HostSlots> hosts;
  if (flags->hostfile.given) {
    job.hostfile = flags->hostfile.text;
    hosts = launch::ReadHostfileOfMpirun(job.hostfile);
    if (ranks == 0) ranks = launch::SlotsOf(hosts);
  }
  if (flags->plan.given) {
    job.plan = ReadPlanFile(flags->plan, flags->job, flags->layout);
    job.name = flags->plan.text;
  } else {
    Planner(flags, options, clip).Plan(ranks, static_cast<int64_t>(hosts.size()), &job);
  }
  CheckRanks(*flags, asked, place, job);
  job.place = place;
  PlaceHosts(*flags, hosts, &job);
  job.comm = ReadComm(flags->comm, place, job.ranks(), &diagnostics);
  diagnostics.ThrowIfAny();
  if (!flags->plan.given) VerifyPlan(job.name, job.plan);
  const int64_t here = place.size > 0 ? place.on_host : job.ranks();
  const double arena = LargestArena(job.plan);
  ReadDeviceFlag(flags->device, here, arena, &job);
  ReadGraphsFlag(flags->cuda_graphs, flags->trace.given || flags->profile.given, &job);
  if (!job.on_cuda) CheckMemory(arena, here);
  job.facts = ir::FactsOf(job.plan);
  job.digest = ir::Digest(job.plan);
  ReadDataFlags(*flags, &job);
  ReadSnapshotFlags(*flags, &job);
  ReadCheckpointFlags(*flags, &job);
  CheckSupervision(*flags, job);
  CheckLowPrecision(job);
  job.tensorboard = flags->tensorboard.text;
  job.profile = flags->profile.given;
  return job;
}

}  // namespace orrery::cli
