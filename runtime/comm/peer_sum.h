// SPDX-License-Identifier: Apache-2.0
// One element of a sum over peers' memory, for device code and for tests on the CPU. The arithmetic
// is that of reduce.cc: f32 for 16-bit types, rounded after each addition.
#pragma once

#include <cstdint>

#include "runtime/half.h"

namespace orrery::comm {

inline constexpr int kMostPeers = 256;  // of one kernel, whose arguments hold their addresses

enum class PeerType : int { kF32, kF64, kF16, kBf16, kI32, kU8 };

struct PeerSum {
  const void* from[kMostPeers] = {};
  int count = 0;
  void* to = nullptr;
  int64_t n = 0;
  PeerType type = PeerType::kF32;
  bool maximum = false;
};

template <class T>
struct PeerPlain {
  ORRERY_ANYWHERE static T Widen(T x) { return x; }
  ORRERY_ANYWHERE static T Narrow(T x) { return x; }
};
struct PeerByte {
  ORRERY_ANYWHERE static int Widen(uint8_t x) { return x; }
  ORRERY_ANYWHERE static uint8_t Narrow(int x) { return static_cast<uint8_t>(x); }
};
struct PeerBf16 {
  ORRERY_ANYWHERE static float Widen(uint16_t x) { return FromBf16(x); }
  ORRERY_ANYWHERE static uint16_t Narrow(float x) { return ToBf16(x); }
};
struct PeerF16 {
  ORRERY_ANYWHERE static float Widen(uint16_t x) { return FromF16(x); }
  ORRERY_ANYWHERE static uint16_t Narrow(float x) { return ToF16(x); }
};

template <class T, class How>
ORRERY_ANYWHERE inline void SumElementAs(const PeerSum& sum, int64_t i) {
  T total = static_cast<const T*>(sum.from[0])[i];
  for (int k = 1; k < sum.count; ++k) {
    const auto p = How::Widen(total), q = How::Widen(static_cast<const T*>(sum.from[k])[i]);
    total = sum.maximum ? How::Narrow(q <= p ? p : (p != p ? p : q)) : How::Narrow(p + q);
  }
  static_cast<T*>(sum.to)[i] = total;
}

ORRERY_ANYWHERE inline void SumElement(const PeerSum& sum, int64_t i) {
  switch (sum.type) {
    case PeerType::kF32:
      return SumElementAs<float, PeerPlain<float>>(sum, i);
    case PeerType::kF64:
      return SumElementAs<double, PeerPlain<double>>(sum, i);
    case PeerType::kF16:
      return SumElementAs<uint16_t, PeerF16>(sum, i);
    case PeerType::kBf16:
      return SumElementAs<uint16_t, PeerBf16>(sum, i);
    case PeerType::kI32:
      return SumElementAs<int32_t, PeerPlain<int32_t>>(sum, i);
    case PeerType::kU8:
      return SumElementAs<uint8_t, PeerByte>(sum, i);
  }
}

}  // namespace orrery::comm
