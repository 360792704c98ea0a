// SPDX-License-Identifier: Apache-2.0
// Packs operands into their storage types and runs kernels on them.
#include "tests/cpu_kernels/typed_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/device/cpu/kernels.h"

namespace orrery {
namespace {

using ir::Dtype;

Dtype TypeOf(char letter, Dtype storage) {
  switch (letter) {
    case 's':
      return Dtype::kF32;
    case 'i':
      return Dtype::kI32;
    case 'm':
      return Dtype::kU8;
    default:
      return storage;
  }
}

// Nearest number with `bits` of mantissa and no exponent below `least`, ties to even; written apart from the kernels.
double RoundTo(double x, int bits, int least) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), least) - bits);
  return std::nearbyint(x / unit) * unit;
}

double Round(double x, Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return static_cast<float>(x);
    case Dtype::kBf16:
      return RoundTo(x, 7, -126);
    case Dtype::kF16:
      return RoundTo(x, 10, -14);
    default:
      return x;
  }
}

uint16_t PackF16(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::abs(x);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const auto mantissa =
      static_cast<int>(std::ldexp(magnitude, 10 - exponent));  // 1024.. for normal numbers
  return static_cast<uint16_t>(sign + (mantissa & 0x3ff) +
                               ((mantissa >= 1024 ? exponent + 15 : 0) << 10));
}

double UnpackF16(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31)
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(mantissa + (exponent > 0 ? 1024 : 0), std::max(exponent, 1) - 25);
}

struct Stored {
  std::vector<char> bytes;
  Dtype dtype = Dtype::kF32;
  int64_t n = 0;
};

template <typename T>
void Put(Stored& s, int64_t i, T value) {
  std::memcpy(s.bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
T Take(const Stored& s, int64_t i) {
  T value;
  std::memcpy(&value, s.bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

Stored Pack(const Vector& values, Dtype dtype) {
  Stored s{std::vector<char>(values.size() * static_cast<size_t>(ir::DtypeBytes(dtype))), dtype,
           static_cast<int64_t>(values.size())};
  for (int64_t i = 0; i < s.n; ++i) {
    const double x = values[i];
    if (dtype == Dtype::kF32) Put(s, i, static_cast<float>(x));
    if (dtype == Dtype::kI32) Put(s, i, static_cast<int32_t>(x));
    if (dtype == Dtype::kU8) Put(s, i, static_cast<uint8_t>(x));
    if (dtype == Dtype::kF16) Put(s, i, PackF16(x));
    if (dtype == Dtype::kBf16) {
      const auto single = static_cast<float>(x);
      uint32_t bits;
      std::memcpy(&bits, &single, sizeof(bits));
      Put(s, i, static_cast<uint16_t>(bits >> 16));
    }
  }
  return s;
}

Vector Unpack(const Stored& s) {
  Vector values(s.n);
  for (int64_t i = 0; i < s.n; ++i) {
    if (s.dtype == Dtype::kF32) values[i] = Take<float>(s, i);
    if (s.dtype == Dtype::kI32) values[i] = Take<int32_t>(s, i);
    if (s.dtype == Dtype::kU8) values[i] = Take<uint8_t>(s, i);
    if (s.dtype == Dtype::kF16) values[i] = UnpackF16(Take<uint16_t>(s, i));
    if (s.dtype == Dtype::kBf16) {
      const uint32_t bits = static_cast<uint32_t>(Take<uint16_t>(s, i)) << 16;
      float single;
      std::memcpy(&single, &bits, sizeof(single));
      values[i] = single;
    }
  }
  return values;
}

}  // namespace

TypedCall Rounded(TypedCall typed, Dtype storage) {
  for (size_t i = 0; i < typed.call.in.size(); ++i)
    for (double& x : typed.call.in[i]) x = Round(x, TypeOf(typed.in.at(i), storage));
  return typed;
}

std::vector<Vector> RunReference(const TypedCall& typed) { return RunOp(typed.call); }

std::vector<Vector> RunTyped(const TypedCall& typed, Dtype storage, const RunPacked& run) {
  const OpCall& call = typed.call;
  ir::Op op;
  op.kind = call.kind;
  op.attrs = call.attrs;
  std::vector<Stored> in, out;
  for (size_t i = 0; i < call.in.size(); ++i)
    in.push_back(Pack(call.in[i], TypeOf(typed.in.at(i), storage)));
  for (size_t o = 0; o < call.out_sizes.size(); ++o)
    out.push_back(Pack(Vector(call.out_sizes[o], 7.0), TypeOf(typed.out.at(o), storage)));
  for (const auto& [o, i] : call.shared) out[o] = in[i];
  std::vector<cpu::Operand> outs, ins;
  for (Stored& s : out) outs.push_back({s.bytes.data(), s.n, s.dtype});
  for (Stored& s : in) ins.push_back({s.bytes.data(), s.n, s.dtype});
  for (const auto& [o, i] : call.shared) ins[i] = outs[o];
  run({op, outs, ins, call.coords, call.step, call.unit, call.params, 1, call.first_sample});
  std::vector<Vector> results;
  for (const Stored& s : out) results.push_back(Unpack(s));
  return results;
}

std::vector<Vector> RunCpu(const TypedCall& typed, Dtype storage) {
  return RunTyped(typed, storage, cpu::KernelFor(typed.call.kind));
}

double RelativeError(const Vector& a, const Vector& b) {
  double largest = 0;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  const double difference = interpreter::LargestDifference(a, b);
  return difference == 0 ? 0 : difference / largest;
}

std::vector<TypedCall> AllCases() {
  std::vector<TypedCall> all;
  for (const auto& family :
       {MatmulCases(), RowCases(), ElementwiseCases(), AttentionCases(), OptimizerCases()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

}  // namespace orrery
