// SPDX-License-Identifier: Apache-2.0
// `plan bench --calibrate DIR`: measures this machine.
#pragma once

#include "model/program/common/answer.h"
#include "model/program/common/bench_flags.h"

namespace orrery::machine {

// Writes DIR/machine.yaml and DIR/cpu.yaml; says what was measured and how well it fits.
cli::Answer Calibrate(const cli::BenchFlags& flags);

}  // namespace orrery::machine
