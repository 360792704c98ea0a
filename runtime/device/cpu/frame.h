// SPDX-License-Identifier: Apache-2.0
// The operands of one op as single-precision arrays, whatever type they are stored in.
//
// f32 operands are used where they lie. bf16, f16 and u8 (masks: 0 or 1) ones are converted into scratch memory of the
// calling thread, and outputs back by Commit(). Every access checks presence, size and type and throws KernelError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device/cpu/kernels.h"
#include "runtime/device/cpu/loops.h"

namespace orrery::cpu {

// An operand taken piece by piece, so that a converted piece stays in the nearest cache. At() gives elements
// [first, first + n), n at most what the piece was opened with; valid until the next At() of the same operand.
class Reader {
 public:
  Reader(const Loops& loops, const Operand& operand, float* buffer)
      : loops_(loops), operand_(operand), buffer_(buffer) {}
  const float* At(int64_t first, int64_t n) const;

 private:
  const Loops& loops_;
  const Operand& operand_;
  float* buffer_;  // null: used where it lies
};
// Likewise for an output; Done() stores what At() gave.
class Writer {
 public:
  Writer(const Loops& loops, const Operand& operand, float* buffer)
      : loops_(loops), operand_(operand), buffer_(buffer) {}
  float* At(int64_t first) const;
  void Done(int64_t first, int64_t n) const;

 private:
  const Loops& loops_;
  const Operand& operand_;
  float* buffer_;
};

class Frame {
 public:
  explicit Frame(const KernelArgs& args);
  ~Frame();  // gives the scratch memory back
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  const KernelArgs& args;
  const Loops& loops;

  int64_t Int(ir::Attr key) const { return args.op.attrs.Int(key); }
  double Get(ir::Attr key) const { return args.op.attrs.Get(key); }
  bool Flag(ir::Attr key) const { return args.op.attrs.Get(key) != 0; }
  // A size: at least `least`, or the op contradicts itself.
  int64_t Size(ir::Attr key, int64_t least = 0) const;
  // Coordinate on the mesh axis that attribute `key` names, 0 when it names none.
  int64_t Coord(ir::Attr key) const;

  size_t Inputs() const { return args.in.size(); }
  int64_t InSize(size_t i) const;  // elements, after a check that the operand is there
  int64_t OutSize(size_t i) const;
  const float* In(size_t i, int64_t n);
  float* Out(size_t i, int64_t n);  // contents undefined; any input may have been this memory
  float* InOut(size_t out, size_t in,
               int64_t n);  // must be the same memory; holds the old contents
  Reader InPieces(size_t i, int64_t n, int64_t piece);
  Writer OutPieces(size_t i, int64_t n, int64_t piece);
  const int32_t* Indices(size_t i, int64_t n);  // i32
  float Scalar(size_t i) { return In(i, InSize(i))[0]; }
  float* Scratch(int64_t n);  // floats, aligned to 64 bytes, until the frame ends
  void Commit();

  // As it lies, after the same checks of presence and size.
  const Operand& RawIn(size_t i, int64_t n) const;
  const Operand& RawOut(size_t i, int64_t n) const;
  [[noreturn]] void Fail(const std::string& what) const;

 private:
  struct Pending {
    const Operand* operand;
    const float* values;
  };
  const Operand& Checked(std::span<const Operand> list, size_t i, int64_t n,
                         const char* role) const;

  std::vector<Pending> pending_;
  size_t scratch_mark_;
};

// y = x, whatever the types: of as many elements as the operand has.
void ConvertToFloat(const Loops& loops, const Operand& x, float* y);
void ConvertFromFloat(const Loops& loops, const float* x, const Operand& y);

}  // namespace orrery::cpu
