// SPDX-License-Identifier: Apache-2.0
// The command behind `plan compare`.
#include "calib/program/compare/compare_command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "calib/program/compare/compare_report.h"
#include "model/program/common/fidelity_flags.h"
#include "model/program/common/program.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kBehindCompare = 2;  // plan compare

measured::TrainingLog ReadNamed(const Flag& file) {
  measured::TrainingLog log;
  AtFlag(file, [&] { log = measured::ReadTrainingLog(measured::ReadLogSource(file.text)); });
  if (log.garbled_lines > 0) fmt::print(stderr, "{}", Render(log.garbled, ColourOnErrors()));
  return log;
}

}  // namespace

Answer RunCompare(const CommandLine& line) {
  CompareFlags flags;
  if (flags.set.Parse(line, kBehindCompare)) return {ExitCode::kOk, DescribeCompare().help};
  if (!flags.measured.given)
    throw InputError({{flags.measured.where, "two files are needed",
                       "plan compare PREDICTED MEASURED; plan predict --from SCRIPT --json FILE "
                       "writes the first "
                       "one for a launch script"}});
  CheckHtml(flags.html, flags.json);
  const measured::TrainingLog predicted = ReadNamed(flags.predicted);
  const compare::Comparison comparison = compare::Compare(predicted, ReadNamed(flags.measured));
  Answer answer = Deliver(ExitCode::kOk, ComparisonText(comparison), ComparisonJson(comparison),
                          flags.json, flags.html);
  answer.brief = ComparisonBrief(comparison);
  return answer;
}

}  // namespace orrery::cli
