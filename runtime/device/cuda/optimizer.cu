// SPDX-License-Identifier: Apache-2.0
// SGD, Adam(W), sums of squares and dynamic loss scaling on flat units and their shards. Updates happen in single
// precision on the master weights where there are such; W is then their rounded copy.
#include <algorithm>

#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/squares.h"
#include "runtime/device/cuda/update.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kThreads = 256;

struct Share {
  int64_t at;
  int count;
};
// Eight elements that start at a multiple of eight, cut to the table's runs.
__device__ inline Share ShareOf(const Runs& runs) {
  const int64_t at =
      (runs.begin / kWide + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWide;
  const int64_t end = runs.end[runs.count - 1];
  return {at, at < end ? Least(kWide, end - at) : 0};
}
int64_t Pieces(const Runs& runs) {
  return (runs.end[runs.count - 1] + kWide - 1) / kWide - runs.begin / kWide;
}

__device__ inline void StoreWeights(const Weights& w, const Share& s, int64_t begin, bool wide,
                                    const float* values) {
  if (s.at >= begin) {
    StoreSome(w.update, s.at, s.count, wide, values);
    if (!w.copy.absent()) StoreSome(w.copy, s.at, s.count, wide, values);
    return;
  }
  for (int k = static_cast<int>(begin - s.at); k < s.count; ++k) {
    Store(w.update, s.at + k, values[k]);
    if (!w.copy.absent()) Store(w.copy, s.at + k, values[k]);
  }
}

__global__ void SgdKernel(Ref g, Weights w, Runs runs, Correction correction, float lr, bool wide) {
  const Share s = ShareOf(runs);
  if (s.count == 0) return;
  const Corrected c = Correct(correction);
  float grad[kWide], old[kWide];
  LoadSome(g, s.at, s.count, wide, grad);
  LoadSome(w.old, s.at, s.count, wide, old);
  for (int k = 0; k < kWide; ++k)
    if (!c.skip) old[k] -= lr * (grad[k] * c.factor + runs.At(s.at + k) * old[k]);
  StoreWeights(w, s, runs.begin, wide, old);
}

// Kingma and Ba 2015; decoupled decay: Loshchilov and Hutter 2019.
__global__ void AdamKernel(Ref g, Weights w, Ref m, Ref v, Runs runs, Correction correction,
                           AdamTerms t, bool wide) {
  const Share s = ShareOf(runs);
  if (s.count == 0) return;
  const Corrected c = Correct(correction);
  float grad[kWide], old[kWide], first[kWide], second[kWide];
  LoadSome(g, s.at, s.count, wide, grad);
  LoadSome(w.old, s.at, s.count, wide, old);
  LoadSome(m, s.at, s.count, wide, first);
  LoadSome(v, s.at, s.count, wide, second);
  for (int k = 0; k < kWide; ++k) {
    if (c.skip || s.at + k < runs.begin) continue;
    const float decay = runs.At(s.at + k);
    const float gradient = grad[k] * c.factor + (t.decoupled ? 0.0f : decay) * old[k];
    first[k] = t.beta1 * first[k] + t.new1 * gradient;
    second[k] = t.beta2 * second[k] + t.new2 * gradient * gradient;
    const float u = first[k] * t.inverse1 / (sqrtf(second[k] * t.inverse2) + t.eps);
    old[k] -= t.lr * (u + (t.decoupled ? decay : 0.0f) * old[k]);
  }
  StoreWeights(w, s, runs.begin, wide, old);
  StoreWeights({{}, m, {}}, s, runs.begin, wide, first);
  StoreWeights({{}, v, {}}, s, runs.begin, wide, second);
}

__global__ void LossScaleKernel(Ref state, int64_t n, Ref squares, int64_t step) {
  if (threadIdx.x != 0) return;
  const bool good = IsFinite(Load(squares, 0));
  const double kept = n > 1 ? (good ? static_cast<double>(Load(state, 1)) + 1 : 0)
                            : (good ? static_cast<double>(step) : 0);
  float scale = Load(state, 0);
  if (!good) scale /= 2;
  if (good && fmod(kept, 2000.0) == 0) scale *= 2;
  Store(state, 0, scale);
  if (n > 1) Store(state, 1, static_cast<float>(kept));
}

}  // namespace

void SumOfSquares(OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements), split = SplitOf(f, n);
  const Ref old = f.In(0, 1), g = f.In(1, n), to = f.Out(0, 1);
  SumSquares(f, g, {{0, split, n, 0}}, f.Get(Attr::kWt), f.Get(Attr::kWrep), old, to);
}

void Sgd(OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const Ref g = f.In(0, n);
  const Weights w = WeightsOf(f, n);
  const Correction c = CorrectionOf(f, 2);
  const bool wide = IsWide({g, w.old, w.update, w.copy});
  for (const Runs& runs : RunsOf(f, n))
    Launch(f.queue, SgdKernel, Blocks(Pieces(runs), kThreads), kThreads, 0, g, w, runs, c,
           static_cast<float>(f.Get(Attr::kLr)), wide);
}

void Adam(OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const Ref g = f.In(0, n);
  const Weights w = WeightsOf(f, n);
  const size_t moment = f.Flag(Attr::kMaster) ? 2 : 1;
  const Ref m = f.InOut(moment, 2, n), v = f.InOut(moment + 1, 3, n);
  const Correction c = CorrectionOf(f, 4);
  const bool wide = IsWide({g, w.old, w.update, w.copy, m, v});
  for (const Runs& runs : RunsOf(f, n))
    Launch(f.queue, AdamKernel, Blocks(Pieces(runs), kThreads), kThreads, 0, g, w, m, v, runs, c,
           AdamTermsOf(f), wide);
}

void LossScale(OpFrame& f) {
  const int64_t n = f.InSize(0);
  if (n < 1) f.Fail("the state is empty");
  const Ref state = f.InOut(0, 0, n);
  Launch(f.queue, LossScaleKernel, 1u, kWarpSize, 0, state, n, f.In(1, 1), f.args.step);
}

}  // namespace orrery::cuda
