// SPDX-License-Identifier: Apache-2.0
// Rooflines of single operations.
#include "model/price/op_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/base/check.h"
#include "model/hardware/cache.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

// Tile shapes of dense matrix kernels and what smaller ones lose to operand reuse.
struct Tile {
  double m, n, efficiency;
};
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 128, 0.95}, {128, 64, 0.82}, {64, 64, 0.65}};
constexpr double kSplits[] = {1, 4};
constexpr double kPartialSumBytes = 4;  // split-K partial sums are fp32

constexpr double kFlashBackwardFlops = 2.5;  // five products instead of two
constexpr double kFlashRows = 128;           // of queries (backward: keys) that one tile holds
// Tiles that a unit needs under way to reach its rate: 4 to 128 heads of 4096 tokens on B200, SimuMax.
constexpr double kFlashTiles = 3, kFlashBackwardTiles = 2;
// Ramp of attention without a mask over the causal one: 200 over 1100 keys of FlashAttention 4 on B200 (calib/data/b200-attention.csv).
constexpr double kFullRamp = 0.2;

// FlashAttention is compiled for these sizes of heads; others are padded (Dao-AILab/flash-attention, HEADDIM_SWITCH).
double WidthOf(AttentionKernel kernel, double head_dim) {
  const bool flash = kernel == AttentionKernel::kFa2 ||
                     kernel == AttentionKernel::kFa2Deterministic ||
                     kernel == AttentionKernel::kFa3;
  if (!flash) return head_dim;
  for (const double size : {32.0, 64.0, 96.0, 128.0, 192.0, 256.0})
    if (head_dim <= size) return size;
  return head_dim;
}

}  // namespace

OpCost::OpCost(const GpuProfile& gpu, const FrameworkProfile& framework, Precision precision)
    : gpu_(&gpu),
      framework_(&framework),
      measured_(&gpu.kernels[static_cast<std::size_t>(precision)]),
      factors_(&gpu.factors[static_cast<std::size_t>(precision)]) {
  peak_ = gpu.Peak(precision).value;
  ORRERY_CHECK(peak_ > 0, "{} has no arithmetic of precision {}", gpu.header.id,
               static_cast<int>(precision));
  for (std::size_t i = 0; i < products_.size(); ++i) {
    const auto product = static_cast<ProductType>(i);
    const double peak = gpu.Peak(product, precision).value;
    products_[i] = {peak, peak * gpu.GemmEfficiency(product, precision) * gpu.clock_share};
  }
  stream_rate_ = gpu.StreamRate().value;
  attention_ = framework.preset->FusedAttention(gpu);
  if (attention_) {
    attention_rate_ = peak_ * gpu.AttentionRate(*attention_);
    attention_backward_ = gpu.AttentionBackward(*attention_);
  }
  gap_ = framework.kernel_gap.value;
  half_ = precision == Precision::kFp16 || precision == Precision::kBf16;
  promotion_ = half_ ? 1.0 : framework.full_precision_traffic;
}

OpCost OpCost::WithoutFactors() const {
  static const KernelFactors kNone;
  OpCost plain = *this;
  plain.factors_ = &kNone;
  return plain;
}

// Rows at multiples of 16 bytes are what bulk copies of tiles and wide loads need; others go through narrower ones.
double OpCost::Alignment(const GemmShape& s) const {
  if (s.row_bytes >= 16 || framework_->preset->padded_vocab) return 1;
  if (s.row_bytes < 4) return gpu_->gemm_aligned_2;
  const double four = gpu_->gemm_aligned_4;
  return s.row_bytes >= 8 ? std::sqrt(four) : four;
}

double OpCost::Gemm(const GemmShape& s) const {
  const bool plain = s.product == ProductType::kPlain;
  if (const auto measured = measured_->Seconds("mm", {s.m, s.n, s.k, 1}); plain && measured)
    return s.batch * *measured;
  const Rate& product = products_[static_cast<std::size_t>(s.product)];
  ORRERY_CHECK(product.best > 0, "{} has no products of type {}", gpu_->header.id,
               NameIn(kProductNames, s.product));
  const double units = Units();
  const double q = gpu_->wave_quantisation;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(s.m / tile.m) * std::ceil(s.n / tile.n) * s.batch;
    const double rate = product.best * tile.efficiency / units;
    for (double split : kSplits) {
      const double x = tiles * split / units;
      const double waves = q * std::ceil(x) + (1.0 - q) * std::max(x, 1.0);
      double time = waves * 2.0 * tile.m * tile.n * (s.k / split + gpu_->gemm_k_overhead) / rate;
      if (split > 1) time += 2.0 * kPartialSumBytes * split * s.m * s.n * s.batch / stream_rate_;
      best = std::min(best, time);
    }
  }
  const double result = s.result_bytes > 0 ? s.result_bytes : s.element_bytes;
  const double bytes = ((s.m * s.k + s.k * s.n) * s.element_bytes + s.m * s.n * result) * s.batch;
  // Tables of shapes were measured in the precision of the job, and hold what wide loads can read: neighbours with other rows
  // run other kernels.
  const double alignment = Alignment(s);
  const bool tabled = plain && alignment == 1;
  const double factor = tabled ? factors_->Factor("mm", {s.m, s.n, s.k, s.batch}) : 1;
  const double time = std::max(best / alignment, bytes / stream_rate_) * factor;
  // A table of another site holds calls at its clock: none of them goes beyond the peak here.
  return std::max(time, 2.0 * s.m * s.n * s.k * s.batch / std::max(product.peak, product.best)) +
         gap_;
}

const char* AttentionShape::kernel() const {
  constexpr const char* kNames[2][2][2] = {
      {{"attn", "attn_bwd"}, {"attn_flash", "attn_flash_bwd"}},
      {{"attn_causal", "attn_causal_bwd"}, {"attn_causal_flash", "attn_causal_flash_bwd"}}};
  return kNames[causal ? 1 : 0][flash ? 1 : 0][backward ? 1 : 0];
}

std::string AttentionShape::TableBy(AttentionKernel fused) const {
  return flash ? fmt::format("{}_{}", kernel(), NameIn(kAttentionKernelNames, fused)) : kernel();
}

double OpCost::Attention(const AttentionShape& s) const {
  const KernelTable::Shape shape = {s.batch * s.heads, s.seq_q, s.seq_kv, s.head_dim};
  if (const auto measured = measured_->Seconds(s.kernel(), shape)) return *measured;
  const std::string table = attention_ ? s.TableBy(*attention_) : s.kernel();
  return AttentionFormula(s) * factors_->Factor(table, shape);
}

// The softmax takes one exponential per score whatever the width of a head, so narrow heads spend a larger share of their
// time in it. Linear in 128 / width - 1, which is 1 for heads of 64.
double OpCost::NarrowShare(double width) const {
  constexpr double kWide = 128, kMost = 3;  // as 32
  const double narrow = gpu_->attention_narrow;
  return narrow <= 0 ? 1 : 1 - (1 - narrow) * std::clamp(kWide / width - 1, 0.0, kMost);
}

double OpCost::AttentionFormula(const AttentionShape& s) const {
  const double pairs = s.batch * s.heads * s.seq_q * s.seq_kv;
  if (s.flash && attention_rate_ > 0) {
    // What a row of the scores costs besides its keys (prologue, tiles on the diagonal) counts as so many keys more; without
    // a mask rows are longer and tiles full.
    const double ramp =
        gpu_->AttentionRamp(*attention_, s.backward) * (s.causal ? 1.0 : kFullRamp) / s.seq_kv;
    const double width = WidthOf(*attention_, s.head_dim);
    const double flops = 4.0 * pairs * width * (s.causal ? 0.5 : 1.0) * (1.0 + ramp);
    const double tiles = s.batch * s.heads * std::ceil(s.seq_q / kFlashRows);
    const double lack = (s.backward ? kFlashBackwardTiles : kFlashTiles) * Units() / tiles;
    const double forward = flops * std::hypot(1.0, lack) / (attention_rate_ * NarrowShare(width));
    const double products =
        s.backward ? kFlashBackwardFlops * forward / attention_backward_ : forward;
    // Queries, keys, values, context, and their gradients; keys that heads share are counted for each.
    const double operands = s.backward ? 8 : 4;
    const double bytes = operands * s.batch * s.heads * s.seq_q * s.head_dim * s.element_bytes;
    return std::hypot(products, bytes / stream_rate_);  // short rows: memory beside products
  }
  const GemmShape scores{s.seq_q, s.seq_kv, s.head_dim, s.batch * s.heads, s.element_bytes};
  const GemmShape context{s.seq_q, s.head_dim, s.seq_kv, s.batch * s.heads, s.element_bytes};
  const double products = Gemm(scores) + Gemm(context);
  const double score_bytes = pairs * s.element_bytes;
  double traffic = promotion_ * framework_->softmax_traffic * score_bytes /
                   (stream_rate_ * CacheFactor(*gpu_, 2.0 * score_bytes));
  if (std::fmod(s.head_dim, 8.0) != 0.0) traffic *= 1.0 + framework_->unaligned_head_penalty;
  return s.backward ? 2.0 * products + framework_->softmax_backward * traffic : products + traffic;
}

double OpCost::Traffic(const TrafficShape& s) const {
  if (const auto measured = Measured(s.kernel, s.bytes)) return *measured;
  const double traffic =
      s.cast ? framework_->cast_traffic : promotion_ * framework_->elementwise_traffic;
  const FrameworkPreset& preset = *framework_->preset;
  const Chain& chain = preset.autocast && half_ ? s.autocast : s.plain;
  const bool apart = !preset.compile || (s.gate && !preset.fused_gate);
  const double bytes = s.bytes * (!apart              ? chain.compiled
                                  : preset.fused_norm ? chain.eager
                                                      : chain.eager_norm);
  return traffic * bytes / (stream_rate_ * CacheFactor(*gpu_, s.bytes)) + gap_;
}

double OpCost::Loss(const LossShape& s) const {
  if (const auto measured = Measured(s.kernel, s.logits)) return *measured;
  const double traffic = framework_->preset->compile_loss ? framework_->compiled_loss_traffic
                                                          : framework_->loss_traffic;
  return 0.25 * s.passes * traffic * s.logits / stream_rate_;
}

double OpCost::UnfusedSoftmaxHost(const AttentionShape& s) const {
  const bool fits = s.flash || std::fmod(s.batch * s.heads, 4.0) == 0.0;
  return fits ? 0.0 : framework_->host_unfused_softmax.value;
}

}  // namespace orrery
