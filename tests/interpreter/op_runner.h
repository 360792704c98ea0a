// SPDX-License-Identifier: Apache-2.0
// Test support: runs one op on plain vectors, and compares a backward op with finite differences.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {

using Vector = std::vector<double>;

// Operands are copied in; `shared` pairs (output, input) are one operand, as an op that updates in place sees them.
struct OpCall {
  ir::OpKind kind;
  ir::Attrs attrs;
  std::vector<Vector> in;
  std::vector<int64_t> out_sizes;
  std::vector<std::pair<size_t, size_t>> shared = {};
  std::vector<int> coords = {0};
  int64_t step = 1;
  const ir::Unit* unit = nullptr;
  std::vector<ir::Param> params = {};
  int64_t first_sample = 0;
};

std::vector<Vector> RunOp(OpCall call);

Vector Random(int64_t n, uint64_t seed, double scale = 1);
double Dot(const Vector& a, const Vector& b);
Vector Sum(const Vector& a, const Vector& b);
double LargestDifference(const Vector& a, const Vector& b);

// d f / d x by central differences.
Vector NumericGradient(const std::function<double(const Vector&)>& f, const Vector& x);

}  // namespace orrery::interpreter
