// SPDX-License-Identifier: Apache-2.0
// Physical quantities as types: a Bytes cannot be passed where Seconds are due.
//
// Every quantity holds one double in its SI base unit (seconds, bytes, floating-point operations
// and their rates, US dollars). Bytes are exact up to 2^53. The types cost nothing at run time.
#pragma once

#include <compare>

namespace orrery {

template <class Tag>
struct Quantity {
  double value = 0.0;  // in the SI base unit

  constexpr Quantity() = default;
  constexpr explicit Quantity(double base_units) : value(base_units) {}

  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  constexpr Quantity& operator*=(double factor) {
    value *= factor;
    return *this;
  }

  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator*(Quantity a, double f) { return Quantity(a.value * f); }
  friend constexpr Quantity operator*(double f, Quantity a) { return Quantity(a.value * f); }
  friend constexpr Quantity operator/(Quantity a, double f) { return Quantity(a.value / f); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value / b.value; }
  friend constexpr auto operator<=>(Quantity a, Quantity b) = default;
};

using Seconds = Quantity<struct SecondsTag>;
using Bytes = Quantity<struct BytesTag>;
using Flops = Quantity<struct FlopsTag>;  // floating-point operations
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag>;
using Dollars = Quantity<struct DollarsTag>;
using DollarsPerHour = Quantity<struct DollarsPerHourTag>;

constexpr Seconds operator/(Bytes b, BytesPerSecond r) { return Seconds(b.value / r.value); }
constexpr Seconds operator/(Flops f, FlopsPerSecond r) { return Seconds(f.value / r.value); }
constexpr BytesPerSecond operator/(Bytes b, Seconds s) { return BytesPerSecond(b.value / s.value); }
constexpr FlopsPerSecond operator/(Flops f, Seconds s) { return FlopsPerSecond(f.value / s.value); }
constexpr Bytes operator*(BytesPerSecond r, Seconds s) { return Bytes(r.value * s.value); }
constexpr Dollars operator*(DollarsPerHour r, Seconds s) {
  return Dollars(r.value * s.value / 3600.0);
}

}  // namespace orrery
