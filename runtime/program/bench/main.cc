// SPDX-License-Identifier: Apache-2.0
// The program behind `plan bench`.
#include "model/program/common/program.h"
#include "runtime/program/bench/bench_command.h"

namespace orrery {
namespace {

cli::Answer Bench(const cli::CommandLine& line) {
  return BenchesKernels(line) ? BenchKernels(line) : cli::BenchCollective(line);
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("bench", argc, argv, orrery::Bench, {{"-g", "--ranks"}});
}
