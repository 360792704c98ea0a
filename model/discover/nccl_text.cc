// SPDX-License-Identifier: Apache-2.0
// NCCL_DEBUG=INFO: hosts, ranks, NICs in use, the tree that NCCL_DEBUG_SUBSYS=GRAPH prints.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "model/discover/known_devices.h"
#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

constexpr std::string_view kInfo = "NCCL INFO ";

// "node0" of "node0:4021:4088 [0] NCCL INFO ...": NCCL's own front stands last, whatever srun ("3: "), torchrun
// ("[default0]:"), mpirun ("[1,0]<stdout>:"), syslog or a clock put before it.
std::string HostOf(std::string_view head) {
  std::vector<std::string> words = WordsOf(head);
  if (!words.empty() && words.back().starts_with('[') && words.back().ends_with(']'))
    words.pop_back();  // the GPU
  if (words.empty()) return "";
  std::string_view text = words.back();
  for (const std::string_view tag : {">:", "]:"}) {
    if (const std::size_t at = text.rfind(tag); at != std::string_view::npos)
      text.remove_prefix(at + tag.size());
  }
  const std::size_t last = text.rfind(':');
  if (last == std::string_view::npos || last == 0) return "";
  const std::size_t middle = text.rfind(':', last - 1);
  if (middle == std::string_view::npos || middle == 0 || !WholeOf(text.substr(last + 1)) ||
      !WholeOf(text.substr(middle + 1, last - middle - 1)))
    return "";
  return std::string(text.substr(0, middle));
}

class NcclText {
 public:
  NcclText(const SourcePtr& source, Observed* seen) : source_(source), seen_(seen) {}

  void Read() {
    std::vector<Line> lines = LinesOf(*source_);
    // A log that ends in the middle of a line may do so in a number or a name.
    if (!lines.empty() && !source_->text.ends_with('\n')) {
      cut_ = true;
      std::string& last = lines.back().text;
      last.resize(std::min(last.find_last_of(" \t"), last.size()));
    }
    for (const Line& line : lines) {
      const std::size_t at = line.text.find(kInfo);
      const std::string host = at == std::string::npos ? "" : HostOf(line.text.substr(0, at));
      if (IsMixed(line.text, at, host)) continue;
      ReadRelease(line.text);
      if (at != std::string::npos) ReadInfo(line, host, line.text.substr(at + kInfo.size()));
    }
    const Location where{source_, 1, 1};
    if (ranks_ == 0 && hosts_.empty())
      Refuse(where, "no communicator in this log",
             "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH");
    Finish(where);
    if (!seen_->nodes && (cut_ || tree_open_) && !lines.empty()) {
      seen_->cut = At(lines.back());
      seen_->notes.push_back(
          fmt::format("the log is cut in the lines of its first communicator ({}): nodes and NICs "
                      "behind it are not seen",
                      PlaceText(*seen_->cut)));
    }
  }

 private:
  // Lines of several processes in one: what of them is whole nobody can tell.
  static bool IsMixed(std::string_view text, std::size_t at, const std::string& host) {
    return at != std::string_view::npos &&
           (host.find(':') != std::string::npos ||
            text.find(kInfo, at + kInfo.size()) != std::string_view::npos);
  }

  Location At(const Line& line) const { return {source_, line.number, 1}; }

  // "NCCL version 2.18.1+cuda12.1", with a front of its own or without.
  void ReadRelease(std::string_view text) {
    constexpr std::string_view kFront = "NCCL version 2.";
    const std::size_t at = text.find(kFront);
    if (at == std::string_view::npos) return;
    const std::string_view rest = text.substr(at + kFront.size());
    const auto minor = WholeOf(rest.substr(0, rest.find('.')));
    if (minor && *minor > 0 && *minor < 99) seen_->nccl_release = static_cast<int>(*minor);
  }

  void ReadInfo(const Line& line, const std::string& host, std::string_view text) {
    if (!host.empty() && hosts_.try_emplace(host, hosts_.size()).second)
      seen_->AddHost(host, At(line));
    if (text.starts_with("comm ") || text.find(" nranks ") != std::string_view::npos ||
        text.find(" nRanks ") != std::string_view::npos)
      ReadSize(line, host, text);
    if (text.starts_with("NET/") && text.find("Using") != std::string_view::npos)
      ReadNetwork(line, host, text);
    if (text.starts_with("NET/OFI")) ReadOfi(line, text);
    if (text.starts_with("=== System"))
      tree_open_ = tree_.devices.empty();
    else if (text.starts_with("====="))
      tree_open_ = false;
    else if (tree_open_)
      ReadTree(line, text);
  }

  void ReadSize(const Line& line, const std::string& host, std::string_view text) {
    const auto number = [&](std::initializer_list<const char*> keys) -> int64_t {
      for (const char* key : keys) {
        const std::size_t at = text.find(key);
        if (at == std::string_view::npos) continue;
        std::string_view rest = text.substr(at + std::string_view(key).size());
        rest = rest.substr(0, rest.find_first_of(" ,"));
        if (const auto value = WholeOf(rest); value && *value <= (1 << 20)) return *value;
      }
      return -1;
    };
    const int64_t ranks = number({" nRanks ", " nranks "}), rank = number({" rank "});
    const int64_t nodes = number({" nNodes "}), local = number({" localRanks "});
    if (ranks > ranks_) {
      ranks_ = ranks;
      ranks_where_ = At(line);
      of_host_.clear();
      local_ = nodes_ = 0;
      unequal_.reset();
    }
    if (nodes > 0 && ranks == ranks_) nodes_ = nodes;
    if (local > 0 && ranks == ranks_) {
      if (local_ > 0 && local != local_ && !unequal_) unequal_ = Fact<int64_t>{local, At(line)};
      if (local_ == 0) {
        local_ = local;
        local_where_ = At(line);
      }
    }
    if (ranks == ranks_ && rank >= 0 && !host.empty()) of_host_[host].insert(rank);
  }

  // "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
  void ReadNetwork(const Line& line, const std::string& host, std::string_view text) {
    const std::size_t end = text.find("OOB");
    int64_t nics = 0;
    std::string kind = text.starts_with("NET/Socket") ? "tcp" : "";
    std::vector<std::string> infiniband, roce;
    for (const std::string& word : WordsOf(text.substr(0, end))) {
      const std::size_t close = word.find(']');
      if (word.empty() || word[0] != '[' || close == std::string::npos ||
          !WholeOf(std::string_view(word).substr(1, close - 1)))
        continue;
      ++nics;
      const std::string name = word.substr(close + 1, word.find(':') - close - 1);
      if (word.find("/RoCE") != std::string::npos) roce.push_back(name);
      if (word.find("/IB") != std::string::npos) infiniband.push_back(name);
    }
    if (nics == 0 || nics > 64) return;
    if (!infiniband.empty() || !roce.empty()) kind = roce.empty() ? "infiniband" : "roce";
    if (!infiniband.empty() && !roce.empty()) {
      // NCCL uses all of them. Without rates the network is that of more NICs, InfiniBand where there are as many.
      if (infiniband.size() >= roce.size()) kind = "infiniband";
      seen_->notes.push_back(fmt::format(
          "NCCL uses {} of InfiniBand and {} of RoCE together, taken for {} NICs of {} ({})",
          fmt::join(infiniband, ", "), fmt::join(roce, ", "), nics, kind, PlaceText(At(line))));
    }
    if (!kind.empty()) {
      seen_->SayNetwork(kind, At(line));
      seen_->network_used = Fact<std::string>{kind, At(line)};
    }
    UseNics(line, host, nics);
  }

  // The most of any node; one with others is worth a look.
  void UseNics(const Line& line, const std::string& host, int64_t nics) {
    const auto& most = seen_->nics_used;
    if (most && most->value != nics && unlike_.insert(host).second)
      seen_->notes.push_back(fmt::format("{} uses {} NICs ({}), another node {} ({})",
                                         host.empty() ? "a node" : host, nics, PlaceText(At(line)),
                                         most->value, PlaceText(most->where)));
    if (!most || most->value < nics) seen_->nics_used = Fact<int64_t>{nics, At(line)};
  }

  // Amazon's plugin: "NET/OFI Selected provider is efa" and "NET/OFI Running on p5.48xlarge platform, ...". The NICs that it
  // counts are not those that it shows to NCCL.
  void ReadOfi(const Line& line, std::string_view text) {
    constexpr std::string_view kOn = "Running on ", kPlatform = " platform";
    if (text.find("rovider is efa") != std::string_view::npos) seen_->SayNetwork("efa", At(line));
    const std::size_t on = text.find(kOn), end = text.find(kPlatform);
    if (on != std::string_view::npos && end != std::string_view::npos && end > on + kOn.size()) {
      const std::string machine(text.substr(on + kOn.size(), end - on - kOn.size()));
      if (machine.ends_with("xlarge") && machine.size() < 32) seen_->SayMachine(machine, At(line));
    }
  }

  // "CPU/0 (1/1/2)", "+ PCI[24.0] - PCI/1000", "              + PCI[24.0] - GPU/1B000 (0)",
  // "              + NVL[264.0] - GPU/43000" and "+ NVL[..] - NVS/0", "... - NET/0"
  void ReadTree(const Line& line, std::string_view text) {
    if (text.starts_with("CPU/")) {
      tree_.hosts.push_back(std::to_string(tree_.hosts.size()));
      groups_.clear();
      return;
    }
    const std::size_t plus = text.find("+ "), arrow = text.find(" - ");
    if (plus == std::string_view::npos || arrow == std::string_view::npos || tree_.hosts.empty())
      return;
    std::string_view device = text.substr(arrow + 3);
    device = device.substr(0, device.find_first_of(" \t"));
    const std::string link(text.substr(plus + 2, 3));
    while (!groups_.empty() && groups_.back().first >= plus) groups_.pop_back();
    if (device.starts_with("PCI/")) groups_.emplace_back(plus, device);
    if (link == "NVL") return ReadLink(line, text, device);
    const double rate = RateOf(text, "[", ']');
    if (device.starts_with("GPU/") && link == "PCI") {
      gpu_ = std::string(device);
      return Add(line, device, false, rate);
    }
    if (!device.starts_with("NET/")) return;
    // "NET/0-1 (ab/1/50.000000)": GUID, port and GB/s, less rounded than those of the link.
    const double exact = RateOf(text.substr(std::min(text.rfind('/'), text.size())), "/", ')');
    Add(line, device, true, exact > 0 ? exact : rate);
  }

  // The number between two marks; 0: none.
  static double RateOf(std::string_view text, std::string_view open, char close) {
    const std::size_t begin = text.find(open);
    if (begin == std::string_view::npos) return 0;
    const std::string_view rest = text.substr(begin + open.size());
    const std::string number(rest.substr(0, std::min(rest.find(close), rest.size())));
    const double rate = std::strtod(number.c_str(), nullptr);
    return rate > 0 && rate < 1e5 ? rate : 0;
  }

  // NCCL's own scale for PCIe (src/graph/topo.cc, kvDictPciGen): 12 GB/s for 16 lanes of 8 GT/s.
  static BytesPerSecond OfLanes(double counted) {
    constexpr double kCounted = 12;
    return BytesPerSecond(PcieRate("8.0 GT/s PCIe", 16).value * counted / kCounted);
  }

  void Add(const Line& line, std::string_view name, bool nic, double rate) {
    const bool known =
        std::ranges::any_of(tree_.devices, [&](const PcieDevice& one) { return one.name == name; });
    if (known || tree_.devices.size() >= kMostDevices) return;
    PcieDevice device;
    device.nic = nic;
    device.name = std::string(name);
    device.bus = device.name;
    if (nic) {
      device.rate = BytesPerSecond(rate * 1e9);
    } else {
      device.pcie = OfLanes(rate);
    }
    device.host = tree_.hosts.back();
    if (!groups_.empty()) device.group = groups_.back().second;
    device.where = At(line);
    tree_.devices.push_back(std::move(device));
  }

  // "NVL[240.0]": the rate of all links to one other device together. Printed below the GPU that has them, where the
  // other one may still be to come.
  void ReadLink(const Line& line, std::string_view text, std::string_view target) {
    const double number = RateOf(text, "[", ']');
    const bool known = target.starts_with("NVS") || target.starts_with("GPU");
    if (gpu_.empty() || !known || number <= 0 || bundles_.size() >= kMostDevices) return;
    if (bundles_.empty()) bundles_where_ = At(line);
    bundles_.push_back({gpu_, target.starts_with("GPU") ? std::string(target) : "", number});
  }

  // By the places of GPUs in the tree.
  void SayBundles() {
    std::map<std::string, int> place;
    for (const PcieDevice* gpu : GpusOf(seen_->tree->value))
      place.try_emplace(gpu->bus, static_cast<int>(place.size()));
    std::vector<NvBundle> bundles;
    for (const auto& [from, to, rate] : bundles_) {
      const auto a = place.find(from), b = place.find(to);
      if (a == place.end() || (!to.empty() && b == place.end())) continue;
      bundles.push_back({a->second, to.empty() ? -1 : b->second, rate});
    }
    seen_->nvlinks = Fact<std::vector<NvBundle>>{std::move(bundles), bundles_where_};
  }

  // Ranks of one communicator, more on one node than on another.
  void CheckEqual() const {
    constexpr const char* kHint = "nodes of a topology are equal: a log of each kind of node apart";
    if (unequal_)
      Refuse(unequal_->where,
             fmt::format("{} ranks on this node, but {} says {}", unequal_->value,
                         PlaceText(local_where_), local_),
             kHint);
    if (nodes_ > 0 && local_ > 0 && nodes_ * local_ != ranks_)
      Refuse(local_where_,
             fmt::format("{} ranks on {} nodes, {} of them on this one", ranks_, nodes_, local_),
             kHint);
    int64_t all = 0;
    for (const auto& [host, ranks] : of_host_) all += static_cast<int64_t>(ranks.size());
    if (all != ranks_) return;  // not all of them are in this log
    for (const auto& [host, ranks] : of_host_) {
      const auto& [first, others] = *of_host_.begin();
      if (ranks.size() != others.size())
        Refuse(ranks_where_,
               fmt::format("{} of {} ranks on {}, {} on {}", ranks.size(), ranks_, host,
                           others.size(), first),
               kHint);
    }
  }

  void Finish(const Location& where) {
    CheckEqual();
    int64_t local = local_;
    for (const auto& [host, ranks] : of_host_)
      local = std::max(local, static_cast<int64_t>(ranks.size()));
    const int64_t nodes = nodes_ > 0 ? nodes_ : static_cast<int64_t>(of_host_.size());
    if (nodes_ > 0 || (ranks_ > 0 && local > 0 && nodes * local == ranks_)) {
      seen_->SayNodes(nodes, ranks_where_);
      if (nodes > 0 && ranks_ % nodes == 0 && ranks_ / nodes <= 64)
        seen_->SayGpus(ranks_ / nodes, ranks_where_);
    }
    if (ranks_ > 0 && !seen_->nodes) seen_->ranks = Fact<int64_t>{ranks_, ranks_where_};
    if (!tree_.devices.empty()) seen_->SayTree(tree_, 2, where);
    if (!bundles_.empty() && seen_->tree) SayBundles();
  }

  struct Bundle {
    std::string from, to;  // names in the tree; to "": the switches
    double rate;
  };

  SourcePtr source_;
  Observed* seen_;
  std::map<std::string, std::size_t> hosts_;
  std::map<std::string, std::set<int64_t>> of_host_;
  std::set<std::string> unlike_;  // hosts that use another number of NICs
  int64_t ranks_ = 0, nodes_ = 0, local_ = 0;
  Location ranks_where_, local_where_, bundles_where_;
  std::optional<Fact<int64_t>> unequal_;  // a number of local ranks that is another than the first
  bool cut_ = false;                      // the last line is not whole
  PcieTree tree_;
  bool tree_open_ = false;
  std::string gpu_;  // the last one in the tree
  std::vector<Bundle> bundles_;
  std::vector<std::pair<std::size_t, std::string>> groups_;  // column, bridge
};

}  // namespace

void ReadNcclLogText(const SourcePtr& source, Observed* seen) { NcclText(source, seen).Read(); }

}  // namespace orrery::discover
