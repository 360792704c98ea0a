// SPDX-License-Identifier: Apache-2.0
// The commands of `plan bench`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/program/common/answer.h"
#include "model/program/common/bench_flags.h"
#include "model/program/common/command_line.h"
#include "runtime/program/bench/bench_sweep.h"

namespace orrery::cli {

// The cluster of the flags, ready to predict. Throws InputError.
std::unique_ptr<BenchSimulation> MakeSimulation(const BenchFlags& flags, Collective collective);

// A file with what NCCL or nccl-tests wrote. Throws InputError: it is another program's, of a cluster.
SourcePtr NcclSource(const Flag& file);

// What NCCL wrote (--nccl FILE) beside the twin's choices. Throws InputError.
Answer CompareNccl(const BenchFlags& flags, const BenchSimulation& simulation,
                   Collective collective);

// A collective: simulated, next to a log or measured; or --calibrate. Throws InputError.
Answer BenchCollective(const CommandLine& line);

}  // namespace orrery::cli

namespace orrery {

// The word behind `bench` names kernels, not a collective.
bool BenchesKernels(const cli::CommandLine& line);
// Throws InputError.
cli::Answer BenchKernels(const cli::CommandLine& line);

}  // namespace orrery

namespace orrery::bench {

// Without --simulate. `words` is the command line, to start it again on every rank.
// Wrong results: exit code 1.
cli::Answer MeasureCollective(const cli::BenchFlags& flags, const std::vector<std::string>& words);

}  // namespace orrery::bench

namespace orrery::machine {

// Writes DIR/machine.yaml and DIR/cpu.yaml; says what was measured and how well it fits.
cli::Answer Calibrate(const cli::BenchFlags& flags);

}  // namespace orrery::machine
