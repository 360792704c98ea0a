// SPDX-License-Identifier: Apache-2.0
// The program behind `plan validate`.
#include <nlohmann/json.hpp>

#include "calib/program/validate/report.h"
#include "model/program/common/fidelity_flags.h"
#include "model/program/common/program.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kBehindValidate = 2;  // plan validate
constexpr std::pair<const char*, Engine> kEngines[] = {{"closed", Engine::kClosed},
                                                       {"event", Engine::kEvent}};

Answer ValidateCommand(const CommandLine& line) {
  ValidateFlags flags;
  if (flags.set.Parse(line, kBehindValidate)) return {ExitCode::kOk, DescribeValidate().help};
  Diagnostics diagnostics;
  if (!flags.runs.given)
    diagnostics.Error(flags.runs.where, "which runs?", "plan validate FILE.csv");
  const Engine engine =
      ReadChoice<Engine>(flags.engine, kEngines, &diagnostics).value_or(Engine::kClosed);
  diagnostics.ThrowIfAny();
  std::vector<CasePrediction> cases;
  AtFlag(flags.runs, [&] { cases = PredictCases(LoadCases(flags.runs.text), engine); });
  return Deliver(ExitCode::kOk, RenderValidation(cases), ValidationJson(cases), flags.json);
}

}  // namespace
}  // namespace orrery::cli

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("validate", argc, argv, orrery::cli::ValidateCommand);
}
