// SPDX-License-Identifier: Apache-2.0
// Times every op of training steps of a small GPT on one rank, by op kind, against large products in the same run.
#include "bench/runtime/kernel_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "bench/runtime/small_gpt.h"
#include "runtime/comm/local.h"
#include "runtime/data/synthetic.h"
#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/kernels.h"
#include "runtime/device/cpu/loops.h"
#include "runtime/exec/executor.h"

namespace orrery {
namespace {

using ir::Attr;
using ir::OpKind;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 8, kStepsPerRound = 3;

void Print(const std::string& name, double value, const char* unit) {
  fmt::print("{} = {:.5g} {}\n", name, value, unit);
}

// FLOP/s of one product of the given shape; keeps the best.
class Product {
 public:
  Product(int64_t m, int64_t n, int64_t k) : a_(m * k, 0.5f), b_(k * n, 0.25f), c_(m * n) {
    op_.kind = OpKind::kMatmul;
    op_.attrs = {{Attr::kM, double(m)}, {Attr::kN, double(n)}, {Attr::kK, double(k)}};
  }
  void Run() {
    const cpu::Operand out[] = {{c_.data(), int64_t(c_.size())}};
    const cpu::Operand in[] = {{a_.data(), int64_t(a_.size())}, {b_.data(), int64_t(b_.size())}};
    const auto start = Clock::now();
    cpu::KernelFor(op_.kind)({op_, out, in, {}});
    const std::chrono::duration<double> spent = Clock::now() - start;
    best_ = std::max(best_, ir::OpFlops(op_) / spent.count());
  }
  double best() const { return best_; }

 private:
  ir::Op op_;
  std::vector<float> a_, b_, c_;
  double best_ = 0;
};

ir::Plan MakePlan(Precision precision, bool flash) {
  Strategy strategy;
  strategy.micro_batch = 8;
  strategy.flash_attention = flash;
  return SmallGptPlan(precision, strategy);
}

// Products apart by what they compute; everything else by op kind.
std::string RowOf(const ir::Op& op) {
  if (op.kind != OpKind::kMatmul) return ir::Info(op.kind).name;
  if (op.phase == ir::Phase::kForward) return "mm_forward";
  return op.attrs.Get(Attr::kTransA) != 0 ? "mm_weight_grad" : "mm_input_grad";
}

double ModelFlops(const ir::Op& op) {
  const ir::OpClass cls = ir::Info(op.kind).op_class;
  if (cls != ir::OpClass::kMatmul && cls != ir::OpClass::kAttention) return 0;
  ir::Op plain = op;
  plain.attrs.Set(Attr::kFlash, 0);  // recomputed products are no work of the model's
  return ir::OpFlops(plain);
}

// One rank that trains; the least time of each op and of the whole step.
class TrainingStep {
 public:
  TrainingStep(std::string name, Precision precision, bool flash)
      : name_(std::move(name)),
        plan_(MakePlan(precision, flash)),
        world_(1),
        endpoint_(world_.Connect(0)),
        source_({.seed = 1, .vocab = 4096}),
        executor_(plan_, endpoint_.get(), &source_, {}) {
    for (const exec::Task& task : executor_.image().tasks) flops_ += ModelFlops(*task.op);
    least_.assign(executor_.image().tasks.size(), 1e300);
  }

  void Run() {
    for (int i = 0; i < kStepsPerRound; ++i) {
      step_ = std::min(step_, executor_.Step().seconds);
      const auto& spans = executor_.spans();
      for (size_t t = 0; t < spans.size(); ++t)
        least_[t] = std::min(least_[t], 1e-9 * double(spans[t].end - spans[t].begin));
    }
  }

  void Report(double peak) const {
    struct Sum {
      double seconds = 0, flops = 0;
    };
    std::map<std::string, Sum> rows;
    double total = 0;
    for (size_t t = 0; t < least_.size(); ++t) {
      const ir::Op& op = *executor_.image().tasks[t].op;
      Sum& row = rows[RowOf(op)];
      row.seconds += least_[t];
      row.flops += ModelFlops(op);
      total += least_[t];
    }
    Print(name_ + "_step", 1e3 * step_, "ms");
    Print(name_ + "_work", 1e-9 * flops_, "GFLOP");
    Print(name_ + "_rate", 1e-9 * flops_ / step_, "GFLOP/s");
    Print(name_ + "_share_of_peak", 100 * flops_ / step_ / peak, "percent");
    Print(name_ + "_share_of_peak_ops", 100 * flops_ / total / peak, "percent");
    for (const auto& [kind, row] : rows) {
      Print(name_ + "_" + kind, 1e3 * row.seconds, "ms");
      if (row.flops > 0)
        Print(name_ + "_" + kind + "_rate", 1e-9 * row.flops / row.seconds, "GFLOP/s");
    }
  }

 private:
  std::string name_;
  ir::Plan plan_;
  comm::LocalWorld world_;
  std::unique_ptr<comm::Endpoint> endpoint_;
  train::SyntheticSource source_;
  exec::Executor executor_;
  double flops_ = 0, step_ = 1e300;
  std::vector<double> least_;
};

}  // namespace

void BenchKernels() {
  fmt::print("cpu_gemm = {} \n", cpu::GemmBackend());
  fmt::print("cpu_loops = {} \n", cpu::ActiveLoops().name);
  Product large[] = {{1024, 1024, 1024}, {2048, 1024, 512}, {1536, 1536, 1536}};
  TrainingStep kept("gpt_f32", Precision::kFp32, false),
      flash("gpt_f32_flash", Precision::kFp32, true);
  TrainingStep bf16("gpt_bf16", Precision::kBf16, true);
  for (int round = 0; round < kRounds;
       ++round) {  // interleaved, so that all see the same disturbances
    for (int i = 0; i < 3; ++i)
      for (Product& product : large) product.Run();
    kept.Run();
    flash.Run();
    bf16.Run();
  }
  double peak = 0;
  for (const Product& product : large) peak = std::max(peak, product.best());
  Print("gemm_peak", 1e-9 * peak, "GFLOP/s");
  kept.Report(peak);
  flash.Report(peak);
  bf16.Report(peak);
}

}  // namespace orrery
