// SPDX-License-Identifier: Apache-2.0
// The program behind `plan run`.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/program/common/launcher_guard.h"
#include "model/program/common/program.h"
#include "model/program/common/terminal.h"
#include "model/program/common/time_report.h"
#include "runtime/data/make_source.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/mpirun.h"
#include "runtime/launch/stop_request.h"
#include "runtime/program/common/device.h"
#include "runtime/program/run/console.h"
#include "runtime/program/run/event_hook.h"
#include "runtime/program/run/lives.h"
#include "runtime/program/run/observe.h"
#include "runtime/program/run/profile.h"
#include "runtime/program/run/supervise.h"
#include "runtime/train/lr_hook.h"
#include "runtime/train/peak.h"
#include "runtime/train/snapshot/folder_lock.h"
#include "runtime/train/snapshot/hook.h"
#include "runtime/train/stop_hook.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kBehindRun = 2;  // plan run
constexpr const char* kSpeaker = "plan run";
const auto kBegin = std::chrono::steady_clock::now();  // of the process

snapshot::HookOptions SnapshotOptions(const RunJob& job, bool quiet) {
  snapshot::HookOptions options{job.save, job.save_every,    job.resume,    job.seed,
                                job.data, job.facts.samples, job.timeout_s, job.steps};
  options.conditions = ConditionsOf(job);
  options.note = [](const std::string& text) { Say(stderr, fmt::format("plan run: {}\n", text)); };
  if (quiet) return options;
  options.progress = [](const std::string& text) { Say(stdout, text + "\n"); };
  return options;
}

// What rank 0 ends up with, and each process.
struct Outcome {
  Observer observer;
  StepProfile profile;
  std::string stopped;   // why training ended early; empty: it did not
  bool at_once = false;  // before the first step
  bool peer_failed = false;
  bool joined = true;  // the other ranks
};

bool TrainHere(const RunJob& job, comm::Endpoint* endpoint, Outcome* outcome) {
  Observer* observer = &outcome->observer;
  const auto data = train::MakeSource(job.data_from, DataSpecOf(job), train::ShapeOf(job.plan),
                                      job.facts.samples);
  launch::TrainOptions options;
  options.steps = job.steps;
  options.execute.seed = job.seed;
  options.execute.given = job.given.get();
  // All ranks agree on it behind, see StopHook.
  options.execute.stops = [] { return launch::SignalSeen() != 0; };
  options.execute.deadline_s = job.timeout_s;
  options.execute.marks =
      job.profile || !outcome->observer.trace_file.empty() || outcome->observer.wants_timeline;
  const auto accelerator = OpenAccelerator(job, endpoint->rank());
  options.execute.accelerator = accelerator.get();
  RankObserver hook(job, endpoint, observer);
  snapshot::SnapshotHook snapshots(SnapshotOptions(job, observer->quiet), endpoint, data.get());
  EventHook events(job, endpoint, observer->peak_flops_per_s);
  // On CPU ranks every op is timed anyway.
  ProfileHook profile(options.execute.marks || !job.on_cuda, job.plan, endpoint, job.timeout_s,
                      &outcome->profile);
  launch::LrHook rate(job.lr_schedule);
  launch::StopHook stop(endpoint, job.timeout_s, job.time_limit_s, kBegin);
  LifeHook life(job, endpoint);  // behind the snapshot that it continues from
  std::vector<launch::StepHook*> hooks{&hook, &events, &profile, &snapshots, &life, &rate, &stop};
  std::optional<weights::ExportHook> exporter;
  if (job.export_hf) {
    exporter.emplace(*job.export_hf, job.save, job.steps, job.seed, endpoint, job.timeout_s,
                     SnapshotOptions(job, observer->quiet).progress);
    hooks.push_back(&*exporter);  // behind the last snapshot
  }
  const bool threads = job.comm == Comm::kLocal;
  options.stopped_by_peer = [&](const std::string& why) {
    if (job.comm != Comm::kTcp) return;  // the run has one message, and mpirun ends the others
    fmt::print(stderr, "plan run: rank {} on {} ends because {}\n", endpoint->rank(),
               endpoint->host(), why);
    outcome->peer_failed = true;
  };
  const bool good = launch::TrainRank(job.plan, endpoint, data.get(), options, hooks);
  if (endpoint->rank() == 0 || !threads) {
    outcome->stopped = stop.why();
    outcome->at_once = stop.at_once();
  }
  return good;
}

[[noreturn]] void EndWithFailure(const std::string& why) {
  launch::WriteCause(why);
  fmt::print(stderr, "plan run: error: {}\n", why);
  std::fflush(nullptr);
  DeliverFailure(why, ExitCode::kFailure);
  std::_Exit(static_cast<int>(ExitCode::kFailure));
}

double PeakOf(const RunJob& job) {
  if (launch::SignalSeen() != 0) return 0;  // no step will be compared with it
  return job.on_cuda ? job.gpu_peak : launch::MeasurePeak();
}

bool RunAsThreads(const RunJob& job, Outcome* outcome) {
  outcome->observer.peak_flops_per_s = PeakOf(job);
  constexpr double kGrace = 5;  // seconds for the other ranks to notice
  std::optional<GpuThreads> gpu;
  if (job.ranks() > 1) gpu.emplace(job);
  const std::string failure = launch::RunLocalRanks(
      job.ranks(),
      [&](comm::Endpoint* endpoint) {
        const std::unique_ptr<comm::Endpoint> on_gpu = gpu ? gpu->Connect(endpoint) : nullptr;
        TrainHere(job, on_gpu != nullptr ? on_gpu.get() : endpoint, outcome);
      },
      kGrace, EndWithFailure);
  if (!failure.empty()) EndWithFailure(failure);
  return true;
}

// The end of a training that was stopped.
std::string StoppedWords(const RunJob& job, const std::string& why, bool at_once) {
  const std::string& from = at_once ? job.resume : job.save;
  const std::string next = !from.empty() ? fmt::format("continue with --resume {}", from)
                           : at_once     ? "nothing is saved: it had not begun its first step"
                                         : "nothing is saved: --save DIR was not given";
  return fmt::format("plan run: stopped by {}; {}\n", why, next);
}

// Says it; the run's exit code.
ExitCode Stopped(const RunJob& job, const std::string& why, bool at_once) {
  Say(stderr, StoppedWords(job, why, at_once));
  return ExitCode{launch::kStoppedCode};
}

bool RunAsProcess(RunJob* job, Outcome* outcome) {
  std::optional<launch::WhileJoining> joining(std::in_place);
  auto host = ConnectProcess(job->comm, job->place, job->timeout_s, kSpeaker, job->order,
                             &outcome->peer_failed);
  outcome->joined = host != nullptr;
  if (host == nullptr) return false;
  job->place.rank = host->rank();
  if (job->place.rank == 0) outcome->observer.peak_flops_per_s = PeakOf(*job);
  if (job->ranks() > 1) host = OverNccl(*job, std::move(host), kSpeaker);
  joining.reset();
  const bool good = host != nullptr && TrainHere(*job, host.get(), outcome);
  // Before MPI is left, which lasts until an mpirun that ends kills this process.
  if (good && job->place.rank == 0 && !outcome->stopped.empty())
    launch::WriteEndNote(StoppedWords(*job, outcome->stopped, outcome->at_once));
  // MPI cannot be left in order without the mpirun that is gone.
  if (good && LauncherIsGone() && !outcome->stopped.empty()) {
    if (job->place.rank == 0) Stopped(*job, outcome->stopped, outcome->at_once);
    std::fflush(nullptr);
    std::_Exit(launch::kStoppedCode);
  }
  return good;
}

// Of an mpirun that was started by hand: a second signal ends it at once, before its ranks hear of the first. What they have
// done is saved then.
void LauncherEnded() {
  if (!LauncherIsGone()) return;
  if (std::getenv(launch::kOwnMpirun) != nullptr) EndAlone();
  launch::RequestStop(launch::kLauncherGone);
}

// The same words again, on every rank.
ExitCode StartRanks(const RunJob& job, const std::vector<std::string>& words) {
  std::vector<std::string> again = {launch::OwnProgram()};
  for (std::string& word : cli::LooksForRanks()) again.push_back(std::move(word));
  again.insert(again.end(), words.begin() + kBehindRun, words.end());
  std::fflush(nullptr);
  if (launch::SignalSeen() != 0)
    return Stopped(job, launch::SignalName(launch::SignalSeen()), true);
  if (!job.placed.empty()) setenv(kHostsArePlaced, "1", 1);
  std::string why;
  const auto code = static_cast<ExitCode>(launch::RunMpirun(
      launch::FindMpirun(), job.ranks(), again, kSpeaker, {job.hostfile, job.placed}, &why));
  if (code == ExitCode::kFailure) DeliverFailure(why, code);
  return code;
}

// One run at a time writes into --save.
std::unique_ptr<snapshot::FolderLock> LockFolder(const RunFlags& flags, const RunJob& job) {
  if (job.save.empty() || job.place.rank != 0) return nullptr;
  try {
    auto lock = std::make_unique<snapshot::FolderLock>(job.save);
    CheckSaveFolder(flags, job);  // another run may have ended there while this one waited
    return lock;
  } catch (const snapshot::FolderInUse& error) {
    const Flag& flag = flags.save.given ? flags.save : flags.resume;
    throw InputError({{flag.where, error.what(), "wait for it, or use another folder"}});
  } catch (const snapshot::SnapshotError& error) {
    if (flags.save.given)
      throw InputError({{flags.save.where, error.what(), "a folder that can be written"}});
    throw InputError({{flags.resume.where,
                       fmt::format("{}: a run that continues saves there, too", error.what()),
                       "--save DIR: another folder for the snapshots to come"}});
  }
}

// Of a run that ended in order; says why it ended early.
ExitCode CodeOf(const RunJob& job, const Outcome& outcome) {
  if (outcome.stopped.empty()) return ExitCode::kOk;
  // mpirun ends the others when one rank ends with a code: only rank 0, which is the last to be done.
  if (job.place.rank != 0)
    return job.comm == Comm::kMpi ? ExitCode::kOk : ExitCode{launch::kStoppedCode};
  return Stopped(job, outcome.stopped, outcome.at_once);
}

// Ranks that were asked to stop while they met do not come.
ExitCode FailureOf(const Outcome& outcome) {
  if (!outcome.joined && launch::SignalSeen() != 0) return ExitCode{launch::kStoppedCode};
  return outcome.peer_failed ? ExitCode{launch::kPeerFailedCode} : ExitCode::kFailure;
}

// Why, a rank has said; of ranks that this program has started, it answers for all.
Answer Failed(const launch::Place& place, ExitCode code) {
  if (place.rank == 0 && std::getenv(launch::kOwnMpirun) == nullptr)
    DeliverFailure("a rank has failed: standard error says why", code);
  return {code, ""};
}

// Of an mpirun that somebody else has started: it does not wait for what its ranks save.
std::string MpirunNote(const launch::Place& place, const RunJob& job) {
  if (job.save.empty() || place.size == 0 || place.launcher != launch::Launcher::kMpi ||
      std::getenv(launch::kOwnMpirun) != nullptr || std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr)
    return "";
  return "mpirun kills its ranks 2 s after Ctrl-C or SIGTERM and ends with 1: a longer step ends "
         "without a snapshot; kill -USR1 of mpirun ends the run after its step, with a snapshot "
         "and exit code 85";
}

Answer RunCommand(const CommandLine& line) {
  RunFlags flags;
  if (flags.set.Parse(line, kBehindRun, false)) return {ExitCode::kOk, DescribeRun().help};
  launch::WatchSignals(kSpeaker, LauncherSignal(), LauncherEnded);
  const launch::Place place = launch::FindPlace();
  // An mpirun that ends closes its pipes first.
  if (place.launcher == launch::Launcher::kMpi) signal(SIGPIPE, SIG_IGN);
  RunJob job;
  try {
    TakeImports(
        &flags.job, &flags.layout, nullptr,
        {&flags.ranks, &flags.steps, &flags.data, &flags.seed, &flags.lr, &flags.lr_schedule,
         &flags.lr_steps, &flags.lr_end, &flags.warmup, &flags.weight_decay, &flags.clip_norm});
    job = ReadRunJob(&flags, place);
    job.notes.insert(job.notes.begin(), flags.job.notes.begin(), flags.job.notes.end());
    if (std::string note = MpirunNote(place, job); !note.empty())
      job.notes.push_back(std::move(note));
    if (place.rank == 0) {
      CheckHtml(flags.html, flags.json);
      CheckOutputs(flags);
    }
  } catch (const InputError&) {
    if (place.rank == 0) throw;
    return {ExitCode::kInputError, ""};  // rank 0 says what is wrong
  }
  if (flags.supervise.given) return Supervise(flags, job, line);
  if (job.comm == Comm::kMpi && place.size == 0) return {StartRanks(job, line.words()), ""};
  const std::unique_ptr<snapshot::FolderLock> lock = LockFolder(flags, job);
  for (const std::string& note : place.rank == 0 ? job.notes : std::vector<std::string>{})
    fmt::print(stderr, "plan run: note: {}\n", note);
  Outcome outcome;
  Observer& observer = outcome.observer;
  observer.quiet = (flags.json.given && flags.json.text.empty()) || CurrentTerminal().quiet;
  observer.trace_file = flags.trace.text;
  observer.trace_steps = job.trace_steps;
  observer.wants_timeline = flags.html.given && !job.graphs;
  if (!(job.comm != Comm::kLocal ? RunAsProcess(&job, &outcome) : RunAsThreads(job, &outcome)))
    return Failed(job.place, FailureOf(outcome));
  const ExitCode code = CodeOf(job, outcome);
  if (job.place.rank != 0 || observer.record.parts.empty())
    return {code, ""};  // or no rank has begun
  const std::string text =
      RunSummary(job, observer.record, observer.peak_flops_per_s, outcome.at_once) +
      (job.profile ? ProfileText(outcome.profile) : "");
  // Of millions of steps the record is large, and nobody asks for it.
  if (!flags.json.given && !flags.html.given) return {code, text};
  auto record = RunJson(job, observer.record, observer.peak_flops_per_s);
  if (outcome.profile.steps > 0) {  // of the mean step, which is not the median
    record["breakdown"] = report::TimeJson(outcome.profile.breakdown);
    record["breakdown_step_s"] = outcome.profile.seconds;
  }
  if (!observer.timeline.is_null()) record["timeline"] = std::move(observer.timeline);
  if (flags.html.given && job.graphs)
    record["not_pictured"] = "ops of CUDA graphs are not timed one by one (--cuda-graphs off)";
  if (job.profile) record["profile"] = ProfileJson(outcome.profile);
  return Deliver(code, text, record, flags.json, flags.html);
}

}  // namespace
}  // namespace orrery::cli

int main(int argc, char** argv) {
  orrery::cli::HoldStopRequests();
  return orrery::cli::ProgramMain("run", argc, argv, orrery::cli::RunCommand, {{"-n", "--ranks"}});
}
