// SPDX-License-Identifier: Apache-2.0
// From the flag to files and a summary.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>

#include "model/program/common/terminal.h"
#include "runtime/machine/machine_files.h"
#include "runtime/program/bench/bench_command.h"

namespace orrery::machine {
namespace {

double MemoryOfMachine() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

void RefuseOthers(const cli::BenchFlags& flags) {
  Diagnostics diagnostics;
  for (const cli::Flag* flag : {&flags.collective, &flags.simulate, &flags.begin, &flags.end,
                                &flags.predict, &flags.topology, &flags.ranks, &flags.log}) {
    if (flag->given)
      diagnostics.Error(flag->where, "--calibrate takes no flags of a single measurement",
                        "omit this flag");
  }
  diagnostics.ThrowIfAny();
}

std::string SummaryOf(const Measured& m, const std::string& folder, double seconds) {
  std::set<std::string> kernels;
  for (const KernelTime& time : m.kernels.kernels) kernels.insert(time.of.kernel);
  std::string text = fmt::format(
      "{} cores, {:.1f} GFLOP/s each (matrix products)\n{} kernels in {} shapes, {} times of "
      "collectives, in {:.0f} s\n",
      m.cores, m.kernels.peak * 1e-9, kernels.size(), m.kernels.kernels.size(),
      m.collectives.size(), seconds);
  for (const LeftOut& left : m.kernels.left_out)
    text += fmt::format(
        "leave-one-out check of the table: {}: {:.2f} ms of kernels per step, predicted {:+.1f} "
        "%\n",
        left.name, 1e3 * left.measured, 100 * (left.predicted / left.measured - 1));
  const std::string file = (std::filesystem::path(folder) / kTopologyFile).string();
  return text + fmt::format(
                    "now: plan run --model gpt2-micro --topology {0} ..., plan simulate --topology "
                    "{0} ...\n",
                    file);
}

nlohmann::ordered_json JsonOf(const Measured& m, const std::string& folder, double seconds) {
  nlohmann::ordered_json left = nlohmann::ordered_json::array();
  for (const LeftOut& model : m.kernels.left_out)
    left.push_back(
        {{"model", model.name}, {"measured_s", model.measured}, {"predicted_s", model.predicted}});
  return {{"schema", "orrery.machine/1"},
          {"folder", folder},
          {"cores", m.cores},
          {"peak_flops_per_s", m.kernels.peak},
          {"shapes", m.kernels.kernels.size()},
          {"collective_times", m.collectives.size()},
          {"left_out", left},
          {"seconds", seconds}};
}

}  // namespace

cli::Answer Calibrate(const cli::BenchFlags& flags) {
  RefuseOthers(flags);
  const auto begin = std::chrono::steady_clock::now();
  const std::string folder = flags.calibrate.text;
  const auto note = [](const std::string& what) {
    if (cli::CurrentTerminal().quiet) return;
    fmt::print(stderr, "plan bench: measuring {}\n", what);
  };
  Measured measured;
  measured.cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  measured.memory_bytes = MemoryOfMachine();
  try {
    measured.kernels = SweepKernels(measured.cores, measured.precision, note);
    measured.collectives = SweepCollectives(measured.cores, note);
    WriteMachine(measured, folder);
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "plan bench: error: {}\n", error.what());
    cli::DeliverFailure(error.what(), cli::ExitCode::kFailure);
    return {cli::ExitCode::kFailure, ""};
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return cli::Deliver(cli::ExitCode::kOk, SummaryOf(measured, folder, seconds),
                      JsonOf(measured, folder, seconds), flags.json);
}

}  // namespace orrery::machine
