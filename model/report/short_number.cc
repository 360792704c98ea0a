// SPDX-License-Identifier: Apache-2.0
// Picks prefix and decimals so that three digits remain.
#include "model/report/short_number.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "model/base/quantity.h"
#include "model/base/text.h"

namespace orrery::report {

std::string ThreeDigits(double number) {
  constexpr double kManyDigits = 1e15;  // nobody counts so many
  if (number >= kManyDigits) return fmt::format("{:.2e}", number);
  if (number > 0 && number < 0.0995) return fmt::format("{:.2g}", number);
  return fmt::format("{:.{}f}", number, number < 9.995 ? 2 : number < 99.95 ? 1 : 0);
}

std::string Count(double number) {
  if (number >= 999.5e9) return ThreeDigits(number / 1e12) + " trillion";
  if (number >= 999.5e6) return ThreeDigits(number / 1e9) + " billion";
  if (number >= 999.5e3) return ThreeDigits(number / 1e6) + " million";
  return fmt::format("{:.0f}", number);
}

std::string GivenDigits(double number) {
  const std::string three = ThreeDigits(number), all = fmt::format("{:.6g}", number);
  // std::stod throws at the least of numbers.
  return std::strtod(three.c_str(), nullptr) == std::strtod(all.c_str(), nullptr) ? three : all;
}

std::string Scaled(double number) {
  if (number >= 999.5e9) return ThreeDigits(number / 1e12) + " T";
  if (number >= 999.5e6) return ThreeDigits(number / 1e9) + " G";
  if (number >= 999.5e3) return ThreeDigits(number / 1e6) + " M";
  if (number >= 999.5) return ThreeDigits(number / 1e3) + " k";
  return ThreeDigits(number);
}

std::string OnStorage(double bytes) { return Scaled(bytes) + "B"; }

int WholePercent(double probability) {
  return static_cast<int>(std::floor(100 * probability + 0.01));
}

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string LongerWords(double ratio) {
  return ratio < 2 ? Percent(ratio - 1) + " longer" : ThreeDigits(ratio) + " times as long";
}

std::string DollarsOf(double dollars) {
  if (!std::isfinite(dollars)) return "-";
  if (dollars >= 999.5e3) return ThreeDigits(dollars / 1e6) + " MUSD";
  if (dollars >= 999.5) return ThreeDigits(dollars / 1e3) + " kUSD";
  return ThreeDigits(dollars) + " USD";
}

std::string DaysOf(double seconds) {
  constexpr double kShort = 0.01 * 86400;  // 14 minutes
  if (!std::isfinite(seconds)) return "-";
  if (seconds > 0 && seconds < kShort) return Format(Seconds(seconds));
  return ThreeDigits(seconds / 86400) + " d";
}

std::string GivenDaysOf(double seconds) {
  if (seconds < 1) return Format(Seconds(seconds));
  if (seconds < 1000) return GivenDigits(seconds) + " s";
  if (seconds < 3600) return GivenDigits(seconds / 60) + " min";
  return seconds < 86400 ? GivenDigits(seconds / 3600) + " h" : GivenDigits(seconds / 86400) + " d";
}

std::string GivenDollarsOf(double dollars) {
  if (dollars >= 1e6) return GivenDigits(dollars / 1e6) + " MUSD";
  return dollars >= 1e3 ? GivenDigits(dollars / 1e3) + " kUSD" : GivenDigits(dollars) + " USD";
}

std::string SpanOf(const std::string& low, const std::string& high) {
  const std::size_t unit = low.rfind(' ');
  const bool one = unit != std::string::npos && high.ends_with(low.substr(unit));
  return (one ? low.substr(0, unit) : low) + " to " + high;
}

}  // namespace orrery::report
