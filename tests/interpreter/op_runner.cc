// SPDX-License-Identifier: Apache-2.0
// Runs one reference kernel on plain vectors.
#include "tests/interpreter/op_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::interpreter {

std::vector<Vector> RunOp(OpCall call) {
  ir::Op op;
  op.kind = call.kind;
  op.attrs = call.attrs;
  std::vector<Vector> out;
  for (const int64_t n : call.out_sizes)
    out.emplace_back(n, std::numeric_limits<double>::quiet_NaN());
  for (const auto& [o, i] : call.shared) out.at(o) = call.in.at(i);
  std::vector<Operand> ins, outs;
  for (Vector& x : out) outs.push_back({x.data(), static_cast<int64_t>(x.size())});
  for (Vector& x : call.in) ins.push_back({x.data(), static_cast<int64_t>(x.size())});
  for (const auto& [o, i] : call.shared) ins.at(i) = outs.at(o);
  KernelFor(op.kind)(
      {op, outs, ins, call.coords, call.step, call.unit, call.params, 1, call.first_sample});
  return out;
}

Vector Random(int64_t n, uint64_t seed, double scale) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, scale);
  Vector x(n);
  for (double& value : x) value = normal(random);
  return x;
}

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector Sum(const Vector& a, const Vector& b) {
  Vector c(a);
  for (size_t i = 0; i < a.size(); ++i) c[i] += b.at(i);
  return c;
}

double LargestDifference(const Vector& a, const Vector& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= worst)) worst = difference;  // NaN stays
  }
  return worst;
}

Vector NumericGradient(const std::function<double(const Vector&)>& f, const Vector& x) {
  constexpr double kStep = 1e-5;
  Vector gradient(x.size()), moved(x);
  for (size_t i = 0; i < x.size(); ++i) {
    moved[i] = x[i] + kStep;
    const double above = f(moved);
    moved[i] = x[i] - kStep;
    gradient[i] = (above - f(moved)) / (2 * kStep);
    moved[i] = x[i];
  }
  return gradient;
}

}  // namespace orrery::interpreter
