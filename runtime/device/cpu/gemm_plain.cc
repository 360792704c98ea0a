// SPDX-License-Identifier: Apache-2.0
// Products of a build without oneDNN.
#include "runtime/device/cpu/gemm.h"

namespace orrery::cpu {

void Gemm(Frame& frame, const GemmArgs& g) { frame.loops.gemm(g, frame.Scratch(GemmPackFloats())); }
bool Bf16Gemm(const Bf16Product&) { return false; }
std::string_view GemmBackend() { return "plain"; }

}  // namespace orrery::cpu
