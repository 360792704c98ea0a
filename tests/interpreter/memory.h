// SPDX-License-Identifier: Apache-2.0
// The arena of one rank: doubles, NaN where nothing was written.
#pragma once

#include <span>
#include <vector>

#include "tests/interpreter/program_image.h"

namespace orrery::interpreter {

class Memory {
 public:
  explicit Memory(int64_t grains);
  std::vector<double> Read(const Slice& slice) const;
  void Write(const Slice& slice, std::span<const double> values);
  void Forget(int64_t at, int64_t grains);  // turns NaN
  double* At(int64_t grain) { return values_.data() + grain; }

 private:
  std::vector<double> values_;
};

// Operands of one task as contiguous doubles for as long as the window lives. Slices of stride 1 are the memory
// itself; others are copied in, and Close() copies the outputs back.
class Window {
 public:
  Window(Memory* memory, const ProgramImage& image, const Task& task);
  std::span<const Operand> out() const { return {operands_.data(), outs_}; }
  std::span<const Operand> in() const {
    return {operands_.data() + outs_, operands_.size() - outs_};
  }
  void Close();

 private:
  Operand Open(size_t index, bool input);

  Memory* memory_;
  std::span<const Slice> slices_;  // outputs, then inputs
  size_t outs_;
  std::vector<Operand> operands_;
  std::vector<std::vector<double>> copies_;
};

}  // namespace orrery::interpreter
