// SPDX-License-Identifier: Apache-2.0
// Writes the topology file line by line, each with where it comes from.
#include "model/discover/topology_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/base/input_files.h"
#include "model/discover/fabric_text.h"
#include "model/discover/known_devices.h"
#include "model/discover/nccl_links.h"
#include "model/discover/sheet.h"
#include "model/hardware/catalog.h"
#include "model/hardware/summary.h"

namespace orrery::discover {
namespace {

constexpr int64_t kUnlimited = 16'384;

class Writer : private Sheet {
 public:
  Writer(const Observed& seen, const Choices& choices) : Sheet(seen, choices) {}

  Discovered Write() {
    Resolve();
    made_.notes = notes_;
    made_.left_out = seen_.left_out;
    if (nearest_) made_.nearest = nearest_->name;
    const bool cpus = IsCpuMachine();
    Head();
    Node(cpus);
    Fabric();
    Check();
    return std::move(made_);
  }

 private:
  void Line(const std::string& text, const std::string& from, bool assumed,
            const std::string& key = "") {
    const std::string comment = assumed        ? "  # assumed: " + from
                                : from.empty() ? ""
                                               : "  # " + from;
    made_.yaml += text + comment + "\n";
    const std::string what = (key.empty() ? text.substr(0, text.find(':')) : key) + ": " + from;
    if (assumed && std::ranges::find(made_.assumed, what) == made_.assumed.end())
      made_.assumed.push_back(what);  // once, whatever its lines
  }
  void Head() {
    std::string name = choices_.name;
    if (name.empty() && seen_.machine) {
      for (const char c : seen_.machine->value)
        name += std::isalnum(static_cast<unsigned char>(c)) || c == '.'
                    ? static_cast<char>(std::tolower(c))
                    : '-';
      while (!name.empty() && name.front() == '.') name.erase(0, 1);
    }
    if (name.empty()) name = "discovered";
    made_.yaml = std::string("# SPDX-License-Identifier: Apache-2.0\n") + kWrittenBy;
    if (nearest_) made_.yaml += "; the nearest of the catalogue is " + nearest_->name;
    made_.yaml += ".\n";
    for (const std::string& note : made_.notes) made_.yaml += "# seen: " + Plain(note) + "\n";
    Line("name: " + name, "", false);
    Line(fmt::format("description: \"{} node{} with {} x {} each\"", nodes_.value,
                     nodes_.value == 1 ? "" : "s", gpus_.value, gpu_.value),
         "", false);
    Line("source: \"plan discover: the comment of each line names its file\"", "", false);
    Line("evidence: C", "", false);
    Line("gpu: " + gpu_.value, gpu_.from, gpu_.assumed);
    Line("fabric_profile: " + profile_.value, profile_.from, profile_.assumed);
    if (IsCpuMachine())
      Line(fmt::format("cores: {}", seen_.cores->value), PlaceText(seen_.cores->where), false);
    Line(fmt::format("nodes: {}", nodes_.value), nodes_.from, nodes_.assumed);
    if (max_nodes_.assumed && nics_.value > 0)
      Line(fmt::format("max_nodes: {}", kUnlimited), "no source gives a limit", true);
    else
      Line(fmt::format("max_nodes: {}", max_nodes_.value),
           max_nodes_.assumed ? "one node" : max_nodes_.from, max_nodes_.assumed);
  }

  void Node(bool cpus) {
    made_.yaml += "node:\n";
    Line(fmt::format("  gpus: {}", gpus_.value), gpus_.from, gpus_.assumed, "node.gpus");
    if (cpus)
      Line("  scale_up: {kind: pcie, link: shared memory}", "one machine", true, "node.scale_up");
    else
      ScaleUpLines();
    if (nics_.value > 0) {
      const bool assumed = nics_.assumed || nic_rate_.assumed;
      std::string from = nics_.from == nic_rate_.from ? nics_.from
                         : !assumed                   ? nics_.from + ", " + nic_rate_.from
                         : nics_.assumed && nic_rate_.assumed
                             ? nics_.from + "; rate " + nic_rate_.from
                         : nics_.assumed ? "count " + nics_.from + ", rate is of " + nic_rate_.from
                                         : "rate " + nic_rate_.from + ", count is of " + nics_.from;
      Line(fmt::format("  nics: {{count: {}, rate: {}{}}}", nics_.value, Gbps(nic_rate_.value),
                       DegradedText()),
           from + DegradedSources(), assumed, "node.nics");
    }
    PcieLines(cpus);
  }

  std::string DegradedText() const {
    std::string text;
    for (const Degraded& one : degraded_)
      text += fmt::format("{}nic{}: {}", text.empty() ? "" : ", ", one.nic, Gbps(one.rate));
    return text.empty() ? "" : ", degraded: {" + text + "}";
  }

  std::string DegradedSources() const {
    std::string text;
    for (const Degraded& one : degraded_)
      text += fmt::format("; nic{}: {}, {}", one.nic, Plain(one.name), one.from);
    return text;
  }

  // What a source counts, or what NCCL's rates mean for this GPU.
  void CountLinks() {
    if (seen_.scale_up) FindSwitches(gpu_.value, gpus_.value, &seen_.scale_up->value);
    if (seen_.scale_up || !seen_.nvlinks) return;
    const std::string gpu = gpu_.value == kUnknownGpu ? "" : gpu_.value;
    const std::optional<ScaleUp> links =
        LinksOfRates(seen_.nvlinks->value, gpu, seen_.nccl_release);
    if (links) seen_.scale_up = Fact<ScaleUp>{*links, seen_.nvlinks->where};
  }

  void ScaleUpLines() {
    CountLinks();
    const LinkFact link = NvLinkOf(gpu_.value);
    // NCCL's rate tells that of a link, too.
    const bool counted = seen_.scale_up && seen_.scale_up->value.per_link.value > 0;
    const BytesPerSecond rate = !link.name.empty() ? link.rate
                                : counted          ? seen_.scale_up->value.per_link
                                                   : BytesPerSecond(25e9);
    const std::string name = link.name.empty() ? "NVLink" : link.name;
    const std::string why = link.name.empty() && !counted ? "rate of a link of an unknown GPU" : "";
    if (seen_.scale_up && seen_.scale_up->value.kind == IntraLink::kNvSwitch) {
      Line(fmt::format("  scale_up: {{kind: nvswitch, link: {}, links_per_gpu: {}, per_link: {}}}",
                       name, seen_.scale_up->value.links_per_gpu, GBps(rate)),
           why.empty() ? PlaceText(seen_.scale_up->where) + ", rate of " + name : why, !why.empty(),
           "node.scale_up");
    } else if (seen_.scale_up) {
      const std::string place = PlaceText(seen_.scale_up->where);
      made_.yaml += "  scale_up:\n";
      Line("    kind: cube-mesh", place, false);
      Line("    link: " + name, why, !why.empty(), "node.scale_up.link");
      Line("    per_link: " + GBps(rate), why.empty() ? "rate of " + name : why, !why.empty(),
           "node.scale_up.per_link");
      MeshLines(seen_.scale_up->value.mesh, place);
    } else if (gpus_.value == 1) {
      Line("  scale_up: {kind: none}", gpus_.from, gpus_.assumed, "node.scale_up");
    } else {
      AssumedScaleUp(LikeNode());
    }
  }

  // What lies between the GPUs and CPUs of a node goes with both, whatever the network.
  std::optional<TopologySpec> LikeNode() const {
    return nearest_ && nearest_->node.gpus == gpus_.value ? nearest_
                                                          : SameNode(gpu_.value, gpus_.value);
  }

  void MeshLines(const std::vector<MeshLink>& mesh, const std::string& from) {
    made_.yaml += "    links:\n";
    for (const MeshLink& one : mesh)
      Line(fmt::format("      - [gpu{}, gpu{}, {}]", one.a, one.b, one.count), from, false);
  }

  // As the nodes of a topology with the same GPUs have it.
  void AssumedScaleUp(const std::optional<TopologySpec>& like) {
    if (like && like->node.intra == IntraLink::kNvSwitch) {
      const NodeSpec& node = like->node;
      const std::string domain =
          node.domain_nodes > 1 ? fmt::format(", domain_nodes: {}", node.domain_nodes) : "";
      Line(
          fmt::format("  scale_up: {{kind: nvswitch, link: {}, links_per_gpu: {}, per_link: {}{}}}",
                      node.link_name, node.links_per_gpu, GBps(node.per_link), domain),
          "as " + like->name, true, "node.scale_up");
    } else if (like && !like->node.mesh.empty()) {
      made_.yaml += fmt::format(
          "  scale_up:\n    kind: cube-mesh  # assumed: as {0}\n    link: {1}  # assumed: as {0}\n"
          "    per_link: {2}  # assumed: as {0}\n",
          like->name, like->node.link_name, GBps(like->node.per_link));
      MeshLines(like->node.mesh, "assumed: as " + like->name);
      made_.assumed.push_back("node.scale_up: as " + like->name);
    } else {
      UncountedLinks();
    }
  }

  // NVLinks that a source shows and nobody counts: all of a GPU, to its only neighbour or into switches.
  void UncountedLinks() {
    const LinkFact link = NvLinkOf(gpu_.value);
    if (!seen_.nvlinks) {
      Line("  scale_up: {kind: pcie}", "no source shows other links", true, "node.scale_up");
      return;
    }
    const std::string name = link.name.empty() ? "NVLink" : link.name;
    const std::string rate = GBps(link.name.empty() ? BytesPerSecond(25e9) : link.rate);
    const int links = link.links > 0 ? link.links : 1;
    const std::string why =
        fmt::format("NVLinks ({}), their number is not said", PlaceText(seen_.nvlinks->where));
    if (gpus_.value > 2) {
      Line(fmt::format("  scale_up: {{kind: nvswitch, link: {}, links_per_gpu: {}, per_link: {}}}",
                       name, links, rate),
           why, true, "node.scale_up");
      return;
    }
    made_.yaml += "  scale_up:\n";
    Line("    kind: cube-mesh", why, true, "node.scale_up");
    Line("    link: " + name, why, true, "node.scale_up.link");
    Line("    per_link: " + rate, why, true, "node.scale_up.per_link");
    MeshLines({{0, 1, links}}, "assumed: " + why);
  }

  // pcie.rate is one for all links: that of the slowest, which these GPUs have.
  void SaySlowLinks(BytesPerSecond slowest, BytesPerSecond fastest) {
    made_.yaml +=
        fmt::format("  # seen: PCIe links of GPUs from {} to {}\n", GBps(slowest), GBps(fastest));
    std::string names;
    const PcieDevice* first = nullptr;
    int number = 0;
    std::size_t slow = 0;
    const auto gpus = GpusOf(seen_.tree->value);
    for (const PcieDevice* gpu : gpus) {
      const int place = number++;
      if (gpu->pcie.value <= 0 || gpu->pcie.value > slowest.value * 1.01) continue;
      if (first == nullptr) first = gpu;
      if (++slow <= 4) names += fmt::format("{}gpu{}", names.empty() ? "" : ", ", place);
    }
    made_.notes.push_back(fmt::format(
        "PCIe of {}{} runs at {} ({}), of other GPUs at up to {}: pcie.rate is the slowest", names,
        slow > 4 ? fmt::format(" and {} more", slow - 4) : "", GBps(slowest),
        PlaceText(first->where), GBps(fastest)));
  }

  // The slowest link of a GPU; a note where they differ.
  Known<BytesPerSecond> PcieOfGpus() {
    Known<BytesPerSecond> slowest;
    double fastest = 0;
    if (seen_.tree) {
      for (const PcieDevice* gpu : GpusOf(seen_.tree->value)) {
        if (gpu->pcie.value <= 0) continue;
        fastest = std::max(fastest, gpu->pcie.value);
        if (slowest.value.value == 0 || gpu->pcie.value < slowest.value.value)
          slowest = {gpu->pcie, PlaceText(gpu->where), false};
      }
    }
    if (slowest.value.value > 0 && fastest > slowest.value.value * 1.01)
      SaySlowLinks(slowest.value, BytesPerSecond(fastest));
    if (slowest.value.value > 0) {
      if (nearest_ && std::abs(nearest_->node.pcie_rate.value / slowest.value.value - 1) > 0.05)
        made_.notes.push_back(fmt::format("PCIe at {} here, {} in {}", GBps(slowest.value),
                                          GBps(nearest_->node.pcie_rate), nearest_->name));
      return slowest;
    }
    if (nearest_) return {nearest_->node.pcie_rate, AsNearest(), true};
    if (const BytesPerSecond own = PcieOf(gpu_.value); own.value > 0)
      return {own, "16 lanes of such a GPU, no source gives it", true};
    return {BytesPerSecond(15.75e9), "PCIe 3 x16, no source gives it", true};
  }

  struct Row {
    std::string host, group;
    std::vector<std::string> devices;
  };

  std::vector<Row> TreeRows() const {
    std::vector<Row> rows;
    const auto add = [&](const PcieDevice& device, std::string name) {
      auto row = std::ranges::find_if(rows, [&](const Row& one) {
        return one.host == device.host && one.group == device.group;
      });
      if (row == rows.end()) row = rows.insert(rows.end(), Row{device.host, device.group, {}});
      row->devices.push_back(std::move(name));
    };
    const auto gpus = GpusOf(seen_.tree->value);
    const auto nics = NicsOf(seen_.tree->value);
    for (std::size_t i = 0; i < gpus.size(); ++i) add(*gpus[i], fmt::format("gpu{}", i));
    for (std::size_t i = 0; i < nics.size(); ++i) add(*nics[i], fmt::format("nic{}", i));
    std::ranges::stable_sort(rows, {}, [&](const Row& row) {
      return std::ranges::find(seen_.tree->value.hosts, row.host) - seen_.tree->value.hosts.begin();
    });
    return rows;
  }

  void PcieLines(bool cpus) {
    made_.yaml += "  pcie:\n";
    if (cpus) {
      Line("    rate: 8GB/s", "as localhost", true, "node.pcie.rate");
      std::vector<std::string> names;
      for (int64_t i = 0; i < gpus_.value; ++i) names.push_back(fmt::format("gpu{}", i));
      for (int64_t i = 0; i < nics_.value; ++i) names.push_back(fmt::format("nic{}", i));
      made_.yaml += "    tree:\n";
      Line(fmt::format("      - {{host: cpu0, devices: [{}]}}", fmt::join(names, ", ")), gpus_.from,
           false);
      return;
    }
    const Known<BytesPerSecond> rate = PcieOfGpus();
    Line("    rate: " + GBps(rate.value), rate.from, rate.assumed, "node.pcie.rate");
    // Grace and its GPUs: no program that is read here shows their link.
    if (const auto like = LikeNode(); like && like->node.gpu_to_host.value > 0)
      Line("    gpu_to_host: " + GBps(like->node.gpu_to_host), "as " + like->name, true,
           "node.pcie.gpu_to_host");
    const bool whole =
        seen_.tree && static_cast<int64_t>(GpusOf(seen_.tree->value).size()) == gpus_.value;
    std::vector<Row> rows = whole ? TreeRows() : std::vector<Row>();
    std::set<std::string> hosts;
    for (const Row& row : rows) hosts.insert(row.host);
    if (!whole && nearest_ && nearest_->node.gpus == gpus_.value &&
        static_cast<int64_t>(nearest_->node.nics.size()) == nics_.value) {
      for (std::size_t h = 0; h < nearest_->node.hosts.size(); ++h) hosts.insert(std::to_string(h));
      BetweenHosts(hosts.size());
      return NearestTree();
    }
    BetweenHosts(std::max<std::size_t>(1, hosts.size()));
    made_.yaml += "    tree:\n";
    if (!whole) return OneRow();
    WriteRows(rows);
    // NICs that only a log or ibstat counts.
    const auto placed = static_cast<int64_t>(NicsOf(seen_.tree->value).size());
    if (placed < nics_.value) NicRow(placed);
  }

  void WriteRows(const std::vector<Row>& rows) {
    std::map<std::string, std::string> host_names;
    int switches = 0;
    for (const Row& row : rows) {
      const std::string host =
          host_names.try_emplace(row.host, fmt::format("cpu{}", host_names.size())).first->second;
      const std::string via = row.group.empty() ? "" : fmt::format("switch: pcie{}, ", switches++);
      Line(fmt::format("      - {{host: {}, {}devices: [{}]}}", host, via,
                       fmt::join(row.devices, ", ")),
           PlaceText(seen_.tree->where), false);
    }
  }

  void NicRow(int64_t first) {
    std::vector<std::string> names;
    for (int64_t i = first; i < nics_.value; ++i) names.push_back(fmt::format("nic{}", i));
    Line(fmt::format("      - {{host: cpu0, devices: [{}]}}", fmt::join(names, ", ")),
         "no source places these NICs", true, "node.pcie.tree");
  }

  void OneRow() {
    std::vector<std::string> names;
    for (int64_t i = 0; i < gpus_.value; ++i) names.push_back(fmt::format("gpu{}", i));
    for (int64_t i = 0; i < nics_.value; ++i) names.push_back(fmt::format("nic{}", i));
    Line(fmt::format("      - {{host: cpu0, devices: [{}]}}", fmt::join(names, ", ")),
         "no source shows the tree", true, "node.pcie.tree");
  }

  void NearestTree() {
    made_.yaml += "    tree:\n";
    for (const PcieGroup& group : nearest_->node.pcie) {
      std::vector<std::string> names;
      for (const int gpu : group.gpus) names.push_back(fmt::format("gpu{}", gpu));
      for (const int nic : group.nics) names.push_back(fmt::format("nic{}", nic));
      const std::string via =
          group.pcie_switch < 0 ? "" : fmt::format("switch: pcie{}, ", group.pcie_switch);
      Line(fmt::format("      - {{host: cpu{}, {}devices: [{}]}}", group.host, via,
                       fmt::join(names, ", ")),
           AsNearest(), true, "node.pcie.tree");
    }
  }

  void BetweenHosts(std::size_t hosts) {
    if (seen_.cpu) {
      const HostKind kind = seen_.cpu->value;
      Line(fmt::format("    cpu: {}", kind == HostKind::kIntel ? "intel"
                                      : kind == HostKind::kAmd ? "amd"
                                                               : "arm"),
           PlaceText(seen_.cpu->where), false);
    }
    if (hosts < 2) return;
    if (nearest_ && nearest_->node.between_hosts.value > 0) {
      Line("    between_hosts: " + GBps(nearest_->node.between_hosts), AsNearest(), true,
           "node.pcie.between_hosts");
      return;
    }
    // Only where the catalogue names the CPUs: those of one GPU differ.
    if (const auto like = LikeNode(); like && seen_.cpu && like->node.cpu == seen_.cpu->value &&
                                      like->node.between_hosts.value > 0) {
      Line("    between_hosts: " + GBps(like->node.between_hosts), "as " + like->name, true,
           "node.pcie.between_hosts");
      return;
    }
    // NCCL's figures for CPUs of unknown generation (src/graph/topo.h of 2.30.7).
    const char* rate = seen_.cpu && seen_.cpu->value == HostKind::kAmd   ? "16GB/s"
                       : seen_.cpu && seen_.cpu->value == HostKind::kArm ? "6GB/s"
                                                                         : "10GB/s";
    Line(std::string("    between_hosts: ") + rate, "NCCL's rate for such CPUs", true,
         "node.pcie.between_hosts");
  }

  void Fabric() {
    if (nics_.value == 0) return;
    if (seen_.switches.empty() && !seen_.hosts.empty() && !max_nodes_.assumed &&
        static_cast<int64_t>(seen_.hosts.size()) == max_nodes_.value) {
      std::vector<std::string> names;
      for (const NamedNode& host : seen_.hosts) names.push_back(host.name);
      made_.yaml += "fabric:\n  kind: named\n";
      AppendHostOrder(seen_, &made_.yaml);
      made_.yaml += "  switches:\n";
      Line(fmt::format("    - {{name: switch0, hosts: [{}]}}", fmt::join(names, ", ")),
           "one switch for the hosts of " + PlaceText(seen_.hosts.front().where), true, "fabric");
      return;
    }
    if (seen_.switches.empty()) {
      Line("fabric: {kind: single-switch}", "no source shows switches", true);
      return;
    }
    AppendNamedFabric(seen_, nic_rate_.value * static_cast<double>(nics_.value), &made_.yaml,
                      &made_.assumed);
  }

  // What was written must be read: names and sizes of untrusted files may still not fit.
  void Check() {
    Diagnostics diagnostics;
    made_.spec = ReadTopology(
        std::make_shared<const Source>(Source{"what was discovered", made_.yaml}), &diagnostics);
    diagnostics.ThrowIfAny();
    CheckCounts(made_.spec, made_.spec.nodes, 0);
  }

  Discovered made_;
};

}  // namespace

Discovered WriteTopology(const Observed& seen, const Choices& choices) {
  const LookingThrough catalogue;  // the answer may take the place of an earlier one in it
  return Writer(seen, choices).Write();
}

}  // namespace orrery::discover
