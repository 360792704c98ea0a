// SPDX-License-Identifier: Apache-2.0
// Writes quantities as text: three significant digits and the unit that keeps the number readable.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "model/base/prefixes.h"
#include "model/base/text.h"

namespace orrery {
namespace {

struct Prefix {
  const char* name;
  double factor;  // base units in one of these
};

constexpr double kManyDigits = 1e15;  // nobody counts so many

// Three significant digits without an exponent: 0.0123, 1.23, 12.3, 123; whole numbers above that.
std::string ThreeDigits(double number) {
  if (number == 0) return "0";
  if (number >= kManyDigits) return fmt::format("{:.2e}", number);
  int decimals = 2 - static_cast<int>(std::floor(std::log10(number)));
  // 9.996 has one digit before the point but rounds to 10.0.
  if (decimals > 0 && std::round(number * std::pow(10.0, decimals)) >= 1000) --decimals;
  return fmt::format("{:.{}f}", number, std::clamp(decimals, 0, 12));
}

// `units` from small to large. The largest unit that does not push the rounded number below one.
std::string FormatWith(double value, std::span<const Prefix> units) {
  if (!std::isfinite(value)) return fmt::format("{} {}", value, units.front().name);
  const double size = std::abs(value);
  const Prefix* chosen = &units.front();
  for (const Prefix& unit : units) {
    if (size >= unit.factor * (1 - 5e-4)) chosen = &unit;
  }
  return fmt::format("{}{} {}", value < 0 ? "-" : "", ThreeDigits(size / chosen->factor),
                     chosen->name);
}

constexpr Prefix kBytes[] = {{"B", 1},     {"KiB", kKi}, {"MiB", kMi},
                             {"GiB", kGi}, {"TiB", kTi}, {"PiB", kPi}};
constexpr Prefix kRates[] = {{"B/s", 1},    {"kB/s", 1e3},  {"MB/s", 1e6},
                             {"GB/s", 1e9}, {"TB/s", 1e12}, {"PB/s", 1e15}};
constexpr Prefix kFlops[] = {{"FLOP/s", 1},    {"kFLOP/s", 1e3},  {"MFLOP/s", 1e6},
                             {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
                             {"EFLOP/s", 1e18}};
constexpr Prefix kPrice[] = {{"USD/h", 1}};
constexpr Prefix kShortTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Prefix kLongTimes[] = {{"min", 60}, {"h", 3600}};

}  // namespace

std::string Format(Bytes bytes) {
  if (std::abs(bytes.value) < 1000) return fmt::format("{:g} B", bytes.value);
  return FormatWith(bytes.value, kBytes);
}

// Seconds stay seconds up to 1000, then minutes up to 1000 minutes, then hours.
std::string Format(Seconds time) {
  const double size = std::abs(time.value);
  if (size == 0) return "0 s";
  if (!std::isfinite(size)) return fmt::format("{} s", time.value);
  if (size < 999.5) return FormatWith(time.value, kShortTimes);
  const bool minutes = size < 999.5 * 60;
  return FormatWith(time.value, std::span(kLongTimes).subspan(minutes ? 0 : 1, 1));
}

std::string Format(BytesPerSecond rate) { return FormatWith(rate.value, kRates); }
std::string Format(FlopsPerSecond rate) { return FormatWith(rate.value, kFlops); }
std::string Format(DollarsPerHour price) { return FormatWith(price.value, kPrice); }

}  // namespace orrery
