// SPDX-License-Identifier: Apache-2.0
// Compares names of hosts and says how they are numbered.
#include "model/hardware/host_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/base/diagnostics.h"
#include "model/base/plain_text.h"
#include "model/base/text.h"

namespace orrery {
namespace {

constexpr std::size_t kMostNamed = 8;

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

NamedNodes::NamedNodes(const FabricSpec& fabric) : hosts_(fabric.hosts) {
  for (std::size_t node = 0; node < hosts_.size(); ++node)
    numbers_.emplace(hosts_[node], static_cast<int64_t>(node));
}

bool NamedNodes::ReadOne(std::string_view text, int64_t* node) {
  if (ParseInteger(text, node) == NumberFault::kNone) return *node >= 0;
  if (hosts_.empty()) return false;
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) {
    *node = found->second;
    return true;
  }
  why = fmt::format("'{}' is neither a node's number nor a host of the topology", text);
  hint = SuggestName(text, hosts_);
  if (hint.empty())
    hint =
        fmt::format("nodes 0 to {} are {} .. {}", hosts_.size() - 1, hosts_.front(), hosts_.back());
  return false;
}

bool NamedNodes::Read(std::string_view text, int64_t* first, int64_t* last) {
  why.clear(), hint.clear();
  text = Trim(text);
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    if (!ReadOne(text, first)) return false;
    *last = *first;
    return true;
  }
  if (!ReadOne(text.substr(0, dots), first) || !ReadOne(text.substr(dots + 2), last)) return false;
  if (*first <= *last) return true;
  if (!hosts_.empty()) {
    why = fmt::format("'{}' runs backwards: it begins with node {} and ends with node {}", text,
                      *first, *last);
    hint = "hosts in the order of their numbers, which `plan topo` prints, or a list with commas";
  }
  return false;
}

std::optional<std::string> NamedNodes::InNumbers(std::string_view placement) {
  why.clear(), hint.clear();
  // Axes have names of their own: a host is called so nowhere.
  const std::size_t colon = placement.find(':');
  if (colon == std::string_view::npos &&
      (hosts_.empty() || placement == "tp-cp-dp-pp" || placement == "tp-cp-pp-dp"))
    return std::string(placement);
  std::string text(colon == std::string_view::npos ? "" : placement.substr(0, colon + 1));
  std::string_view list = placement.substr(text.size());
  for (bool more = true; more;) {
    const std::size_t comma = list.find(',');
    more = comma != std::string_view::npos;
    int64_t first = 0, last = 0;
    if (!Read(list.substr(0, comma), &first, &last)) {
      if (!why.empty()) return std::nullopt;
      return std::string(placement);  // what reads it says what it is not
    }
    text += first == last ? fmt::format("{}", first) : fmt::format("{}..{}", first, last);
    if (more) text += ',', list.remove_prefix(comma + 1);
  }
  return text;
}

std::string HostsInOrder(const FabricSpec& fabric, std::span<const int32_t> nodes) {
  std::vector<std::string> names;
  for (const int32_t node : nodes) {
    if (node < 0 || static_cast<std::size_t>(node) >= fabric.hosts.size()) return "";
    names.push_back(fabric.hosts[static_cast<std::size_t>(node)]);
  }
  constexpr std::size_t kMostInOrder = 16;
  if (names.size() > kMostInOrder) {
    const std::string last = names.back();
    names.resize(kMostInOrder - 1);
    return fmt::format("{} .. {}", fmt::join(names, ", "), last);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string HostsText(const FabricSpec& fabric, int64_t first, int64_t last) {
  const std::vector<std::string>& hosts = fabric.hosts;
  const auto from = static_cast<std::size_t>(first), to = static_cast<std::size_t>(last);
  if (first < 0 || to >= hosts.size() || from > to) return "";
  return from == to ? fmt::format(" ({})", hosts[from])
                    : fmt::format(" ({} .. {})", hosts[from], hosts[to]);
}

}  // namespace orrery
