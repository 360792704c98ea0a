// SPDX-License-Identifier: Apache-2.0
// Two fits, one without and one with the new logs, and what lies between them.
#include "calib/program/calibrate/update_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>

#include "calib/fit/case_source.h"
#include "calib/fit/fit.h"
#include "calib/fit/job.h"
#include "calib/fit/rewrite.h"
#include "calib/program/calibrate/fit_report.h"
#include "calib/program/calibrate/inputs.h"
#include "model/arch/data_root.h"
#include "model/base/csv.h"
#include "model/base/node.h"
#include "model/base/text.h"

namespace orrery {
namespace {

// Standard deviations beyond which a new run contradicts the earlier ones: 5 % of runs that agree with them.
constexpr double kDrift = 1.96;
constexpr double kRowSpread =
    0.05;  // FitOptions::first_spread: of runs of one site around its factor

// The constants that the profile sets itself, without its intervals.
std::vector<ParameterRequest> RequestsOf(const std::string& profile, const std::string& site) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(ReadSource(profile), &diagnostics);
  diagnostics.ThrowIfAny();
  std::vector<ParameterRequest> requests;
  for (const std::string& key : root.Child("constants").Keys()) {
    if (key.starts_with("residual_")) continue;
    if (key == "site_factor") {
      requests.push_back(SiteRequest(site));
    } else {
      requests.push_back(
          {{{ProfileLayer::kFramework, site, key}}, std::nullopt, std::nullopt, std::nullopt});
    }
  }
  if (requests.empty())
    throw InputError(fmt::format("{} sets no constant that could move", profile));
  return requests;
}

// One fit of some rows, kept alive with what it rests on.
struct SiteFit {
  SiteFit(const std::vector<const MeasurementSource*>& sources, const ProfileStore& base,
          const std::vector<ParameterRequest>& requests)
      : store(base) {
    parameters = MakeParameters(requests, &store);
    evidence = std::make_unique<Evidence>(sources, store);
    FitOptions options;
    options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
    options.TrustFewRows(evidence->observations().size());
    fitter = std::make_unique<Fitter>(*evidence, parameters, options);
    result = fitter->Fit();
  }

  // Predicted times of another source's rows; `moved`: constant that stands a spread above its value.
  std::vector<double> Predict(const CaseSource& rows, int moved = -1) const {
    ProfileStore fitted = store;
    for (std::size_t j = 0; j < result.constants.size(); ++j) {
      const FittedConstant& constant = result.constants[j];
      const double by = static_cast<int>(j) == moved ? std::exp(constant.spread) : 1;
      constant.parameter.Apply(constant.after * by, &fitted);
    }
    std::vector<int> all(rows.observations().size());
    std::iota(all.begin(), all.end(), 0);
    std::vector<double> values;
    rows.Predict(fitted, all, &values);
    return values;
  }

  ProfileStore store;
  std::vector<FitParameter> parameters;
  std::unique_ptr<Evidence> evidence;
  std::unique_ptr<Fitter> fitter;
  FitResult result;
};

std::string RenderMoves(const FitResult& before, const FitResult& after) {
  std::string out = fmt::format("{:<54}{:>12}{:>9}{:>12}{:>9}\n", "constant", "before", "spread",
                                "after", "spread");
  for (std::size_t j = 0; j < after.constants.size(); ++j) {
    const FittedConstant &a = before.constants[j], &b = after.constants[j];
    out += fmt::format("{:<54}{:>12}{:>9.2g}{:>12}{:>9.2g}\n", b.parameter.names.front().Text(),
                       FormatConstant(a.after, a.parameter.kind), a.spread,
                       FormatConstant(b.after, b.parameter.kind), b.spread);
  }
  return out;
}

struct Drift {
  std::string text;
  std::size_t runs = 0, drifted = 0;

  // Of runs that agree, one in twenty lies outside: a quarter of them is no chance.
  bool contradicts() const { return 4 * drifted > runs; }
};

// New runs against the earlier fit: its constants' spread and that of runs around them.
Drift FindDrift(const SiteFit& earlier, const CaseSource& fresh) {
  const std::vector<double> predicted = earlier.Predict(fresh);
  std::vector<double> variance(predicted.size(), kRowSpread * kRowSpread);
  for (int j = 0; j < static_cast<int>(earlier.result.constants.size()); ++j) {
    const std::vector<double> moved = earlier.Predict(fresh, j);
    for (std::size_t i = 0; i < moved.size(); ++i)
      variance[i] += std::pow(std::log(moved[i] / predicted[i]), 2);
  }
  Drift found;
  found.runs = predicted.size();
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const Observation& seen = fresh.observations()[i];
    const double error = std::log(seen.measured / predicted[i]);
    const bool drift = std::abs(error) > kDrift * std::sqrt(variance[i]);
    found.drifted += drift;
    found.text += fmt::format(
        "{}: measured {}, the earlier calibration predicts {} ({:+.1f} %): {}\n", seen.name,
        Format(Seconds(seen.measured)), Format(Seconds(predicted[i])),
        100 * (predicted[i] / seen.measured - 1),
        drift ? fmt::format("drift, outside +-{:.0f} %", 100 * kDrift * std::sqrt(variance[i]))
              : "agrees");
  }
  return found;
}

double MeanSize(const std::vector<double>& logs) {
  double sum = 0;
  for (const double log : logs) sum += std::abs(std::exp(log) - 1);
  return logs.empty() ? 0 : sum / static_cast<double>(logs.size());
}

// Its runs are in left_out.csv.
bool IsOfCatalogue(const std::string& profile) {
  std::error_code error;
  return std::filesystem::equivalent(std::filesystem::absolute(profile).parent_path(),
                                     CatalogueFolder("calib/profiles/framework"), error);
}

// The earlier logs are read again: they have to say what the profile was fitted to.
void CheckUnchanged(const std::string& profile, const CalibrationRecord& record,
                    const FitInputs& earlier) {
  if (record.runs.empty()) return;
  constexpr double kPrinted = 0.002;  // digits of the record
  std::string text;
  for (const std::string& line : record.runs) text += line + "\n";
  Diagnostics diagnostics;
  const CsvTable table = CsvTable::Parse(std::make_shared<Source>(Source{profile, text}),
                                         {"case", "measured_s"}, &diagnostics);
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto run = std::ranges::find_if(
        earlier.runs, [&](const LoggedRun& one) { return one.row.name == table.Text(i, "case"); });
    const auto then = table.Number(i, "measured_s", 0, 1e9);
    if (run == earlier.runs.end() || !then || *then <= 0) continue;
    if (std::abs(run->row.measured_step_s / *then - 1) <= kPrinted) continue;
    throw InputError(
        fmt::format("{} has changed: {} now, {} when {} was calibrated", run->log,
                    Format(Seconds(run->row.measured_step_s)), Format(Seconds(*then)), profile),
        "put the earlier log back, or calibrate from the logs that are there: `plan "
        "calibrate LOG... -o FILE` without --update");
  }
}

std::vector<double> LeaveEachOut(SiteFit* fit) {
  std::vector<double> errors;
  for (int i = 0; i < static_cast<int>(fit->evidence->observations().size()); ++i)
    errors.push_back(fit->fitter->LeaveOut({i}).error.front());
  return errors;
}

// Rows that neither fit saw: those of `use: predict`, else each earlier row left out of both.
std::string RenderHeldBack(SiteFit* before, SiteFit* after, const CaseSource& earlier,
                           const CaseSource* kept) {
  std::vector<double> old, now;
  if (kept != nullptr) {
    const std::vector<double> first = before->Predict(*kept), second = after->Predict(*kept);
    for (std::size_t i = 0; i < first.size(); ++i) {
      old.push_back(std::log(first[i] / kept->observations()[i].measured));
      now.push_back(std::log(second[i] / kept->observations()[i].measured));
    }
  } else {
    for (int i = 0; i < static_cast<int>(earlier.observations().size()); ++i) {
      old.push_back(before->fitter->LeaveOut({i}).error.front());
      now.push_back(after->fitter->LeaveOut({i}).error.front());
    }
  }
  const double was = MeanSize(old), is = MeanSize(now);
  return fmt::format("held-back rows ({} {}): mean |error| {:.1f} % before, {:.1f} % after: {}\n",
                     old.size(), kept != nullptr ? "of use: predict" : "earlier, leave-one-out",
                     100 * was, 100 * is,
                     is < was - 5e-4   ? "improved"
                     : is > was + 5e-4 ? "worse"
                                       : "unchanged");
}

}  // namespace

void UpdateCalibration(const std::string& profile, const std::vector<std::string>& files,
                       const CalibrationRecord& said, const std::string& output) {
  CalibrationRecord record = ReadCalibrationRecord(profile);
  if (!IsSite(record.site))
    throw InputError(fmt::format("{} calibrates '{}', which is no site", profile, record.site),
                     "--update adds logs to FRAMEWORK@TOPOLOGY");
  for (const std::string& file : files) {
    if (std::ranges::find(record.logs, file) != record.logs.end())
      throw InputError(fmt::format("{} is one of the logs of {} already", file, profile),
                       "leave it out: an update reads the earlier logs again");
  }
  const std::string base = record.site.substr(0, record.site.rfind('@'));
  const RunPlace place{record.topology, base};
  FitInputs earlier = LoadInputs(record.logs, place), fresh = LoadInputs(files, place);
  CheckUnchanged(profile, record, earlier);
  DropRepeated(earlier, &fresh);
  ProfileStore store;
  store.AddSite(record.site, base);
  RowFilter filter;
  filter.frameworks.insert(record.site);
  const CaseSource old_rows(earlier.rows, filter, &store), new_rows(fresh.rows, filter, &store);
  TakeReasons(new_rows.reasons(), &fresh);
  fmt::print("{}{}\n", RenderChecks(fresh.checks), RenderLogs(fresh.runs));
  std::vector<CaseRow> held = earlier.predicted;
  held.insert(held.end(), fresh.predicted.begin(), fresh.predicted.end());
  std::unique_ptr<CaseSource> kept;
  if (!held.empty()) kept = std::make_unique<CaseSource>(held, RowFilter{}, &store);
  const std::vector<ParameterRequest> requests = RequestsOf(profile, record.site);
  SiteFit before({&old_rows}, store, requests), after({&old_rows, &new_rows}, store, requests);
  fmt::print("{}\n{}", RenderMoves(before.result, after.result), RenderSites(after.result));
  const Drift drift = FindDrift(before, new_rows);
  fmt::print("{}{}", drift.text, RenderHeldBack(&before, &after, old_rows, kept.get()));
  if (drift.contradicts())
    throw InputError(
        fmt::format("drift: {} of {} new runs contradict the earlier ones; {} is left as it was",
                    drift.drifted, drift.runs, output.empty() ? profile : output),
        "compare releases, clocks and power limits; where the site has changed, calibrate from its "
        "new logs alone: `plan calibrate LOG... -o FILE` without --update");
  for (const LoggedRun& run : fresh.runs) record.Add(run.facts);
  record.date = std::max(record.date, said.date);
  if (!said.driver.empty()) record.driver = said.driver;
  if (!said.nccl.empty()) record.nccl = said.nccl;
  if (!said.release.empty()) record.release = said.release;
  for (const std::string& file : FilesOf(files, fresh.checks)) record.logs.push_back(file);
  if (!IsOfCatalogue(profile)) record.runs = RunLines(*after.evidence, LeaveEachOut(&after));
  const std::string path = output.empty() ? profile : output;
  const ProfileLines lines = LinesOf(after.result, {}, "", after.store);
  const auto own = lines.find({ProfileLayer::kFramework, record.site});
  std::string text = ReadSource(profile)->text;
  if (own != lines.end()) text = RewriteProfile(profile, text, own->second);
  WriteText(path, WithRecord(text, record, path));
  fmt::print("wrote {}\n", path);
}

}  // namespace orrery
