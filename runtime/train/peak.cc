// SPDX-License-Identifier: Apache-2.0
// Times the matrix product kernel.
#include "runtime/train/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/device/cpu/kernels.h"

namespace orrery::launch {

double MeasurePeak() {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSize = 1024;
  constexpr int kTrials = 8;
  std::vector<float> a(kSize * kSize, 0.5f), b(kSize * kSize, 0.25f), c(kSize * kSize);
  ir::Op op;
  op.kind = ir::OpKind::kMatmul;
  op.attrs = {
      {ir::Attr::kM, kSize}, {ir::Attr::kN, kSize}, {ir::Attr::kK, kSize}, {ir::Attr::kTransB, 1}};
  const cpu::Operand in[] = {{a.data(), kSize * kSize}, {b.data(), kSize * kSize}};
  const cpu::Operand out[] = {{c.data(), kSize * kSize}};
  const int coords[] = {0};
  double best = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto begin = Clock::now();
    cpu::KernelFor(op.kind)({op, out, in, coords});
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, ir::OpFlops(op) / seconds);
  }
  return best;
}

}  // namespace orrery::launch
