// SPDX-License-Identifier: Apache-2.0
// `plan bench`, apart from its program: whoever can read logs or run collectives hands that in.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/program/common/answer.h"
#include "model/program/common/bench_flags.h"
#include "model/program/common/command_line.h"
#include "runtime/program/bench/bench_sweep.h"

namespace orrery::cli {

// One measured table of a log.
struct MeasuredSweep {
  struct Point {
    int64_t bytes = 0;
    double us = 0;  // out of place; in place where that is all there is
    int line = 0;
  };
  std::string collective;  // "": the log does not say
  int ranks = 0;           // 0: the log does not say
  int hosts = 0;           // likewise
  int line = 0;            // of the table in the log
  std::vector<Point> points;
};

struct MeasuredLog {
  SourcePtr source;
  std::vector<MeasuredSweep> sweeps;
  std::vector<Diagnostic> garbled;  // lines that could not be read, the first of them
  int64_t garbled_lines = 0;
};

struct BenchHooks {
  std::function<MeasuredLog(const std::string& path)> read_log;
  // `plan bench` without --simulate; empty: this program cannot measure.
  std::function<Answer(const BenchFlags& flags)> measure;
};

// The cluster of the flags, ready to predict. Throws InputError.
std::unique_ptr<BenchSimulation> MakeSimulation(const BenchFlags& flags, Collective collective);

Answer RunBench(const CommandLine& line, const BenchHooks& hooks);

}  // namespace orrery::cli

namespace orrery {

// The word behind `bench` names kernels, not a collective.
bool BenchesKernels(const cli::CommandLine& line);
// Throws InputError.
cli::Answer BenchKernels(const cli::CommandLine& line);

}  // namespace orrery

namespace orrery::bench {

// What BenchHooks::measure does. `words` is the command line, to start it again on every rank.
// Wrong results: exit code 1.
cli::Answer MeasureCollective(const cli::BenchFlags& flags, const std::vector<std::string>& words);

}  // namespace orrery::bench

namespace orrery::machine {

// Writes DIR/machine.yaml and DIR/cpu.yaml; says what was measured and how well it fits.
cli::Answer Calibrate(const cli::BenchFlags& flags);

}  // namespace orrery::machine
