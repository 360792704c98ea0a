// SPDX-License-Identifier: Apache-2.0
// Which machine of a job this is, as its launcher says (launchers.h); and the machine's addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/launch/hostfile.h"

namespace orrery::launch {

struct NodePlace {
  std::string launched_by;             // name of the row; empty: nothing is known
  int64_t index = -1;                  // this machine, as the launcher counts; -1: unknown
  int64_t nodes = 0;                   // 0: unknown
  int64_t first = 0;                   // index of the main machine, which the others report to
  int64_t local = 0;                   // this process among those of the machine
  int64_t slots = 0;                   // ranks that the machine has room for; 0: unknown
  std::string name;                    // this machine's
  std::string main;                    // name or address of the main machine; empty: unknown
  int port = 0;                        // of the main machine
  std::vector<std::string> hosts;      // expected, by index; may be empty
  std::vector<int64_t> slots_by_host;  // as `hosts`; may be empty
  // Where a list of hosts is there and no variable says which of them this machine is: what it says of it; empty: none is.
  std::string of_list;

  int64_t rank() const { return nodes > 0 ? (index - first + nodes) % nodes : index; }
};

// From the environment. Throws InputError: files that the environment names and that are no lists; a list of another number
// of machines than are counted. `counted`: the caller knows how many there are.
NodePlace FindNode(bool counted = false);
// The same from a hostfile: its first line is the main machine; this machine is the line with its name
// or one of its addresses, -1: none.
NodePlace NodeOfHosts(const std::vector<HostSlots>& hosts);

struct InterfaceAddress {
  std::string interface, address;  // "eth0", "10.0.0.1"
};
// Of interfaces that are up, IPv4 before IPv6; without loopback and addresses of one link.
std::vector<InterfaceAddress> OwnAddresses();

// GPUs whose device files are here (/dev/nvidia0, ...).
int64_t CountGpus();

// Takes the launcher's variables out of this process's environment: what is started then is no part of
// what the launcher counts.
void ForgetLauncher();

}  // namespace orrery::launch
