// SPDX-License-Identifier: Apache-2.0
// Edits YAML text line by line, so that comments and order stay.
#include "calib/fit/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/arch/data_root.h"
#include "model/base/diagnostics.h"
#include "model/base/write_file.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
constexpr double kSameValue = 1e-4;

std::string LineText(const ConstantLine& line) {
  std::string text = fmt::format("  {}: {{value: {}", line.key, line.value);
  if (!line.unit.empty()) text += fmt::format(", unit: \"{}\"", line.unit);
  if (line.spread) text += fmt::format(", spread: {:.2g}", *line.spread);
  if (line.points > 0) text += fmt::format(", points: {}", line.points);
  return text + fmt::format(", source: \"{}\"}}", line.source);
}

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string Joined(const std::vector<std::string>& groups) {
  std::string text;
  for (const std::string& group : groups) text += (text.empty() ? "" : ", ") + group;
  return text;
}

std::string PathIn(const std::string& folder, ProfileLayer layer, const std::string& id) {
  return (fs::path(folder) / FolderOf(layer) / (id + ".yaml")).string();
}

std::string UnitOf(const ConstantName& name, const ProfileStore& store) {
  const Provenance* known = store.Find(name);
  return known == nullptr ? "" : known->unit;
}

}  // namespace

void WriteText(const std::string& path, const std::string& text) {
  std::error_code error;
  if (const fs::path parent = fs::path(path).parent_path(); !parent.empty())
    fs::create_directories(parent, error);
  if (const std::string why = RewriteTextFile(path, text); !why.empty())
    throw InputError(fmt::format("cannot write {}: {}", path, why));
}

std::string RewriteProfile(const std::string& name, const std::string& text,
                           const std::vector<ConstantLine>& lines) {
  std::vector<std::string> out = SplitLines(text);
  const auto head = std::find_if(out.begin(), out.end(), [](const std::string& line) {
    return line.starts_with("constants:");
  });
  if (head == out.end())
    throw InputError(fmt::format("{} has no line 'constants:' to write below", name));
  *head = "constants:";
  const std::ptrdiff_t first = head - out.begin() + 1;  // other sections may have the same keys
  // Behind the last constant: other keys of the profile may follow.
  const auto position = std::find_if(head + 1, out.end(), [](const std::string& line) {
    return !line.empty() && line[0] != ' ' && line[0] != '#';
  });
  auto end = static_cast<std::size_t>(position - out.begin());
  for (const ConstantLine& line : lines) {
    const std::string start = "  " + line.key + ":";
    const auto last = out.begin() + static_cast<std::ptrdiff_t>(end);
    const auto found = std::find_if(out.begin() + first, last,
                                    [&](const std::string& old) { return old.starts_with(start); });
    if (found == last) {
      out.insert(last, LineText(line));
      ++end;
    } else if (found->find('}') == std::string::npos) {
      throw InputError(fmt::format("{}: {} takes several lines", name, line.key),
                       "write each constant on one line");
    } else {
      *found = LineText(line);
    }
  }
  return fmt::format("{}\n", fmt::join(out, "\n"));
}

std::string NewProfile(const std::string& title, const std::string& parent,
                       const std::vector<ConstantLine>& lines) {
  const std::string head =
      fmt::format("# SPDX-License-Identifier: Apache-2.0\n# {}.\ntitle: \"{}\"\ninherits: {}\n",
                  title, title, parent);
  return RewriteProfile(title, head + "constants:\n", lines);
}

ProfileLines LinesOf(const FitResult& result, const std::map<std::string, Interval>& intervals,
                     const std::string& interval_source, const ProfileStore& store) {
  ProfileLines files;
  for (const FittedConstant& constant : result.constants) {
    const bool kept = constant.status == FitStatus::kKept;
    const bool weak = constant.status == FitStatus::kWeak;
    // The others rest on this value: a prior that the file did not hold goes there.
    if (kept && std::abs(constant.after / constant.parameter.before - 1.0) < kSameValue) continue;
    for (const ConstantName& name : constant.parameter.names) {
      ConstantLine line{name.key,
                        FormatConstant(constant.after, constant.parameter.kind),
                        UnitOf(name, store),
                        constant.spread,
                        kept || weak ? 0 : constant.points,
                        ""};
      const bool centre = constant.groups.empty();  // rows move it through its sites only
      line.source = kept     ? "prior of the fit, which the rows do not determine"
                    : centre ? "between its prior and the sites that are drawn around it"
                    : weak
                        ? "mostly its prior: hardly moved by " + Joined(constant.groups) + " rows"
                        : "fitted with a weak prior on " + Joined(constant.groups) + " rows";
      files[{name.layer, name.file}].push_back(std::move(line));
    }
  }
  for (const auto& [framework, interval] : intervals) {
    auto& lines = files[{ProfileLayer::kFramework, framework}];
    const std::string unit = "measured over predicted";
    const auto number = [](double value) { return FormatConstant(value, ConstantKind::kNumber); };
    lines.push_back({"residual_low", number(interval.low), unit, std::nullopt, interval.points,
                     "10 % quantile of " + interval_source});
    lines.push_back({"residual_high", number(interval.high), unit, std::nullopt, interval.points,
                     "90 % quantile of " + interval_source});
  }
  return files;
}

std::vector<std::string> WriteProfiles(const ProfileLines& lines, const std::string& folder,
                                       const ProfileStore& store) {
  const std::string home = (fs::path(DataRoot()) / "calib" / "profiles").string();
  const bool one_file = folder.ends_with(".yaml");
  if (lines.empty()) return {};
  if (one_file && lines.size() != 1)
    throw InputError(fmt::format("{} profiles change, but -o names one file", lines.size()),
                     "name a folder");
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [file, constants] : lines) {
    const auto& [layer, id] = file;
    const std::string old = PathIn(home, layer, id);
    const std::string text = fs::exists(old) ? RewriteProfile(old, ReadSource(old)->text, constants)
                                             : NewProfile(id, store.Parent(layer, id), constants);
    const std::string path = one_file ? folder : PathIn(folder.empty() ? home : folder, layer, id);
    texts.emplace_back(path, text);
  }
  std::vector<std::string> paths;
  for (const auto& [path, text] : texts) {
    WriteText(path, text);
    paths.push_back(path);
  }
  return paths;
}

std::string WriteTrust(const Trust& trust, const std::string& folder) {
  const fs::path home =
      folder.empty() ? fs::path(DataRoot()) / "calib" / "profiles" : fs::path(folder);
  const std::string path = (home / "trust.json").string();
  WriteText(path, TrustText(trust));
  return path;
}

std::string WriteLeftOut(const LeftOutRows& rows, const std::string& folder) {
  const std::string path =
      folder.empty() ? LeftOutPath() : (fs::path(folder) / "left_out.csv").string();
  WriteText(path, LeftOutText(rows));
  return path;
}

}  // namespace orrery
