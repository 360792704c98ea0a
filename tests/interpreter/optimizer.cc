// SPDX-License-Identifier: Apache-2.0
// Reference optimizers on flat units and their shards: SGD, Adam(W), LAMB, and dynamic loss scaling.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;

// What the optional inputs (sum of squares of the scaled gradient, loss scale) do to a gradient.
struct Correction {
  bool skip = false;  // the norm is not finite: leave everything unchanged
  double factor = 1;  // gradient *= factor
};

Correction ReadCorrection(const KernelArgs& a, size_t first_optional) {
  Correction c;
  if (a.in.size() <= first_optional) return c;
  const double squares = *a.In(first_optional, 1);
  double scale = 1;
  if (a.in.size() > first_optional + 1)
    scale = a.In(first_optional + 1, a.in[first_optional + 1].n)[0];
  c.skip = !std::isfinite(squares);
  c.factor = 1 / scale;
  const double norm = std::sqrt(squares) / scale, clip = a.Get(Attr::kClip);
  if (clip > 0) c.factor *= std::min(1.0, clip / (norm + 1e-6));
  return c;
}

// First element of the flat unit that the op's buffers hold.
int64_t FirstElement(const KernelArgs& a) { return a.Coord(Attr::kZaxis) * a.Int(Attr::kElements); }

// Calls f(segment index, first local element, end) for the part of each segment that the op's buffers hold.
template <typename F>
void ForEachSegment(const KernelArgs& a, F f) {
  if (a.unit == nullptr) throw PlanFault("optimizer: the parameters belong to no unit");
  const int64_t first = FirstElement(a), n = a.Int(Attr::kElements);
  for (size_t s = 0; s < a.unit->segments.size(); ++s) {
    const ir::UnitSegment& segment = a.unit->segments[s];
    const int64_t begin = std::clamp<int64_t>(segment.offset - first, 0, n);
    const int64_t end = std::clamp<int64_t>(segment.offset + segment.elements - first, 0, n);
    f(s, begin, end);
  }
}

// Weight decay per element: padding and exempt parameters have none.
std::vector<double> Decay(const KernelArgs& a) {
  std::vector<double> decay(a.Int(Attr::kElements), 0.0);
  const double wd = a.Get(Attr::kWd);
  if (wd == 0) return decay;
  ForEachSegment(a, [&](size_t s, int64_t begin, int64_t end) {
    if (a.params[a.unit->segments[s].param].decay)
      std::fill(decay.begin() + begin, decay.begin() + end, wd);
  });
  return decay;
}

// Outputs W (, master): both hold the same value in double precision.
struct Weights {
  const double* old;
  double *w, *master;
  void Set(int64_t i, double value) const {
    w[i] = value;
    if (master != nullptr) master[i] = value;
  }
};

Weights OpenWeights(const KernelArgs& a, int64_t n) {
  return {a.In(1, n), a.Out(0, n), a.Flag(Attr::kMaster) ? a.Out(1, n) : nullptr};
}

// Moments after this step and the resulting direction (Kingma and Ba 2015).
struct Moments {
  const double *m_old, *v_old;
  double *m, *v;
  double beta1, beta2, eps, correction1, correction2;

  double Direction(int64_t i, double g) const {
    m[i] = beta1 * m_old[i] + (1 - beta1) * g;
    v[i] = beta2 * v_old[i] + (1 - beta2) * g * g;
    return m[i] / correction1 / (std::sqrt(v[i] / correction2) + eps);
  }
};

Moments OpenMoments(const KernelArgs& a, int64_t n, size_t first_out) {
  Moments s{a.In(2, n),
            a.In(3, n),
            a.Out(first_out, n),
            a.Out(first_out + 1, n),
            a.Get(Attr::kBeta1),
            a.Get(Attr::kBeta2),
            a.Get(Attr::kEps),
            1,
            1};
  s.correction1 = 1 - std::pow(s.beta1, static_cast<double>(a.step));
  s.correction2 = 1 - std::pow(s.beta2, static_cast<double>(a.step));
  return s;
}

}  // namespace

void SumOfSquares(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements), first = FirstElement(a), rep = a.Int(Attr::kRep);
  const double *old = a.In(0, 1), *g = a.In(1, n);
  double before = 0, after = 0;
  for (int64_t i = 0; i < n; ++i) (first + i < rep ? before : after) += g[i] * g[i];
  *a.Out(0, 1) = *old + a.Get(Attr::kWt) * before + a.Get(Attr::kWrep) * after;
}

void Sgd(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements);
  const Correction c = ReadCorrection(a, 2);
  const Weights weights = OpenWeights(a, n);
  const double* g = a.In(0, n);
  const std::vector<double> decay = Decay(a);
  for (int64_t i = 0; i < n; ++i) {
    const double w = weights.old[i];
    weights.Set(i, c.skip ? w : w - a.Get(Attr::kLr) * (g[i] * c.factor + decay[i] * w));
  }
}

void Adam(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements);
  const Correction c = ReadCorrection(a, 4);
  const Weights weights = OpenWeights(a, n);
  const Moments moments = OpenMoments(a, n, a.Flag(Attr::kMaster) ? 2 : 1);
  const double *g = a.In(0, n), lr = a.Get(Attr::kLr);
  const bool decoupled = a.Flag(Attr::kDecoupled);
  const std::vector<double> decay = Decay(a);
  for (int64_t i = 0; i < n; ++i) {
    const double w = weights.old[i];
    if (c.skip) {
      weights.Set(i, w);
      continue;
    }
    const double u = moments.Direction(i, g[i] * c.factor + (decoupled ? 0.0 : decay[i] * w));
    weights.Set(i, w - lr * (u + (decoupled ? decay[i] * w : 0.0)));
  }
}

// You et al. 2020: direction u = Adam direction + decay; its and the weights' squares per parameter.
void LambDirection(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements), first = FirstElement(a), rep = a.Int(Attr::kRep);
  if (a.unit == nullptr) throw PlanFault("lamb: the parameters belong to no unit");
  const Correction c = ReadCorrection(a, 4);
  const double *g = a.In(0, n), *w = a.In(1, n);
  const Moments moments = OpenMoments(a, n, 0);
  double* u = a.Out(2, n);
  double* norms = a.Out(3, 2 * static_cast<int64_t>(a.unit->segments.size()));
  const std::vector<double> decay = Decay(a);
  for (int64_t i = 0; i < n; ++i)
    u[i] = c.skip ? 0 : moments.Direction(i, g[i] * c.factor) + decay[i] * w[i];
  ForEachSegment(a, [&](size_t s, int64_t begin, int64_t end) {
    double w2 = 0, u2 = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double weight = first + i < rep ? a.Get(Attr::kWt) : a.Get(Attr::kWrep);
      w2 += weight * w[i] * w[i];
      u2 += weight * u[i] * u[i];
    }
    norms[2 * s] = w2;
    norms[2 * s + 1] = u2;
  });
}

void LambApply(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements);
  if (a.unit == nullptr) throw PlanFault("lamb: the parameters belong to no unit");
  const double *u = a.In(0, n), *norms = a.In(2, 2 * static_cast<int64_t>(a.unit->segments.size()));
  const bool skip = a.in.size() > 3 && !std::isfinite(*a.In(3, 1));
  const Weights weights = OpenWeights(a, n);
  for (int64_t i = 0; i < n; ++i) weights.Set(i, weights.old[i]);
  if (skip) return;
  ForEachSegment(a, [&](size_t s, int64_t begin, int64_t end) {
    const double w2 = norms[2 * s], u2 = norms[2 * s + 1];
    const double ratio = w2 > 0 && u2 > 0 ? std::sqrt(w2 / u2) : 1;
    for (int64_t i = begin; i < end; ++i)
      weights.Set(i, weights.old[i] - a.Get(Attr::kLr) * ratio * u[i]);
  });
}

// The state is the scale and, where the buffer has a second element, the number of good steps in a row.
void LossScale(const KernelArgs& a) {
  a.ExpectInputs(2);
  const int64_t n = a.in[0].n;
  double* state = a.Out(0, n);
  if (state != a.in[0].data) throw PlanFault("loss_scale: the first input must be the output");
  const bool good = std::isfinite(*a.In(1, 1));
  const double steps = n > 1 ? (good ? state[1] + 1 : 0) : (good ? static_cast<double>(a.step) : 0);
  if (!good) state[0] /= 2;
  if (good && std::fmod(steps, 2000) == 0) state[0] *= 2;
  if (n > 1) state[1] = steps;
}

}  // namespace orrery::interpreter
