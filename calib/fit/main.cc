// SPDX-License-Identifier: Apache-2.0
// The program behind `plan calibrate`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "calib/fit/case_source.h"
#include "calib/fit/fit.h"
#include "calib/fit/fit_report.h"
#include "calib/fit/inputs.h"
#include "calib/fit/job.h"
#include "calib/fit/layer_parameters.h"
#include "calib/fit/rewrite.h"
#include "calib/fit/work_source.h"
#include "calib/sweeps/sweep_command.h"

namespace orrery {
namespace {

constexpr int kOk = 0, kInputErrorCode = 2;

struct Arguments {
  std::vector<std::string> files;
  FitFlags flags;
  std::string job, holdout, output, residuals;
  bool in_place = false;
};

void Save(const Arguments& arguments, const FitResult& result, const FitJob& job,
          const std::vector<double>& unseen, const Evidence& evidence) {
  if (arguments.output.empty() && !arguments.in_place) return;
  const std::vector<double>& errors = unseen.empty() ? result.error : unseen;
  const std::string source = unseen.empty() ? std::string("the fitted rows")
                                            : fmt::format("rows predicted with their {} left out",
                                                          NameOf(job.holdout));
  const auto paths = WriteProfiles(LinesOf(result, IntervalsOf(evidence, errors), source,
                                           evidence.store()),
                                   arguments.output, evidence.store());
  for (const std::string& path : paths) fmt::print("wrote {}\n", path);
  if (arguments.output.ends_with(".yaml")) return;
  for (const std::string& path : WriteLayerFiles(result, arguments.output))
    fmt::print("wrote {}\n", path);
}

void WriteResiduals(const std::string& path, const Evidence& evidence, const FitResult& result,
                    const std::vector<double>& unseen) {
  std::ofstream file(path);
  file << "case,group,model,measured,fitted_ratio,unseen_ratio\n";
  for (std::size_t i = 0; i < result.error.size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    file << fmt::format("{},{},\"{}\",{:.6g},{:.5f},{}\n", seen.name, seen.group, seen.model,
                        seen.measured, std::exp(result.error[i]),
                        unseen.empty() ? "" : fmt::format("{:.5f}", std::exp(unseen[i])));
  }
  file.close();
  if (!file) throw InputError(fmt::format("cannot write {}", path));
}

void PrintLeftOut(const std::map<std::string, int>& rows) {
  for (const auto& [reason, count] : rows) fmt::print("{:>6} rows left out: {}\n", count, reason);
}

void Run(const Arguments& arguments) {
  ProfileStore store;
  FitJob job = arguments.job.empty() ? JobOf(arguments.flags, &store)
                                     : ReadFitJob(ReadSource(arguments.job));
  if (!arguments.holdout.empty()) job.holdout = ParseHoldout(arguments.holdout);
  FitInputs inputs = LoadInputs(arguments.files);
  std::vector<const LoggedRun*> traced;
  for (const LoggedRun& run : inputs.runs) {
    if (!run.predict) traced.push_back(&run);
  }
  const Needs needs = NeedsOf(job.requests);
  const MemorySource memory(needs.memory ? inputs.rows : std::vector<CaseRow>{}, job.memory_by, job.filter, &store);
  std::unique_ptr<CaseSource> cases;
  if (needs.time) cases = std::make_unique<CaseSource>(std::move(inputs.rows), job.filter, &store);
  const WorkSource kernels(traced, job.filter, &store);
  std::unique_ptr<CaseSource> kept;
  if (!inputs.predicted.empty())
    kept = std::make_unique<CaseSource>(std::move(inputs.predicted), RowFilter{}, &store);
  std::vector<FitParameter> parameters = MakeParameters(job.requests, &store);
  std::vector<const MeasurementSource*> sources{&kernels, &memory};
  if (cases) sources.insert(sources.begin(), cases.get());
  if (cases && job.layer_spread > 0) {
    std::vector<FitParameter> layers =
        LayerParameters(cases->observations(), job.layer_spread, store);
    std::move(layers.begin(), layers.end(), std::back_inserter(parameters));
  }
  const Evidence evidence(sources, store);
  FitOptions options;
  options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  fmt::print("{}", RenderLogs(inputs.runs));
  fmt::print("{} rows, {} constants\n", evidence.observations().size(), parameters.size());
  if (cases) PrintLeftOut(cases->left_out());
  PrintLeftOut(memory.left_out());
  Fitter fitter(evidence, std::move(parameters), options);
  const FitResult result = fitter.Fit();
  fmt::print("\n{}\n{}", RenderConstants(result), RenderLayers(result));
  std::vector<double> unseen;
  if (job.holdout != Holdout::kNone) unseen = LeaveGroupsOut(evidence, job.holdout, &fitter);
  fmt::print("{}", RenderErrors(evidence, result, job.holdout, unseen));
  if (kept) fmt::print("\n{}", RenderKept(*kept, result, store));
  if (!arguments.residuals.empty()) WriteResiduals(arguments.residuals, evidence, result, unseen);
  Save(arguments, result, job, unseen, evidence);
}

void Declare(CLI::App* app, Arguments* a) {
  app->name("plan calibrate");
  app->add_option("RUNS", a->files,
                  "measured runs: a CSV in the columns of `plan validate`, a sheet of logged runs "
                  "(.yaml), or a log or trace with its sheet LOG.yaml beside it")
      ->required();
  auto* job = app->add_option("--job", a->job, "a job file: rows, constants, priors");
  for (auto* option :
       {app->add_option("--gpu", a->flags.gpus, "GPU profile to calibrate; takes its rows only"),
        app->add_option("--fabric", a->flags.fabrics, "same, of a network"),
        app->add_option("--stack", a->flags.stacks, "same, of a software: FRAMEWORK[@TOPOLOGY]"),
        app->add_option("--source", a->flags.sources, "only rows of this source"),
        app->add_option("--free", a->flags.free,
                        "constants to fit: stack:KEY, or FOLDER/FILE:KEY; default: all")
            ->delimiter(',')}) {
    option->excludes(job);
  }
  app->add_option("--holdout", a->holdout,
                  "what is left out to measure the error: none, model, topology, source");
  auto* output =
      app->add_option("-o,--output", a->output, "folder, or one .yaml, for the new profiles");
  app->add_option("--residuals", a->residuals,
                  "CSV: predicted over measured of every row, fitted and left out");
  app->add_flag("--in-place", a->in_place, "write into calib/profiles")->excludes(output);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Fits the constants of profiles to measured runs or their logs, and prints what the data determine and how "
      "wrong the\npredictions of unseen runs are. Writes nothing without -o or --in-place.");
  Arguments arguments;
  Declare(&app, &arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, std::cout, std::cerr);
    return code == 0 ? kOk : kInputErrorCode;
  }
  try {
    Run(arguments);
  } catch (const InputError& error) {
    std::cerr << error.what();
    return kInputErrorCode;
  }
  return kOk;
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) {
  if (orrery::NamesSweeps(argc, argv)) return orrery::CalibrateSweeps(argc, argv);
  return orrery::Main(argc, argv);
}
