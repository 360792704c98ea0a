// SPDX-License-Identifier: Apache-2.0
// The command behind `plan validate`.
#include "calib/program/validate/validate_command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "calib/program/validate/accuracy.h"
#include "calib/program/validate/report.h"
#include "model/base/write_file.h"
#include "model/program/common/fidelity_flags.h"
#include "model/program/common/names.h"
#include "model/program/common/program.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kBehindValidate = 2;  // plan validate

// The document of both engines instead of the tables of one.
Answer WriteAccuracy(const ValidateFlags& flags) {
  std::string text;
  AtFlag(flags.runs, [&] { text = RenderAccuracy(MeasureAccuracy(flags.runs.text)); });
  if (flags.accuracy.text.empty()) return {ExitCode::kOk, text};
  if (const std::string why = WriteTextFile(flags.accuracy.text, text); !why.empty())
    throw InputError(
        {{flags.accuracy.where, fmt::format("cannot write '{}': {}", flags.accuracy.text, why),
          "--accuracy without a file name prints to standard output"}});
  return {ExitCode::kOk, fmt::format("wrote {}\n", flags.accuracy.text)};
}

}  // namespace

Answer RunValidate(const CommandLine& line) {
  ValidateFlags flags;
  if (flags.set.Parse(line, kBehindValidate)) return {ExitCode::kOk, DescribeValidate().help};
  Diagnostics diagnostics;
  if (!flags.runs.given)
    diagnostics.Error(flags.runs.where, "which runs?", "plan validate FILE.csv");
  const Engine engine = ReadChoice<Engine>(flags.engine, report::kEngineNames, &diagnostics)
                            .value_or(Engine::kClosed);
  for (const Flag* other : {&flags.engine, &flags.json, &flags.html}) {
    if (flags.accuracy.given && other->given)
      diagnostics.Error(other->where,
                        fmt::format("{} and --accuracy exclude each other", other->name),
                        "--accuracy predicts with both engines and writes text");
  }
  diagnostics.ThrowIfAny();
  if (flags.accuracy.given) return WriteAccuracy(flags);
  CheckHtml(flags.html, flags.json);
  std::vector<CasePrediction> cases;
  const bool terms = flags.json.given || flags.html.given;  // the text has none
  AtFlag(flags.runs, [&] { cases = PredictCases(LoadCases(flags.runs.text), engine, 0, terms); });
  Answer answer = Deliver(ExitCode::kOk, RenderValidation(cases), ValidationJson(cases), flags.json,
                          flags.html);
  answer.brief = ValidationBrief(cases);
  return answer;
}

}  // namespace orrery::cli
