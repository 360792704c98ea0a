// SPDX-License-Identifier: Apache-2.0
// Products by oneDNN. Each thread that comes here computes alone: ranks may be threads of one process.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/device/cpu/gemm.h"

namespace orrery::cpu {
namespace {

using dnnl::memory;

// The library is built on OpenMP and asks it for its team size, a setting of the calling thread.
void UseOneThread() {
  static thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  (void)done;
}

// Elsewhere oneDNN would emulate them, slower than single precision.
bool HasBf16Products() {
#ifdef ORRERY_CPU_X86
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has;
#else
  return false;
#endif
}

void CheckStatus(dnnl_status_t status) {
  if (status != dnnl_success)
    throw KernelError(fmt::format("mm: oneDNN refused the product, status {}", int(status)));
}

struct CachedProduct {
  dnnl::matmul primitive;
  memory a, b, bias, c;
};

using Shape = std::tuple<bool, bool, bool, bool, bool, int64_t, int64_t, int64_t>;

struct ProductCache {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Shape, std::optional<CachedProduct>> products;  // nullopt: refused
};

memory::desc MatrixDesc(int64_t rows, int64_t columns, memory::data_type type, bool transposed) {
  return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

std::optional<CachedProduct> MakeProduct(const dnnl::engine& engine, const Bf16Product& p) {
  const auto a = MatrixDesc(p.m, p.k, memory::data_type::bf16, p.ta);
  const auto b = MatrixDesc(p.k, p.n, memory::data_type::bf16, p.tb);
  const auto c =
      MatrixDesc(p.m, p.n, p.c_is_bf16 ? memory::data_type::bf16 : memory::data_type::f32, false);
  const auto bias = MatrixDesc(1, p.n, memory::data_type::f32, false);
  dnnl::primitive_attr attr;
  if (p.acc) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  try {
    const dnnl::matmul::desc desc =
        p.bias != nullptr ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc made(desc, attr, engine);
    return CachedProduct{dnnl::matmul(made), memory(a, engine, nullptr), memory(b, engine, nullptr),
                         memory(bias, engine, nullptr), memory(c, engine, nullptr)};
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

void LibraryProduct(const GemmArgs& g) {
  CheckStatus(dnnl_sgemm(g.ta ? 'T' : 'N', g.tb ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a, g.lda,
                         g.b, g.ldb, g.beta, g.c, g.ldc));
}

constexpr int64_t kMostSliced = 4096;  // rows of A as stored: a slice stays in the cache
constexpr int64_t kColumns = 256;      // of C, at least: fewer do not repay the copy
constexpr int64_t kApart = 16;         // floats between rows of a slice: no power of two

// Rows of C that are computed at once; 0: all.
int64_t SliceOf(const GemmArgs& g) {
  constexpr int64_t kSlices[] = {512, 256};
  if (!g.ta || g.k > kMostSliced || g.n < kColumns) return 0;
  for (const int64_t slice : kSlices) {
    if (g.m > slice && g.m % slice == 0) return slice;
  }
  return 0;
}

}  // namespace

// Of an A that is stored transposed the library reads columns, each element on another page and, where rows are a multiple
// of 4 KiB long, in the same few sets of the cache: gradients of weights ran at 135 to 175 GFLOP/s. Slices of it that lie
// together run at 180 to 200, the copy counted.
void Gemm(Frame&, const GemmArgs& g) {
  UseOneThread();
  const int64_t slice = SliceOf(g);
  if (slice == 0) return LibraryProduct(g);
  const int64_t row = slice + kApart;
  static thread_local std::vector<float> packed;  // a frame would keep one for each of its products
  packed.resize(std::max(packed.size(), static_cast<std::size_t>(g.k * row)));
  for (int64_t begin = 0; begin < g.m; begin += slice) {
    for (int64_t i = 0; i < g.k; ++i)
      std::copy_n(g.a + i * g.lda + begin, slice, packed.data() + i * row);
    GemmArgs part = g;
    part.m = slice;
    part.a = packed.data();
    part.lda = row;
    part.c = g.c + begin * g.ldc;
    LibraryProduct(part);
  }
}

bool Bf16Gemm(const Bf16Product& p) {
  if (!HasBf16Products()) return false;
  UseOneThread();
  static thread_local ProductCache cache;
  const Shape shape{p.ta, p.tb, p.acc, p.bias != nullptr, p.c_is_bf16, p.m, p.n, p.k};
  auto at = cache.products.find(shape);
  if (at == cache.products.end())
    at = cache.products.emplace(shape, MakeProduct(cache.engine, p)).first;
  if (!at->second) return false;
  CachedProduct& product = *at->second;
  product.a.set_data_handle(const_cast<void*>(p.a));
  product.b.set_data_handle(const_cast<void*>(p.b));
  product.c.set_data_handle(p.c);
  std::unordered_map<int, memory> args{
      {DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}};
  if (p.bias != nullptr) {
    product.bias.set_data_handle(const_cast<float*>(p.bias));
    args.emplace(DNNL_ARG_BIAS, product.bias);
  }
  product.primitive.execute(cache.stream, args);
  cache.stream.wait();
  return true;
}

std::string_view GemmBackend() {
  static const std::string name = [] {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
  }();
  return name;
}

}  // namespace orrery::cpu
