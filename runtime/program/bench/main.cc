// SPDX-License-Identifier: Apache-2.0
// The program behind `plan bench`: its command, a reader of nccl-tests' logs, and ranks that
// measure.
#include <algorithm>

#include "calib/import/nccl_log.h"
#include "model/program/common/program.h"
#include "runtime/program/bench/bench_command.h"

namespace orrery {
namespace {

cli::MeasuredLog ReadLog(const std::string& path) {
  measured::NcclLog read = measured::ReadNcclLog(ReadSource(path));
  cli::MeasuredLog log;
  log.source = read.source;
  log.garbled = std::move(read.garbled);
  log.garbled_lines = read.garbled_lines;
  for (const measured::NcclRun& run : read.runs) {
    cli::MeasuredSweep sweep{run.collective, run.ranks, run.hosts(), run.line, {}};
    for (const measured::Measurement& row : run.measurements) {
      const measured::Timing& timing = row.out_of_place ? *row.out_of_place : *row.in_place;
      sweep.points.push_back({row.bytes, timing.us, row.line});
    }
    log.sweeps.push_back(std::move(sweep));
  }
  return log;
}

cli::Answer Bench(const cli::CommandLine& line) {
  if (BenchesKernels(line)) return BenchKernels(line);
  const auto measure = [&](const cli::BenchFlags& flags) {
    if (flags.calibrate.given) return machine::Calibrate(flags);
    return bench::MeasureCollective(flags, line.words());
  };
  return cli::RunBench(line, {ReadLog, measure});
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("bench", argc, argv, orrery::Bench, {{"-g", "--ranks"}});
}
