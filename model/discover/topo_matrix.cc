// SPDX-License-Identifier: Apache-2.0
// nvidia-smi topo -m: classes of paths between GPUs and NICs, old columns (mlx5_0) and new (NIC0 with a
// legend).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

bool IsClass(std::string_view word) {
  constexpr std::string_view kClasses[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"};
  return std::ranges::find(kClasses, word) != std::end(kClasses) ||
         (word.starts_with("NV") && WholeOf(word.substr(2)));
}

struct Row {
  std::string name;
  std::vector<std::string> cells;
  std::string numa;
  int line = 0;
};

class Matrix {
 public:
  Matrix(const SourcePtr& source, Observed* seen) : source_(source), seen_(seen) {}

  void Read() {
    for (const Line& line : LinesOf(*source_)) ReadLine(line);
    if (rows_.empty()) Refuse({source_, 1, 1}, "no row of GPU0 in this matrix");
    Check();
    AddDevices();
    SayLinks();
  }

 private:
  Location At(int line) const { return {source_, line, 1}; }

  void ReadLine(const Line& line) {
    const std::vector<std::string> words = WordsOf(line.text);
    if (words.size() < 2) return;
    if (words[0].starts_with("NIC") && words[0].ends_with(":"))  // "NIC0: mlx5_0"
      legend_[words[0].substr(0, words[0].size() - 1)] = words[1];
    if (words[0] == "GPU0" && devices_.empty() && rows_.empty() && words[1] != "X")
      return ReadHeader(words);
    const bool listed = std::ranges::find(devices_, words[0]) != devices_.end();
    if (listed)
      CheckCells(line, words);
    else if (!IsClass(words[1]) || (rows_.empty() && words[0] != "GPU0"))
      return;
    if (rows_.size() >= 512) Refuse(At(line.number), "more than 512 rows");
    Row row;
    row.name = words[0];
    row.line = line.number;
    std::size_t at = 1;
    while (at < words.size() && IsClass(words[at])) row.cells.push_back(words[at++]);
    // "0-47,96-143  0  N/A": CPU affinity, NUMA affinity; the last number of the three.
    if (at + 1 < words.size() && WholeOf(words[at + 1]))
      row.numa = words[at + 1];
    else if (at < words.size() && words[at] != "N/A")
      row.numa = words[at];  // drivers before 2020 print the CPUs alone
    rows_.push_back(std::move(row));
  }

  // "GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity": the columns of devices.
  void ReadHeader(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      if (word == "CPU") return;
      if (devices_.size() < 512) devices_.push_back(word);
    }
  }

  // A word that is no path ends a row, as its affinities do: another is no affinity where a device's column stands.
  void CheckCells(const Line& line, const std::vector<std::string>& words) const {
    for (std::size_t i = 1; i < words.size() && i <= devices_.size(); ++i) {
      if (IsClass(words[i])) continue;
      Refuse(At(line.number),
             fmt::format("{} to {} is '{}', which is no path of nvidia-smi topo -m", words[0],
                         devices_[i - 1], words[i].substr(0, 32)),
             "X, PIX, PXB, PHB, NODE, SYS and NV with a number, a column for each device");
    }
  }

  void Check() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].cells.size() != rows_.size())
        Refuse(At(rows_[i].line),
               fmt::format("{} columns for {} devices", rows_[i].cells.size(), rows_.size()),
               "was a line lost, or wrapped?");
      if (rows_[i].cells[i] != "X")
        Refuse(At(rows_[i].line),
               fmt::format("{} to itself is '{}'", rows_[i].name, rows_[i].cells[i]),
               "X is expected");
      for (std::size_t j = 0; j < i; ++j) {
        if (rows_[i].cells[j] != rows_[j].cells[i])
          Refuse(At(rows_[i].line),
                 fmt::format("{} to {} is {}, but line {} says {}", rows_[i].name, rows_[j].name,
                             rows_[i].cells[j], rows_[j].line, rows_[j].cells[i]),
                 "was the file changed by hand?");
      }
    }
  }

  // Devices whose path is one of these are on one socket or switch.
  bool Near(std::size_t a, std::size_t b, bool same_switch) const {
    const std::string& cell = rows_[a].cells[b];
    if (cell == "X" || cell == "PIX" || cell == "PXB") return true;
    return !same_switch && (cell == "PHB" || cell == "NODE");
  }

  // Near is not all: GPUs with NVLinks show no way over PCIe between them, and the NIC that is near both joins them.
  std::vector<int> Clusters(bool same_switch) const {
    std::vector<int> of(rows_.size());
    std::iota(of.begin(), of.end(), 0);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (Near(i, j, same_switch)) Join(of[j], of[i], &of);
      }
    }
    return of;
  }

  static void Join(int kept, int old, std::vector<int>* of) {
    if (kept != old) std::ranges::replace(*of, old, kept);
  }

  void AddDevices() {
    const std::vector<int> switches = Clusters(true);
    std::vector<int> hosts = Clusters(false);
    JoinByNuma(&hosts);
    JoinUnlessApart(&hosts);
    PcieTree tree;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      PcieDevice device;
      device.nic = !rows_[i].name.starts_with("GPU");
      if (!device.nic) gpu_rows_.push_back(i);
      device.name = rows_[i].name;
      if (const auto known = legend_.find(device.name); known != legend_.end())
        device.name = known->second;
      device.host = std::to_string(hosts[i]);
      if (std::ranges::find(tree.hosts, device.host) == tree.hosts.end())
        tree.hosts.push_back(device.host);
      if (std::ranges::count(switches, switches[i]) > 1)
        device.group = fmt::format("{}", switches[i]);
      if (!device.nic) device.index = static_cast<int>(gpu_rows_.size()) - 1;
      device.where = At(rows_[i].line);
      tree.devices.push_back(std::move(device));
    }
    seen_->SayTree(std::move(tree), 1, At(rows_.front().line));
  }

  // GPUs without a NIC between them show NV# only: the NUMA column places them.
  void JoinByNuma(std::vector<int>* hosts) const {
    std::map<std::string, int> first;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].numa.empty()) continue;
      const auto [known, added] = first.try_emplace(rows_[i].numa, (*hosts)[i]);
      if (added) continue;
      Join(known->second, (*hosts)[i], hosts);
    }
  }

  // Nothing but a path across sockets, or two NUMA nodes, says that devices are on different hosts.
  void JoinUnlessApart(std::vector<int>* hosts) const {
    const auto apart = [&](std::size_t a, std::size_t b) {
      const std::string& cell = rows_[a].cells[b];
      return cell == "SYS" || cell == "SOC" ||
             (!rows_[a].numa.empty() && !rows_[b].numa.empty() && rows_[a].numa != rows_[b].numa);
    };
    const auto any_apart = [&](int first, int second) {
      for (std::size_t a = 0; a < rows_.size(); ++a) {
        for (std::size_t b = 0; (*hosts)[a] == first && b < rows_.size(); ++b)
          if ((*hosts)[b] == second && apart(a, b)) return true;
      }
      return false;
    };
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if ((*hosts)[i] != (*hosts)[j] && !any_apart((*hosts)[j], (*hosts)[i]))
          Join((*hosts)[j], (*hosts)[i], hosts);
      }
    }
  }

  void SayLinks() {
    ScaleUp made;
    const std::size_t gpus = gpu_rows_.size();
    std::size_t pairs = 0;
    int least = 1 << 20, most = 0;
    for (std::size_t a = 0; a < gpus; ++a) {
      for (std::size_t b = a + 1; b < gpus; ++b) {
        const std::string& cell = rows_[gpu_rows_[a]].cells[gpu_rows_[b]];
        if (!cell.starts_with("NV")) continue;
        const int count = static_cast<int>(std::min<int64_t>(*WholeOf(cell.substr(2)), 64));
        if (count == 0) continue;
        ++pairs;
        least = std::min(least, count);
        most = std::max(most, count);
        made.mesh.push_back({static_cast<int>(a), static_cast<int>(b), count});
      }
    }
    if (pairs == 0) return;
    // As many links between any two of more than two GPUs as a chip has: through switches. A direct mesh
    // would need that number for each pair.
    const std::size_t all = gpus * (gpus - 1) / 2;
    if (pairs == all && gpus > 2 && most >= 6) {
      made.kind = IntraLink::kNvSwitch;
      made.links_per_gpu = most;
      made.mesh.clear();
      if (least < most)
        seen_->notes.push_back(fmt::format("some pairs of GPUs have {} NVLinks, others {} ({})",
                                           least, most, PlaceText(At(rows_.front().line))));
    } else {
      made.kind = IntraLink::kCubeMesh;
    }
    seen_->SayScaleUp(std::move(made), At(rows_.front().line));
  }

  SourcePtr source_;
  Observed* seen_;
  std::vector<std::string> devices_;  // of the header; empty: none was seen
  std::vector<Row> rows_;
  std::vector<std::size_t> gpu_rows_;
  std::map<std::string, std::string> legend_;
};

}  // namespace

void ReadTopoMatrix(const SourcePtr& source, Observed* seen) { Matrix(source, seen).Read(); }

}  // namespace orrery::discover
