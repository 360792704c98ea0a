// SPDX-License-Identifier: Apache-2.0
// Tells the kinds of files apart and loads them.
#include "calib/program/calibrate/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "calib/import/device_names.h"
#include "calib/validate/validate.h"
#include "model/base/diagnostics.h"
#include "model/base/text.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/hardware/cluster_file.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr double kTimer = 1.05;          // of the peak: what a timer and a boosted clock explain
constexpr std::size_t kMostGarbled = 3;  // lines named per log

const char* NameOf(Fate fate) {
  switch (fate) {
    case Fate::kUsed:
      return "used";
    case Fate::kNotUsed:
      return "not used";
    case Fate::kMismatched:
      return "mismatched";
  }
  return "";
}

bool IsSheet(const std::string& file) { return file.ends_with(".yaml") || file.ends_with(".yml"); }

FileCheck CheckOf(const LoggedRun& run) {
  FileCheck check{run.log, Fate::kUsed, "", {run.row.name}};
  check.why = MismatchOf(run.facts, run.read, run.row);
  if (!check.why.empty()) {
    check.fate = Fate::kMismatched;
  } else if (run.row.refused) {
    check.fate = Fate::kNotUsed;
    check.why = *run.row.refused;
  } else {
    check.why = fmt::format("{} per {} ({}){}", Format(Seconds(run.row.measured_step_s)),
                            run.row.window == Window::kStep ? "step" : "micro-step", run.how,
                            run.predict ? "; predicted, not fitted" : "");
    if (run.facts.devices.empty()) check.why += "; the log does not name its GPU";
  }
  return check;
}

// The log of a run that is there already, also under another name; "": it is the first. One log may hold several runs, by
// its steps or windows.
std::string TwinOf(const LoggedRun& run, const std::vector<LoggedRun>& others) {
  const auto twin = std::ranges::find_if(others, [&](const LoggedRun& other) {
    return other.steps == run.steps && other.row.window == run.row.window &&
           other.row.topology == run.row.topology && other.row.framework == run.row.framework &&
           other.read.source && run.read.source && other.read.source->text == run.read.source->text;
  });
  return twin == others.end() ? "" : twin->log;
}

void TakeRun(LoggedRun run, FitInputs* inputs) {
  inputs->checks.push_back(CheckOf(run));
  if (const std::string twin = TwinOf(run, inputs->runs);
      !twin.empty() && inputs->checks.back().fate == Fate::kUsed) {
    inputs->checks.back().fate = Fate::kNotUsed;
    inputs->checks.back().why = fmt::format("the same run as {}", twin);
    inputs->checks.back().rows.clear();
  }
  if (inputs->checks.back().fate != Fate::kUsed) return;
  (run.predict ? inputs->predicted : inputs->rows).push_back(run.row);
  inputs->runs.push_back(std::move(run));
}

void TakeSheet(const std::string& path, FitInputs* inputs) {
  for (LoggedRun& run : ReadRunSheet(path)) TakeRun(std::move(run), inputs);
}

// A log alone: its arguments describe the run.
void TakeLog(const std::string& file, const RunPlace& place, FitInputs* inputs) {
  LoggedRun run;
  run.log = file;
  const SourcePtr source = measured::ReadLogSource(file);
  run.facts = measured::ReadLogFacts(*source);
  if (!run.facts.has_dump && KindOfClusterFile(*source) != ClusterFile::kNcclLog)
    RefuseMachineFile(source, "a log of training");
  else if (!run.facts.has_dump)  // of a training, perhaps, that prints NCCL's lines, too
    (void)measured::FormatOf(source);
  if (!run.facts.has_dump)
    throw InputError(
        fmt::format("the model and layout of {} are unknown", file),
        fmt::format("describe the run in {0}.yaml: runs: [{{job: {{model: gpt2-small, "
                    "topology: {1}, nodes: 2, framework: deepspeed, global_batch: 64, "
                    "seq_len: 1024}}, layout: {{zero: 2, micro_batch: 4}}}}] "
                    "(calib/calibration.md)",
                    file, place.topology.empty() ? "./my-cluster.yaml" : place.topology));
  if (place.topology.empty())
    throw InputError(fmt::format("where did {} run?", file),
                     "--topology NAME, or --framework FRAMEWORK@TOPOLOGY");
  run.row = RowOfArguments(run.facts, place, file);
  ReadLog(&run);
  TakeRun(std::move(run), inputs);
}

// Of a product or an attention: its rate over the chip's highest in its type; 0: not known.
double AbovePeak(const measured::KernelSample& kernel, const GpuProfile& gpu) {
  const auto* precision = std::ranges::find(kPrecisionNames, kernel.dtype,
                                            [](const auto& one) { return std::string(one.first); });
  const bool counted =
      kernel.kind == measured::KernelKind::kGemm || kernel.kind == measured::KernelKind::kGrouped;
  if (!counted || precision == std::end(kPrecisionNames) || kernel.seconds <= 0) return 0;
  const double peak = gpu.Peak(precision->second).value;
  const double flops = 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) *
                       static_cast<double>(kernel.k) * static_cast<double>(kernel.batch);
  return peak > 0 ? flops / kernel.seconds / peak : 0;
}

// By the header alone.
bool HoldsKernels(const std::string& file) {
  const std::string text = ReadSource(file)->text;
  return measured::IsKernelHeader(std::string_view(text).substr(0, text.find('\n')));
}

}  // namespace

void DropRepeated(const FitInputs& earlier, FitInputs* fresh) {
  for (auto run = fresh->runs.begin(); run != fresh->runs.end();) {
    const std::string twin = TwinOf(*run, earlier.runs);
    if (twin.empty()) {
      ++run;
      continue;
    }
    const std::string name = run->row.name;
    for (FileCheck& check : fresh->checks) {
      if (check.file != run->log || std::ranges::find(check.rows, name) == check.rows.end())
        continue;
      check = {check.file, Fate::kNotUsed, fmt::format("the same run as {}", twin), {}};
    }
    std::erase_if(run->predict ? fresh->predicted : fresh->rows,
                  [&](const CaseRow& row) { return row.name == name; });
    run = fresh->runs.erase(run);
  }
  RefuseUnused(fresh->checks);
}

FitInputs LoadInputs(const std::vector<std::string>& files, const RunPlace& place) {
  FitInputs inputs;
  for (const std::string& file : files) {
    if (IsSheet(file)) {
      TakeSheet(file, &inputs);
    } else if (fs::exists(file + ".yaml")) {
      TakeSheet(file + ".yaml", &inputs);
    } else if (file.ends_with(".csv") && HoldsKernels(file)) {
      auto kernels = measured::ReadKernelCsv(ReadSource(file));
      inputs.checks.push_back(
          {file, Fate::kUsed, fmt::format("{} timed kernels", kernels.size()), {}});
      std::move(kernels.begin(), kernels.end(), std::back_inserter(inputs.kernels));
    } else if (file.ends_with(".csv")) {
      std::vector<CaseRow> rows = LoadCases(file);
      inputs.checks.push_back({file, Fate::kUsed, "", {}});
      for (const CaseRow& row : rows) inputs.checks.back().rows.push_back(row.name);
      std::move(rows.begin(), rows.end(), std::back_inserter(inputs.rows));
    } else {
      try {
        TakeLog(file, place, &inputs);
      } catch (const InputError& error) {
        if (files.size() == 1) throw;
        inputs.checks.push_back({file, Fate::kNotUsed, ReasonOf(error), {}});
      }
    }
  }
  RefuseUnused(inputs.checks);
  return inputs;
}

std::string SiteOf(const FitInputs& inputs, const std::string& topology,
                   const std::string& framework) {
  const auto name_of = [](const std::string& reference) { return SplitReference(reference).name; };
  if (inputs.rows.empty()) return "";
  const CaseRow& first = inputs.rows.front();
  const auto fitted = std::ranges::count(inputs.runs, false, &LoggedRun::predict);
  const bool logged = static_cast<std::size_t>(fitted) == inputs.rows.size();
  const bool alike = std::ranges::all_of(inputs.rows, [&](const CaseRow& row) {
    return row.topology == first.topology && name_of(row.framework) == name_of(first.framework);
  });
  if (topology.empty() && (!logged || !alike)) return "";
  const TopologySpec spec = LoadTopology(topology.empty() ? first.topology : topology);
  return fmt::format("{}@{}", name_of(framework.empty() ? first.framework : framework), spec.name);
}

std::set<std::string> SitesOf(const FitInputs& inputs) {
  std::set<std::string> sites;
  for (const LoggedRun& run : inputs.runs) {
    if (!run.predict)
      sites.insert(fmt::format("{}@{}", SplitReference(run.row.framework).name,
                               LoadTopology(run.row.topology).name));
  }
  return sites;
}

std::string ReasonOf(const InputError& error) {
  const Diagnostic& first = error.diagnostics().front();
  return first.hint.empty() ? first.message : first.message + ": " + first.hint;
}

void RefuseUnused(const std::vector<FileCheck>& checks) {
  const bool used =
      std::ranges::any_of(checks, [](const FileCheck& one) { return one.fate == Fate::kUsed; });
  if (used) return;
  std::vector<Diagnostic> reasons;
  for (const FileCheck& one : checks)
    reasons.push_back({{}, fmt::format("{}: {}: {}", one.file, NameOf(one.fate), one.why), ""});
  reasons.back().hint = "none of the files can be used; calib/calibration.md says what to bring";
  throw InputError(std::move(reasons));
}

void CheckKernels(const std::string& gpu, FitInputs* inputs) {
  if (gpu.empty() || inputs->kernels.empty()) return;
  const GpuProfile profile = LoadGpuProfile(gpu);
  for (FileCheck& check : inputs->checks) {
    std::string other;
    bool named = false;
    const auto is_file = [&](const measured::KernelSample& kernel) {
      return kernel.where.source && kernel.where.source->name == check.file;
    };
    const auto all = std::ranges::count_if(inputs->kernels, is_file);
    if (all == 0) continue;
    std::erase_if(inputs->kernels, [&](const measured::KernelSample& kernel) {
      if (!is_file(kernel) || kernel.device.empty()) return false;
      named = true;
      const std::string why = measured::OtherDevice({kernel.device}, profile);
      if (!why.empty()) other = fmt::format("{}, not on {}", why, gpu);
      return !why.empty();
    });
    if (!named) {  // its rates may tell all the same
      const auto fast = std::ranges::find_if(inputs->kernels, [&](const auto& kernel) {
        return is_file(kernel) && AbovePeak(kernel, profile) > kTimer;
      });
      if (fast != inputs->kernels.end()) {
        other = fmt::format("line {} takes {:.2f} of the time that {} needs at its peak",
                            fast->where.line, 1 / AbovePeak(*fast, profile), gpu);
        std::erase_if(inputs->kernels, is_file);
      }
    }
    const auto left = std::ranges::count_if(inputs->kernels, is_file);
    if (left == 0) check.fate = Fate::kMismatched;
    if (left < all) check.why = fmt::format("{} of {} timed kernels: {}", all - left, all, other);
    if (!named && left > 0) check.why += "; the file does not name its GPU";
  }
  RefuseUnused(inputs->checks);
}

void TakeReasons(const std::map<std::string, std::string>& reasons, FitInputs* inputs) {
  for (FileCheck& check : inputs->checks) {
    if (check.fate != Fate::kUsed || check.rows.empty()) continue;
    const auto left_out = std::ranges::count_if(
        check.rows, [&](const std::string& name) { return reasons.contains(name); });
    const auto all = static_cast<std::ptrdiff_t>(check.rows.size());
    if (left_out == all) {
      check.fate = Fate::kNotUsed;
      check.why = reasons.at(check.rows.front());
    } else if (all > 1) {
      check.why = fmt::format("{} of {} rows", all - left_out, all);
    }
  }
}

std::vector<std::string> FilesOf(const std::vector<std::string>& files,
                                 const std::vector<FileCheck>& checks) {
  std::vector<std::string> used = files;
  std::erase_if(used, [&](const std::string& file) {
    return std::ranges::any_of(
        checks, [&](const FileCheck& one) { return one.file == file && one.fate != Fate::kUsed; });
  });
  return used;
}

std::string RenderChecks(const std::vector<FileCheck>& checks) {
  std::size_t width = 4;
  for (const FileCheck& one : checks) width = std::max(width, one.file.size());
  std::string text = fmt::format("{:<{}}  {:<10}\n", "file", width, "result");
  for (const FileCheck& one : checks)
    text += fmt::format("{:<{}}  {:<10}  {}\n", one.file, width, NameOf(one.fate), one.why);
  return text;
}

std::string RenderLogs(const std::vector<LoggedRun>& runs) {
  std::string text;
  for (const LoggedRun& run : runs) {
    if (run.change) {
      text += fmt::format(
          "{}: its log changes: {} up to step {}, {} from there on; `steps` of its sheet "
          "says which of them count\n",
          run.row.name, Format(Seconds(run.change->before)), run.change->step - 1,
          Format(Seconds(run.change->after)));
    }
    if (run.read.garbled_lines == 0) continue;
    text += fmt::format("{}: {} garbled line{}\n", run.row.name, run.read.garbled_lines,
                        run.read.garbled_lines == 1 ? "" : "s");
    for (std::size_t i = 0; i < std::min(kMostGarbled, run.read.garbled.size()); ++i)
      text += fmt::format("  {}:{}: {}\n", run.log, run.read.garbled[i].where.line,
                          run.read.garbled[i].message);
  }
  return text;
}

}  // namespace orrery
