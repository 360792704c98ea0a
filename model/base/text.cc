// SPDX-License-Identifier: Apache-2.0
// Reads quantities from text: a decimal number, then a unit from one table per kind of quantity.
#include "model/base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "model/base/edit_distance.h"
#include "model/base/prefixes.h"
#include "model/base/quantity_limits.h"

namespace orrery {
namespace {

constexpr const char* kAtMost = "at most ";
constexpr const char* kAtLeast = "at least ";

struct Unit {
  const char* name;
  double factor;  // base units in one of these
};

constexpr Unit kByteUnits[] = {{"B", 1},     {"kB", 1e3},  {"MB", 1e6},  {"GB", 1e9},
                               {"TB", 1e12}, {"PB", 1e15}, {"KiB", kKi}, {"MiB", kMi},
                               {"GiB", kGi}, {"TiB", kTi}, {"PiB", kPi}};
constexpr Unit kTimeUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                               {"min", 60},  {"h", 3600},  {"d", 86400}};
constexpr Unit kRateUnits[] = {
    {"B/s", 1},          {"kB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
    {"TB/s", 1e12},      {"Bps", 1},          {"kBps", 1e3},       {"MBps", 1e6},
    {"GBps", 1e9},       {"TBps", 1e12},      {"KiB/s", kKi},      {"MiB/s", kMi},
    {"GiB/s", kGi},      {"TiB/s", kTi},      {"bps", 1 / 8.0},    {"kbps", 1e3 / 8},
    {"Mbps", 1e6 / 8},   {"Gbps", 1e9 / 8},   {"Tbps", 1e12 / 8},  {"bit/s", 1 / 8.0},
    {"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};
constexpr Unit kComputeUnits[] = {{"FLOP/s", 1},    {"kFLOP/s", 1e3},  {"MFLOP/s", 1e6},
                                  {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
                                  {"EFLOP/s", 1e18}};
constexpr Unit kPriceUnits[] = {{"USD/h", 1}, {"$/h", 1}};
constexpr Unit kMoneyUnits[] = {{"USD", 1}, {"kUSD", 1e3}, {"MUSD", 1e6}, {"$", 1}};

// What a kind of quantity is called, its units, and what to show as an example.
struct QuantityKind {
  const char* noun;
  std::span<const Unit> units;
  const char* shown;    // the accepted units, as said to the user
  const char* example;  // the unit to append to a bare number
  double most;          // in base units; more is a slip of the pen, and its products are no numbers
  const char* limit;    // the same, as said to the user
  double least;         // but for 0; quotients by less are no numbers
  const char* lower;    // the same, as said to the user
};

template <class Q>
QuantityKind KindOf();
template <>
QuantityKind KindOf<Bytes>() {
  return {"an amount of memory",
          kByteUnits,
          "B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB",
          "GiB",
          1e9 * kPi,
          "1e9PiB",
          1e-9,
          "1e-9B"};
}
template <>
QuantityKind KindOf<Seconds>() {
  return {"a time", kTimeUnits, "ns, us, ms, s, min, h, d", "us", 1e9 * 86400, "1e9d",
          1e-18,    "1e-9ns"};
}
template <>
QuantityKind KindOf<BytesPerSecond>() {
  return {"a bandwidth",
          kRateUnits,
          "kB/s, MB/s, GB/s, TB/s, GiB/s, GBps (bytes), Mbps, Gbps, Tbps, Gbit/s (bits)",
          "GB/s",
          1e21,
          "1e9TB/s",
          1e-9,
          "1e-9B/s"};
}
template <>
QuantityKind KindOf<FlopsPerSecond>() {
  return {"a compute rate",
          kComputeUnits,
          "FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s",
          "TFLOP/s",
          1e27,
          "1e9EFLOP/s",
          1e-9,
          "1e-9FLOP/s"};
}
template <>
QuantityKind KindOf<DollarsPerHour>() {
  return {"a price", kPriceUnits, "USD/h, $/h", "USD/h", 1e9, "1e9USD/h", 1e-9, "1e-9USD/h"};
}

template <>
QuantityKind KindOf<Dollars>() {
  return {"an amount of money",
          kMoneyUnits,
          "USD, kUSD, MUSD",
          "USD",
          1e15,
          "1e9MUSD",
          1e-9,
          "1e-9USD"};
}

std::string NearestUnit(std::string_view wrong, std::span<const Unit> units) {
  if (wrong.size() > 16) return "";
  const Unit* best = nullptr;
  std::size_t least = 5;  // up to two edits: more would be guessing
  for (const Unit& unit : units) {
    const std::size_t distance = HalfEdits(wrong, unit.name);
    if (distance < least && distance < 2 * std::string_view(unit.name).size()) {
      least = distance;
      best = &unit;
    }
  }
  return best ? best->name : "";
}

// A price of another span than an hour, such as "1200USD/d": what it is per hour.
std::string PerHour(std::string_view number, std::string_view unit) {
  constexpr std::pair<std::string_view, double> kHours[] = {
      {"d", 24},      {"day", 24}, {"w", 168},  {"week", 168},     {"month", 730},   {"mo", 730},
      {"year", 8760}, {"a", 8760}, {"y", 8760}, {"min", 1.0 / 60}, {"s", 1.0 / 3600}};
  const std::size_t slash = unit.find('/');
  if (slash == std::string_view::npos) return "";
  const std::string_view money = unit.substr(0, slash);
  if (money != "USD" && money != "$" && money != "kUSD") return "";
  for (const auto& [span, hours] : kHours) {
    if (unit.substr(slash + 1) != span) continue;
    double value = 0;
    std::from_chars(number.data(), number.data() + number.size(), value);
    return fmt::format("{}{} is {:.4g}USD/h", number, unit,
                       value * (money == "kUSD" ? 1000 : 1) / hours);
  }
  return "";
}

TextError UnknownUnit(std::string_view number, std::string_view unit, const QuantityKind& kind) {
  if (kind.units.data() == kPriceUnits) {
    if (const std::string hourly = PerHour(number, unit); !hourly.empty())
      return {fmt::format("unknown unit '{}' for {}", unit.substr(0, 40), kind.noun),
              "prices are per hour: " + hourly};
  }
  const std::string nearest = NearestUnit(unit, kind.units);
  const std::string accepted = fmt::format("units of {}: {}", kind.noun, kind.shown);
  return {
      fmt::format("unknown unit '{}' for {}", unit.substr(0, 40), kind.noun),
      nearest.empty() ? accepted : fmt::format("did you mean {}{}? {}", number, nearest, accepted)};
}

std::optional<double> Parse(std::string_view text, const QuantityKind& kind, TextError* error) {
  text = Trim(text);
  const std::string accepted = fmt::format("units of {}: {}", kind.noun, kind.shown);
  double number = 0;
  const char* end = text.data() + text.size();
  const bool starts =
      !text.empty() && (text[0] == '.' || text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  if (!starts || status == std::errc::invalid_argument) {
    *error = {fmt::format("expected {}, found '{}'", kind.noun, text.substr(0, 40)),
              fmt::format("write a number with a unit, such as 25{}; {}", kind.example, accepted)};
    return std::nullopt;
  }
  const std::string_view digits = text.substr(0, static_cast<std::size_t>(rest - text.data()));
  const std::string_view name = Trim(text.substr(digits.size()));
  const auto out_of_range = [&](std::string range) {
    *error = {fmt::format("'{}' is out of range for {}", text.substr(0, 40), kind.noun),
              std::move(range)};
  };
  if (std::signbit(number)) {
    out_of_range(fmt::format("nothing below 0, such as 25{}", kind.example));
    return std::nullopt;
  }
  const auto too_small = [&] {
    out_of_range(fmt::format("{}{}, up to {}", kAtLeast, kind.lower, kind.limit));
    return std::nullopt;
  };
  if (status == std::errc::result_out_of_range) {
    // Which end it is beyond, from_chars does not say.
    if (std::strtod(std::string(digits).c_str(), nullptr) < 1) return too_small();
    out_of_range(kAtMost + std::string(kind.limit));
    return std::nullopt;
  }
  if (name.empty()) {
    *error = {fmt::format("'{}' has no unit", digits.substr(0, 40)),
              fmt::format("write {}{}; {}", digits.substr(0, 40), kind.example, accepted)};
    return std::nullopt;
  }
  for (const Unit& unit : kind.units) {
    if (name != unit.name) continue;
    if (number > 0 && number * unit.factor < kind.least) return too_small();
    if (number * unit.factor <= kind.most) return number * unit.factor;
    out_of_range(kAtMost + std::string(kind.limit));
    return std::nullopt;
  }
  *error = UnknownUnit(digits.substr(0, 40), name, kind);
  return std::nullopt;
}

template <class Q>
std::optional<Q> ParseJoined(std::string_view text, std::string* error) {
  TextError parts;
  const std::optional<Q> value = ParseQuantity<Q>(text, &parts);
  if (!value && error)
    *error = parts.hint.empty() ? parts.message : parts.message + "; " + parts.hint;
  return value;
}

}  // namespace

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool IsTooLarge(const TextError& error) { return error.hint.starts_with(kAtMost); }
bool IsTooSmall(const TextError& error) { return error.hint.starts_with(kAtLeast); }

template <class Q>
std::optional<Q> ParseQuantity(std::string_view text, TextError* error) {
  const std::optional<double> value = Parse(text, KindOf<Q>(), error);
  return value ? std::optional<Q>(Q(*value)) : std::nullopt;
}

template std::optional<Bytes> ParseQuantity<Bytes>(std::string_view, TextError*);
template std::optional<Seconds> ParseQuantity<Seconds>(std::string_view, TextError*);
template std::optional<BytesPerSecond> ParseQuantity<BytesPerSecond>(std::string_view, TextError*);
template std::optional<FlopsPerSecond> ParseQuantity<FlopsPerSecond>(std::string_view, TextError*);
template std::optional<Dollars> ParseQuantity<Dollars>(std::string_view, TextError*);
template std::optional<DollarsPerHour> ParseQuantity<DollarsPerHour>(std::string_view, TextError*);

std::optional<Bytes> ParseBytes(std::string_view text, std::string* error) {
  return ParseJoined<Bytes>(text, error);
}
std::optional<Seconds> ParseSeconds(std::string_view text, std::string* error) {
  return ParseJoined<Seconds>(text, error);
}
std::optional<BytesPerSecond> ParseBytesPerSecond(std::string_view text, std::string* error) {
  return ParseJoined<BytesPerSecond>(text, error);
}
std::optional<FlopsPerSecond> ParseFlopsPerSecond(std::string_view text, std::string* error) {
  return ParseJoined<FlopsPerSecond>(text, error);
}
std::optional<DollarsPerHour> ParseDollarsPerHour(std::string_view text, std::string* error) {
  return ParseJoined<DollarsPerHour>(text, error);
}

}  // namespace orrery
