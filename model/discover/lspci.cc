// SPDX-License-Identifier: Apache-2.0
// lspci: -nn and -vv lines, -vmm records, and the tree of -tv.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/discover/known_devices.h"
#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

// "[0302]", "[10de:2330]": the bracket of hexadecimal digits of this form.
std::string BracketOf(std::string_view text, std::size_t length, bool with_colon) {
  for (std::size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1)) {
    const std::string_view inside = text.substr(at + 1, length);
    if (inside.size() < length || text.substr(at + 1 + length, 1) != "]") continue;
    const bool fits = std::ranges::all_of(inside, [&](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (with_colon && c == ':');
    });
    if (fits && (inside.find(':') != std::string_view::npos) == with_colon)
      return std::string(inside);
  }
  return "";
}

// Classes by the names that lspci prints without -nn.
std::string ClassOfText(std::string_view text) {
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("3D controller")) return "0302";
  if (has("Display controller")) return "0380";
  if (has("Processing accelerators")) return "1200";
  if (has("Infiniband controller")) return "0207";
  if (has("Ethernet controller")) return "0200";
  return "";
}

struct PciRow {
  std::string slot, kind, id, text, numa;
  std::string group;         // -tv only
  BytesPerSecond now, most;  // of the link
  BytesPerSecond awake;      // with the lanes of now and the speed of most
  std::string speed;         // of now: "2.5GT/s"
  Location where;
};

class Lspci {
 public:
  Lspci(const SourcePtr& source, Observed* seen) : source_(source), seen_(seen) {}

  void Read() {
    for (const Line& line : LinesOf(*source_)) {
      if (line.text.find("-[0000:") != std::string::npos) in_tree_ = true;
      if (in_tree_)
        ReadTree(line);
      else if (const std::size_t colon = line.text.find(":\t"); !line.text.starts_with('\t') &&
                                                                colon != std::string::npos &&
                                                                line.text.find(' ') > colon)
        ReadField(line, line.text.substr(0, colon), line.text.substr(colon + 2));
      else
        ReadLine(line);
    }
    Finish();
  }

 private:
  Location At(const Line& line) const { return {source_, line.number, 1}; }

  PciRow& Add(const Line& line) {
    if (rows_.size() >= 65'536) Refuse(At(line), "more than 65536 devices");
    rows_.push_back({});
    rows_.back().where = At(line);
    return rows_.back();
  }

  // -vmm: "Slot:\t17:00.0", "Class:\t3D controller [0302]", ...
  void ReadField(const Line& line, const std::string& key, const std::string& value) {
    if (key == "Slot") {
      Add(line).slot = value;
      return;
    }
    if (rows_.empty()) return;
    PciRow& row = rows_.back();
    if (key == "Class") {
      row.kind = BracketOf(value, 4, false);
      if (row.kind.empty()) row.kind = ClassOfText(value);
    }
    if (key == "Vendor") row.id = BracketOf(value, 4, false);
    if (key == "Device") {
      row.text = value;
      const std::string device = BracketOf(value, 4, false);
      row.id = row.id.empty() || device.empty() ? "" : row.id + ":" + device;
    }
    if (key == "NUMANode") row.numa = value;
  }

  void ReadLine(const Line& line) {
    const std::string_view text = line.text;
    if (text.empty()) return;
    if (text[0] != ' ' && text[0] != '\t') {
      PciRow& row = Add(line);
      const std::size_t space = text.find(' ');
      row.slot = std::string(text.substr(0, space));
      if (space == std::string_view::npos) return;
      row.text = std::string(text.substr(space + 1));
      row.kind = BracketOf(row.text, 4, false);
      if (row.kind.empty()) row.kind = ClassOfText(row.text);
      row.id = BracketOf(row.text, 9, true);
      return;
    }
    if (rows_.empty()) return;
    if (text.find("NUMA node:") != std::string_view::npos)
      row_numa(text.substr(text.find("NUMA node:") + 10));
    if (text.find("LnkCap:") != std::string_view::npos) {
      rows_.back().most = LinkRate(text);
      capable_ = std::string(SpeedOf(text));
    }
    if (text.find("LnkSta:") != std::string_view::npos) {
      rows_.back().now = LinkRate(text);
      rows_.back().speed = SpeedOf(text);
      rows_.back().awake = PcieRate(capable_, LanesOf(text));
    }
  }

  void row_numa(std::string_view text) {
    const std::vector<std::string> words = WordsOf(text);
    if (!words.empty()) rows_.back().numa = words[0];
  }

  // "LnkSta:	Speed 16GT/s (downgraded), Width x8 (downgraded)"
  static BytesPerSecond LinkRate(std::string_view text) {
    return PcieRate(SpeedOf(text), LanesOf(text));
  }

  static std::string_view SpeedOf(std::string_view text) {
    const std::size_t speed = text.find("Speed ");
    if (speed == std::string_view::npos) return "";
    text = text.substr(speed + 6);
    return text.substr(0, text.find_first_of(" ,("));
  }

  static int LanesOf(std::string_view text) {
    const std::size_t width = text.find("Width x");
    if (width == std::string_view::npos) return 0;
    std::string_view lanes = text.substr(width + 7);
    lanes = lanes.substr(0, lanes.find_first_not_of("0123456789"));
    return static_cast<int>(std::min<int64_t>(WholeOf(lanes).value_or(0), 64));
  }

  // A GPU without work takes its link down to the lowest speed, never to fewer lanes: its rate is that of work.
  void SayLink(const PciRow& row, bool gpu, PcieDevice* device) {
    device->pcie = row.now;
    if (row.now.value <= 0 || row.most.value <= row.now.value * 1.01) return;
    const std::string place = PlaceText(row.where);
    if (gpu && row.speed == "2.5GT/s" && row.awake.value > row.now.value * 1.01) {
      device->pcie = row.awake;
      seen_->notes.push_back(fmt::format(
          "{} rests at 2.5GT/s, as a GPU without work does: its PCIe link counts with {:.3g} GB/s "
          "({})",
          row.slot, row.awake.value / 1e9, place));
    }
    if (device->pcie.value * 1.01 < row.most.value)
      seen_->notes.push_back(fmt::format("{} runs its PCIe link at {:.3g} of {:.3g} GB/s ({})",
                                         row.slot, device->pcie.value / 1e9, row.most.value / 1e9,
                                         place));
  }

  // " \-[0000:00]-+-01.0-[01-05]----00.0-[02-05]--+-00.0-[03]----00.0  NVIDIA Corporation ..."
  void ReadTree(const Line& line) {
    const std::string& text = line.text;
    std::size_t first = text.find_first_not_of(" |");
    if (first == std::string::npos) return;
    while (!buses_.empty() && buses_.back().first >= first) buses_.pop_back();
    std::size_t at = first;
    // Brackets before the name of a device are buses; the name begins behind two blanks.
    const std::size_t name = text.find("  ", first);
    while (at < text.size()) {
      const std::size_t open = text.find('[', at);
      if (open == std::string::npos || (name != std::string::npos && open > name)) break;
      const std::size_t close = text.find(']', open);
      if (close == std::string::npos) break;
      if (buses_.size() > 64) Refuse(At(line), "more than 64 levels");
      buses_.emplace_back(open, text.substr(open + 1, close - open - 1));
      at = close + 1;
    }
    if (name == std::string::npos) return;
    PciRow& row = Add(line);
    row.text = text.substr(name + 2);
    row.kind = ClassOfName(row.text);
    row.id = BracketOf(row.text, 9, true);
    row.slot = fmt::format("line {}", line.number);
    // The outermost bus is the host bridge's; the one below it belongs to a root port.
    if (!buses_.empty()) row.numa = "bus " + buses_[0].second;
    if (buses_.size() > 2) row.group = buses_[0].second + "/" + buses_[1].second;
    if (row.numa.empty()) return;
  }

  // The tree prints no classes.
  static std::string ClassOfName(std::string_view text) {
    const auto has = [&](std::string_view part) {
      return text.find(part) != std::string_view::npos;
    };
    if (has("NVSwitch") || has("Audio")) return "";
    if (!GpuOfName(text).empty() && (has("NVIDIA") || has("AMD") || has("ATI") || has("Habana")))
      return "0302";
    if (has("Elastic Fabric Adapter")) return "0200";
    if (has("ConnectX") || has("Mellanox")) return "0207";
    return "";
  }

  void Finish() {
    PcieTree tree;
    std::map<std::string, int> root_of_group;
    for (const PciRow& row : rows_) {
      const bool gpu = IsGpuClass(row.kind), nic = IsNicClass(row.kind);
      // An on-board VGA of the 3D class of no known maker counts, too: it is named below.
      if (!gpu && !nic) continue;
      PcieDevice device;
      device.nic = nic;
      device.bus = row.slot;
      device.host = row.numa.empty() || row.numa == "-1" ? "0" : row.numa;
      device.group = row.group;
      device.where = row.where;
      SayLink(row, gpu, &device);
      if (nic) {
        device.network = NetworkOfPci(row.id, row.kind);
        if (row.text.find("Elastic Fabric Adapter") != std::string::npos) device.network = "efa";
      } else {
        device.kind = GpuOfPci(row.id);
        if (device.kind.empty()) device.kind = GpuOfName(row.text);
        if (device.kind.empty() && !seen_->unknown_gpu)
          seen_->unknown_gpu = Fact<std::string>{row.text, row.where};
      }
      if (tree.devices.size() >= kMostDevices)
        Refuse(row.where, fmt::format("more than {} GPUs and NICs", kMostDevices));
      if (std::ranges::find(tree.hosts, device.host) == tree.hosts.end())
        tree.hosts.push_back(device.host);
      tree.devices.push_back(std::move(device));
    }
    const Location where{source_, 1, 1};
    if (tree.devices.empty())
      Refuse(where, "no GPU and no NIC in this list",
             "lspci -nn shows the classes, lspci -tv the tree");
    DropLoneGroups(&tree);
    seen_->SayTree(std::move(tree), in_tree_ ? 2 : 1, where);
  }

  // A root port with one device is no switch.
  static void DropLoneGroups(PcieTree* tree) {
    std::map<std::string, int> count;
    for (const PcieDevice& device : tree->devices) ++count[device.group];
    for (PcieDevice& device : tree->devices) {
      if (count[device.group] == 1) device.group.clear();
    }
  }

  SourcePtr source_;
  Observed* seen_;
  std::vector<PciRow> rows_;
  std::vector<std::pair<std::size_t, std::string>> buses_;  // column, bus
  std::string capable_;                                     // speed of the last LnkCap
  bool in_tree_ = false;
};

}  // namespace

void ReadLspci(const SourcePtr& source, Observed* seen) { Lspci(source, seen).Read(); }

}  // namespace orrery::discover
