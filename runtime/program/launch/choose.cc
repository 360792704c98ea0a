// SPDX-License-Identifier: Apache-2.0
// Which interface, and which nodes cannot be reached.
#include <algorithm>

#include "runtime/program/launch/launch.h"

namespace orrery::launch {

std::vector<std::size_t> ProbePartners(std::size_t i, std::size_t n) {
  constexpr std::size_t kFew = 16;
  std::vector<std::size_t> partners;
  for (std::size_t distance = 1; distance < n; distance = n <= kFew ? distance + 1 : distance * 2)
    partners.push_back((i + distance) % n);
  return partners;
}

const NodeAddress* AddressOn(const Node& node, const std::string& interface) {
  const std::string& wanted = interface.empty() ? node.control : interface;
  const auto at = std::ranges::find(node.addresses, wanted, &NodeAddress::interface);
  return at == node.addresses.end() ? nullptr : &*at;
}

std::vector<std::string> InterfacesOf(const Node& node) {
  std::vector<std::string> names;
  for (const NodeAddress& at : node.addresses) {
    if (std::ranges::find(names, at.interface) == names.end()) names.push_back(at.interface);
  }
  return names;
}

std::vector<std::string> InterfacesToTry(const std::vector<const Node*>& nodes) {
  std::vector<std::string> names = {""};
  if (nodes.empty()) return names;
  const bool same = std::ranges::all_of(
      nodes, [&](const Node* node) { return node->control == nodes.front()->control; });
  for (const NodeAddress& at : nodes.front()->addresses) {
    const bool tried = (same && at.interface == nodes.front()->control) ||
                       std::ranges::find(names, at.interface) != names.end();
    if (!tried && std::ranges::all_of(nodes, [&](const Node* node) {
          return AddressOn(*node, at.interface) != nullptr;
        }))
      names.push_back(at.interface);
  }
  return names;
}

std::vector<std::size_t> LeaveOut(std::size_t n,
                                  std::vector<std::pair<std::size_t, std::size_t>> failed) {
  std::vector<std::size_t> out;
  while (!failed.empty()) {
    std::vector<std::size_t> count(n, 0);
    for (const auto& [a, b] : failed) ++count[a], ++count[b];
    std::size_t worst = n - 1;
    for (std::size_t i = n - 1; i > 0; --i)
      if (count[i] > count[worst]) worst = i;
    out.push_back(worst);
    std::erase_if(failed,
                  [&](const auto& pair) { return pair.first == worst || pair.second == worst; });
  }
  return out;
}

}  // namespace orrery::launch
