// SPDX-License-Identifier: Apache-2.0
// Flags from text to values, with messages that say what would be right.
#include <fmt/format.h>

#include <cmath>

#include "model/base/plain_text.h"
#include "model/program/common/flags.h"

namespace orrery::cli {
namespace {

struct ReadWhole {
  NumberFault fault = NumberFault::kNone;
  int64_t value = 0;
};

// "1e9" and "3.0" are whole numbers too.
ReadWhole WholeNumber(std::string_view text) {
  constexpr double kBeyond = 0x1p63;
  ReadWhole whole;
  whole.fault = ParseInteger(text, &whole.value);
  if (whole.fault != NumberFault::kMalformed) return whole;
  double number = 0;
  whole.fault = ParseNumber(text, &number);
  if (whole.fault != NumberFault::kNone) return whole;
  if (std::floor(number) != number) return {NumberFault::kMalformed};
  if (std::abs(number) >= kBeyond) return {NumberFault::kOutOfRange};
  return {NumberFault::kNone, static_cast<int64_t>(number)};
}

std::optional<int64_t> ReadBounded(const Flag& flag, std::string_view text, int64_t min,
                                   int64_t max, Diagnostics* diagnostics) {
  const auto [fault, number] = WholeNumber(text);
  const std::string hint =
      fmt::format("{} takes a whole number from {} to {}", flag.name, min, max);
  const bool beyond = fault == NumberFault::kOutOfRange;
  if (fault == NumberFault::kMalformed) {
    diagnostics->Error(flag.where, fmt::format("{}: '{}' is not a whole number", flag.name, text),
                       hint);
  } else if (beyond || number < min || number > max) {
    const bool small = beyond ? text.starts_with('-') : number < min;
    diagnostics->Error(flag.where,
                       fmt::format("{}: {} is too {}", flag.name, text, small ? "small" : "large"),
                       hint);
  } else {
    return number;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> ReadInteger(const Flag& flag, int64_t min, int64_t max,
                                   Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  return ReadBounded(flag, flag.text, min, max, diagnostics);
}

std::optional<std::pair<int64_t, int64_t>> ReadRange(const Flag& flag, int64_t min, int64_t max,
                                                     Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  const std::string_view text = flag.text;
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    const auto only = ReadBounded(flag, text, min, max, diagnostics);
    if (!only) return std::nullopt;
    return std::pair(*only, *only);
  }
  const auto low = ReadBounded(flag, text.substr(0, dots), min, max, diagnostics);
  const auto high = ReadBounded(flag, text.substr(dots + 2), min, max, diagnostics);
  if (!low || !high) return std::nullopt;
  if (*low > *high) {
    diagnostics->Error(flag.where, fmt::format("{}: the range {} is empty", flag.name, text),
                       fmt::format("write {}..{}", *high, *low));
    return std::nullopt;
  }
  return std::pair(*low, *high);
}

std::optional<bool> ReadOnOff(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  if (flag.text.empty()) return true;
  const auto index = ReadName(flag, {"off", "on"}, diagnostics);
  if (!index) return std::nullopt;
  return *index == 1;
}

std::optional<std::size_t> ReadName(const Flag& flag, const std::vector<std::string>& names,
                                    Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == flag.text) return i;
  }
  diagnostics->Error(flag.where,
                     flag.name.starts_with('-')
                         ? fmt::format("{}: there is no '{}'", flag.name, flag.text)
                         : fmt::format("there is no '{}'", flag.text),
                     SuggestName(flag.text, names));
  return std::nullopt;
}

void AtFlag(const Flag& flag, const std::function<void()>& load) {
  try {
    load();
  } catch (const InputError& error) {
    if (!flag.given) throw;
    std::vector<Diagnostic> placed = error.diagnostics();
    for (Diagnostic& diagnostic : placed) {
      if (!diagnostic.where.source) diagnostic.where = flag.where;
    }
    throw InputError(std::move(placed));
  }
}

}  // namespace orrery::cli
