// SPDX-License-Identifier: Apache-2.0
// `plan calibrate` for sweeps of collectives.
#pragma once

#include "model/program/common/fidelity_flags.h"

namespace orrery {

// Whether one of the files holds collective times.
bool NamesSweeps(const cli::CalibrateFlags& flags);
// Fits, prints and writes. Throws InputError.
void CalibrateSweeps(const cli::CalibrateFlags& flags);

}  // namespace orrery
