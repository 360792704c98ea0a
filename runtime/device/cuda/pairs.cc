// SPDX-License-Identifier: Apache-2.0
// Holds products back, and fuses them with what follows.
#include "runtime/device/cuda/pairs.h"

#include "runtime/device/cuda/products.h"

namespace orrery::cuda {
namespace {

using ir::OpKind;

// Gelu of the product's result, which is kept for backward.
bool IsGelu(const cpu::KernelArgs& product, const cpu::KernelArgs& next) {
  return next.op.kind == OpKind::kGelu && next.in.size() == 1 &&
         next.in[0].data == product.out[0].data && next.in[0].n == product.out[0].n &&
         next.out[0].data != product.out[0].data;
}

// Gelu's gradient in the place of the product's result: nothing is left that somebody could read.
bool IsGeluBackward(const cpu::KernelArgs& product, const cpu::KernelArgs& next) {
  return next.op.kind == OpKind::kGeluBwd && next.in.size() == 2 &&
         next.in[0].data == product.out[0].data && next.in[0].n == product.out[0].n &&
         next.out[0].data == product.out[0].data && next.out[0].dtype == product.out[0].dtype;
}

}  // namespace

bool Fuse(const cpu::KernelArgs& first, const cpu::KernelArgs& second, const Queue& queue) {
  if (queue.products == nullptr) return false;
  OpFrame f(first, queue), g(second, queue);
  Product p = ProductOf(f);
  const int64_t n = p.m * p.n;
  if (IsGelu(first, second)) {
    p.activated = g.Out(0, n);
  } else if (IsGeluBackward(first, second)) {
    p.gelu_input = g.In(1, n);
  } else {
    return false;
  }
  return queue.products->Multiply(queue, p);
}

void OpPairs::Run(const cpu::KernelArgs& args) {
  if (held_ && Fuse(*held_, args, queue_)) {
    held_.reset();
    return Release();
  }
  Flush();
  const bool can_wait = queue_.products != nullptr && args.op.kind == OpKind::kMatmul &&
                        args.out.size() == 1 && args.op.attrs.Get(ir::Attr::kAcc) == 0;
  if (can_wait) {
    held_.emplace(args);
  } else {
    cuda::Run(args, queue_);
  }
}

void OpPairs::Flush() {
  if (held_) {
    const cpu::KernelArgs args = *held_;
    held_.reset();
    cuda::Run(args, queue_);
  }
  Release();
}

void OpPairs::Behind(std::function<void()> action) {
  if (!held_) return action();
  behind_.push_back(std::move(action));
}

void OpPairs::Release() {
  for (const std::function<void()>& action : behind_) action();
  behind_.clear();
}

}  // namespace orrery::cuda
