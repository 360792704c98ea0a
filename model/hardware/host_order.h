// SPDX-License-Identifier: Apache-2.0
// Which host of a named fabric is which node: as its list `hosts` says, else by name in natural order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/hardware/spec.h"

namespace orrery {

// Numbers in names count as numbers: node2 before node10.
bool NaturallyLess(std::string_view a, std::string_view b);

// Hosts are numbered by name, be it because their list says the same.
bool NumberedByName(const FabricSpec& fabric);

// "nodes 0 to 3 are node0, node1, node2, node3, in natural order of names"; "": no named fabric.
std::string NumberingText(const FabricSpec& fabric);

// Reads nodes by number and, where hosts have names, by host: "3", "gpu-b07", "4..7", "gpu-b04..gpu-b07", "4..gpu-b07". A number
// is always a node's.
class NamedNodes {
 public:
  explicit NamedNodes(const FabricSpec& fabric);
  // False: `why` and `hint` say why, or are empty: neither numbers nor, without named hosts, anything else.
  bool Read(std::string_view text, int64_t* first, int64_t* last);
  // The list of --placement, with host names, in numbers: "tp-cp-pp-dp:gpu-b,0..2" as "tp-cp-pp-dp:4,0..2". nullopt: as above.
  std::optional<std::string> InNumbers(std::string_view placement);

  std::string why, hint;

 private:
  bool ReadOne(std::string_view text, int64_t* node);

  const std::vector<std::string>& hosts_;
  std::unordered_map<std::string_view, int64_t> numbers_;
};

// Hosts by place: "gpu-2, gpu-0, gpu-1", with what is between long ones left out; "": hosts have no names.
std::string HostsInOrder(const FabricSpec& fabric, std::span<const int32_t> nodes);

// Behind the numbers of nodes: " (node4 .. node7)"; "" where hosts have no names.
std::string HostsText(const FabricSpec& fabric, int64_t first, int64_t last);

}  // namespace orrery
