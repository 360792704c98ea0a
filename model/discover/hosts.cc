// SPDX-License-Identifier: Apache-2.0
// Hosts and the switches above them: hostfiles, Slurm, AWS.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/base/host_list.h"
#include "model/base/node.h"
#include "model/discover/known_devices.h"
#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

constexpr std::size_t kMostSwitches = 4096;

// "a100", "nvidia_h100_80gb_hbm3", "a100:no_consume"
void SayType(std::string type, const Location& where, Observed* seen) {
  type = type.substr(0, type.find(':'));
  if (IsSliceOfGpu(type))
    Refuse(where, fmt::format("Gres gpu of type '{}': slices of GPUs (MIG)", type.substr(0, 32)),
           "plans are for whole GPUs: leave out the nodes with slices");
  const std::vector<std::string> gpus = GpusOfType(type);
  if (gpus.size() == 1)
    seen->SayGpu(gpus[0], where);
  else if (gpus.size() > 1)
    seen->SayGpuType({type, gpus}, where);
  else if (!seen->unknown_gpu)
    seen->unknown_gpu = Fact<std::string>{type, where};
}

// "gpu:h100:8(S:0-1)" or "gpu:8" -> type and number. Slices next to whole GPUs are left out.
void ReadGres(std::string_view gres, const Location& where, Observed* seen) {
  bool whole = false;
  std::vector<std::pair<std::string, int64_t>> slices;
  while (!gres.empty()) {
    // Commas inside of parentheses belong to the sockets.
    std::size_t end = 0;
    for (int depth = 0; end < gres.size() && (depth > 0 || gres[end] != ','); ++end)
      depth += gres[end] == '(' ? 1 : gres[end] == ')' ? -1 : 0;
    std::string_view one = gres.substr(0, std::min(end, gres.find('(')));
    gres.remove_prefix(std::min(end + 1, gres.size()));
    if (!one.starts_with("gpu:")) continue;
    one.remove_prefix(4);
    const std::size_t colon = one.rfind(':');
    const std::string_view count = colon == std::string_view::npos ? one : one.substr(colon + 1);
    const auto number = WholeOf(count);
    if (!number || *number < 1 || *number > 64)
      Refuse(where, fmt::format("Gres gpu of '{}'", count.substr(0, 32)), "1 to 64 GPUs in a node");
    const std::string type(colon == std::string_view::npos ? "" : one.substr(0, colon));
    if (IsSliceOfGpu(type.substr(0, type.find(':')))) {
      slices.emplace_back(type, *number);
      continue;
    }
    whole = true;
    seen->SayGpus(*number, where);
    if (!type.empty()) SayType(type, where, seen);
  }
  for (const auto& [type, number] : slices) {
    if (!whole) SayType(type, where, seen);  // refused
    std::string note =
        fmt::format("ignored {} slices of GPUs (MIG) of type '{}' next to whole ones", number,
                    type.substr(0, 32));
    const auto said = [&](const std::string& one) { return one.starts_with(note); };
    if (std::ranges::none_of(seen->notes, said))
      seen->notes.push_back(fmt::format("{} ({})", note, PlaceText(where)));
  }
}

// Of scontrol show node: several lines, or one with -o.
struct NodeRecord {
  std::string text;
  Location where;

  std::string Gres() const { return Behind(text, "Gres="); }
  // Its GPUs alone, as "gpu:h100:8"; "": none.
  std::string Gpus() const {
    const std::string gres = Gres();
    const std::size_t at = gres.find("gpu:");
    return at == std::string::npos ? "" : gres.substr(at, gres.find_first_of(",(", at) - at);
  }
};

// What most nodes with GPUs have; "": no kind is that of more nodes than any other.
std::string GpusOfMost(const std::vector<NodeRecord>& records) {
  std::map<std::string, std::size_t> nodes;
  for (const NodeRecord& record : records) {
    const std::string gpus = record.Gpus();
    if (!gpus.empty())
      nodes[gpus] += HostsOf(Behind(record.text, "NodeName="), record.where).size();
  }
  std::string most;
  std::size_t count = 0;
  for (const auto& [gpus, number] : nodes) {
    if (number == count) most.clear();
    if (number > count) most = gpus, count = number;
  }
  return most;
}

// Slurm starts no job there: "IDLE+DRAIN", "DOWN*" (the star: it does not answer). Nodes that save power ("IDLE+POWERED_DOWN")
// start when a job asks for them.
bool IsOutOfService(const std::string& state) {
  for (std::size_t begin = 0; begin <= state.size();) {
    const std::size_t end = std::min(state.find('+', begin), state.size());
    const std::string word = state.substr(begin, end - begin);
    const std::string plain = word.substr(0, word.find_first_of("*~#%!$@^-"));
    if (word.ends_with('*')) return true;
    for (const char* bad :
         {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING",
          "FUTURE", "UNKNOWN", "INVALID_REG", "MAINT", "MAINTENANCE"})
      if (plain == bad) return true;
    begin = end + 1;
  }
  return false;
}

// "Xid 79" of "Reason=Xid 79 [root@2026-03-01T10:00:00]"; the last key of a record.
std::string ReasonOf(const std::string& text) {
  const std::size_t at = text.find(" Reason=");
  if (at == std::string::npos) return "";
  const std::string rest = text.substr(at + 8, 160);
  std::string reason = rest.substr(0, rest.find(" ["));
  while (reason.ends_with(' ')) reason.pop_back();
  return reason;
}

void ReadNodeRecord(const NodeRecord& record, const std::string& most, Observed* seen) {
  const auto& [text, where] = record;
  const std::string name = Behind(text, "NodeName=");
  const std::vector<std::string> names = HostsOf(name, where);
  for (const std::string& host : names) seen->AddHost(host, where);
  const std::string gpus = record.Gpus();
  if (gpus.empty())
    seen->without_gpus.insert(names.begin(), names.end());
  else if (most.empty() || gpus == most)
    ReadGres(record.Gres(), where, seen);
  else
    for (const std::string& host : names) seen->unlike[host] = gpus;
  if (const std::string state = Behind(text, "State="); IsOutOfService(state)) {
    const std::string reason = ReasonOf(text);
    for (const std::string& host : names)
      seen->out_of_service[host] =
          fmt::format("{}{} ({})", state, reason.empty() ? "" : ": " + reason, PlaceText(where));
  }
  if (const std::string arch = Behind(text, "Arch="); arch == "aarch64")
    seen->SayCpu(HostKind::kArm, where);
}

// AWS answers with JSON: {"Instances": [{"InstanceId", "InstanceType", "NetworkNodes": [far .. near]}]}
class AwsReader {
 public:
  AwsReader(const SourcePtr& source, Observed* seen) : source_(source), seen_(seen) {}

  void Read() {
    Diagnostics diagnostics;
    const Node root = Node::Parse(source_, &diagnostics);
    diagnostics.ThrowIfAny();
    const std::vector<Node> instances =
        root.IsSequence() ? root.Elements() : root.Items("Instances");
    diagnostics.ThrowIfAny();
    for (const Node& instance : instances) ReadInstance(instance);
    diagnostics.ThrowIfAny();
    if (instances.empty()) Refuse({source_, 1, 1}, "no instance in this topology");
    for (auto& [name, at] : made_) seen_->switches.push_back(std::move(at));
  }

 private:
  void ReadInstance(const Node& instance) {
    const std::string id = instance.String("InstanceId");
    const std::string type = instance.String("InstanceType", "");
    const std::vector<Node> path = instance.Items("NetworkNodes");
    if (!instance.diagnostics()->ok()) return;
    if (path.empty() || path.size() > 8) {
      instance.ErrorAt("NetworkNodes", fmt::format("{} network nodes", path.size()),
                       "from the farthest to the nearest, three or four");
      return;
    }
    if (!type.empty()) seen_->SayMachine(type, instance.where("InstanceType"));
    seen_->AddHost(id, instance.where());
    std::string above;
    for (const Node& cell : path) {
      const std::string name = cell.AsString();
      if (!cell.diagnostics()->ok()) return;
      if (made_.size() >= kMostSwitches) Refuse(cell.where(), "more than 4096 network nodes");
      SwitchFact& one =
          made_.try_emplace(name, SwitchFact{name, {}, {}, cell.where()}).first->second;
      if (!above.empty()) {
        std::vector<std::string>& below = made_[above].below;
        if (std::ranges::find(below, name) == below.end()) below.push_back(name);
      }
      if (&cell == &path.back()) one.hosts.push_back(id);
      above = name;
    }
  }

  SourcePtr source_;
  Observed* seen_;
  std::map<std::string, SwitchFact> made_;
};

void AddSwitch(const std::string& name, const std::string& below, const std::string& hosts,
               const Location& where, Observed* seen) {
  if (seen->switches.size() >= kMostSwitches) Refuse(where, "more than 4096 switches");
  SwitchFact made{name, {}, {}, where};
  made.below = HostsOf(below, where);
  // A switch above others lists all hosts below it in the live output: they are those of its own.
  if (made.below.empty()) made.hosts = HostsOf(hosts, where);
  if (made.hosts.empty() && made.below.empty())
    Refuse(where, fmt::format("switch '{}' has no nodes and no switches", name));
  for (const SwitchFact& other : seen->switches) {
    if (other.name == name)
      Refuse(where, fmt::format("switch '{}' stands in {} already", name, PlaceText(other.where)));
  }
  for (const std::string& host : made.hosts) seen->AddHost(host, where);
  seen->switches.push_back(std::move(made));
}

// topology.yaml of Slurm 25.05: a list of topologies, each a tree of switches or blocks of nodes.
void ReadSlurmYaml(const SourcePtr& source, Observed* seen) {
  Diagnostics diagnostics;
  const std::vector<Node> all = Node::Parse(source, &diagnostics).Elements();
  diagnostics.ThrowIfAny();
  if (all.empty()) Refuse({source, 1, 1}, "no topology in this list");
  const auto named =
      std::ranges::find_if(all, [](const Node& one) { return one.Bool("cluster_default", false); });
  const Node& taken = named == all.end() ? all.front() : *named;
  const bool tree = taken.Has("tree");
  if (!tree && !taken.Has("block"))
    Refuse(taken.where(), "a topology without a tree and without blocks shows no switch");
  const Node group = taken.Child(tree ? "tree" : "block");
  for (const Node& one : group.Items(tree ? "switches" : "blocks")) {
    const std::string name = one.String(tree ? "switch" : "block");
    const std::string below = one.String("children", ""), hosts = one.String("nodes", "");
    diagnostics.ThrowIfAny();
    AddSwitch(name, below, hosts, one.where(), seen);
  }
  diagnostics.ThrowIfAny();
  if (all.size() > 1)
    seen->notes.push_back(fmt::format("{} topologies, of which {} is read ({})", all.size(),
                                      taken.String("topology", "?"), PlaceText(taken.where())));
  diagnostics.ThrowIfAny();
  if (seen->switches.empty()) Refuse(taken.where(), "no switch in this topology");
}

}  // namespace

void ReadHostfile(const SourcePtr& source, Observed* seen) {
  std::optional<int64_t> slots;
  std::set<std::string> launched;
  for (const NamedNode& host : seen->launched) launched.insert(host.name);
  for (const HostLine& line : HostLinesOf(source->text)) {
    const Location where{source, line.line, 1};
    const std::string& count = line.slots;
    for (const std::string& host : HostsOf(line.hosts, where)) {
      seen->AddHost(host, where);
      if (launched.insert(host).second) seen->launched.push_back({host, where});
    }
    if (count.empty()) continue;
    const auto number = WholeOf(count);
    if (!number || *number < 1 || *number > 4096)
      Refuse(where, fmt::format("'{}' slots", count.substr(0, 32)), "a whole number from 1");
    if (slots && *slots != *number)
      Refuse(where, fmt::format("{} slots here, {} on another host", *number, *slots),
             "nodes of a topology are equal: write a file for each kind");
    slots = number;
    if (*number <= 64) seen->SayGpus(*number, where);
  }
  seen->hosts_listed = true;
}

void ReadSlurmTopology(const SourcePtr& source, Observed* seen) {
  const std::vector<Line> lines = LinesOf(*source);
  const bool yaml = std::ranges::any_of(
      lines, [](const Line& line) { return line.text.starts_with("- topology:"); });
  if (yaml) return ReadSlurmYaml(source, seen);
  const std::size_t before = seen->switches.size();
  for (const Line& line : lines) {
    const Location where{source, line.number, 1};
    std::string name = Behind(line.text, "SwitchName=");
    if (name.empty()) name = Behind(line.text, "BlockName=");
    if (name.empty() || line.text.starts_with('#')) continue;
    AddSwitch(name, Behind(line.text, "Switches="), Behind(line.text, "Nodes="), where, seen);
  }
  if (seen->switches.size() == before) Refuse({source, 1, 1}, "no switch in this topology");
}

void ReadSlurmNodes(const SourcePtr& source, Observed* seen) {
  std::vector<NodeRecord> records;
  for (const Line& line : LinesOf(*source)) {
    if (records.empty() || line.text.starts_with("NodeName="))
      records.push_back({"", {source, line.number, 1}});
    std::string& text = records.back().text;
    if (text.size() < 65'536) text += line.text + " ";
  }
  const std::string most = GpusOfMost(records);
  for (const NodeRecord& record : records) ReadNodeRecord(record, most, seen);
  if (seen->hosts.empty()) Refuse({source, 1, 1}, "no node in this list");
}

void ReadAwsTopology(const SourcePtr& source, Observed* seen) { AwsReader(source, seen).Read(); }

}  // namespace orrery::discover
