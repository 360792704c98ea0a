// SPDX-License-Identifier: Apache-2.0
// How much of a training step is spent in ops, on one rank and on two.
#pragma once

namespace orrery {

// Prints one line per figure: name = value unit.
void BenchExecutor();

}  // namespace orrery
