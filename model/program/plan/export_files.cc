// SPDX-License-Identifier: Apache-2.0
// From a layout of the search to the files of an export.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "model/base/text.h"
#include "model/exchange/import_steps.h"
#include "model/exchange/mapping.h"
#include "model/exchange/output_folder.h"
#include "model/hardware/host_order.h"
#include "model/plan/lower/names.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/export_case.h"
#include "model/program/common/memory_report.h"
#include "model/program/common/public_paths.h"
#include "model/program/common/table.h"
#include "model/program/plan/export_flags.h"
#include "model/program/plan/search_report.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNoRoom = "Does not fit";

// Letters, digits and dashes, as schedulers and Kubernetes take names.
std::string JobName(const std::string& model, const char* target) {
  std::string name;
  for (const char c : model + "-" + target) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool upper = c >= 'A' && c <= 'Z';
    const char next = letter ? c : upper ? static_cast<char>(c + 32) : '-';
    if (next != '-' || (!name.empty() && name.back() != '-')) name += next;
  }
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) name = "job-" + name;
  name.resize(std::min<std::size_t>(name.size(), 50));
  while (name.ends_with('-')) name.pop_back();
  return name;
}

// Schedules of the framework that the search left out, since the target has none like them; "": none.
std::string LeftOut(const report::Job& job) {
  const std::vector<PipelineSchedule>& taken = job.request.fixed.schedules;
  std::string names;
  for (const PipelineSchedule schedule : FindFramework(job.request.framework).schedules) {
    if (!taken.empty() && std::ranges::find(taken, schedule) == taken.end())
      names += fmt::format("{}{}", names.empty() ? "" : ", ", NameIn(kScheduleNames, schedule));
  }
  return names;
}

// Lines of a file's header that the answer repeats, by how they begin.
constexpr std::string_view kSaid[] = {"Layout: ", "Predicted for ", "Chosen ", kNoRoom};

// Two figures: a log prints what the allocator hands out, which is less than what the GPU holds.
std::string PeakWords(const MemoryReport& memory) {
  return fmt::format(
      "; peak memory {} per GPU in all, {} of it allocated (torch.cuda.max_memory_allocated)",
      Format(memory.total), Format(memory.peak().allocated() + memory.workspaces));
}

std::vector<std::string> HeaderOf(const report::Job& job, const Candidate& candidate,
                                  const exchange::Bundle& bundle, const std::string& digest) {
  const exchange::TargetInfo& target = bundle.info();
  const std::string interval =
      candidate.no_interval.empty()
          ? fmt::format("80 % of runs from {} to {}", Format(Seconds(candidate.time.low)),
                        Format(Seconds(candidate.time.high)))
          : "no interval: " + candidate.no_interval;
  std::vector<std::string> lines = {
      fmt::format("{} on {}: {} node{} x {} {}", job.model.spec.name, job.request.topology.name,
                  candidate.nodes, candidate.nodes == 1 ? "" : "s", job.cluster.gpus_per_node,
                  job.cluster.gpu),
      fmt::format("Written for {}", target.title),
      fmt::format("Layout: {}", DescribeLayout(candidate.strategy, candidate.micro_batches)),
      fmt::format("Predicted for {}: step time {}, {}; {} tokens/s{}",
                  FrameworkWords(job.request.framework), Format(Seconds(candidate.time.total)),
                  interval, report::Scaled(candidate.tokens_per_second),
                  candidate.memory ? PeakWords(*candidate.memory) : ""),
      fmt::format("Plan {}", digest),
      fmt::format("Predict again: {}", report::PredictCommand(job, candidate))};
  if (const std::string hosts = NumberingText(job.request.topology.fabric); !hosts.empty())
    lines.push_back(fmt::format("Hosts: {}; the job's hosts are taken in this order", hosts));
  if (candidate.memory && !candidate.memory->fits)
    lines.push_back(fmt::format("{}: {} per GPU, and {}; the time assumes enough memory", kNoRoom,
                                report::MemoryOfCapacity(*candidate.memory),
                                candidate.memory->summary));
  if (const std::string without = LeftOut(job); !without.empty())
    lines.push_back(
        fmt::format("Chosen without schedule {}: {} has none like it", without, target.name));
  return lines;
}

void SayUnpinned(const exchange::Launcher& launcher, exchange::Bundle* bundle) {
  if (!launcher.picks_machines || exchange::HostsCheck(*bundle, "").empty()) return;
  auto& fields = bundle->settings.fields;
  const auto field = std::ranges::find(fields, "placement", &exchange::FieldReport::field);
  if (field == fields.end()) return;
  field->status = exchange::Status::kNotExpressed;
  field->how = fmt::format("{} picks the machines, and nothing pins or checks the plan's hosts",
                           launcher.name);
}

Json FieldsJson(const exchange::Bundle& bundle) {
  Json fields = Json::array();
  for (const exchange::FieldReport& field : bundle.settings.fields)
    fields.push_back({{"field", field.field},
                      {"value", field.value},
                      {"status", exchange::NameOf(field.status)},
                      {"how", field.how}});
  return fields;
}

}  // namespace

const exchange::TargetInfo* ExportFlags::Target() const {
  Diagnostics diagnostics;
  const auto index = ReadName(target, TargetNames(), &diagnostics);
  ReadName(launcher, LauncherNames(), &diagnostics);
  diagnostics.ThrowIfAny();
  return index ? &exchange::Targets()[*index] : nullptr;
}

const exchange::Launcher& ExportFlags::TheLauncher() const {
  Diagnostics diagnostics;
  return exchange::Launchers()[ReadName(launcher, LauncherNames(), &diagnostics).value_or(0)];
}

void ExportFlags::SetFramework(JobFlags* job) const {
  const exchange::TargetInfo* info = Target();
  if (info == nullptr || job->framework.given) return;
  job->framework.given = true;
  job->framework.text = info->framework;
  job->framework.where = target.where;
}

// --from takes files of some layouts for another framework than the target's: that is the one that runs.
void ExportFlags::TakeFramework(JobFlags* job, const LayoutFlags& layout) const {
  const auto family = [](std::string_view name) { return name.substr(0, name.find('@')); };
  const exchange::TargetInfo& info = *Target();
  LayoutFlags flags = layout;
  const std::vector<Flag*> axes = flags.All();
  exchange::Values values;
  for (const exchange::Field& field : exchange::LayoutFields()) {
    const auto axis = std::ranges::find(axes, std::string(field.flag), &Flag::name);
    if (axis != axes.end() && (*axis)->given) values[field.name] = {(*axis)->text, {}, ""};
  }
  const std::string read = exchange::FrameworkAlone(info.target, values);
  if (family(read) != family(info.framework) && job->framework.text != read) {
    job->framework.text = read;
    job->notes.push_back(
        fmt::format("predicted as {}, which such files of {} are", read, info.name));
  }
  TakeRelease(job, layout);
}

std::vector<PipelineSchedule> ExportFlags::Schedules(const JobFlags& job) const {
  const exchange::TargetInfo* info = Target();
  if (info == nullptr || !job.framework.given) return {};
  const std::vector<PipelineSchedule> known = exchange::SchedulesOf(info->target);
  std::vector<PipelineSchedule> both;
  const auto& own = FindFramework(job.framework.text).schedules;
  std::ranges::copy_if(own, std::back_inserter(both), [&](PipelineSchedule schedule) {
    return std::ranges::find(known, schedule) != known.end();
  });
  return both.size() == own.size() ? std::vector<PipelineSchedule>() : both;
}

ExportResult MakeExport(const ExportFlags& flags, const report::Job& job,
                        const Candidate& candidate, const std::string& chosen) {
  const exchange::TargetInfo& target = *flags.Target();
  const exchange::Launcher& launcher = flags.TheLauncher();
  const std::string digest = candidate.plan ? ir::Digest(*candidate.plan) : candidate.digest;
  ExportResult result;
  result.launcher = launcher.name;
  result.bundle = exchange::MakeBundle(
      CaseOf(job, candidate.strategy, candidate.nodes, candidate.global_batch), target.target);
  exchange::Bundle& bundle = result.bundle;
  if (const std::string why = bundle.Refusal(); !why.empty()) {
    throw InputError(
        {{flags.target.where, fmt::format("{} cannot run {}", target.name, why),
          fmt::format("fix that axis to 1, or plan for it: --framework {}", target.framework)}});
  }
  SayUnpinned(launcher, &bundle);
  bundle.name = JobName(job.model.spec.name, target.name);
  bundle.digest = digest;
  bundle.header = HeaderOf(job, candidate, bundle, digest);
  if (!chosen.empty()) bundle.header.push_back(chosen);
  for (std::string& line : bundle.header) line = WithPublicPaths(std::move(line));
  if (flags.image.given) bundle.image = exchange::OneLine(flags.image.text);
  result.files = launcher.files(bundle, exchange::TargetFiles(bundle));
  Candidate with_digest = candidate;
  with_digest.digest = digest;
  Json json = {{"schema", "orrery.export/1"},
               {"target", target.name},
               {"written_for", target.title},
               {"launcher", launcher.name}};
  json.update(report::JobJson(job));
  json["digest"] = digest;
  json["prediction"] = report::CandidateJson(with_digest);
  json["fields"] = FieldsJson(bundle);
  json["not_expressed"] = bundle.Missing();
  json["files"] = Json::array();
  for (const exchange::File& file : result.files) json["files"].push_back(file.name);
  result.json_text =
      WithPublicPaths(std::move(json)).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  result.files.push_back({"plan.json", result.json_text, false});
  return result;
}

Json ExportResult::Json() const { return nlohmann::ordered_json::parse(json_text); }

std::string WriteExport(const ExportFlags& flags, const ExportResult& result,
                        const std::string& folder) {
  std::string text;
  if (folder.empty()) {  // plan.json is what --json prints
    for (const exchange::File& file : std::span(result.files).first(result.files.size() - 1))
      text += fmt::format("{}==> {} <==\n{}", text.empty() ? "" : "\n", file.name, file.text);
    return text;
  }
  AtFlag(flags.out, [&] { exchange::WriteFiles(folder, result.files, flags.force.given); });
  text = fmt::format("Export for {} with {}\n", result.bundle.info().title, result.launcher);
  for (const std::string& line : result.bundle.header) {
    if (std::ranges::any_of(kSaid, [&](std::string_view begin) { return line.starts_with(begin); }))
      text += fmt::format("  {}\n", report::Fold(line, 2));
  }
  for (const exchange::File& file : result.files)
    text += fmt::format("  {}/{}\n", folder, file.name);
  const std::vector<std::string> missing = result.bundle.Missing();
  if (missing.empty()) return text + "  Every field of the layout is expressed.\n";
  text += "  Not expressed: here the job differs from the prediction\n";
  for (const std::string& line : missing) text += fmt::format("  - {}\n", report::Fold(line, 4));
  return text;
}

}  // namespace orrery::cli
