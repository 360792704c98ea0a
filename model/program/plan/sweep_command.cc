// SPDX-License-Identifier: Apache-2.0
// `plan sweep`: a study of many predictions, on threads and under a launcher, resumed where it stopped.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "model/arch/data_root.h"
#include "model/base/text.h"
#include "model/base/write_file.h"
#include "model/program/common/answer.h"
#include "model/program/common/names.h"
#include "model/program/common/terminal.h"
#include "model/program/common/version.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/study_parquet.h"
#include "model/program/plan/study_progress.h"
#include "model/program/plan/study_report.h"
#include "model/program/plan/study_run.h"

namespace orrery::cli {
namespace {

constexpr int kMostThreads = 1024;

struct SweepFlags {
  Flag study, out, engine, threads, front, as_template, json;
  FlagSet set{
      "sweep STUDY.yaml [flags]",
      "Predicts every combination of the values that a study gives to flags of `plan "
      "predict`, one CSV row each. Runs on threads, and on many machines under mpirun or srun "
      "with a shared folder. Started again it goes on where it stopped. Prints the rows that "
      "no other beats and what each flag changes.",
      {"plan sweep --template > study.yaml", "plan sweep study.yaml",
       "plan sweep study.yaml --out rows.csv --threads 8",
       "plan sweep study.yaml --out rows.parquet",
       "mpirun -n 64 build/bin/plan sweep study.yaml --out /shared/rows.csv"}};

  SweepFlags() {
    set.Positional(
        &study, "STUDY.yaml",
        "sections job and layout with flags of `plan predict` (global_batch for "
        "--global-batch); a value, a list [1, 2, 4], a range 8..64 (doubled) or 8..32 by 8; "
        "parts of one value are joined by + (recompute: mlp+core_attn) or stand in a list of their "
        "own where it has commas",
        Words::kFile);
    set.Output(&out, "--out", "FILE",
               "the rows (default: STUDY.csv in this folder); until all are there, those of each "
               "process are in FILE.parts. rows.parquet: as Parquet, too, once all are in rows.csv",
               "");
    set.Value(&engine, "--engine", "NAME",
              "closed (closed form, the default), event (simulated with contention) or auto (as "
              "predict: simulated where that is quick)",
              Words::kList, {"closed", "event", "auto"});
    set.Value(&threads, "--threads", "N",
              "of each process (default: the cores, shared by the processes of this machine)");
    std::vector<std::string> columns;
    for (const StudyMetric& metric : StudyMetrics()) columns.emplace_back(metric.column);
    set.Value(&front, "--front", "COLUMN,...",
              "figures that the frontier is of (default: tokens_per_s and usd_per_billion_tokens, "
              "gpus where rows lack a price)",
              Words::kList, columns);
    set.Switch(&as_template, "--template", "print a commented study to start from");
    DeclareJson(&json, &set, "sweep", "frontier and sensitivities");
  }
};

std::vector<std::size_t> ReadFront(const Flag& flag, Diagnostics* diagnostics) {
  std::vector<std::string> names;
  for (const StudyMetric& metric : StudyMetrics()) names.emplace_back(metric.column);
  std::vector<std::size_t> metrics;
  for (std::size_t begin = 0; flag.given && begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    Flag one = flag;
    one.text = flag.text.substr(begin, end - begin);
    begin = end + 1;
    const auto index = ReadName(one, names, diagnostics);
    if (!index) continue;
    if (std::ranges::find(metrics, *index) != metrics.end())
      diagnostics->Error(flag.where, fmt::format("--front: {} stands there twice", one.text),
                         "each column once");
    metrics.push_back(*index);
  }
  return metrics;
}

Engine ReadEngine(const Flag& flag, Diagnostics* diagnostics) {
  constexpr Engine kEngines[] = {Engine::kClosed, Engine::kEvent, Engine::kAuto};
  return kEngines[ReadName(flag, {"closed", "event", "auto"}, diagnostics).value_or(0)];
}

// The study of the catalogue, which says what may stand in one.
std::string StudyTemplate() {
  return ReadSource(DataRoot() + "/scenarios/studies/layouts.yaml")->text;
}

// Rank 0 speaks for all processes.
std::optional<StudyProgress> ShowProgress(const Study& study, StudyFiles* files,
                                          const StudyPlace& place) {
  const Terminal& terminal = CurrentTerminal();
  if (place.rank != 0 || terminal.quiet) return std::nullopt;
  return std::optional<StudyProgress>(
      std::in_place,
      StudyProgressOptions{"plan sweep", study.rows(), files->rows_done(), terminal.shows_progress},
      [files] { return files->CountRows(); });
}

// A process that was not started as one of several would else end without a word.
Answer OfAnotherRank(const StudyPlace& place, const Flag& out) {
  if (!place.by_common_names) return {};
  return {ExitCode::kOk, fmt::format("rank {} of {} (RANK, WORLD_SIZE): its rows are in "
                                     "'{}.parts', rank 0 writes '{}'\n",
                                     place.rank, place.size, out.text, out.text)};
}

// Until all processes have written their rows. Throws InputError: for a long time nothing came.
void AwaitOthers(const Study& study, StudyFiles* files, int processes, const Flag& out) {
  constexpr auto kPoll = std::chrono::milliseconds(200);
  constexpr auto kLongest = std::chrono::minutes(5);
  int64_t last = -1;
  auto since = std::chrono::steady_clock::now();
  for (;;) {
    const int64_t rows = files->CountRows();
    if (rows == study.rows()) return;
    const auto now = std::chrono::steady_clock::now();
    if (rows != last) since = now;
    last = rows;
    if (now - since > kLongest)
      throw InputError(
          {{out.where,
            fmt::format("{} of {} rows are missing, and none has come for 5 minutes",
                        study.rows() - rows, study.rows()),
            fmt::format("all {} processes need the same folder; the same command goes on from here",
                        processes)}});
    std::this_thread::sleep_for(kPoll);
  }
}

// --out rows.parquet: the flag becomes that of rows.csv. Throws InputError: it cannot be written.
std::optional<Flag> TakeParquet(Flag* out) {
  if (!out->given || !out->text.ends_with(".parquet")) return std::nullopt;
  const Flag parquet = *out;
  if (const std::string why = WhyNotWritable(parquet.text); !why.empty())
    throw InputError({{out->where, fmt::format("cannot write '{}': {}", parquet.text, why),
                       "--out names a file in a folder that exists"}});
  out->text = CsvBeside(parquet.text);
  return parquet;
}

std::vector<StudyPoint> PointsIn(const Study& study, const StudyFiles& files, Refusals* refusals) {
  std::vector<StudyPoint> points;
  files.ForEachRow(
      [&](const std::string& line) { points.push_back(PointOfLine(study, line, refusals)); });
  return points;
}

// "7776 rows in 14.6 s: 4032 predicted, 16570 a minute, the others refused".
std::string RateWords(int64_t done, const Study& study, const Refusals& refusals, double seconds) {
  const auto a_minute = [&](int64_t rows) {
    return fmt::format("{:.0f} a minute", static_cast<double>(rows) / seconds * 60);
  };
  const std::string rows = fmt::format("{} row{}", done, done == 1 ? "" : "s");
  const std::string in = fmt::format("in {}", Format(Seconds(seconds)));
  if (refusals.empty()) return fmt::format("{} predicted {}, {}", rows, in, a_minute(done));
  // Of a study that was begun before nobody knows which rows were refused in this run.
  if (done < study.rows())
    return fmt::format("{} predicted or refused {}, {}", rows, in, a_minute(done));
  int64_t predicted = done;
  for (const auto& [reason, count] : refusals) predicted -= count;
  return fmt::format("{} {}: {} predicted, {}, the others refused", rows, in, predicted,
                     a_minute(predicted));
}

}  // namespace

Description DescribeSweep() { return SweepFlags().set.Describe(); }

Answer RunSweep(const CommandLine& line, std::size_t first) {
  SweepFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeSweep().help};
  if (flags.as_template.given) return DeliverTemplate(StudyTemplate(), flags.json);
  if (!flags.study.given)
    throw InputError({{flags.study.where, "which study?",
                       "plan sweep STUDY.yaml; plan sweep --template > STUDY.yaml prints one"}});
  Diagnostics diagnostics;
  StudyRunOptions options;
  options.place = FindStudyPlace();
  options.engine = ReadEngine(flags.engine, &diagnostics);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.threads = static_cast<int>(ReadInteger(flags.threads, 1, kMostThreads, &diagnostics)
                                         .value_or(std::max(1, cores / options.place.on_machine)));
  std::vector<std::size_t> front = ReadFront(flags.front, &diagnostics);
  diagnostics.ThrowIfAny();
  const Study study = AtFile(flags.study, "a study", [&] { return Study::Read(flags.study); });
  const std::optional<Flag> parquet = TakeParquet(&flags.out);
  if (!flags.out.given) {
    flags.out.text = std::filesystem::path(flags.study.text).stem().string() + ".csv";
    flags.out.where = flags.study.where;
  }
  const char* engine = options.engine == Engine::kClosed  ? "closed"
                       : options.engine == Engine::kEvent ? "event"
                                                          : "auto";
  StudyFiles files(
      study, flags.out, options.place,
      fmt::format("engine: {}\nplan: {} {}\n{}", engine, kVersion, kCommit, study.Files()));
  const auto begin = std::chrono::steady_clock::now();
  int64_t predicted = 0;
  if (!files.Complete()) {
    const auto progress = ShowProgress(study, &files, options.place);
    predicted = RunStudy(study, options, files.done(), [&](const std::vector<StudyRow>& rows) {
      std::string lines;
      for (const StudyRow& row : rows) lines += CsvLine(study, row);
      files.Append(lines);
    });
    if (options.place.rank != 0) return OfAnotherRank(options.place, flags.out);
    AwaitOthers(study, &files, options.place.size, flags.out);
    if (options.place.size > 1) predicted = study.rows() - files.rows_done();
  }
  if (options.place.rank != 0) return OfAnotherRank(options.place, flags.out);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!files.Complete()) files.Merge();
  if (parquet) WriteParquet(study, files, *parquet);
  Refusals refusals;
  const std::vector<StudyPoint> points = PointsIn(study, files, &refusals);
  const std::vector<std::size_t> own = DefaultFront(points);  // none: no row fits
  if (front.empty() || own.empty()) front = own;
  std::string text =
      StudyHeader(study) +
      (predicted == 0
           ? fmt::format("{}: all {} rows were there", flags.out.text, study.rows())
           : fmt::format("{}: {}", flags.out.text, RateWords(predicted, study, refusals, seconds)));
  if (predicted > 0 && predicted < study.rows())
    text += fmt::format("; {} were there", study.rows() - predicted);
  if (parquet) text += fmt::format("; as Parquet: {}", parquet->text);
  if (options.engine == Engine::kClosed)
    text += "\nTimes are in closed form; --engine auto gives those of plan predict.";
  text += "\n" + StudyText(study, points, refusals, front);
  const bool fits =
      std::ranges::any_of(points, [](const StudyPoint& point) { return Fits(point.status); });
  const ExitCode code = fits ? ExitCode::kOk : ExitCode::kInfeasible;
  Answer answer =
      Deliver(code, std::move(text), StudyJson(study, points, refusals, front), flags.json);
  answer.brief = StudyBrief(study, points);
  return answer;
}

}  // namespace orrery::cli
