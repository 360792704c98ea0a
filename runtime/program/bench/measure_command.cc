// SPDX-License-Identifier: Apache-2.0
// From flags to ranks, their calls, and the table.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "model/base/text.h"
#include "model/hardware/catalog.h"
#include "model/program/common/terminal.h"
#include "runtime/comm/gather.h"
#include "runtime/launch/host_memory.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/mpirun.h"
#include "runtime/program/bench/bench_command.h"
#include "runtime/program/bench/measure_report.h"
#include "runtime/program/common/device.h"

namespace orrery::bench {
namespace {

constexpr const char* kSpeaker = "plan bench";
constexpr std::size_t kAfterBench = 2;
constexpr int64_t kMostRanks = 4096;
constexpr int64_t kMostCalls = 1'000'000'000;

constexpr std::pair<std::string_view, ir::Dtype> kDtypes[] = {
    {"float", ir::Dtype::kF32},  {"half", ir::Dtype::kF16},  {"bfloat16", ir::Dtype::kBf16},
    {"double", ir::Dtype::kF64}, {"int32", ir::Dtype::kI32}, {"uint8", ir::Dtype::kU8},
};

struct BenchJob : cli::RankJob {
  Measuring what;
  int64_t buffer_bytes = 0;  // of a rank, largest
  bool quiet = false;        // no lines as they come
  std::vector<cli::FittedSize> sizes;
  std::vector<double> predicted_us;  // by size; empty: none
};

struct Outcome {
  std::vector<MeasuredRank> ranks;
  std::vector<MeasuredRow> rows;
};

void ReadType(const cli::BenchFlags& flags, Measuring* what, Diagnostics* diagnostics) {
  const auto row = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const auto& entry) {
    return entry.first == what->sweep.type.name;
  });
  if (row != std::end(kDtypes)) {
    what->dtype = row->second;
    return;
  }
  diagnostics->Error(flags.type.where,
                     fmt::format("-d: ranks do not compute with {}", what->sweep.type.name),
                     "float, half, bfloat16, double, int32 or uint8");
}

void RefuseForeignFlags(const cli::BenchFlags& flags, Diagnostics* diagnostics) {
  if (flags.log.given) {
    diagnostics->Error(flags.log.where, "--log belongs to --simulate",
                       "omit it, or put --simulate before the collective");
  }
  if (flags.predict.given) return;
  for (const cli::Flag* flag : {&flags.topology, &flags.nodes, &flags.gpus_per_node, &flags.gpu,
                                &flags.network, &flags.algorithm}) {
    if (!flag->given) continue;
    diagnostics->Error(flag->where, flag->name + " needs --simulate or --predict",
                       "plan bench --simulate all_reduce --topology aws-g5-1gpu --nodes 2");
  }
}

int64_t RanksOf(const cli::BenchFlags& flags, const launch::Place& place,
                Diagnostics* diagnostics) {
  const auto asked = cli::ReadInteger(flags.ranks, 1, kMostRanks, diagnostics);
  if (asked && place.size > 0 && *asked != place.size) {
    diagnostics->Error(flags.ranks.where,
                       fmt::format("{} ranks, and {} were started", *asked, place.size),
                       "omit --ranks when another launcher starts the ranks");
  }
  if (asked) return *asked;
  if (place.size > 0) return place.size;
  if (flags.device.text == "cuda") return std::max<int64_t>(1, cli::GpusHere());
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

// Where nothing else is said, this machine.
void PredictTimes(const cli::BenchFlags& flags, BenchJob* job) {
  cli::BenchFlags here;
  for (cli::Flag cli::BenchFlags::*flag :
       {&cli::BenchFlags::topology, &cli::BenchFlags::nodes, &cli::BenchFlags::gpus_per_node,
        &cli::BenchFlags::gpu, &cli::BenchFlags::network, &cli::BenchFlags::algorithm})
    here.*flag = flags.*flag;
  const auto set = [](cli::Flag* flag, std::string text) {
    flag->text = std::move(text);
    flag->given = true;
  };
  if (!here.topology.given) {
    set(&here.topology, "localhost");
  }
  if (!here.gpus_per_node.given && LoadTopology(here.topology.text).max_nodes == 1)
    set(&here.gpus_per_node, std::to_string(job->what.ranks));
  const auto simulation = cli::MakeSimulation(here, job->what.sweep.collective);
  if (simulation->ranks() != job->what.ranks) {
    throw InputError(
        fmt::format("{} has {} ranks here, and {} are measured", simulation->cluster().summary.name,
                    simulation->ranks(), job->what.ranks),
        "set --nodes and --gpus-per-node to match");
  }
  job->what.topology = simulation->cluster().summary.name;
  for (const cli::FittedSize& size : job->sizes) {
    const Bytes bytes(static_cast<double>(size.bytes));
    cli::AtFlag(flags.algorithm, [&] {
      job->predicted_us.push_back(
          1e6 *
          simulation->Time(job->what.sweep.collective, bytes, flags.algorithm.text).time.value);
    });
  }
}

// Input and output of the largest size, of all ranks here.
void CheckSizes(const cli::BenchFlags& flags, BenchJob* job) {
  const int64_t here = job->place.size > 0 ? job->place.on_host : job->what.ranks;
  cli::ReadDeviceFlag(flags.device, here, static_cast<double>(job->buffer_bytes), job);
  job->what.device = job->on_cuda ? job->gpu : "CPU";
  if (job->on_cuda) return;
  const double needed = static_cast<double>(job->buffer_bytes * here), free = launch::FreeMemory();
  if (free == 0 || needed <= free) return;
  throw InputError(fmt::format("{} rank{} on this machine need {}, and {} are free", here,
                               here == 1 ? "" : "s", Format(Bytes{needed}), Format(Bytes{free})),
                   "a smaller -e, or fewer --ranks");
}

BenchJob ReadBenchJob(const cli::BenchFlags& flags) {
  BenchJob job;
  Measuring& what = job.what;
  what.sweep = cli::ReadSweep(flags);
  job.place = launch::FindPlace();
  Diagnostics diagnostics;
  RefuseForeignFlags(flags, &diagnostics);
  ReadType(flags, &what, &diagnostics);
  const auto calls = [&](const cli::Flag& flag, int64_t least, int64_t otherwise) {
    return cli::ReadInteger(flag, least, kMostCalls, &diagnostics).value_or(otherwise);
  };
  what.options.iterations = calls(flags.iterations, 1, what.options.iterations);
  what.options.warmup = calls(flags.warmup, 0, what.options.warmup);
  what.options.checks = calls(flags.check, 0, what.options.checks);
  what.options.deadline_s = job.timeout_s = cli::ReadTimeout(flags.timeout, &diagnostics);
  what.maximum = cli::ReadName(flags.operation, {"sum", "max"}, &diagnostics).value_or(0) == 1;
  what.ranks = RanksOf(flags, job.place, &diagnostics);
  what.comm = job.comm = cli::ReadComm(flags.comm, job.place, what.ranks, &diagnostics);
  diagnostics.ThrowIfAny();
  what.size_step = flags.step.given     ? flags.step.text + "(bytes)"
                   : flags.factor.given ? flags.factor.text + "(factor)"
                                        : "2(factor)";
  for (const int64_t bytes : what.sweep.bytes) {
    job.sizes.push_back(
        cli::FitSize(what.sweep.collective, bytes, static_cast<int>(what.ranks), what.sweep.type));
  }
  for (const cli::FittedSize& size : job.sizes) {
    const Pattern pattern{what.sweep.collective, what.dtype, what.maximum, what.ranks, size.count};
    job.buffer_bytes = std::max(job.buffer_bytes, BufferBytes(pattern));
  }
  CheckSizes(flags, &job);
  job.quiet = (flags.json.given && flags.json.text.empty()) || cli::CurrentTerminal().quiet;
  if (flags.predict.given && job.place.rank == 0) PredictTimes(flags, &job);
  return job;
}

void Say(const BenchJob& job, const std::string& text) {
  if (job.quiet) return;
  fmt::print("{}", text);
  std::fflush(stdout);
}

// "host process" of every rank, on rank 0.
std::vector<MeasuredRank> WhoTakesPart(const BenchJob& job, comm::Endpoint* endpoint) {
  std::vector<MeasuredRank> ranks;
  const std::string here = fmt::format("{} {}", getpid(), endpoint->host());
  for (const std::string& text : comm::GatherText(endpoint, here, job.what.options.deadline_s)) {
    const std::size_t space = text.find(' ');
    ranks.push_back({text.substr(space + 1), std::stoll(text)});
  }
  return ranks;
}

void MeasureRank(const BenchJob& job, comm::Endpoint* endpoint, Outcome* outcome) {
  const bool speaks = endpoint->rank() == 0;
  const std::vector<MeasuredRank> ranks = WhoTakesPart(job, endpoint);
  if (speaks) outcome->ranks = ranks;
  if (speaks) Say(job, HeadingText(job.what, ranks));
  const auto accelerator = cli::OpenAccelerator(job, endpoint->rank());
  const auto queue = cli::OpenQueue(job, endpoint->rank());
  CollectiveTimer timer(endpoint, job.what.options,
                        {accelerator.get(), queue.get(), job.buffer_bytes});
  for (std::size_t i = 0; i < job.sizes.size(); ++i) {
    const Pattern pattern{job.what.sweep.collective, job.what.dtype, job.what.maximum,
                          job.what.ranks, job.sizes[i].count};
    MeasuredRow row{job.sizes[i], timer.Measure(pattern), {}};
    if (!speaks) continue;
    if (!job.predicted_us.empty()) row.predicted_us = job.predicted_us[i];
    Say(job, RowText(job.what, row));
    outcome->rows.push_back(row);
  }
}

[[noreturn]] void EndWith(const std::string& why) {
  fmt::print(stderr, "{}: error: {}\n", kSpeaker, why);
  std::fflush(nullptr);
  cli::DeliverFailure(why, cli::ExitCode::kFailure);
  std::_Exit(static_cast<int>(cli::ExitCode::kFailure));
}

// False: this or another rank has failed, and it was said.
bool MeasureProcess(const BenchJob& job, Outcome* outcome) {
  auto host = cli::ConnectProcess(job.comm, job.place, job.timeout_s, kSpeaker);
  if (host == nullptr) return false;
  const std::unique_ptr<comm::Endpoint> endpoint = cli::OverNccl(job, std::move(host), kSpeaker);
  if (endpoint == nullptr) return false;
  const auto report = [&](const std::string& why) {
    endpoint->Abort(fmt::format("rank {} on {}: {}", endpoint->rank(), endpoint->host(), why));
  };
  try {
    MeasureRank(job, endpoint.get(), outcome);
    return true;
  } catch (const comm::CommError& error) {
    if (!error.peer_failed) report(error.what());
  } catch (const std::bad_alloc&) {
    report("out of memory; a smaller -e");
  } catch (const std::exception& error) {
    report(error.what());
  }
  return false;
}

void MeasureThreads(const BenchJob& job, Outcome* outcome) {
  constexpr double kGrace = 5;  // seconds for the other ranks to notice
  cli::GpuThreads gpu(job);
  const std::string failure = launch::RunLocalRanks(
      job.what.ranks,
      [&](comm::Endpoint* endpoint) {
        const std::unique_ptr<comm::Endpoint> on_gpu = gpu.Connect(endpoint);
        MeasureRank(job, on_gpu != nullptr ? on_gpu.get() : endpoint, outcome);
      },
      kGrace, EndWith);
  if (!failure.empty()) EndWith(failure);
}

}  // namespace

cli::Answer MeasureCollective(const cli::BenchFlags& flags, const std::vector<std::string>& words) {
  const launch::Place place = launch::FindPlace();
  BenchJob job;
  try {
    job = ReadBenchJob(flags);
    if (place.rank == 0) flags.set.CheckOutputs();
  } catch (const InputError&) {
    if (place.rank == 0) throw;
    return {cli::ExitCode::kInputError, ""};  // rank 0 says what is wrong
  }
  if (job.what.comm == cli::Comm::kMpi && place.size == 0) {
    std::vector<std::string> again = {launch::OwnProgram()};
    for (std::string& word : cli::LooksForRanks()) again.push_back(std::move(word));
    again.insert(again.end(), words.begin() + kAfterBench, words.end());
    std::fflush(nullptr);
    std::string why;
    const auto code = static_cast<cli::ExitCode>(
        launch::RunMpirun(launch::FindMpirun(), job.what.ranks, again, kSpeaker, {}, &why));
    if (code == cli::ExitCode::kFailure) cli::DeliverFailure(why, code);
    return {code, ""};
  }
  Outcome outcome;
  if (job.what.comm == cli::Comm::kLocal) {
    MeasureThreads(job, &outcome);
  } else if (!MeasureProcess(job, &outcome)) {
    if (place.rank == 0 && std::getenv(launch::kOwnMpirun) == nullptr)
      cli::DeliverFailure("a rank has failed: standard error says why", cli::ExitCode::kFailure);
    return {cli::ExitCode::kFailure, ""};
  }
  if (place.rank != 0) return {};
  const int64_t wrong = WrongOf(outcome.rows);
  if (wrong > 0) fmt::print(stderr, "{}: error: {} wrong elements\n", kSpeaker, wrong);
  cli::Answer answer = cli::Deliver(
      wrong > 0 ? cli::ExitCode::kFailure : cli::ExitCode::kOk, EndText(job.what, outcome.rows),
      MeasuredJson(job.what, outcome.ranks, outcome.rows), flags.json);
  answer.brief = BriefText(job.what, outcome.rows);
  return answer;
}

}  // namespace orrery::bench
