// SPDX-License-Identifier: Apache-2.0
// Optimizers on flat units and their shards: SGD, Adam(W), LAMB, and dynamic loss scaling. Updates happen in single
// precision on the master weights where there are such; W is then their rounded copy.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

// What the optional inputs (sum of squares of the scaled gradient, loss scale) do to a gradient.
struct Correction {
  bool skip = false;  // the norm is not finite: leave everything unchanged
  double factor = 1;  // gradient *= factor
};

Correction ReadCorrection(Frame& f, size_t first_optional) {
  Correction c;
  if (f.Inputs() <= first_optional) return c;
  const double squares = f.In(first_optional, 1)[0];
  const double scale = f.Inputs() > first_optional + 1 ? f.Scalar(first_optional + 1) : 1.0;
  c.skip = !std::isfinite(squares);
  c.factor = 1 / scale;
  const double norm = std::sqrt(squares) / scale, clip = f.Get(Attr::kClip);
  if (clip > 0) c.factor *= std::min(1.0, clip / (norm + 1e-6));
  return c;
}

int64_t FirstElement(const Frame& f) { return f.Coord(Attr::kZaxis) * f.Int(Attr::kElements); }

const ir::Unit& UnitOf(const Frame& f) {
  if (f.args.unit == nullptr) f.Fail("the parameters belong to no unit");
  return *f.args.unit;
}

// The part of a unit's segment that the op's buffers hold: local elements [begin, end).
struct Piece {
  size_t segment;
  int64_t begin, end;
};

std::vector<Piece> Pieces(const Frame& f) {
  const int64_t first = FirstElement(f), n = f.Int(Attr::kElements);
  const ir::Unit& unit = UnitOf(f);
  std::vector<Piece> pieces;
  for (size_t s = 0; s < unit.segments.size(); ++s) {
    const ir::UnitSegment& segment = unit.segments[s];
    pieces.push_back({s, std::clamp<int64_t>(segment.offset - first, 0, n),
                      std::clamp<int64_t>(segment.offset + segment.elements - first, 0, n)});
  }
  return pieces;
}

struct Decayed {
  int64_t begin, end;
  float decay;
};

// All of [0, n), in runs of equal weight decay: padding and exempt parameters have none.
std::vector<Decayed> DecayRuns(const Frame& f, int64_t n) {
  const double wd = f.Get(Attr::kWd);
  if (wd == 0) return {{0, n, 0.0f}};
  std::vector<Piece> pieces = Pieces(f);
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  std::vector<Decayed> runs;
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    const auto param = static_cast<size_t>(UnitOf(f).segments[piece.segment].param);
    if (param >= f.args.params.size()) f.Fail("a segment of the unit names no parameter");
    if (piece.begin >= piece.end || !f.args.params[param].decay) continue;
    if (piece.begin > at) runs.push_back({at, piece.begin, 0.0f});
    runs.push_back({piece.begin, piece.end, static_cast<float>(wd)});
    at = piece.end;
  }
  if (at < n) runs.push_back({at, n, 0.0f});
  return runs;
}

// Outputs W (, master). Updates go to `update` (the master where there is one); Finish() copies it to W.
struct Weights {
  Frame& f;
  const float* old;
  float* update;
  const Operand* copy;  // W beside a master; null: the update is W
  void Finish() const {
    if (copy != nullptr) ConvertFromFloat(f.loops, update, *copy);
  }
};

Weights OpenWeights(Frame& f, int64_t n) {
  const bool master = f.Flag(Attr::kMaster);
  const float* old = f.In(1, n);
  return {f, old, f.Out(master ? 1 : 0, n), master ? &f.RawOut(0, n) : nullptr};
}

void KeepOld(const Weights& weights, int64_t n) {
  if (weights.update != weights.old) std::copy(weights.old, weights.old + n, weights.update);
  weights.Finish();
}

AdamTerms TermsOf(const Frame& f, double factor) {
  const double beta1 = f.Get(Attr::kBeta1), beta2 = f.Get(Attr::kBeta2),
               steps = static_cast<double>(f.args.step);
  return {.beta1 = static_cast<float>(beta1),
          .beta2 = static_cast<float>(beta2),
          .eps = static_cast<float>(f.Get(Attr::kEps)),
          .lr = static_cast<float>(f.Get(Attr::kLr)),
          .factor = static_cast<float>(factor),
          .decay = 0,
          .correction1 = static_cast<float>(1 - std::pow(beta1, steps)),
          .correction2 = static_cast<float>(1 - std::pow(beta2, steps)),
          .decoupled = f.Flag(Attr::kDecoupled)};
}

}  // namespace

void SumOfSquares(Frame& f) {
  const int64_t n = f.Size(Attr::kElements),
                split = std::clamp<int64_t>(f.Int(Attr::kRep) - FirstElement(f), 0, n);
  const double old = f.In(0, 1)[0];
  const float* g = f.In(1, n);
  const double before = f.loops.sum_squares(g, split),
               after = f.loops.sum_squares(g + split, n - split);
  f.Out(0, 1)[0] = static_cast<float>(old + f.Get(Attr::kWt) * before + f.Get(Attr::kWrep) * after);
}

void Sgd(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const Correction c = ReadCorrection(f, 2);
  const float* g = f.In(0, n);
  const Weights weights = OpenWeights(f, n);
  if (c.skip) return KeepOld(weights, n);
  for (const Decayed& run : DecayRuns(f, n)) {
    f.loops.sgd(g + run.begin, weights.old + run.begin, weights.update + run.begin,
                static_cast<float>(f.Get(Attr::kLr)), static_cast<float>(c.factor), run.decay,
                run.end - run.begin);
  }
  weights.Finish();
}

void Adam(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const Correction c = ReadCorrection(f, 4);
  const float* g = f.In(0, n);
  const Weights weights = OpenWeights(f, n);
  const size_t first_moment = f.Flag(Attr::kMaster) ? 2 : 1;
  float *m = f.InOut(first_moment, 2, n), *v = f.InOut(first_moment + 1, 3, n);
  if (c.skip) return KeepOld(weights, n);
  AdamTerms terms = TermsOf(f, c.factor);
  for (const Decayed& run : DecayRuns(f, n)) {
    const int64_t at = run.begin;
    terms.decay = run.decay;
    f.loops.adam(terms, g + at, weights.old + at, weights.update + at, m + at, v + at,
                 run.end - at);
  }
  weights.Finish();
}

// You et al. 2020: direction u = Adam direction + decay; its and the weights' squares per parameter.
void LambDirection(Frame& f) {
  const int64_t n = f.Size(Attr::kElements),
                split = std::clamp<int64_t>(f.Int(Attr::kRep) - FirstElement(f), 0, n);
  const std::vector<Piece> pieces = Pieces(f);
  const Correction c = ReadCorrection(f, 4);
  const float *g = f.In(0, n), *w = f.In(1, n);
  float *m = f.InOut(0, 2, n), *v = f.InOut(1, 3, n), *u = f.Out(2, n);
  float* norms = f.Out(3, 2 * static_cast<int64_t>(pieces.size()));
  AdamTerms terms = TermsOf(f, c.factor);
  if (c.skip) std::fill(u, u + n, 0.0f);
  for (const Decayed& run : DecayRuns(f, n)) {
    const int64_t at = run.begin;
    terms.decay = run.decay;
    if (!c.skip) f.loops.lamb(terms, g + at, w + at, m + at, v + at, u + at, run.end - at);
  }
  const auto squares = [&](const float* x, const Piece& p) {
    const int64_t middle = std::clamp(split, p.begin, p.end);
    return static_cast<float>(f.Get(Attr::kWt) *
                                  f.loops.sum_squares(x + p.begin, middle - p.begin) +
                              f.Get(Attr::kWrep) * f.loops.sum_squares(x + middle, p.end - middle));
  };
  for (const Piece& piece : pieces) {
    norms[2 * piece.segment] = squares(w, piece);
    norms[2 * piece.segment + 1] = squares(u, piece);
  }
}

void LambApply(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const std::vector<Piece> pieces = Pieces(f);
  const float *u = f.In(0, n), *norms = f.In(2, 2 * static_cast<int64_t>(pieces.size()));
  const bool skip = f.Inputs() > 3 && !std::isfinite(f.In(3, 1)[0]);
  const Weights weights = OpenWeights(f, n);
  if (weights.update != weights.old) std::copy(weights.old, weights.old + n, weights.update);
  for (const Piece& p : pieces) {
    if (skip) break;
    const double w2 = norms[2 * p.segment], u2 = norms[2 * p.segment + 1];
    const double ratio = w2 > 0 && u2 > 0 ? std::sqrt(w2 / u2) : 1;
    f.loops.axpy(static_cast<float>(-f.Get(Attr::kLr) * ratio), u + p.begin, weights.old + p.begin,
                 weights.update + p.begin, p.end - p.begin);
  }
  weights.Finish();
}

// The state is the scale and, where the buffer has a second element, the number of good steps in a row.
void LossScale(Frame& f) {
  const int64_t n = f.InSize(0);
  if (n < 1) f.Fail("the state is empty");
  float* state = f.InOut(0, 0, n);
  const bool good = std::isfinite(f.In(1, 1)[0]);
  const double steps =
      n > 1 ? (good ? state[1] + 1.0 : 0.0) : (good ? static_cast<double>(f.args.step) : 0.0);
  if (!good) state[0] /= 2;
  if (good && std::fmod(steps, 2000) == 0) state[0] *= 2;
  if (n > 1) state[1] = static_cast<float>(steps);
}

}  // namespace orrery::cpu
