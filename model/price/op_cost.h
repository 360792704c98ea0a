// SPDX-License-Identifier: Apache-2.0
// Device time of one operation from its shape and the profiles.
//
// Formulas as calib/DERIVATIONS.md, section 2, derives them: a roofline per kernel with calibrated efficiencies.
//   product C[M,N] += A[M,K] B[K,N]:  max(tiles / alignment, bytes) + gap, with
//     tiles = min over tile shapes (Tm, Tn, eta) and split-K k of
//             waves x 2 Tm Tn (K/k + K0) / (F e c eta / U) (+ partial sums of split K / W)
//     waves = q ceil(x) + (1-q) max(x, 1),  x = ceil(M/Tm) ceil(N/Tn) batch k / U
//     bytes = (MK + KN + MN) batch element_size / (W ew)
//   attention, materialised: two batched products (four backward) + passes over the b a s s scores;
//   attention, fused: FLOPs over (F x flash efficiency), half of them when causal, times sqrt(1 + (c U / tiles)^2),
//     c 3 forward and 2 backward, tiles of 128 rows: few of them leave units idle;
//   alignment: 1, or what rows that do not start at multiples of 16 bytes leave of the rate (gemm_aligned_4, _2);
//   element-wise: operand bytes x chain x traffic / (W ew (1 + gain exp(-size / reach)));
//   loss: bytes per logit of the software's own implementation;
//   products and attention times exp(r), what measured shapes of the chip left of the formulas
//   (kernel_factors.h), where its profile holds some;
//   kernels that the profile holds measured times of (kernel_table.h) take those instead.
// F peak of the precision, e gemm_efficiency, c clock_share, W memory bandwidth, ew memory_efficiency, U
// multiprocessors. Valid for dense transformer shapes; every kernel pays the gap once.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>

#include "model/base/quantity.h"
#include "model/framework/profile.h"

namespace orrery {

struct GemmShape {
  double m = 0, n = 0, k = 0;
  double batch = 1;
  double element_bytes = 2;
  ProductType product = ProductType::kPlain;
  double result_bytes = 0;  // of an element of C; 0: as those of A and B
  double row_bytes = 16;    // that the starts of all rows are multiples of, at most 16
};

struct AttentionShape {
  double batch = 0, heads = 0, seq_q = 0, seq_kv = 0, head_dim = 0;
  double element_bytes = 2;
  bool causal = true;
  bool flash = true;
  bool backward = false;

  const char* kernel() const;  // its name among measured kernels
  // Its name among tables of measured over formula: fused kernels have one each, because the formula differs.
  std::string TableBy(AttentionKernel fused) const;
};

// What a chain of operations moves, over its operands read and written once: as one kernel, operation by operation, and the
// latter where norms are no kernels of their own either.
struct Chain {
  double compiled = 1, eager = 1, eager_norm = 1;
};

struct TrafficShape {
  double bytes = 0;  // sum of the operands
  const char* kernel = "";
  // Bytes that really move, over `bytes`; of autocast, where norms and residuals are in fp32.
  Chain plain, autocast;
  // A cast that frameworks may make part of the norm in front of it: for which products, and the bytes that it then adds.
  ProductType fused_with_norm = ProductType::kPlain;
  double fused_bytes = 0;
  bool cast = false;        // to 8 or 4 bits, or its scales
  bool gate = false;        // silu(x) y, a kernel of its own even without a compiler, or not
  bool transposes = false;  // codes of weights, which it does not cast
  double one_way = 0;       // bytes of a cast along its rows alone, or across; 0: as `bytes`
};

struct LossShape {
  double logits = 0;
  double passes = 0;  // of the four over the logits: max, sum, gradient (read and write)
  const char* kernel = "";
};

// What a chip and a software do to shapes: profiles and precision, with the derived rates.
class OpCost {
 public:
  OpCost(const GpuProfile& gpu, const FrameworkProfile& framework, Precision precision);
  // Formulas alone: without what measured shapes left of them.
  OpCost WithoutFactors() const;

  // Seconds on the device.
  double Gemm(const GemmShape& shape) const;
  double Attention(const AttentionShape& shape) const;
  double Traffic(const TrafficShape& shape) const;
  double Loss(const LossShape& shape) const;

  // Of a measured kernel with one extent; nullopt: it was not measured.
  std::optional<double> Measured(const char* kernel, double extent) const {
    return measured_->Seconds(kernel, {extent, 1, 1, 1});
  }
  // Seconds that `bytes` of plain streaming take.
  double Stream(double bytes) const { return bytes / stream_rate_; }
  // Extra host time of a materialised attention: the fused softmax kernels of Megatron want
  // (batch x local heads) % 4 == 0.
  double UnfusedSoftmaxHost(const AttentionShape& shape) const;

  const FrameworkProfile& framework() const { return *framework_; }

 private:
  double Units() const { return gpu_->multiprocessors; }
  double Alignment(const GemmShape& shape) const;
  double AttentionFormula(const AttentionShape& shape) const;
  double NarrowShare(double width) const;

  const GpuProfile* gpu_;
  const FrameworkProfile* framework_;
  const KernelTable* measured_;
  const KernelFactors* factors_;
  double peak_ = 0;  // FLOP/s of the precision
  struct Rate {
    double peak = 0, best = 0;  // FLOP/s
  };
  std::array<Rate, kProducts> products_;      // by product type
  double stream_rate_ = 0;                    // bytes/s at best
  std::optional<AttentionKernel> attention_;  // fused, that the framework takes on the chip
  double attention_rate_ = 0;  // FLOP/s of fused attention, long sequences; 0: the chip has none
  double attention_backward_ = 1;  // its backward rate over that
  double gap_ = 0;                 // seconds per kernel
  bool half_ = false;              // 16 bits
  double promotion_ = 1;           // traffic factor of the precision
};

}  // namespace orrery
