// SPDX-License-Identifier: Apache-2.0
// The program behind `plan calibrate`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <thread>

#include "calib/fit/calibration_record.h"
#include "calib/fit/case_source.h"
#include "calib/fit/fit.h"
#include "calib/fit/job.h"
#include "calib/fit/kernel_source.h"
#include "calib/fit/memory_source.h"
#include "calib/fit/rewrite.h"
#include "calib/fit/shape_table.h"
#include "calib/fit/trust.h"
#include "calib/fit/work_source.h"
#include "calib/import/training_log.h"
#include "calib/program/calibrate/fit_report.h"
#include "calib/program/calibrate/inputs.h"
#include "calib/program/calibrate/sweep_command.h"
#include "calib/program/calibrate/update_command.h"
#include "calib/validate/left_out.h"
#include "model/base/input_files.h"
#include "model/base/write_file.h"
#include "model/hardware/catalog.h"
#include "model/hardware/cluster_file.h"
#include "model/program/common/program.h"

namespace orrery {
namespace {

struct Arguments {
  std::vector<std::string> files;
  RunPlace place;            // of logs without a sheet
  CalibrationRecord record;  // what flags say of the runs
  FitFlags flags;
  std::string job, holdout, output, residuals;
  bool in_place = false;
};

// All kinds of measurements of one fit.
struct Sources {
  Sources(const FitInputs& inputs, const FitJob& job, ProfileStore* store) {
    std::vector<const LoggedRun*> traced;
    for (const LoggedRun& run : inputs.runs) {
      if (!run.predict) traced.push_back(&run);
    }
    const Needs needs = NeedsOf(job.requests);
    if (needs.time && (!inputs.rows.empty() || inputs.kernels.empty())) {
      cases = std::make_unique<CaseSource>(inputs.rows, job.filter, store);
      left_out.insert(cases->left_out().begin(), cases->left_out().end());
    }
    memory = std::make_unique<MemorySource>(needs.memory ? inputs.rows : std::vector<CaseRow>{},
                                            job.memory_by, job.filter, store);
    left_out.insert(memory->left_out().begin(), memory->left_out().end());
    works = std::make_unique<WorkSource>(traced, job.filter, store);
    if (!inputs.kernels.empty()) {
      if (job.kernels_of.empty())
        throw InputError("which GPU ran the timed kernels?", "--gpu ID, or kernels_of in the job");
      kernels = std::make_unique<KernelSource>(inputs.kernels, job.kernels_of, store);
      left_out.insert(kernels->left_out().begin(), kernels->left_out().end());
    }
    if (!inputs.predicted.empty())
      kept = std::make_unique<CaseSource>(inputs.predicted, RowFilter{}, store);
  }

  std::vector<const MeasurementSource*> All() const {
    std::vector<const MeasurementSource*> all = {works.get(), memory.get()};
    if (cases) all.push_back(cases.get());
    if (kernels) all.push_back(kernels.get());
    return all;
  }

  std::unique_ptr<CaseSource> cases, kept;
  std::unique_ptr<WorkSource> works;
  std::unique_ptr<MemorySource> memory;
  std::unique_ptr<KernelSource> kernels;
  std::map<std::string, int> left_out;
};

// Runs predicted without some of the evidence; all empty where nothing is left out.
struct LeftOut {
  Unseen by_group, by_source;        // as the job leaves out; by source
  std::vector<KinError> by_kinship;  // of training runs
};

LeftOut LeaveOut(const Evidence& evidence, Holdout holdout, Fitter* fitter) {
  if (holdout == Holdout::kNone) return {};
  return {LeaveGroupsOut(evidence, holdout, fitter),
          LeaveGroupsOut(evidence, Holdout::kSource, fitter), LeaveKinOut(evidence, fitter)};
}

// What was trusted before, and what this fit adds to it.
Trust TrustAfter(const Evidence& evidence, const LeftOut& left, const FitResult& result) {
  return Merged(LoadTrust(), MakeTrust(evidence, left.by_group, left.by_kinship, result));
}

// The left-out predictions of earlier fits, with those of the training runs of this one.
LeftOutRows LeftOutAfter(const Sources& sources, const Evidence& evidence, Holdout holdout,
                         const LeftOut& left) {
  LeftOutRows rows = ReadLeftOut(LeftOutPath());
  const Unseen &left_out = left.by_group, &foreign = left.by_source;
  const std::map<int, bool> inside = Coverage(evidence, holdout, left_out, left.by_kinship);
  const std::map<int, bool> inside_foreign =
      Coverage(evidence, Holdout::kSource, foreign, left.by_kinship);
  const auto flag = [](const std::map<int, bool>& flags, int row) {
    const auto found = flags.find(row);
    return found == flags.end() ? std::nullopt : std::optional<bool>(found->second);
  };
  int first = 0;
  for (const MeasurementSource* source : sources.All()) {
    const auto count = static_cast<int>(source->observations().size());
    const bool memory = source == sources.memory.get();
    for (int i = first; i < first + count && (memory || source == sources.cases.get()); ++i) {
      LeftOutRow row{std::exp(left_out.error[i]), std::nullopt, std::exp(foreign.error[i]),
                     std::nullopt};
      if (!memory) {
        row.inside_by_model = flag(inside, i);
        row.inside_by_source = flag(inside_foreign, i);
        const Observation& seen = *evidence.observations()[i];
        row.measured = seen.measured;
        row.run = seen.run;
      }
      rows[{memory ? kMemoryRow : kStepTimeRow, evidence.observations()[i]->name}] = row;
    }
    first += count;
  }
  return rows;
}

// Of timed kernels, which are the last observations.
std::vector<ShapeTable> TablesOf(const Sources& sources, const FitResult& result,
                                 const Unseen& unseen) {
  if (!sources.kernels) return {};
  const auto count = static_cast<std::ptrdiff_t>(sources.kernels->observations().size());
  const auto last = [&](const std::vector<double>& errors) {
    return errors.empty() ? errors : std::vector<double>(errors.end() - count, errors.end());
  };
  return FitShapeTables(*sources.kernels, last(result.error), last(unseen.error));
}

// Logs of one framework and topology calibrate that site, if nothing else is named.
void NameSite(const FitInputs& inputs, Arguments* arguments) {
  std::vector<std::string>& frameworks = arguments->flags.frameworks;
  const bool others = !arguments->flags.gpus.empty() || !arguments->flags.fabrics.empty();
  if (others || !arguments->job.empty() || frameworks.size() > 1) return;
  if (frameworks.empty()) {
    const std::string site = SiteOf(inputs, arguments->place.topology, "");
    if (!site.empty()) frameworks = {site};
    if (const std::set<std::string> sites = SitesOf(inputs); site.empty() && sites.size() > 1)
      throw InputError(fmt::format("{}the runs are of {} sites: {}", RenderChecks(inputs.checks),
                                   sites.size(), fmt::join(sites, ", ")),
                       fmt::format("--framework {} takes those of one", *sites.begin()));
  } else if (!arguments->place.topology.empty() && !IsSite(frameworks[0])) {
    frameworks = {SiteOf(inputs, arguments->place.topology, frameworks[0])};
  }
}

// All that a single site's profile says of its calibration; nothing where a job file fits many profiles.
// `runs`: for profiles that are not of the catalogue, whose runs are in left_out.csv.
void AddRecords(const Arguments& arguments, const FitInputs& inputs, const FitJob& job,
                const std::vector<std::string>& paths, std::vector<std::string> runs) {
  if (!arguments.job.empty() || inputs.runs.empty() || job.sites.size() != 1) return;
  CalibrationRecord record = arguments.record;
  for (const LoggedRun& run : inputs.runs) record.Add(run.facts);
  record.site = job.sites.front();
  record.topology = inputs.runs.front().row.topology;
  record.logs = FilesOf(arguments.files, inputs.checks);
  if (!arguments.in_place) record.runs = std::move(runs);
  for (const std::string& path : paths) {
    WriteText(path, WithRecord(ReadSource(path)->text, record, path));
    fmt::print("to use it: `frameworks: {{{}: {}}}` in the topology's file, or --in-place\n",
               record.site.substr(0, record.site.rfind('@')), path);
  }
}

void Save(const Arguments& arguments, const Sources& sources, const FitResult& result,
          const FitJob& job, const FitInputs& inputs, const LeftOut& left,
          const std::vector<ShapeTable>& tables, const Evidence& evidence) {
  const std::vector<double>& unseen = left.by_group.error;
  if (arguments.output.empty() && !arguments.in_place) return;
  const std::vector<double>& errors = unseen.empty() ? result.error : unseen;
  const std::string source = unseen.empty()
                                 ? std::string("the fitted rows")
                                 : fmt::format("leave-one-{}-out rows", NameOf(job.holdout));
  const auto paths =
      WriteProfiles(LinesOf(result, IntervalsOf(evidence, errors), source, evidence.store()),
                    arguments.output, evidence.store());
  for (const std::string& path : paths) fmt::print("wrote {}\n", path);
  if (paths.empty()) fmt::print("no constant moved: no profile is written\n");
  AddRecords(arguments, inputs, job, paths, RunLines(evidence, errors));
  const std::string with_tables = WriteShapeTables(tables, job.kernels_of, arguments.output);
  if (!with_tables.empty()) fmt::print("wrote {} with tables of shapes\n", with_tables);
  if (arguments.output.ends_with(".yaml")) return;
  fmt::print("wrote {}\n", WriteTrust(TrustAfter(evidence, left, result), arguments.output));
  if (unseen.empty()) return;
  fmt::print("wrote {}\n",
             WriteLeftOut(LeftOutAfter(sources, evidence, job.holdout, left), arguments.output));
}

void WriteResiduals(const std::string& path, const Evidence& evidence, const FitResult& result,
                    const std::vector<double>& unseen) {
  std::string text = "case,group,model,measured,fitted_ratio,unseen_ratio\n";
  for (std::size_t i = 0; i < result.error.size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    text += fmt::format("{},{},\"{}\",{:.6g},{:.5f},{}\n", seen.name, seen.group, seen.model,
                        seen.measured, std::exp(result.error[i]),
                        unseen.empty() ? "" : fmt::format("{:.5f}", std::exp(unseen[i])));
  }
  if (const std::string why = WriteTextFile(path, text); !why.empty())
    throw InputError(fmt::format("cannot write '{}': {}", path, why));
}

void PrintLeftOut(const std::map<std::string, int>& rows) {
  for (const auto& [reason, count] : rows) fmt::print("{:>6} rows skipped: {}\n", count, reason);
}

// Where no row remains, the checks stand above the error.
std::unique_ptr<Sources> SourcesOf(const FitInputs& inputs, const FitJob& job,
                                   ProfileStore* store) {
  try {
    return std::make_unique<Sources>(inputs, job, store);
  } catch (const InputError&) {
    fmt::print("{}", RenderChecks(inputs.checks));
    throw;
  }
}

// A framework's constants need many runs; a site's factor needs one.
void SayUndetermined(const Evidence& evidence, const FitResult& result, const FitJob& job) {
  const bool kept = std::ranges::all_of(result.constants, [](const FittedConstant& constant) {
    return constant.status == FitStatus::kKept;
  });
  if (!kept || !job.sites.empty() || evidence.observations().empty()) return;
  fmt::print(
      "{} row{} cannot tell {} constants apart: --framework FRAMEWORK@TOPOLOGY fits one factor of "
      "that site\n",
      evidence.observations().size(), evidence.observations().size() == 1 ? "" : "s",
      result.constants.size());
}

FitJob JobOfFile(const std::string& path) {
  try {
    return ReadFitJob(ReadSource(path));
  } catch (const InputError&) {
    RefuseMachineFile(path, "a job of calibration");
    throw;
  }
}

void Run(Arguments arguments) {
  ProfileStore store;
  FitInputs inputs = LoadInputs(arguments.files, arguments.place);
  NameSite(inputs, &arguments);
  FitJob job = arguments.job.empty() ? JobOf(arguments.flags, &store) : JobOfFile(arguments.job);
  CheckKernels(job.kernels_of, &inputs);
  if (!arguments.holdout.empty()) job.holdout = ParseHoldout(arguments.holdout);
  const auto taken = SourcesOf(inputs, job, &store);
  const Sources& sources = *taken;
  if (sources.cases) TakeReasons(sources.cases->reasons(), &inputs);
  fmt::print("{}{}\n", RenderChecks(inputs.checks), RenderLogs(inputs.runs));
  std::vector<FitParameter> parameters = MakeParameters(job.requests, &store);
  const Evidence evidence(sources.All(), store);
  FitOptions options;
  options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  if (!job.sites.empty()) options.TrustFewRows(evidence.observations().size());
  fmt::print("{} row{}, {} constant{}\n", evidence.observations().size(),
             evidence.observations().size() == 1 ? "" : "s", parameters.size(),
             parameters.size() == 1 ? "" : "s");
  PrintLeftOut(sources.left_out);
  Fitter fitter(evidence, std::move(parameters), options);
  const FitResult result = fitter.Fit();
  fmt::print("\n{}\n{}", RenderConstants(result), RenderSites(result));
  if (!job.sites.empty()) fmt::print("{}", RenderUnexplained(evidence, result));
  SayUndetermined(evidence, result, job);
  const LeftOut left = LeaveOut(evidence, job.holdout, &fitter);
  const Unseen& unseen = left.by_group;
  fmt::print("{}", RenderErrors(evidence, result, job.holdout, unseen, left.by_kinship));
  fmt::print("{}", RenderShapes(evidence, unseen.error.empty() ? result.error : unseen.error));
  const std::vector<ShapeTable> tables = TablesOf(sources, result, unseen);
  fmt::print("{}", RenderShapeTables(tables));
  if (sources.kept) {
    const Trust trust = TrustAfter(evidence, left, result);
    fmt::print("\n{}", RenderKept(*sources.kept, result, trust, store));
  }
  if (!arguments.residuals.empty())
    WriteResiduals(arguments.residuals, evidence, result, unseen.error);
  Save(arguments, sources, result, job, inputs, left, tables, evidence);
}

// A job says all that these say, and sweeps alone know of the machines that they ran on.
void RejectFlags(const cli::CalibrateFlags& flags) {
  Diagnostics diagnostics;
  const auto reject = [&](const cli::Flag& flag, const char* why) {
    diagnostics.Error(flag.where, fmt::format("{} {}", flag.name, why), "leave one of them out");
  };
  std::vector<cli::Flag> chosen, swept;
  for (const auto* several :
       {&flags.gpus, &flags.fabrics, &flags.frameworks, &flags.sources, &flags.free})
    chosen.insert(chosen.end(), several->begin(), several->end());
  for (const cli::Flag* flag : {&flags.machine, &flags.ranks, &flags.nodes, &flags.algorithm}) {
    if (flag->given) swept.push_back(*flag);
  }
  if (flags.job.given && !chosen.empty()) reject(chosen.front(), "and --job exclude each other");
  if (flags.output.given && flags.in_place.given)
    reject(flags.in_place, "and -o exclude each other");
  for (const cli::Flag& topology : flags.topologies) {
    if (flags.topologies.size() > 1 || topology.text.find('=') != std::string::npos)
      reject(topology, "of logs without a sheet is one name or file");
  }
  if (!swept.empty())
    diagnostics.Error(
        swept.front().where,
        fmt::format("{} is for sweeps of collectives, and no file here is one", swept.front().name),
        "a sweep is a log of nccl-tests with its column titles, or a CSV; calib/sweeps/README.md");
  diagnostics.ThrowIfAny();
}

// Where logs without a sheet ran: --topology, else what stands behind the @ of one --framework.
RunPlace PlaceOf(const cli::CalibrateFlags& flags) {
  RunPlace place;
  if (!flags.topologies.empty()) place.topology = flags.topologies.front().text;
  if (flags.frameworks.size() != 1) return place;
  place.framework = flags.frameworks.front().text;
  if (!IsSite(place.framework)) return place;
  const std::size_t at = place.framework.rfind('@');
  if (place.topology.empty()) place.topology = place.framework.substr(at + 1);
  place.framework.resize(at);
  return place;
}

std::string DateOf(const cli::Flag& flag) {
  if (!flag.given) return "";
  const std::string date = measured::ReadLogFacts({"", flag.text}).date;
  if (date != flag.text)
    throw InputError({{flag.where, fmt::format("'{}' is no date", flag.text), "YYYY-MM-DD"}});
  return date;
}

Arguments ArgumentsOf(const cli::CalibrateFlags& flags) {
  RejectFlags(flags);
  Arguments a;
  a.files = cli::TextsOf(flags.files);
  a.flags = {cli::TextsOf(flags.gpus), cli::TextsOf(flags.fabrics), cli::TextsOf(flags.frameworks),
             cli::TextsOf(flags.sources), cli::TextsOf(flags.free)};
  a.job = flags.job.text;
  a.holdout = flags.holdout.text;
  a.output = flags.output.text;
  a.residuals = flags.residuals.text;
  a.in_place = flags.in_place.given;
  a.place = PlaceOf(flags);
  a.record.date = DateOf(flags.date);
  a.record.driver = flags.driver.text;
  a.record.nccl = flags.nccl.text;
  a.record.release = flags.release.text;
  return a;
}

// What is no text at all is said before anything is asked about it.
void CheckReadable(const std::vector<cli::Flag>& files) {
  for (const cli::Flag& file : files) {
    cli::AtFlag(file, [&] {
      if (measured::ReadLogSource(file.text)->text.empty() && files.size() == 1)
        throw InputError(fmt::format("'{}' is empty: no measurement in it", file.text));
    });
  }
}

// Before anything else is read: profiles may be changed in their place, measurements never are.
void KeepInputs(const cli::CalibrateFlags& flags) {
  for (const cli::Flag& file : flags.files) NoteInput(file.text + ".yaml");  // its sheet
  if (flags.job.given) NoteInput(flags.job.text);
  if (const std::string why = WhyInput(flags.output.text); !why.empty())
    throw InputError(
        {{flags.output.where,
          fmt::format("{}: cannot write '{}': {}", flags.output.name, flags.output.text, why),
          fmt::format("another file for {}", flags.output.name)}});
}

cli::Answer CalibrateCommand(const cli::CommandLine& line) {
  constexpr std::size_t kBehindCalibrate = 2;  // plan calibrate
  for (std::size_t i = kBehindCalibrate; i < line.words().size() && line.words()[i] != "--"; ++i) {
    if (line.words()[i] == "--json" || line.words()[i].starts_with("--json="))
      throw InputError({{line.where(i), "--json does not go with plan calibrate",
                         "its answer is the profile in the file of -o; `plan validate FILE.csv "
                         "--json` holds the errors"}});
  }
  cli::CalibrateFlags flags;
  if (flags.set.Parse(line, kBehindCalibrate))
    return {cli::ExitCode::kOk, cli::DescribeCalibrate().help};
  if (flags.files.empty())
    throw InputError({{line.where(line.words().size()), "which measurements?",
                       "plan calibrate FILE..., such as a CSV of runs or a log"}});
  CheckReadable(flags.files);
  KeepInputs(flags);
  if (NamesSweeps(flags)) {
    CalibrateSweeps(flags);
  } else if (flags.update.given) {
    const Arguments arguments = ArgumentsOf(flags);
    UpdateCalibration(flags.update.text, arguments.files, arguments.record, arguments.output);
  } else {
    Run(ArgumentsOf(flags));
  }
  return {};
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("calibrate", argc, argv, orrery::CalibrateCommand,
                                  {{"-o", "--output"}});
}
