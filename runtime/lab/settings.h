// SPDX-License-Identifier: Apache-2.0
// What a lab looks like: nodes, links, racks, names and addresses.
//
// Node k has host name <name>-<k>, data address 10.10.0.(k+1) on eth0 (shaped) and control address
// 10.11.0.(k+1) on ctl0 (not shaped). One more namespace, the head, is on the control network only;
// mpirun runs there. All networks are closed worlds: labs share no addresses with the machine.
#pragma once

#include <cstdint>
#include <string>

#include "model/base/quantity.h"

namespace orrery::lab {

inline constexpr int kMostNodes = 64;
inline constexpr int64_t kMtu = 9000;
inline constexpr int64_t kFrameHeader = 14;    // bytes of Ethernet header that a TAP device shows
inline constexpr int64_t kFrameOverhead = 24;  // preamble 8, checksum 4, gap 12: on the wire only

struct Settings {
  std::string name = "lab";
  int nodes = 4;
  BytesPerSecond rate{25e6};          // of each node's link, per direction
  Seconds latency{100e-6};            // one way, from node to node
  int racks = 1;                      // nodes are spread over them evenly, in order
  double oversubscription = 1;        // rates of a rack's nodes over the rate of its trunk
  bool fifo = false;                  // true: small frames queue behind bulk data
  std::string cpu = "localhost-cpu";  // profile of a core: an id, or the path of a file
  std::string fabric = "lab";         // profile of the network, likewise
  int64_t cores = 1;                  // of this machine, which all nodes share
  Bytes queue{4.0 * (1 << 20)};  // longest queue in front of a trunk or a node; the rest is dropped

  bool operator==(const Settings&) const = default;
  int RackOf(int node) const { return static_cast<int>(int64_t{node} * racks / nodes); }
  int NodesIn(int rack) const;
  std::string HostName(int node) const { return name + "-" + std::to_string(node); }
  std::string HeadName() const { return name + "-head"; }
  // Rate of TCP payload on a link: full frames of kMtu with 52 bytes of IP and TCP headers.
  BytesPerSecond PayloadRate() const;
};

std::string DataAddress(int node);
std::string ControlAddress(int node);  // kMostNodes: the head

// "200 Mbit/s": links are spoken of in bits.
std::string BitRate(BytesPerSecond rate);
// One line: "4 nodes, 200 Mbit/s, 100 us one way, ...".
std::string Describe(const Settings& settings);
// As JSON text and back; FromJson throws std::exception on foreign text.
std::string ToJson(const Settings& settings);
Settings FromJson(const std::string& text);
// A topology file for `plan --topology`.
std::string TopologyYaml(const Settings& settings);

}  // namespace orrery::lab
