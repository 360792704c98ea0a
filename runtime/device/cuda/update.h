// SPDX-License-Identifier: Apache-2.0
// What the optimizers share: corrections of the gradient, runs of equal weight decay, pieces of a unit.
#pragma once

#include <vector>

#include "runtime/device/cuda/frame.h"

namespace orrery::cuda {

// What the optional inputs (sum of squares of the scaled gradient, loss scale) do to a gradient; read on the device.
struct Correction {
  Ref squares, scale;  // absent: no clipping; 1
  double clip = 0;
};
struct Corrected {
  bool skip;     // the norm is not finite: leave everything unchanged
  float factor;  // gradient *= factor
};
__device__ inline Corrected Correct(const Correction& c) {
  if (c.squares.absent()) return {false, 1.0f};
  const float sum = Load(c.squares, 0);
  const double squares = sum,
               scale = c.scale.absent() ? 1.0 : static_cast<double>(Load(c.scale, 0));
  double factor = 1 / scale;
  const double bound = c.clip / (sqrt(squares) / scale + 1e-6);
  if (c.clip > 0 && bound < 1) factor *= bound;
  return {!IsFinite(sum), static_cast<float>(factor)};
}
Correction CorrectionOf(const OpFrame& f, size_t first_optional);

// Elements [end of the run before, end) have weight decay `decay`.
constexpr int kMostRuns = 48;
struct Runs {
  int64_t begin = 0;  // of the first
  int count = 0;
  int64_t end[kMostRuns];
  float decay[kMostRuns];
  __device__ float At(int64_t i) const {
    int run = 0;
    while (run + 1 < count && i >= end[run]) ++run;
    return decay[run];
  }
};
// All of [0, n) as tables of at most kMostRuns runs: padding and exempt parameters have no decay.
std::vector<Runs> RunsOf(const OpFrame& f, int64_t n);

// The part of a unit's segment that the op's buffers hold: local elements [begin, end).
struct Piece {
  size_t segment;
  int64_t begin, end;
};
std::vector<Piece> PiecesOf(const OpFrame& f);
int64_t FirstElement(const OpFrame& f);
int64_t SplitOf(const OpFrame& f, int64_t n);  // first local element of the replicated tail

struct AdamTerms {
  float beta1, beta2, new1, new2, eps, lr, inverse1,
      inverse2;  // new: 1 - beta, inverse: 1 / (1 - beta^step)
  bool decoupled;
};
AdamTerms AdamTermsOf(const OpFrame& f);

// Outputs W (, master). `update` is the master where there is one; copy is then W.
struct Weights {
  Ref old, update, copy;
};
Weights WeightsOf(const OpFrame& f, int64_t n);

}  // namespace orrery::cuda
