// SPDX-License-Identifier: Apache-2.0
// Gathers ops, and decides whether they are run, captured or launched as a graph.
#include "runtime/device/cuda/graphs.h"

#include <exception>
#include <utility>

namespace orrery::cuda {
namespace {

using ir::OpKind;

// A run is issued when it is so long: the GPU is not to wait for the end of the step.
constexpr size_t kLongRun = 256;
constexpr size_t kShortRun = 2;        // less is not worth a graph
constexpr size_t kMostEntries = 8192;  // runs that never come again must not pile up

bool UpdatesParameters(OpKind kind) {
  return kind == OpKind::kSgd || kind == OpKind::kAdam || kind == OpKind::kLambDir ||
         kind == OpKind::kLambApply || kind == OpKind::kLossScale;
}

uint64_t Bits(const void* address) { return reinterpret_cast<uintptr_t>(address); }

void AddOperands(std::span<const cpu::Operand> operands, std::vector<uint64_t>* key) {
  key->push_back(operands.size());
  for (const cpu::Operand& x : operands) {
    key->push_back(Bits(x.data));
    key->push_back(static_cast<uint64_t>(x.n));
    key->push_back(static_cast<uint64_t>(x.dtype));
  }
}

}  // namespace

OpStream::Key OpStream::KeyOf(const Ops& run) {
  Key key;
  key.reserve(run.size() * 20);
  for (const cpu::KernelArgs& args : run) {
    key.push_back(Bits(&args.op));
    key.push_back(Bits(args.unit));
    key.push_back(args.seed);
    key.push_back(static_cast<uint64_t>(args.first_sample));
    AddOperands(args.out, &key);
    AddOperands(args.in, &key);
  }
  return key;
}

void OpStream::Run(const cpu::KernelArgs& args) {
  if (capture_ == nullptr) return pairs_.Run(args);
  if (args.step != step_) {
    Flush();
    capture_->SetStep(args.step);
    step_ = args.step;
  }
  if (refused_) return pairs_.Run(args);
  if (UpdatesParameters(args.op.kind)) {
    Issue();
    return pairs_.Run(args);
  }
  run_.emplace_back(args);
  // Never between a product and what may be fused with it.
  if (run_.size() >= kLongRun && args.op.kind != OpKind::kMatmul) Issue();
}

void OpStream::Flush() {
  Issue();
  pairs_.Flush();
}

void OpStream::Behind(std::function<void()> action) {
  Issue();
  pairs_.Behind(std::move(action));
}

OpStream::Entry* OpStream::EntryOf(const Ops& run) {
  if (refused_ || run.size() < kShortRun) return nullptr;
  Key key = KeyOf(run);
  const auto at = entries_.find(key);
  if (at != entries_.end()) return &at->second;
  return entries_.size() < kMostEntries ? &entries_[std::move(key)] : nullptr;
}

void OpStream::Issue() {
  if (run_.empty()) return;
  const Ops run = std::exchange(run_, {});
  Entry* entry = EntryOf(run);
  if (entry != nullptr && entry->seen && entry->graph < 0) entry->graph = Record(run);
  if (entry != nullptr && entry->graph >= 0) return capture_->Launch(entry->graph);
  RunPlainly(run);
  if (entry != nullptr) entry->seen = true;
}

void OpStream::RunPlainly(const Ops& run) {
  for (const cpu::KernelArgs& args : run) pairs_.Run(args);
  pairs_.Flush();
}

// Negative: it could not be.
int OpStream::Record(const Ops& run) {
  pairs_.Flush();
  try {
    capture_->Begin();
    RunPlainly(run);
    return capture_->End();
  } catch (const std::exception& error) {  // lack of memory too
    capture_->Abandon();
    capture_->Refused(error.what());
    refused_ = true;
    return -1;
  }
}

}  // namespace orrery::cuda
