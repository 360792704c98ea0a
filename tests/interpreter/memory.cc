// SPDX-License-Identifier: Apache-2.0
// Reading and writing strided elements of an arena.
#include "tests/interpreter/memory.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace orrery::interpreter {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Fills the further grains of an element. Any other bits there mean that something overwrote part of it.
constexpr uint64_t kTailMark = 0x7ff8'0000'5eed'0001u;

}  // namespace

Memory::Memory(int64_t grains) : values_(grains, kNan) {}

std::vector<double> Memory::Read(const Slice& slice) const {
  const double* from = values_.data() + slice.at;
  if (slice.stride == 1) return {from, from + slice.n};
  std::vector<double> values(slice.n);
  double* to = values.data();
  for (int64_t i = 0; i < slice.n; ++i) to[i] = from[i * slice.stride];
  for (int32_t g = 1; g < slice.stride; ++g)
    for (int64_t i = 0; i < slice.n; ++i)
      if (std::bit_cast<uint64_t>(from[i * slice.stride + g]) != kTailMark) to[i] = kNan;
  return values;
}

void Memory::Write(const Slice& slice, std::span<const double> values) {
  double* to = values_.data() + slice.at;
  const double mark = std::bit_cast<double>(kTailMark);
  for (int64_t i = 0; i < slice.n; ++i) {
    to[i * slice.stride] = values[i];
    for (int32_t g = 1; g < slice.stride; ++g) to[i * slice.stride + g] = mark;
  }
}

void Memory::Forget(int64_t at, int64_t grains) { std::fill_n(values_.begin() + at, grains, kNan); }

Window::Window(Memory* memory, const ProgramImage& image, const Task& task)
    : memory_(memory),
      slices_(image.slices.data() + task.out_begin, task.in_end - task.out_begin),
      outs_(task.in_begin - task.out_begin) {
  operands_.resize(slices_.size());
  for (size_t i = outs_; i < slices_.size(); ++i) operands_[i] = Open(i, true);
  for (size_t i = 0; i < outs_; ++i) operands_[i] = Open(i, false);
}

Operand Window::Open(size_t index, bool input) {
  const Slice& slice = slices_[index];
  if (slice.stride == 1) return {memory_->At(slice.at), slice.n};
  for (size_t i = outs_; i < slices_.size(); ++i)  // a view named twice is one operand
    if (operands_[i].data != nullptr && slices_[i].at == slice.at && slices_[i].n == slice.n)
      return operands_[i];
  copies_.push_back(input ? memory_->Read(slice) : std::vector<double>(slice.n, kNan));
  return {copies_.back().data(), slice.n};
}

void Window::Close() {
  for (size_t i = 0; i < outs_; ++i)
    if (slices_[i].stride != 1)
      memory_->Write(slices_[i], {operands_[i].data, static_cast<size_t>(operands_[i].n)});
}

}  // namespace orrery::interpreter
