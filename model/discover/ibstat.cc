// SPDX-License-Identifier: Apache-2.0
// ibstat ("CA 'mlx5_0'", "Rate: 400") and ibstatus ("Infiniband device 'mlx5_0' port 1", "rate: 400 Gb/sec").
#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

std::string Quoted(std::string_view text) {
  const std::size_t open = text.find('\''), close = text.find('\'', open + 1);
  return open == std::string_view::npos || close == std::string_view::npos
             ? ""
             : std::string(text.substr(open + 1, close - open - 1));
}

// "400", "400 Gb/sec (4X NDR)": Gbit/s.
BytesPerSecond RateOf(const std::string& text, const Location& where) {
  char* end = nullptr;
  const double gbit = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(gbit >= 0) || gbit > 10'000)
    Refuse(where, fmt::format("a rate of '{}'", text.substr(0, 32)), "in Gbit/s, such as 400");
  return BytesPerSecond(gbit * 1e9 / 8);
}

// "Port 1:" of ibstat; nullopt: another line.
std::optional<int64_t> PortOf(const std::string& text) {
  return text.starts_with("Port ") && text.ends_with(':')
             ? WholeOf(std::string_view(text).substr(5, text.size() - 6))
             : std::nullopt;
}

void ReadLine(const std::string& text, const Location& where, IbDevice* port) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return;
  const std::string key = text.substr(0, colon);
  const std::vector<std::string> words = WordsOf(text.substr(colon + 1));
  const std::string value = words.empty() ? "" : words[0];
  if (key == "CA type") port->type = value;
  if (key == "State" || key == "state") port->state = words.empty() ? "" : words.back();
  if (key == "Physical state" || key == "phys state")
    port->linked = !words.empty() && words.back() == "LinkUp";
  if (key == "Rate" || key == "rate") {
    port->rate = RateOf(value, where);
    port->where = where;
  }
  if (key == "Link layer" || key == "link_layer")
    port->network = value == "Ethernet" ? "roce" : "infiniband";
}

}  // namespace

void ReadIbstat(const SourcePtr& source, Observed* seen) {
  std::vector<IbDevice> made;
  bool numbered = false;  // the last one's port
  const auto add = [&](const std::string& name, int64_t port, const Location& where) {
    if (made.size() >= kMostDevices) Refuse(where, fmt::format("more than {} NICs", kMostDevices));
    made.push_back({name, port, {}, "", true, "", where});
  };
  for (const Line& line : LinesOf(*source)) {
    const std::string text(
        line.text.substr(std::min(line.text.find_first_not_of(" \t"), line.text.size())));
    const Location where{source, line.number, 1};
    if (text.starts_with("CA '") || text.starts_with("Infiniband device '")) {
      const std::size_t port = text.find("' port ");  // of ibstatus, a block for each
      const std::vector<std::string> words =
          WordsOf(port == std::string::npos ? "" : text.substr(port + 6));
      add(Quoted(text), words.empty() ? 1 : WholeOf(words[0]).value_or(1), where);
      numbered = false;
    }
    if (made.empty()) continue;
    if (const auto port = PortOf(text)) {
      if (numbered) {
        const std::string type = made.back().type;  // stands in front of the first port
        add(made.back().name, *port, where);
        made.back().type = type;
      }
      made.back().port = *port;
      numbered = true;
    }
    ReadLine(text, where, &made.back());
  }
  if (made.empty()) Refuse({source, 1, 1}, "no NIC in this list");
  for (IbDevice& one : made) seen->AddPort(std::move(one));
}

}  // namespace orrery::discover
