// SPDX-License-Identifier: Apache-2.0
// cuBLASLt computes column-major products: C = A B, row-major, is C^T = B^T A^T there, without moving anything.
#include "runtime/device/cuda/products_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "model/base/diagnostics.h"
#include "runtime/device/cuda/status.h"

namespace orrery::cuda {
namespace {

// Of cuBLASLt, which is not linked: whoever has no GPU needs none.
struct LtApi {
  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtDestroy) Destroy = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate = nullptr;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy = nullptr;
};

LtApi LoadLt() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* library = nullptr;
  for (const std::string& path : {name, std::string(ORRERY_CUDA_LIBRARIES "/") + name}) {
    if (library == nullptr) library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr)
    throw InputError(
        fmt::format("{} cannot be loaded", name),
        fmt::format("install cuBLAS of CUDA {}, and name its folder in LD_LIBRARY_PATH",
                    CUBLAS_VER_MAJOR));
  LtApi lt;
  const auto find = [&](const char* symbol, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, symbol));
    if (*function == nullptr)
      throw InputError(fmt::format("{} has no {}", name, symbol), "a complete cuBLAS");
  };
  find("cublasLtCreate", &lt.Create);
  find("cublasLtDestroy", &lt.Destroy);
  find("cublasLtMatmul", &lt.Matmul);
  find("cublasLtMatmulAlgoGetHeuristic", &lt.MatmulAlgoGetHeuristic);
  find("cublasLtMatmulDescCreate", &lt.MatmulDescCreate);
  find("cublasLtMatmulDescDestroy", &lt.MatmulDescDestroy);
  find("cublasLtMatmulDescSetAttribute", &lt.MatmulDescSetAttribute);
  find("cublasLtMatmulPreferenceCreate", &lt.MatmulPreferenceCreate);
  find("cublasLtMatmulPreferenceDestroy", &lt.MatmulPreferenceDestroy);
  find("cublasLtMatmulPreferenceSetAttribute", &lt.MatmulPreferenceSetAttribute);
  find("cublasLtMatrixLayoutCreate", &lt.MatrixLayoutCreate);
  find("cublasLtMatrixLayoutDestroy", &lt.MatrixLayoutDestroy);
  return lt;
}

// Kept for good. Throws InputError.
const LtApi& Lt() {
  static const LtApi lt = LoadLt();
  return lt;
}

void CheckLt(cublasStatus_t status, const char* doing) { CheckLibrary(status, "cuBLASLt", doing); }

template <typename T>
struct Destroy;
template <>
struct Destroy<cublasLtMatmulDesc_t> {
  static void Call(cublasLtMatmulDesc_t x) { Lt().MatmulDescDestroy(x); }
};
template <>
struct Destroy<cublasLtMatrixLayout_t> {
  static void Call(cublasLtMatrixLayout_t x) { Lt().MatrixLayoutDestroy(x); }
};
template <>
struct Destroy<cublasLtMatmulPreference_t> {
  static void Call(cublasLtMatmulPreference_t x) { Lt().MatmulPreferenceDestroy(x); }
};
template <typename T>
struct Holder {
  T handle = nullptr;
  Holder() = default;
  Holder(Holder&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Holder& operator=(Holder&&) = delete;
  ~Holder() {
    if (handle != nullptr) Destroy<T>::Call(handle);
  }
};

struct Call {
  Holder<cublasLtMatmulDesc_t> desc;
  Holder<cublasLtMatrixLayout_t> left, right, result, old;
  cublasLtMatmulAlgo_t algorithm{};
};

enum class Epilogue : uint8_t { kNone, kBias, kGelu, kGeluBias, kGeluBackward };

struct Shape {
  bool ta, tb, fast;
  int64_t m, n, k;
  Type operands, result, bias;
  bool adds;  // an old C
  Epilogue epilogue;
  int alignment;  // bytes, of the least aligned operand
  auto Key() const {
    return std::make_tuple(ta, tb, fast, m, n, k, operands, result, bias, adds, epilogue,
                           alignment);
  }
  bool operator<(const Shape& other) const { return Key() < other.Key(); }
};

cudaDataType TypeOf(Type type) {
  return type == Type::kF32 ? CUDA_R_32F : type == Type::kBf16 ? CUDA_R_16BF : CUDA_R_16F;
}

cublasLtEpilogue_t EpilogueOf(Epilogue e) {
  switch (e) {
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluBackward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kNone:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// The operand that gelu keeps or reads.
Ref AuxOf(const Product& p) { return !p.activated.absent() ? p.c : p.gelu_input; }
// What the product is stored to.
Ref ResultOf(const Product& p) { return !p.activated.absent() ? p.activated : p.c; }

int AlignmentOf(const Product& p) {
  uintptr_t bits = 256;
  for (const Ref& x : {p.a, p.b, p.c, p.old, p.bias, p.activated, p.gelu_input})
    bits |= reinterpret_cast<uintptr_t>(x.data);
  return static_cast<int>(bits & (~bits + 1));
}

Shape ShapeOf(const Product& p) {
  Epilogue epilogue = p.bias.absent() ? Epilogue::kNone : Epilogue::kBias;
  if (!p.activated.absent()) epilogue = p.bias.absent() ? Epilogue::kGelu : Epilogue::kGeluBias;
  if (!p.gelu_input.absent()) epilogue = Epilogue::kGeluBackward;
  return {p.ta,     p.tb,          p.fast_f32,       p.m,         p.n,
          p.k,      p.a.type,      ResultOf(p).type, p.bias.type, !p.old.absent(),
          epilogue, AlignmentOf(p)};
}

template <typename T>
void Set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  CheckLt(Lt().MatmulDescSetAttribute(desc, attribute, &value, sizeof value),
          "describing a product");
}

void MakeLayout(Holder<cublasLtMatrixLayout_t>* layout, Type type, int64_t rows, int64_t columns) {
  CheckLt(Lt().MatrixLayoutCreate(&layout->handle, TypeOf(type), static_cast<uint64_t>(rows),
                                  static_cast<uint64_t>(columns), rows),
          "describing a matrix");
}

class LtProducts : public Products {
 public:
  LtProducts() { CheckLt(Lt().Create(&handle_), "opening cuBLASLt"); }
  ~LtProducts() override { Lt().Destroy(handle_); }

  bool Multiply(const Queue& queue, const Product& p) override {
    if (!Takes(p)) return false;
    if (Execute(queue, p)) return true;
    if (p.bias.absent() || !p.activated.absent() || !p.gelu_input.absent()) return false;
    Product plain = p;  // the bias apart, where the library has no such epilogue
    plain.bias = {};
    if (!Execute(queue, plain)) return false;
    AddBias(queue, p.c, p.bias, p.m, p.n);
    return true;
  }

 private:
  static bool Takes(const Product& p) {
    if (p.a.type != p.b.type || p.a.type == Type::kU8) return false;
    if (p.c.type != p.a.type && p.c.type != Type::kF32) return false;
    if (!p.old.absent() && p.old.type != p.c.type) return false;
    const Ref aux = AuxOf(p);
    const bool fuses = !p.activated.absent() || !p.gelu_input.absent();
    if (fuses && (aux.type != ResultOf(p).type || p.n % 8 != 0)) return false;
    return p.m > 0 && p.n > 0 && p.k > 0;
  }

  bool Execute(const Queue& queue, const Product& p) {
    const Shape shape = ShapeOf(p);
    auto at = calls_.find(shape);
    if (at == calls_.end())
      at = calls_.emplace(shape, Choose(shape, p, queue.workspace_bytes)).first;
    if (!at->second) return false;
    const Call& call = *at->second;
    Point(call, shape, p);
    const float alpha = p.scale, beta = p.old.absent() ? 0 : 1;
    void* result = ResultOf(p).data;
    CheckLt(Lt().Matmul(handle_, call.desc.handle, &alpha, p.b.data, call.left.handle, p.a.data,
                        call.right.handle, &beta, p.old.absent() ? result : p.old.data,
                        call.old.handle, result, call.result.handle, &call.algorithm,
                        queue.workspace, static_cast<size_t>(queue.workspace_bytes),
                        static_cast<cudaStream_t>(queue.stream)),
            "a product");
    return true;
  }

  static void Point(const Call& call, const Shape& s, const Product& p) {
    if (!p.bias.absent()) Set(call.desc.handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
    if (s.epilogue >= Epilogue::kGelu)
      Set(call.desc.handle, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, AuxOf(p).data);
  }

  static void Describe(const Shape& s, Call* call) {
    const bool single = s.operands == Type::kF32;
    const cublasComputeType_t compute =
        single && s.fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    CheckLt(Lt().MatmulDescCreate(&call->desc.handle, compute, CUDA_R_32F), "describing a product");
    const cublasLtMatmulDesc_t desc = call->desc.handle;
    // The left operand there is B: stored [K, N] it is B^T already, stored [N, K] it is to be transposed.
    Set(desc, CUBLASLT_MATMUL_DESC_TRANSA, s.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(desc, CUBLASLT_MATMUL_DESC_TRANSB, s.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(s.epilogue));
    if (s.epilogue == Epilogue::kBias || s.epilogue == Epilogue::kGeluBias)
      Set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(TypeOf(s.bias)));
    if (s.epilogue >= Epilogue::kGelu) Set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.n);
    MakeLayout(&call->left, s.operands, s.tb ? s.k : s.n, s.tb ? s.n : s.k);
    MakeLayout(&call->right, s.operands, s.ta ? s.m : s.k, s.ta ? s.k : s.m);
    MakeLayout(&call->result, s.result, s.n, s.m);
    MakeLayout(&call->old, s.result, s.n, s.m);
  }

  // The library's first suggestion; nothing: it has none.
  std::optional<Call> Choose(const Shape& s, const Product& p, int64_t workspace) {
    Call call;
    Describe(s, &call);
    Point(call, s, p);
    Holder<cublasLtMatmulPreference_t> preference;
    CheckLt(Lt().MatmulPreferenceCreate(&preference.handle), "choosing a product");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      CheckLt(Lt().MatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value),
              "choosing a product");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(attribute, static_cast<uint32_t>(s.alignment));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = Lt().MatmulAlgoGetHeuristic(
        handle_, call.desc.handle, call.left.handle, call.right.handle, call.old.handle,
        call.result.handle, preference.handle, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS)
      return std::nullopt;
    call.algorithm = found.algo;
    return call;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, std::optional<Call>> calls_;
};

}  // namespace

void LoadProducts() { (void)Lt(); }

std::unique_ptr<Products> MakeProducts() { return std::make_unique<LtProducts>(); }

}  // namespace orrery::cuda
