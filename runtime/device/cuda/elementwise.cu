// SPDX-License-Identifier: Apache-2.0
// Element-wise ops: eight elements per thread.
#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kThreads = 256;

// Hendrycks and Gimpel 2016, tanh form: x (1 + tanh u) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kGeluSlope = 2.0f * 0.797884560802865f, kGeluCubic = 0.044715f;

__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

struct GeluOf {
  __device__ float operator()(float x) const {
    return x * Sigmoid(kGeluSlope * x * (1.0f + kGeluCubic * x * x));
  }
};
struct ReluOf {
  __device__ float operator()(float x) const { return x <= 0.0f ? 0.0f : x; }
};
struct SquaredReluOf {
  __device__ float operator()(float x) const {
    const float positive = ReluOf()(x);
    return positive * positive;
  }
};
struct TanhOf {  // cap tanh(x / cap)
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};

struct Sum {
  __device__ float operator()(float x, float y) const { return x + y; }
};
struct GeluSlopeOf {
  __device__ float operator()(float dy, float x) const {
    const float square = x * x, s = Sigmoid(kGeluSlope * x * (1.0f + kGeluCubic * square));
    return dy * (s + x * s * (1.0f - s) * (kGeluSlope * (1.0f + 3.0f * kGeluCubic * square)));
  }
};
struct ReluSlopeOf {  // NaN passes
  __device__ float operator()(float dy, float x) const {
    return x <= 0.0f ? 0.0f : x > 0.0f ? dy : x;
  }
};
struct SquaredReluSlopeOf {
  __device__ float operator()(float dy, float x) const { return 2.0f * dy * ReluOf()(x); }
};
struct TanhSlopeOf {
  float cap;
  __device__ float operator()(float dy, float y) const {
    return dy * (1.0f - (y / cap) * (y / cap));
  }
};

// The gate of a pair: its value, and the gradient of the gate's input under the gradient of its value.
struct SiluGate {
  __device__ float Value(float x) const { return x * Sigmoid(x); }
  __device__ float Slope(float dy, float x) const {
    const float s = Sigmoid(x);
    return dy * s * (1.0f + x * (1.0f - s));
  }
};
struct GeluGate {
  __device__ float Value(float x) const { return GeluOf()(x); }
  __device__ float Slope(float dy, float x) const { return GeluSlopeOf()(dy, x); }
};
struct ReluGate {
  __device__ float Value(float x) const { return ReluOf()(x); }
  __device__ float Slope(float dy, float x) const { return ReluSlopeOf()(dy, x); }
};

// The eight elements of this thread: first one and count.
struct Share {
  int64_t first;
  int count;
};
__device__ inline Share ShareOf(int64_t n) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWide;
  return {first, first < n ? Least(kWide, n - first) : 0};
}

template <typename F>
__global__ void MapKernel(Ref x, Ref y, int64_t n, bool wide, F f) {
  const Share s = ShareOf(n);
  if (s.count == 0) return;
  float v[kWide];
  LoadSome(x, s.first, s.count, wide, v);
#pragma unroll
  for (int k = 0; k < kWide; ++k) v[k] = f(v[k]);
  StoreSome(y, s.first, s.count, wide, v);
}

template <typename F>
__global__ void MapTwoKernel(Ref x, Ref y, Ref z, int64_t n, bool wide, F f) {
  const Share s = ShareOf(n);
  if (s.count == 0) return;
  float a[kWide], b[kWide];
  LoadSome(x, s.first, s.count, wide, a);
  LoadSome(y, s.first, s.count, wide, b);
#pragma unroll
  for (int k = 0; k < kWide; ++k) a[k] = f(a[k], b[k]);
  StoreSome(z, s.first, s.count, wide, a);
}

// Pairs (gate, up): sixteen elements to eight, and back.
template <typename G>
__global__ void GatedKernel(Ref x, Ref y, int64_t n, bool wide, G gate_of) {
  const Share s = ShareOf(n);
  if (s.count == 0) return;
  float v[2 * kWide], out[kWide];
  LoadSome(x, 2 * s.first, Least(kWide, 2 * s.count), wide, v);
  LoadSome(x, 2 * s.first + kWide, s.count > kWide / 2 ? 2 * s.count - kWide : 0, wide, v + kWide);
#pragma unroll
  for (int k = 0; k < kWide; ++k) out[k] = gate_of.Value(v[2 * k]) * v[2 * k + 1];
  StoreSome(y, s.first, s.count, wide, out);
}

template <typename G>
__global__ void GatedBackwardKernel(Ref dy, Ref x, Ref dx, int64_t n, bool wide, G gate_of) {
  const Share s = ShareOf(n);
  if (s.count == 0) return;
  const int low = Least(kWide, 2 * s.count), high = s.count > kWide / 2 ? 2 * s.count - kWide : 0;
  float v[2 * kWide], grad[kWide];
  LoadSome(dy, s.first, s.count, wide, grad);
  LoadSome(x, 2 * s.first, low, wide, v);
  LoadSome(x, 2 * s.first + kWide, high, wide, v + kWide);
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const float gate = v[2 * k], up = v[2 * k + 1];
    v[2 * k] = gate_of.Slope(grad[k] * up, gate);
    v[2 * k + 1] = grad[k] * gate_of.Value(gate);
  }
  StoreSome(dx, 2 * s.first, low, wide, v);
  StoreSome(dx, 2 * s.first + kWide, high, wide, v + kWide);
}

// Gates and ups as two tensors.
template <typename G>
struct GatedApart {
  G gate_of;
  __device__ float operator()(float gate, float up) const { return gate_of.Value(gate) * up; }
};

template <typename G>
__global__ void GatedBackwardApartKernel(Ref dy, Ref gates, Ref ups, Ref dgate, Ref dup, int64_t n,
                                         bool wide, G gate_of) {
  const Share s = ShareOf(n);
  if (s.count == 0) return;
  float gate[kWide], up[kWide], grad[kWide];
  LoadSome(dy, s.first, s.count, wide, grad);
  LoadSome(gates, s.first, s.count, wide, gate);
  LoadSome(ups, s.first, s.count, wide, up);
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    up[k] = gate_of.Slope(grad[k] * up[k], gate[k]);
    grad[k] *= gate_of.Value(gate[k]);
  }
  StoreSome(dgate, s.first, s.count, wide, up);
  StoreSome(dup, s.first, s.count, wide, grad);
}

__global__ void CopyKernel(const uint8_t* from, uint8_t* to, int64_t bytes, bool wide) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 16;
  if (wide && at + 16 <= bytes) {
    *reinterpret_cast<Quad*>(to + at) = *reinterpret_cast<const Quad*>(from + at);
    return;
  }
  for (int64_t i = at; i < at + 16 && i < bytes; ++i) to[i] = from[i];
}

// Rows of `part` bytes that lie `pitch` apart, one behind the other.
__global__ void RowsKernel(const uint8_t* from, uint8_t* to, int64_t bytes, int64_t part,
                           int64_t pitch, bool wide) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 16;
  if (wide && at + 16 <= bytes) {
    *reinterpret_cast<Quad*>(to + at) =
        *reinterpret_cast<const Quad*>(from + at / part * pitch + at % part);
    return;
  }
  for (int64_t i = at; i < at + 16 && i < bytes; ++i) to[i] = from[i / part * pitch + i % part];
}

struct Columns {
  int64_t rows, h, first, width;
};
__global__ void AddColumnsKernel(Ref sum, Ref x, int64_t n, Columns at) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int64_t to = i / at.width * at.h + at.first + i % at.width;
  Store(sum, to, Load(sum, to) + Load(x, i));
}

__global__ void ZeroKernel(uint8_t* to, int64_t bytes, bool wide) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 16;
  if (wide && at + 16 <= bytes) {
    *reinterpret_cast<Quad*>(to + at) = Quad{{0, 0, 0, 0}};
    return;
  }
  for (int64_t i = at; i < at + 16 && i < bytes; ++i) to[i] = 0;
}

bool IsQuad(const void* x, const void* y) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0;
}

template <typename F>
void Map(OpFrame& f, F body) {
  const int64_t n = f.Size(Attr::kElements);
  const Ref x = f.In(0, n), y = f.Out(0, n);
  Launch(f.queue, MapKernel<F>, Blocks(n, kThreads * kWide), kThreads, 0, x, y, n, IsWide({x, y}),
         body);
}

template <typename F>
void MapTwo(OpFrame& f, int64_t n, F body) {
  const Ref x = f.In(0, n), y = f.In(1, n), z = f.Out(0, n);
  Launch(f.queue, MapTwoKernel<F>, Blocks(n, kThreads * kWide), kThreads, 0, x, y, z, n,
         IsWide({x, y, z}), body);
}

template <typename G>
void Gated(OpFrame& f, G gate_of) {
  const int64_t n = f.Size(Attr::kElements);
  if (f.Inputs() == 2) return MapTwo(f, n, GatedApart<G>{gate_of});
  const Ref x = f.In(0, 2 * n), y = f.Out(0, n);
  Launch(f.queue, GatedKernel<G>, Blocks(n, kThreads * kWide), kThreads, 0, x, y, n, IsWide({x, y}),
         gate_of);
}

template <typename G>
void GatedBackward(OpFrame& f, G gate_of) {
  const int64_t n = f.Size(Attr::kElements);
  if (f.Inputs() == 3) {
    const Ref dy = f.In(0, n), gates = f.In(1, n), ups = f.In(2, n), dgate = f.Out(0, n),
              dup = f.Out(1, n);
    return Launch(f.queue, GatedBackwardApartKernel<G>, Blocks(n, kThreads * kWide), kThreads, 0,
                  dy, gates, ups, dgate, dup, n, IsWide({dy, gates, ups, dgate, dup}), gate_of);
  }
  const Ref dy = f.In(0, n), x = f.In(1, 2 * n), dx = f.Out(0, 2 * n);
  Launch(f.queue, GatedBackwardKernel<G>, Blocks(n, kThreads * kWide), kThreads, 0, dy, x, dx, n,
         IsWide({dy, x, dx}), gate_of);
}

ir::GateKind GateOf(const OpFrame& f) { return static_cast<ir::GateKind>(f.Size(Attr::kGate)); }
bool Squares(const OpFrame& f) { return f.Get(Attr::kPower) == 2; }
float CapOf(const OpFrame& f) {
  const double cap = f.Get(Attr::kCap);
  return cap > 0 ? static_cast<float>(cap) : 1.0f;
}

// Columns of a wider tensor: n / rows of each of so many rows of `h`.
Columns ColumnsOf(const OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements, 1), rows = f.Size(Attr::kRows, 1);
  const Columns at{rows, f.Size(Attr::kH, 1), static_cast<int64_t>(f.Get(Attr::kColumns)),
                   n / rows};
  if (n % rows != 0 || at.first + at.width > at.h) f.Fail("the columns lie outside their tensor");
  return at;
}

}  // namespace

void Zero(OpFrame& f) {
  const cpu::Operand& x = f.RawOut(0, f.OutSize(0));
  const int64_t bytes = x.n * ir::DtypeBytes(x.dtype);
  Launch(f.queue, ZeroKernel, Blocks(bytes, kThreads * 16), kThreads, 0,
         static_cast<uint8_t*>(x.data), bytes, IsQuad(x.data, x.data));
}

void Slice(OpFrame& f) {
  if (f.Get(Attr::kColumns) >= 0) {
    const Columns at = ColumnsOf(f);
    const cpu::Operand &x = f.RawIn(0, at.rows * at.h), &y = f.RawOut(0, at.rows * at.width);
    if (x.dtype != y.dtype) f.Fail("input and output differ in type");
    const int64_t element = ir::DtypeBytes(x.dtype), taken = at.width * element;
    const uint8_t* from = static_cast<const uint8_t*>(x.data) + at.first * element;
    const bool quads = IsQuad(from, y.data) && taken % 16 == 0 && at.h * element % 16 == 0;
    return Launch(f.queue, RowsKernel, Blocks(at.rows * taken, kThreads * 16), kThreads, 0, from,
                  static_cast<uint8_t*>(y.data), at.rows * taken, taken, at.h * element, quads);
  }
  const int64_t n = f.Size(Attr::kElements, 1), first = f.Coord(Attr::kAxis) * n,
                whole = f.InSize(0);
  const cpu::Operand &x = f.RawIn(0, whole), &y = f.RawOut(0, n);
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  if (whole % n != 0 || first + n > whole) f.Fail("the part lies outside the input");
  const int64_t rows = std::max<int64_t>(1, f.Size(Attr::kRows));
  if (n % rows != 0) f.Fail("the part is no whole number of rows");
  const int64_t width = ir::DtypeBytes(x.dtype), part = n / rows * width,
                pitch = whole / rows * width;
  const uint8_t* from = static_cast<const uint8_t*>(x.data) + first / rows * width;
  const bool wide = IsQuad(from, y.data) && (rows == 1 || (part % 16 == 0 && pitch % 16 == 0));
  Launch(f.queue, RowsKernel, Blocks(n * width, kThreads * 16), kThreads, 0, from,
         static_cast<uint8_t*>(y.data), n * width, part, pitch, wide);
}

void Copy(OpFrame& f) {
  const cpu::Operand &x = f.RawIn(0, f.InSize(0)), &y = f.RawOut(0, f.InSize(0));
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  const int64_t bytes = x.n * ir::DtypeBytes(x.dtype);
  Launch(f.queue, CopyKernel, Blocks(bytes, kThreads * 16), kThreads, 0,
         static_cast<const uint8_t*>(x.data), static_cast<uint8_t*>(y.data), bytes,
         IsQuad(x.data, y.data));
}

void Add(OpFrame& f) {
  if (f.Get(Attr::kColumns) < 0) return MapTwo(f, f.OutSize(0), Sum());
  const Columns at = ColumnsOf(f);
  const int64_t n = at.rows * at.width;
  const Ref sum = f.InOut(0, 0, at.rows * at.h), x = f.In(1, n);
  Launch(f.queue, AddColumnsKernel, Blocks(n, kThreads), kThreads, 0, sum, x, n, at);
}
void Gelu(OpFrame& f) { Map(f, GeluOf()); }
void GeluBackward(OpFrame& f) { MapTwo(f, f.Size(Attr::kElements), GeluSlopeOf()); }
void Relu(OpFrame& f) { Squares(f) ? Map(f, SquaredReluOf()) : Map(f, ReluOf()); }
void ReluBackward(OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements);
  Squares(f) ? MapTwo(f, n, SquaredReluSlopeOf()) : MapTwo(f, n, ReluSlopeOf());
}
void Tanh(OpFrame& f) { Map(f, TanhOf{CapOf(f)}); }
void TanhBackward(OpFrame& f) { MapTwo(f, f.Size(Attr::kElements), TanhSlopeOf{CapOf(f)}); }

void Swiglu(OpFrame& f) {
  switch (GateOf(f)) {
    case ir::GateKind::kGelu:
      return Gated(f, GeluGate());
    case ir::GateKind::kRelu:
      return Gated(f, ReluGate());
    default:
      return Gated(f, SiluGate());
  }
}

void SwigluBackward(OpFrame& f) {
  switch (GateOf(f)) {
    case ir::GateKind::kGelu:
      return GatedBackward(f, GeluGate());
    case ir::GateKind::kRelu:
      return GatedBackward(f, ReluGate());
    default:
      return GatedBackward(f, SiluGate());
  }
}

}  // namespace orrery::cuda
