// SPDX-License-Identifier: Apache-2.0
// The answer of `plan lab status`.

#include <fmt/format.h>

#include <fstream>

#include "model/base/text.h"
#include "runtime/lab/state.h"
#include "runtime/lab/switch.h"

namespace orrery::lab {
namespace {

std::vector<PortCounters> ReadCounters(const Settings& settings) {
  std::vector<PortCounters> counters(static_cast<std::size_t>(settings.nodes));
  std::ifstream file(FolderOf(settings.name) + "/counters", std::ios::binary);
  file.read(reinterpret_cast<char*>(counters.data()),
            static_cast<std::streamsize>(counters.size() * sizeof(PortCounters)));
  return counters;
}

std::string Table(const State& state) {
  const Settings& s = state.settings;
  const std::vector<PortCounters> counters = ReadCounters(s);
  std::string text =
      fmt::format("  {:<16} {:<12} {:>4} {:>12} {:>10} {:>8} {:>13}\n", "node", "address", "rack",
                  "received", "frames", "dropped", "deepest queue");
  for (int node = 0; node < s.nodes; ++node) {
    const PortCounters& c = counters[static_cast<std::size_t>(node)];
    text +=
        fmt::format("  {:<16} {:<12} {:>4} {:>12} {:>10} {:>8} {:>13}\n", s.HostName(node),
                    DataAddress(node), s.RackOf(node), Format(Bytes(static_cast<double>(c.bytes))),
                    c.frames, c.dropped, Format(Bytes(static_cast<double>(c.deepest_queue))));
  }
  return text;
}

std::string OneLab(const std::string& name) {
  const std::optional<State> state = ReadState(name);
  if (!state)
    return fmt::format("lab '{}': leftovers only; `plan lab down --name {}` removes them\n", name,
                       name);
  if (!state->Alive())
    return fmt::format("lab '{}': its switch has stopped; up or down cleans up\n", name);
  return fmt::format(
      "lab '{}' is up: {}\n  switch    process {}, {} of CPU\n  processes {}\n  topology  {}\n{}",
      name, Describe(state->settings), state->keeper, Format(Seconds(CpuSeconds(state->keeper))),
      ProcessesOf(state->id).size(), TopologyFile(state->settings), Table(*state));
}

}  // namespace

std::string StatusText(const std::string& name) {
  std::string text;
  for (const std::string& lab : LabNames())
    if (name.empty() || lab == name) text += OneLab(lab);
  if (!text.empty()) return text;
  return name.empty() ? "no lab is up\n" : fmt::format("no lab '{}' is up\n", name);
}

}  // namespace orrery::lab
