// SPDX-License-Identifier: Apache-2.0
// Names, addresses and texts of a lab.
#include "runtime/lab/settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/base/text.h"

namespace orrery::lab {

int Settings::NodesIn(int rack) const {
  int count = 0;
  for (int node = 0; node < nodes; ++node) count += RackOf(node) == rack ? 1 : 0;
  return count;
}

BytesPerSecond Settings::PayloadRate() const {
  constexpr double kHeaders = 52;  // IP 20, TCP 20, time stamps 12
  constexpr double kFrame = kMtu + kFrameHeader + kFrameOverhead;
  return rate * ((kMtu - kHeaders) / kFrame);
}

std::string DataAddress(int node) { return fmt::format("10.10.0.{}", node + 1); }
std::string ControlAddress(int node) { return fmt::format("10.11.0.{}", node + 1); }

std::string BitRate(BytesPerSecond rate) {
  const double bits = rate.value * 8;
  if (bits >= 1e9) return fmt::format("{:.4g} Gbit/s", bits / 1e9);
  if (bits >= 1e6) return fmt::format("{:.4g} Mbit/s", bits / 1e6);
  return fmt::format("{:.4g} kbit/s", bits / 1e3);
}

std::string Describe(const Settings& s) {
  std::string text =
      fmt::format("{} nodes, {} per link, {} one way", s.nodes, BitRate(s.rate), Format(s.latency));
  if (s.racks > 1)
    text += fmt::format(", {} racks oversubscribed {:g}:1", s.racks, s.oversubscription);
  text += s.fifo ? ", first in first out" : ", small frames first";
  return text;
}

std::string ToJson(const Settings& s) {
  const nlohmann::ordered_json json = {{"name", s.name},
                                       {"nodes", s.nodes},
                                       {"rate_bytes_per_s", s.rate.value},
                                       {"latency_s", s.latency.value},
                                       {"racks", s.racks},
                                       {"oversubscription", s.oversubscription},
                                       {"fifo", s.fifo},
                                       {"cpu", s.cpu},
                                       {"cores", s.cores},
                                       {"queue_bytes", s.queue.value}};
  return json.dump(2);
}

Settings FromJson(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Settings s;
  s.name = json.at("name");
  s.nodes = json.at("nodes");
  s.rate.value = json.at("rate_bytes_per_s");
  s.latency.value = json.at("latency_s");
  s.racks = json.at("racks");
  s.oversubscription = json.at("oversubscription");
  s.fifo = json.at("fifo");
  s.cpu = json.at("cpu");
  s.cores = json.at("cores");
  s.queue.value = json.at("queue_bytes");
  return s;
}

std::string TopologyYaml(const Settings& s) {
  std::string fabric = "kind: single-switch";
  if (s.racks > 1) {
    fabric = fmt::format("kind: fat-tree, levels: 2, leaf_ports: {}, oversubscription: {:g}",
                         s.NodesIn(0), s.oversubscription);
  }
  return fmt::format(
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Written by `plan lab up`.\n"
      "name: lab-{}\n"
      "description: \"{} network namespaces of one machine: {}\"\n"
      "source: \"the settings of plan lab up\"\n"
      "evidence: B\n"
      "gpu: {}\n"
      "fabric_profile: {}\n"
      "frameworks: {{orrery: orrery-cpu}}\n"
      "cores: {}\n"
      "nodes: {}\n"
      "max_nodes: {}\n"
      "node:\n"
      "  gpus: 1\n"
      "  scale_up: {{kind: none}}\n"
      "  nics: {{count: 1, rate: {:g}Mbps}}\n"
      "  pcie:\n"
      "    rate: 8GB/s\n"
      "    tree:\n"
      "      - {{host: cpu0, devices: [gpu0, nic0]}}\n"
      "fabric: {{{}, latency: {:g}us}}\n",
      s.nodes, s.nodes, Describe(s), s.cpu, s.fabric, s.cores, s.nodes, s.nodes,
      s.rate.value * 8e-6, fabric, s.latency.value * 1e6);
}

}  // namespace orrery::lab
