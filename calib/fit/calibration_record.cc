// SPDX-License-Identifier: Apache-2.0
// The `calibration` block of a profile.
#include "calib/fit/calibration_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <utility>

#include "calib/validate/left_out.h"
#include "model/base/node.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

void Join(const std::string& more, std::string* all) {
  if (more.empty() || all->find(more) != std::string::npos) return;
  *all += (all->empty() ? "" : ", ") + more;
}

// Quotes and what YAML reads in them would end the string.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= ' ') out += c;
  }
  return out + "\"";
}

bool IsPath(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml");
}

std::string FromProfile(const std::string& path, const std::string& profile) {
  const fs::path folder = fs::absolute(profile).parent_path();
  return fs::absolute(path)
      .lexically_normal()
      .lexically_relative(folder.lexically_normal())
      .string();
}

std::string FromHere(const std::string& path, const std::string& profile) {
  const fs::path given(path);
  return given.is_absolute()
             ? path
             : (fs::path(profile).parent_path() / given).lexically_normal().string();
}

std::string BlockText(const CalibrationRecord& record, const std::string& profile) {
  std::string text = "calibration:\n";
  const std::string topology =
      IsPath(record.topology) ? "./" + FromProfile(record.topology, profile) : record.topology;
  const std::pair<const char*, const std::string*> rows[] = {
      {"site", &record.site},      {"topology", &topology},    {"date", &record.date},
      {"device", &record.device},  {"driver", &record.driver}, {"nccl", &record.nccl},
      {"release", &record.release}};
  for (const auto& [key, value] : rows) {
    if (!value->empty()) text += fmt::format("  {}: {}\n", key, Quoted(*value));
  }
  std::string logs;
  for (const std::string& log : record.logs)
    logs += (logs.empty() ? "" : ", ") + Quoted(FromProfile(log, profile));
  text += fmt::format("  logs: [{}]\n", logs);
  if (record.runs.empty()) return text;
  std::string runs;
  for (const std::string& run : record.runs) runs += (runs.empty() ? "" : ",\n    ") + Quoted(run);
  return text + fmt::format("  runs: [{}]\n", runs);
}

}  // namespace

void CalibrationRecord::Add(const measured::LogFacts& facts) {
  date = std::max(date, facts.date);  // ISO dates: the newest
  Join(facts.devices.empty() ? "" : facts.devices.front(), &device);
  Join(facts.driver, &driver);
  Join(facts.nccl, &nccl);
  Join(facts.framework, &release);
}

std::vector<std::string> RunLines(const Evidence& evidence, const std::vector<double>& errors) {
  LeftOutRows rows;
  for (std::size_t i = 0; i < evidence.observations().size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    if (!seen.run) continue;
    std::string name = fs::path(seen.name).filename().string();
    std::ranges::replace_if(
        name, [](char c) { return c == ',' || c == '"'; }, ' ');
    rows[{kStepTimeRow, name}] = {std::exp(errors[i]), std::nullopt,  std::nullopt,
                                  std::nullopt,        seen.measured, seen.run};
  }
  std::vector<std::string> lines;
  std::istringstream in(rows.empty() ? "" : LeftOutText(rows));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

CalibrationRecord ReadCalibrationRecord(const std::string& profile) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(ReadSource(profile), &diagnostics);
  diagnostics.ThrowIfAny();
  if (!root.Has("calibration"))
    throw InputError(fmt::format("{} names no logs that it was calibrated on", profile),
                     "plan calibrate LOG... -o FILE.yaml writes a profile that can be updated");
  const Node block = root.Child("calibration");
  CalibrationRecord record;
  record.site = block.String("site");
  record.topology = block.String("topology");
  if (IsPath(record.topology)) record.topology = FromHere(record.topology, profile);
  record.date = block.String("date", "");
  record.device = block.String("device", "");
  record.driver = block.String("driver", "");
  record.nccl = block.String("nccl", "");
  record.release = block.String("release", "");
  for (const Node& log : block.Items("logs"))
    record.logs.push_back(FromHere(log.AsString(), profile));
  if (block.Has("runs")) {
    for (const Node& run : block.Items("runs")) record.runs.push_back(run.AsString());
  }
  block.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  return record;
}

std::string WithRecord(const std::string& text, const CalibrationRecord& record,
                       const std::string& profile) {
  std::string out;
  bool old = false;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const bool top = !line.empty() && line[0] != ' ' && line[0] != '#';
    if (top) old = line.starts_with("calibration:");
    if (top && line.starts_with("constants:")) out += BlockText(record, profile);
    if (!old) out += line + "\n";
  }
  return out;
}

}  // namespace orrery
