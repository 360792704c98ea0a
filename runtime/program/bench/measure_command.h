// SPDX-License-Identifier: Apache-2.0
// `plan bench COLLECTIVE`: ranks that run a collective and the table of what they took.
#pragma once

#include <string>
#include <vector>

#include "model/program/common/answer.h"
#include "model/program/common/bench_flags.h"

namespace orrery::bench {

// What BenchHooks::measure does. `words` is the command line, to start it again on every rank.
// Wrong results: exit code 1.
cli::Answer MeasureCollective(const cli::BenchFlags& flags, const std::vector<std::string>& words);

}  // namespace orrery::bench
