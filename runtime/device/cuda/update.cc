// SPDX-License-Identifier: Apache-2.0
// Reads what an optimizer op says about its unit.
#include "runtime/device/cuda/update.h"

#include <algorithm>
#include <cmath>

namespace orrery::cuda {

using ir::Attr;

Correction CorrectionOf(const OpFrame& f, size_t first_optional) {
  Correction c;
  if (f.Inputs() > first_optional) c.squares = f.In(first_optional, 1);
  if (f.Inputs() > first_optional + 1)
    c.scale = f.In(first_optional + 1, f.InSize(first_optional + 1));
  c.clip = f.Get(Attr::kClip);
  return c;
}

int64_t FirstElement(const OpFrame& f) { return f.Coord(Attr::kZaxis) * f.Int(Attr::kElements); }

int64_t SplitOf(const OpFrame& f, int64_t n) {
  return std::clamp<int64_t>(f.Int(Attr::kRep) - FirstElement(f), 0, n);
}

namespace {

const ir::Unit& UnitOf(const OpFrame& f) {
  if (f.args.unit == nullptr) f.Fail("the parameters belong to no unit");
  return *f.args.unit;
}

class RunTable {
 public:
  void Add(int64_t begin, int64_t end, float decay) {
    if (tables_.empty() || tables_.back().count == kMostRuns) {
      tables_.emplace_back();
      tables_.back().begin = begin;
    }
    Runs& runs = tables_.back();
    runs.end[runs.count] = end;
    runs.decay[runs.count] = decay;
    ++runs.count;
  }
  std::vector<Runs> Take() { return std::move(tables_); }

 private:
  std::vector<Runs> tables_;
};

}  // namespace

std::vector<Piece> PiecesOf(const OpFrame& f) {
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

std::vector<Runs> RunsOf(const OpFrame& f, int64_t n) {
  RunTable table;
  const double wd = f.Get(Attr::kWd);
  int64_t at = 0;
  std::vector<Piece> pieces = wd == 0 ? std::vector<Piece>() : PiecesOf(f);
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  for (const Piece& piece : pieces) {
    const auto param = static_cast<size_t>(UnitOf(f).segments[piece.segment].param);
    if (param >= f.args.params.size()) f.Fail("a segment of the unit names no parameter");
    if (piece.begin >= piece.end || !f.args.params[param].decay) continue;
    if (piece.begin > at) table.Add(at, piece.begin, 0.0f);
    table.Add(piece.begin, piece.end, static_cast<float>(wd));
    at = piece.end;
  }
  if (at < n) table.Add(at, n, 0.0f);
  return table.Take();
}

AdamTerms AdamTermsOf(const OpFrame& f) {
  // As the CPU device computes them: betas rounded to single precision first.
  const double beta1 = f.Get(Attr::kBeta1), beta2 = f.Get(Attr::kBeta2),
               steps = static_cast<double>(f.args.step);
  const auto b1 = static_cast<float>(beta1), b2 = static_cast<float>(beta2);
  return {b1,
          b2,
          static_cast<float>(1.0 - static_cast<double>(b1)),
          static_cast<float>(1.0 - static_cast<double>(b2)),
          static_cast<float>(f.Get(Attr::kEps)),
          static_cast<float>(f.Get(Attr::kLr)),
          1.0f / static_cast<float>(1 - std::pow(beta1, steps)),
          1.0f / static_cast<float>(1 - std::pow(beta2, steps)),
          f.Flag(Attr::kDecoupled)};
}

Weights WeightsOf(const OpFrame& f, int64_t n) {
  const bool master = f.Flag(Attr::kMaster);
  return {f.In(1, n), f.Out(master ? 1 : 0, n), master ? f.Out(0, n) : Ref{}};
}

}  // namespace orrery::cuda
