// SPDX-License-Identifier: Apache-2.0
// ibstat ("CA 'mlx5_0'", "Rate: 400") and ibstatus ("Infiniband device 'mlx5_0' port 1", "rate: 400 Gb/sec").
#include <fmt/format.h>

#include <cstdlib>

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

}  // namespace

void ReadIbstat(const SourcePtr& source, Observed* seen) {
  std::vector<IbDevice> made;
  for (const Line& line : LinesOf(*source)) {
    const std::string text(
        line.text.substr(std::min(line.text.find_first_not_of(" \t"), line.text.size())));
    const Location where{source, line.number, 1};
    if (text.starts_with("CA '") || text.starts_with("Infiniband device '")) {
      if (made.size() >= kMostDevices)
        Refuse(where, fmt::format("more than {} NICs", kMostDevices));
      made.push_back({Quoted(text), {}, false, "", where});
    }
    if (made.empty()) continue;
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = text.substr(0, colon);
    const std::vector<std::string> words = WordsOf(text.substr(colon + 1));
    const std::string value = words.empty() ? "" : words[0];
    if (key == "State" || key == "state")
      made.back().active =
          text.find("Active") != std::string::npos || text.find("ACTIVE") != std::string::npos;
    if (key == "Rate" || key == "rate") made.back().rate = RateOf(value, where);
    if (key == "Rate" || key == "rate") made.back().where = where;
    if (key == "Link layer" || key == "link_layer")
      made.back().network = value == "Ethernet" ? "roce" : "infiniband";
  }
  if (made.empty()) Refuse({source, 1, 1}, "no NIC in this list");
  for (IbDevice& one : made) {
    if (!one.active)
      seen->notes.push_back(fmt::format("{} is not active ({})", one.name, PlaceText(one.where)));
    seen->ib.push_back(std::move(one));
  }
}

}  // namespace orrery::discover
