// SPDX-License-Identifier: Apache-2.0
// Reads sheets of logged runs; jobs and layouts go the way of the flags.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "calib/program/calibrate/inputs.h"
#include "model/base/node.h"
#include "model/program/common/flags.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/names.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

struct SheetFlags {
  cli::JobFlags job;
  cli::LayoutFlags layout;
  cli::FlagSet set{"calibrate", "", {}};
  SheetFlags() {
    job.Declare(&set, false);
    layout.Declare(&set, "Layout");
  }
  // Those of a job that a measured run can differ in.
  std::vector<cli::Flag*> Job() {
    return {&job.model,        &job.topology,     &job.nodes,       &job.gpus_per_node,
            &job.global_batch, &job.seq_len,      &job.precision,   &job.optimizer,
            &job.framework,    &job.fact,         &job.attention,   &job.dropout,
            &job.fp8,          &job.fp8_skip,     &job.fp8_weights, &job.lora_rank,
            &job.lora_alpha,   &job.lora_targets, &job.lora_base};
  }
};

std::optional<std::pair<int64_t, int64_t>> ReadSteps(const Node& entry) {
  if (!entry.Has("steps")) return std::nullopt;
  const std::string text = entry.String("steps");
  const std::size_t dots = text.find("..");
  std::pair<int64_t, int64_t> range;
  const auto read = [](std::string_view part, int64_t* number) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *number);
    return error == std::errc() && end == part.data() + part.size() && *number >= 0;
  };
  const std::string_view view = text;
  if (dots == std::string::npos || !read(view.substr(0, dots), &range.first) ||
      !read(view.substr(dots + 2), &range.second) || range.first > range.second) {
    entry.ErrorAt("steps", fmt::format("'{}' is no range of steps", text), "write 11..100");
    return std::nullopt;
  }
  return range;
}

void FillRow(SheetFlags* flags, CaseRow* row) {
  const report::Job job = flags->job.Resolve();
  row->topology = flags->job.topology.given ? flags->job.topology.text : job.request.topology.name;
  row->framework = job.request.framework;
  row->nodes = job.cluster.nodes;
  row->gpus_per_node = job.cluster.gpus_per_node;
  row->model = job.request.model;
  row->work = job.request.work;
  row->strategy = cli::OneStrategy(flags->layout, job);
}

}  // namespace

void ReadLog(LoggedRun* run) {
  const SourcePtr source = measured::ReadLogSource(run->log);
  run->facts = measured::ReadLogFacts(*source);
  run->read = measured::ReadTrainingLog(source);
  CaseRow& row = run->row;
  LogWindow window;
  window.micro_step = row.window != Window::kStep;
  window.size.samples = static_cast<double>(window.micro_step ? row.strategy.micro_batch *
                                                                    row.strategy.data_parallel()
                                                              : row.work.global_batch);
  window.size.tokens = window.size.samples * static_cast<double>(row.work.seq_len);
  window.size.gpus = static_cast<double>(row.nodes * row.gpus_per_node);
  window.steps = run->steps;
  const LogMeasurement measurement = MeasureLog(run->read, window);
  row.measured_step_s = measurement.seconds;
  run->change = ChangeOf(run->read, window);
  run->how = fmt::format("{}: {}", measured::Name(run->read.format), measurement.how);
}

namespace {

LoggedRun ReadRun(const Node& entry, const std::string& sheet) {
  static constexpr std::pair<const char*, bool> kUses[] = {{"fit", false}, {"predict", true}};
  LoggedRun run;
  const fs::path path(sheet);
  run.row.name = entry.String("name");
  run.row.source = entry.String("source", path.stem().string());
  run.log = (path.parent_path() / entry.String("log", path.stem().string())).string();
  run.predict = entry.Choice("use", std::span<const std::pair<const char*, bool>>(kUses), false);
  run.row.window =
      entry.Choice("window", std::span<const std::pair<const char*, Window>>(report::kWindowNames),
                   Window::kStep);
  run.steps = ReadSteps(entry);
  SheetFlags flags;
  cli::FillFlags(entry, "job", flags.Job());
  cli::FillFlags(entry, "layout", flags.layout.All());
  if (entry.Has("from")) {  // a launch script, or the log itself where it holds its arguments
    const std::string file = (path.parent_path() / entry.String("from")).string();
    flags.job.from.push_back({"from", file, true, entry.where("from")});
  }
  entry.RejectUnknownKeys();
  entry.diagnostics()->ThrowIfAny();
  cli::TakeImports(&flags.job, &flags.layout);
  FillRow(&flags, &run.row);
  ReadLog(&run);
  return run;
}

}  // namespace

std::vector<LoggedRun> ReadRunSheet(const std::string& path) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(ReadSource(path), &diagnostics);
  diagnostics.ThrowIfAny();
  (void)root.String("description", "");
  std::vector<LoggedRun> runs;
  for (const Node& entry : root.Items("runs")) runs.push_back(ReadRun(entry, path));
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  if (runs.empty())
    throw InputError(fmt::format("{} names no run", path), "list them under 'runs'");
  return runs;
}

}  // namespace orrery
