// SPDX-License-Identifier: Apache-2.0
// Dropout and the residual sum that contains one.
#include "runtime/device/cpu/dropout.h"

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {

using ir::Attr;

Dropout::Dropout(const Frame& f)
    : loops_(f.loops),
      site_(ir::DropoutSite(f.args.seed, f.args.step, f.Int(Attr::kSite))),
      first_sample_(static_cast<uint64_t>(f.args.first_sample)) {
  const double rate = f.Get(Attr::kRate);
  if (!(rate >= 0 && rate < 1)) f.Fail("the dropout rate must lie in [0, 1)");
  threshold_ = ir::DropThreshold(rate);
  keep_ = static_cast<float>(1 / (1 - rate));
}

void Dropout::Row(int64_t sample, int64_t position, float* factor, int64_t n) const {
  const uint64_t row = ir::HashOf({site_, first_sample_ + static_cast<uint64_t>(sample)});
  loops_.drop_factors(ir::HashMore(row, static_cast<uint64_t>(position)), 0, threshold_, keep_, factor, n);
}

void Dropout::Row(int64_t sample, int64_t head, int64_t query, float* factor, int64_t n) const {
  const uint64_t row = ir::HashOf({site_, first_sample_ + static_cast<uint64_t>(sample)});
  const uint64_t prefix = ir::HashMore(ir::HashMore(row, static_cast<uint64_t>(head)), static_cast<uint64_t>(query));
  loops_.drop_factors(prefix, 0, threshold_, keep_, factor, n);
}

namespace {

// Calls use(row, factors) for every row, and writes the mask of what is kept.
template <typename F>
void ForEachRow(Frame& f, const Dropout& dropout, int64_t rows, int64_t h, F use) {
  const int64_t batch = f.Size(Attr::kBatch, 1), first = f.Coord(Attr::kAxis) * rows;
  float *factors = f.Scratch(h), *mask = f.Out(1, rows * h);
  for (int64_t r = 0; r < rows; ++r) {
    dropout.Row(r % batch, (first + r) / batch, factors, h);
    f.loops.nonzero(factors, mask + r * h, h);
    use(r, factors);
  }
}

}  // namespace

void BiasResidual(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH);
  const float *x = f.In(0, rows * h), *y = f.In(1, rows * h), *bias = f.Flag(Attr::kBias) ? f.In(2, h) : nullptr;
  float* z = f.Out(0, rows * h);
  const Dropout dropout(f);
  const auto row = [&](int64_t r, const float* factors) {
    f.loops.bias_residual(x + r * h, y + r * h, bias, factors, z + r * h, h);
  };
  if (dropout.active()) {
    ForEachRow(f, dropout, rows, h, row);
  } else {
    for (int64_t r = 0; r < rows; ++r) row(r, nullptr);
  }
}

void DropoutForward(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH);
  const float* x = f.In(0, rows * h);
  float* y = f.Out(0, rows * h);
  ForEachRow(f, Dropout(f), rows, h,
             [&](int64_t r, const float* factors) { f.loops.multiply(x + r * h, factors, 1.0f, y + r * h, h); });
}

void DropoutBackward(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const float *dy = f.In(0, n), *mask = f.In(1, n);
  f.loops.multiply(dy, mask, Dropout(f).keep(), f.Out(0, n), n);
}

}  // namespace orrery::cpu
