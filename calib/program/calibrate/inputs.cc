// SPDX-License-Identifier: Apache-2.0
// Tells the kinds of files apart and loads them.
#include "calib/program/calibrate/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "calib/validate/validate.h"
#include "model/base/diagnostics.h"
#include "model/base/text.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostGarbled = 3;  // lines named per log

bool IsSheet(const std::string& file) { return file.ends_with(".yaml") || file.ends_with(".yml"); }

void TakeSheet(const std::string& path, FitInputs* inputs) {
  for (LoggedRun& run : ReadRunSheet(path)) {
    (run.predict ? inputs->predicted : inputs->rows).push_back(run.row);
    inputs->runs.push_back(std::move(run));
  }
}

// By the header alone.
bool HoldsKernels(const std::string& file) {
  const std::string text = ReadSource(file)->text;
  return measured::IsKernelHeader(std::string_view(text).substr(0, text.find('\n')));
}

}  // namespace

FitInputs LoadInputs(const std::vector<std::string>& files) {
  FitInputs inputs;
  for (const std::string& file : files) {
    if (IsSheet(file)) {
      TakeSheet(file, &inputs);
    } else if (fs::exists(file + ".yaml")) {
      TakeSheet(file + ".yaml", &inputs);
    } else if (file.ends_with(".csv") && HoldsKernels(file)) {
      auto kernels = measured::ReadKernelCsv(ReadSource(file));
      std::move(kernels.begin(), kernels.end(), std::back_inserter(inputs.kernels));
    } else if (file.ends_with(".csv")) {
      std::vector<CaseRow> rows = LoadCases(file);
      std::move(rows.begin(), rows.end(), std::back_inserter(inputs.rows));
    } else {
      throw InputError(
          fmt::format("the model and layout of {} are unknown", file),
          fmt::format("describe the run in {}.yaml: calib/program/calibrate/inputs.h", file));
    }
  }
  return inputs;
}

std::string RenderLogs(const std::vector<LoggedRun>& runs) {
  std::string text;
  for (const LoggedRun& run : runs) {
    text +=
        fmt::format("{}: {} per {} ({})\n", run.row.name, Format(Seconds(run.row.measured_step_s)),
                    run.row.window == Window::kStep ? "step" : "micro-step", run.how);
    if (run.change) {
      text += fmt::format(
          "  its log changes: {} up to step {}, {} from there on; `steps` of its sheet "
          "says which of them count\n",
          Format(Seconds(run.change->before)), run.change->step - 1,
          Format(Seconds(run.change->after)));
    }
    if (run.read.garbled_lines == 0) continue;
    text += fmt::format("  {} garbled line{}\n", run.read.garbled_lines,
                        run.read.garbled_lines == 1 ? "" : "s");
    for (std::size_t i = 0; i < std::min(kMostGarbled, run.read.garbled.size()); ++i)
      text += fmt::format("  {}:{}: {}\n", run.log, run.read.garbled[i].where.line,
                          run.read.garbled[i].message);
  }
  return text;
}

}  // namespace orrery
