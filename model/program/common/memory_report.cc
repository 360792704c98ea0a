// SPDX-License-Identifier: Apache-2.0
// Memory as tables and bars.
#include "model/program/common/memory_report.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/report/memory_parts.h"

namespace orrery::report {
namespace {

constexpr int kBarWidth = 40;
constexpr std::size_t kLargestShown = 5;
constexpr std::size_t kMostStages = 8;
constexpr double kLeastShown = 5e-4;  // of the capacity

using Parts = std::array<Bytes, std::size(kMemoryParts)>;
// In the order of kMemoryParts.
Parts PartsOf(const MemoryReport& memory) {
  const auto& need = memory.peak().need;
  return {need.gaps,      need.loss_copies,    need.mask,    need.gradient_copies,
          need.buckets,   need.scores,         need.dummies, memory.workspaces,
          memory.context, memory.fragmentation};
}

std::string ClassTable(const MemoryReport& memory) {
  const StageMemory& peak = memory.peak();
  Table table({{""}, {"", true}, {"", true}, {""}});
  const auto row = [&](const std::string& what, Bytes bytes) {
    const double share = bytes / memory.capacity;
    if (share < kLeastShown) return;
    table.Row({what, Format(bytes), Percent(share), Bar(share, kBarWidth)});
  };
  for (int c = 0; c < kMemoryClasses; ++c) {
    row(MemoryClassName(static_cast<MemoryClass>(c)), peak.by_class[static_cast<std::size_t>(c)]);
  }
  const Parts parts = PartsOf(memory);
  for (std::size_t i = 0; i < parts.size(); ++i) row(kMemoryParts[i].words, parts[i]);
  row("total", memory.total);
  return table.Text(2, false);
}

std::string Largest(const StageMemory& stage) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kLargestShown, stage.largest.size()); ++i) {
    const LiveTensor& tensor = stage.largest[i];
    text += i == 0 ? "" : ", ";
    text +=
        fmt::format("{} {} ({}", tensor.name, Format(tensor.bytes), MemoryClassName(tensor.cls));
    text += tensor.copies > 1 ? fmt::format(" of {} micro-batches)", tensor.copies) : ")";
  }
  return text;
}

std::string StageTable(const MemoryReport& memory) {
  std::vector<Column> columns = {
      {"stage", true}, {"allocated", true}, {"live at the peak", true}, {"peak at"}};
  if (memory.mixed) columns.insert(columns.begin() + 1, {"total of its GPU", true});
  Table table(std::move(columns));
  const std::vector<std::size_t> shown =
      ShownRows(memory.stages.size(), kMostStages, static_cast<std::size_t>(memory.fullest));
  for (const std::size_t s : shown) {
    const StageMemory& stage = memory.stages[s];
    std::vector<std::string> cells = {std::to_string(s), Format(stage.allocated()),
                                      Format(stage.need.live), stage.moment.words};
    if (memory.mixed)
      cells.insert(cells.begin() + 1,
                   fmt::format("{} of {} ({:.0f} %)", Format(stage.total), Format(stage.capacity),
                               100 * (stage.total / stage.capacity)));
    table.Row(std::move(cells));
  }
  std::string text = table.Text();
  if (shown.size() < memory.stages.size()) {
    text +=
        fmt::format("  {} of {} stages; --json lists all\n", shown.size(), memory.stages.size());
  }
  return text;
}

}  // namespace

std::string MemoryOfCapacity(const MemoryReport& memory) {
  return fmt::format("{} of {} ({:.0f} %)", Format(memory.total), Format(memory.capacity),
                     100 * (memory.total / memory.capacity));
}

std::string FitWords(const MemoryReport& memory) {
  if (!memory.fits) return "does not fit";
  return memory.nearly_full ? fmt::format("fits, but {}", kNearlyFull) : "fits";
}

std::string FitBasis(const MemoryReport& memory, const std::string& framework, double nearly_full) {
  std::string text =
      fmt::format("Sum of {} (exact) and the overhead of {} (from its profile).",
                  memory.peak().need.gaps.value > 0 ? "the plan's tensors in their static layout"
                                                    : "the plan's tensors live at the peak",
                  framework);
  if (memory.nearly_full) {
    text += fmt::format(
        " Above {:.0f} % of the capacity, frameworks retry allocations, slow down or fail: neither "
        "\"fits\" nor the time is reliable here.",
        100 * nearly_full);
  }
  return text;
}

std::string MemoryText(const MemoryReport& memory) {
  std::string text = ClassTable(memory);
  text += fmt::format("  {:<16}{}\n", "peak at", Fold(memory.peak().moment.words, 18));
  text += fmt::format("  {:<16}{}\n", "largest tensors", Fold(Largest(memory.peak()), 18));
  if (!memory.not_modelled.empty())
    text += fmt::format("  {:<16}{}\n", "not modelled", Fold(memory.not_modelled, 18));
  if (memory.host_node.value > 0) {
    text += fmt::format(
        "  {:<16}{} on the host of each node{}\n", "offloaded", Format(memory.host_node),
        memory.host_capacity.value > 0 ? fmt::format(", which has {}", Format(memory.host_capacity))
                                       : ", whose memory the topology does not state");
  }
  if (memory.stages.size() > 1) text += "\n" + StageTable(memory);
  return text;
}

nlohmann::ordered_json MemoryJson(const MemoryReport& memory) {
  nlohmann::ordered_json json = {
      {"fits", memory.fits},
      {"nearly_full", memory.nearly_full},
      {"total_bytes", memory.total.value},
      {"capacity_bytes", memory.capacity.value},
      {"allocated_bytes", memory.peak().allocated().value},
      {"arena_bytes", memory.arena.value},
      {"live_peak_bytes", memory.live.value},
  };
  const Parts parts = PartsOf(memory);
  for (std::size_t i = 0; i < parts.size(); ++i) json[kMemoryParts[i].key] = parts[i].value;
  json["fullest_stage"] = memory.fullest;
  json["verdict"] = memory.summary;
  if (!memory.not_modelled.empty()) json["not_modelled"] = memory.not_modelled;
  if (memory.host_node.value > 0) {
    json["host_node_bytes"] = memory.host_node.value;
    json["host_capacity_bytes"] = memory.host_capacity.value > 0
                                      ? nlohmann::ordered_json(memory.host_capacity.value)
                                      : nlohmann::ordered_json();
  }
  json["stages"] = nlohmann::ordered_json::array();
  for (const StageMemory& stage : memory.stages) {
    nlohmann::ordered_json classes, tensors = nlohmann::ordered_json::array();
    for (int c = 0; c < kMemoryClasses; ++c) {
      std::string key = MemoryClassName(static_cast<MemoryClass>(c));
      for (char& letter : key) letter = letter == ' ' ? '_' : letter;
      classes[key + "_bytes"] = stage.by_class[static_cast<std::size_t>(c)].value;
    }
    for (const LiveTensor& tensor : stage.largest) {
      tensors.push_back(
          {{"name", tensor.name}, {"bytes", tensor.bytes.value}, {"micro_batches", tensor.copies}});
    }
    json["stages"].push_back({{"stage", stage.stage},
                              {"allocated_bytes", stage.allocated().value},
                              {"arena_bytes", stage.arena.value},
                              {"live_peak_bytes", stage.need.live.value},
                              {"live_at_peak", classes},
                              {"peak_moment", stage.moment.words},
                              {"peak_block", stage.moment.block},
                              {"peak_op", stage.moment.op},
                              {"largest", tensors}});
    if (memory.mixed) {
      json["stages"].back()["total_bytes"] = stage.total.value;
      json["stages"].back()["capacity_bytes"] = stage.capacity.value;
    }
  }
  return json;
}

}  // namespace orrery::report
