// SPDX-License-Identifier: Apache-2.0
// The operands of one op as device memory, after the same checks that the CPU device makes.
#pragma once

#include <initializer_list>

#include "runtime/device/cpu/frame.h"
#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/ref.h"

namespace orrery::cuda {

class OpFrame {
 public:
  OpFrame(const cpu::KernelArgs& args_in, const Queue& queue_in)
      : args(args_in), queue(queue_in), checks_(args_in) {}

  const cpu::KernelArgs& args;
  const Queue& queue;

  int64_t Int(ir::Attr key) const { return checks_.Int(key); }
  double Get(ir::Attr key) const { return checks_.Get(key); }
  bool Flag(ir::Attr key) const { return checks_.Flag(key); }
  int64_t Size(ir::Attr key, int64_t least = 0) const { return checks_.Size(key, least); }
  int64_t Coord(ir::Attr key) const { return checks_.Coord(key); }
  size_t Inputs() const { return checks_.Inputs(); }
  int64_t InSize(size_t i) const { return checks_.InSize(i); }
  int64_t OutSize(size_t i) const { return checks_.OutSize(i); }
  const cpu::Operand& RawIn(size_t i, int64_t n) const { return checks_.RawIn(i, n); }
  const cpu::Operand& RawOut(size_t i, int64_t n) const { return checks_.RawOut(i, n); }
  const cpu::Frame& checks() const { return checks_; }
  [[noreturn]] void Fail(const char* what) const { checks_.Fail(what); }

  Ref In(size_t i, int64_t n) const { return RefOf(RawIn(i, n)); }
  Ref Out(size_t i, int64_t n) const { return RefOf(RawOut(i, n)); }
  Ref InOut(size_t out, size_t in, int64_t n) const;  // must be the same memory
  const int32_t* Indices(size_t i, int64_t n) const;
  float* Floats(size_t i, int64_t n) const;  // an output that is stored in single precision
  const float* FloatsIn(size_t i, int64_t n) const;

  // Memory that holds until the op's last kernel has run. Throws where more is asked for than there is.
  template <typename T>
  T* Scratch(int64_t n) {
    return static_cast<T*>(ScratchBytes(n * static_cast<int64_t>(sizeof(T))));
  }
  int64_t ScratchLeft() const { return queue.scratch_bytes - scratch_used_; }

 private:
  Ref RefOf(const cpu::Operand& operand) const;
  void* ScratchBytes(int64_t n);

  cpu::Frame checks_;
  int64_t scratch_used_ = 0;
};

// Whether eight elements can be accessed at once from element multiples of `width` on.
bool IsWide(std::initializer_list<Ref> refs, int64_t width = kWide);

}  // namespace orrery::cuda
