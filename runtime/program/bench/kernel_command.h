// SPDX-License-Identifier: Apache-2.0
// `plan bench gemm|attention|memory`: this project's own kernels at a model's shapes.
#pragma once

#include "model/program/common/answer.h"

namespace orrery {

// The word behind `bench` names kernels, not a collective.
bool BenchesKernels(const cli::CommandLine& line);
// Throws InputError.
cli::Answer BenchKernels(const cli::CommandLine& line);

}  // namespace orrery
