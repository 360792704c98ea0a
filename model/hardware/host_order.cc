// SPDX-License-Identifier: Apache-2.0
// Compares names of hosts and says how they are numbered.
#include "model/hardware/host_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery {
namespace {

constexpr std::size_t kMostNamed = 8;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes the digits in front, without leading zeros.
std::string_view TakeNumber(std::string_view* text) {
  std::size_t end = 0;
  while (end < text->size() && IsDigit((*text)[end])) ++end;
  std::string_view number = text->substr(0, end);
  text->remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

}  // namespace

bool NaturallyLess(std::string_view a, std::string_view b) {
  std::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    if (IsDigit(x.front()) && IsDigit(y.front())) {
      const std::string_view left = TakeNumber(&x), right = TakeNumber(&y);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      continue;
    }
    if (x.front() != y.front())
      return static_cast<unsigned char>(x.front()) < static_cast<unsigned char>(y.front());
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  // Names that differ in leading zeros alone: an order all the same.
  return x.empty() && y.empty() ? a < b : x.empty();
}

bool NumberedByName(const FabricSpec& fabric) {
  return std::ranges::is_sorted(fabric.hosts, NaturallyLess);
}

std::string NumberingText(const FabricSpec& fabric) {
  const std::vector<std::string>& hosts = fabric.hosts;
  if (hosts.empty()) return "";
  const std::string names = hosts.size() > kMostNamed
                                ? fmt::format("{}, {} .. {}", hosts[0], hosts[1], hosts.back())
                                : fmt::format("{}", fmt::join(hosts, ", "));
  const char* rule =
      NumberedByName(fabric) ? "in natural order of names" : "as the list `hosts` has them";
  if (hosts.size() == 1) return "node 0 is " + names;
  return fmt::format("nodes 0 to {} are {}, {}", hosts.size() - 1, names, rule);
}

std::string HostsText(const FabricSpec& fabric, int64_t first, int64_t last) {
  const std::vector<std::string>& hosts = fabric.hosts;
  const auto from = static_cast<std::size_t>(first), to = static_cast<std::size_t>(last);
  if (first < 0 || to >= hosts.size() || from > to) return "";
  return from == to ? fmt::format(" ({})", hosts[from])
                    : fmt::format(" ({} .. {})", hosts[from], hosts[to]);
}

}  // namespace orrery
