// SPDX-License-Identifier: Apache-2.0
// Applies a chip's and a framework's constants to the shapes of ops.
#include "model/price/op_prices.h"

#include <algorithm>
#include <cmath>

#include "model/base/check.h"

namespace orrery {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// Kernel and host times at this site over those elsewhere.
double SiteFactor(const FrameworkProfile& framework) { return framework.site_factor; }

// Kernels on many nodes: what all of them finish together lasts as long as on the slowest one.
double StragglerFactor(const FrameworkProfile& framework, int64_t nodes) {
  return 1.0 + framework.straggling * std::log2(static_cast<double>(std::max<int64_t>(1, nodes)));
}

}  // namespace

OpPrices::OpPrices(const CostSetting& setting, Precision precision,
                   const std::vector<double>* kernels)
    : cost_(*setting.gpu, *setting.framework, precision),
      framework_(setting.framework),
      host_(setting),
      host_factor_(SiteFactor(*framework_) *
                   (setting.cluster->nodes > 1 ? 1.0 + framework_->host_multi_node : 1.0)),
      pace_(SiteFactor(*framework_) * StragglerFactor(*framework_, setting.cluster->nodes)),
      cast_bytes_(framework_->preset->autocast &&
                          (precision == Precision::kFp16 || precision == Precision::kBf16)
                      ? framework_->autocast_traffic
                      : 0),
      kernels_(kernels) {}

OpPrice OpPrices::Price(const ShapedOp& op, bool accumulates) const {
  OpPrice price{Device(op), Host(op)};
  if (accumulates && op.accumulated > 0) price.device += Accumulate(op.accumulated);
  const auto* gradient = std::get_if<GemmShape>(&op.shape);
  if (gradient != nullptr && op.weight_gradient) price.device += Cast(gradient->m * gradient->n);
  return price;
}

OpPrice OpPrices::Price(const ir::Plan& plan, const ir::Program& program, const ir::Op& op,
                        bool accumulates) const {
  const std::optional<ShapedOp> shaped = ShapeOf(plan, program, op);
  return shaped ? Price(*shaped, accumulates) : OpPrice{};
}

double OpPrices::Accumulate(double elements) const {
  return pace_ * cost_.Stream(elements * framework_->accumulation_traffic);
}

double OpPrices::Cast(double elements) const {
  return pace_ * cost_.Stream(elements * cast_bytes_);
}

namespace {

StreamPrice StreamOf(const OpCost& cost, TrafficShape kernel) {
  constexpr double kLarge = 1e9, kLarger = 2e9;  // far beyond any cache
  kernel.bytes = kLarge;
  const double large = cost.Traffic(kernel);
  kernel.bytes = kLarger;
  const double slope = (cost.Traffic(kernel) - large) / (kLarger - kLarge);
  return {std::max(0.0, large - slope * kLarge), slope};
}

}  // namespace

StreamPrice OpPrices::UpdateStream(const char* kernel) const {
  return StreamOf(cost_, {0, kernel});
}

StreamPrice OpPrices::CastStream(const char* kernel) const {
  TrafficShape cast{0, kernel};
  cast.cast = true;
  const StreamPrice price = StreamOf(cost_, cast);
  return {pace_ * price.gap, pace_ * price.per_byte};
}

StreamPrice OpPrices::Stream(const char* kernel) const {
  const StreamPrice price = UpdateStream(kernel);
  return {pace_ * price.gap, pace_ * price.per_byte};
}

double OpPrices::UpdatePerElement(const Workload& work) const {
  const bool half = work.precision == Precision::kFp16 || work.precision == Precision::kBf16;
  const double state = half && !work.master_weights ? 2 : 4;
  constexpr double kElements = 1 << 20;
  constexpr double kBytes = 28;  // weight, gradient, two moments; three of them written
  switch (work.optimizer) {
    case Optimizer::kSgd:
      return Update({ir::OpKind::kSgd, kElements, kElements * kBytes}) / kElements;
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
      return Update({ir::OpKind::kAdam, kElements, kElements * kBytes, state, state}) / kElements;
    case Optimizer::kAdam8bit:
      return Update({ir::OpKind::kAdam, kElements, kElements * kBytes, 1, state}) / kElements;
    case Optimizer::kMuon:
      return Update({ir::OpKind::kMuon, kElements, kElements * kBytes}) / kElements;
    case Optimizer::kLamb:
      return Update({ir::OpKind::kLambDir, kElements, kElements * kBytes}) / kElements;
  }
  ORRERY_CHECK(false, "optimizer {}", static_cast<int>(work.optimizer));
}

double OpPrices::NewtonSchulz(const std::vector<ir::UnitMatrix>& matrices) const {
  double seconds = 0;
  for (const auto& [rows, columns, count] : matrices) {
    const double step = cost_.Gemm({rows, rows, columns}) + cost_.Gemm({rows, rows, rows}) +
                        cost_.Gemm({rows, columns, rows});
    seconds += count * ir::kNewtonSchulzSteps * step;
  }
  return seconds;
}

double OpPrices::Device(const ShapedOp& op) const {
  if (const auto* update = std::get_if<UpdateShape>(&op.shape)) return Update(*update);
  if (const auto* copied = std::get_if<HostCopyShape>(&op.shape)) return copied->bytes * host_.copy;
  if (kernels_ != nullptr && op.index >= 0)
    return pace_ * (*kernels_)[static_cast<std::size_t>(op.index)];
  return pace_ * AtFullPace(op);
}

double OpPrices::AtFullPace(const ShapedOp& op) const {
  const double time = std::visit(
      Overloaded{[&](const GemmShape& s) { return cost_.Gemm(s); },
                 [&](const AttentionShape& s) { return cost_.Attention(s); },
                 [&](const TrafficShape& s) {
                   return Fused(op) ? cost_.Stream(s.fused_bytes) : cost_.Traffic(s);
                 },
                 [&](const LossShape& s) { return cost_.Loss(s); },
                 [](const HostCopyShape&) { return 0.0; }, [](const UpdateShape&) { return 0.0; },
                 [](const CollectiveShape&) { return 0.0; }, [](const HopShape&) { return 0.0; }},
      op.shape);
  return time + Around(op);
}

double OpPrices::Update(const UpdateShape& s) const {
  if (s.on_host) return s.elements * host_.update;
  if (const auto measured = cost_.Measured(ir::Info(s.kind).name, s.bytes)) return *measured;
  const auto stream = [&](double traffic) { return cost_.Stream(s.elements * traffic); };
  switch (s.kind) {
    case ir::OpKind::kSgd:
      return stream(framework_->sgd_traffic);
    // Two moments, read and written in four bytes; less where they have fewer, or where there is one. Weights in two bytes
    // are read and written once, without a copy in four.
    case ir::OpKind::kAdam:
    case ir::OpKind::kMuon: {
      const double saved =
          s.kind == ir::OpKind::kMuon ? 8.0 : 4 * (4 - std::min(s.moment_bytes, 4.0));
      const double copy = s.weight_bytes < 4 ? 6.0 : 0.0;
      return stream(std::max(framework_->adam_traffic - saved - copy, 0.0)) +
             s.share * NewtonSchulz(s.matrices);
    }
    case ir::OpKind::kLambDir:
      return stream(framework_->lamb_traffic);
    case ir::OpKind::kLambApply:  // lamb_traffic counts both passes
    case ir::OpKind::kLossScale:
      return 0;
    default:
      return cost_.Traffic({s.bytes, ir::Info(s.kind).name});
  }
}

// What frameworks add once per micro-batch around the loss and the embedding.
double OpPrices::Around(const ShapedOp& op) const {
  switch (op.surcharge) {
    case Surcharge::kNothing:
      return 0;
    case Surcharge::kLoss:
      return framework_->head_fixed.value;
    case Surcharge::kEmbedding:
      return framework_->embedding_fixed.value;
  }
  return 0;
}

bool OpPrices::Fused(const ShapedOp& op) const {
  const auto* cast = std::get_if<TrafficShape>(&op.shape);
  return cast != nullptr && cast->fused_with_norm != ProductType::kPlain &&
         framework_->preset->FusesCast(cast->fused_with_norm);
}

double OpPrices::Host(const ShapedOp& op) const {
  if (Fused(op) || std::holds_alternative<HostCopyShape>(op.shape)) return 0;
  // A message to one other rank is issued as half an all-reduce is: one call, one wait.
  const auto* collective = std::get_if<CollectiveShape>(&op.shape);
  if (collective != nullptr || std::holds_alternative<HopShape>(op.shape)) {
    const bool whole = collective != nullptr && collective->kind == Collective::kAllReduce;
    return (whole ? 1.0 : 0.5) * framework_->host_collective.value * host_factor_;
  }
  const auto* attention = std::get_if<AttentionShape>(&op.shape);
  const double hooks = op.module && op.gathered ? framework_->host_module.value : 0.0;
  const double unfused = attention != nullptr ? cost_.UnfusedSoftmaxHost(*attention) : 0.0;
  switch (op.pass) {
    case Pass::kForward:
      return (framework_->host_forward_op.value + unfused + hooks) * host_factor_;
    case Pass::kBackward:
      return (framework_->host_backward_op.value + unfused + hooks) * host_factor_;
    case Pass::kNone:
      return 0;
  }
  return 0;
}

}  // namespace orrery
