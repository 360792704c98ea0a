// SPDX-License-Identifier: Apache-2.0
// Picks prefix and decimals so that three digits remain.
#include "model/report/short_number.h"

#include <fmt/format.h>

namespace orrery::report {

std::string ThreeDigits(double number) {
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
  return std::stod(three) == std::stod(all) ? three : all;
}

std::string Scaled(double number) {
  if (number >= 999.5e9) return ThreeDigits(number / 1e12) + " T";
  if (number >= 999.5e6) return ThreeDigits(number / 1e9) + " G";
  if (number >= 999.5e3) return ThreeDigits(number / 1e6) + " M";
  if (number >= 999.5) return ThreeDigits(number / 1e3) + " k";
  return ThreeDigits(number);
}

std::string OnStorage(double bytes) { return Scaled(bytes) + "B"; }

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string LongerWords(double ratio) {
  return ratio < 2 ? Percent(ratio - 1) + " longer" : ThreeDigits(ratio) + " times as long";
}

}  // namespace orrery::report
