// SPDX-License-Identifier: Apache-2.0
// `plan calibrate` for sweeps of collectives.
#pragma once

namespace orrery {

// Whether an argument names a file with collective times.
bool NamesSweeps(int argc, char** argv);
// Exit code of the program.
int CalibrateSweeps(int argc, char** argv);

}  // namespace orrery
