// SPDX-License-Identifier: Apache-2.0
// The program behind `plan validate`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "calib/program.h"
#include "calib/validate/validate.h"
#include "model/input/diagnostics.h"

namespace orrery {
namespace {

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw InputError(fmt::format("cannot write {}", path));
}

void Run(const std::string& csv, const std::string& json, const std::string& engine) {
  if (engine != "closed" && engine != "event")
    throw InputError(fmt::format("no engine named '{}'", engine),
                     SuggestName(engine, {"closed", "event"}));
  const std::vector<CasePrediction> cases = PredictCases(LoadCases(csv), engine == "event" ? Engine::kEvent : Engine::kClosed);
  if (!json.empty()) WriteFile(json, ValidationJson(cases));
  std::cout << RenderValidation(cases);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Predicts every run of a CSV of published measurements and prints how wrong the predictions "
      "are.");
  app.name("plan validate");
  std::string csv, json, engine = "closed";
  app.add_option("FILE.csv", csv, "published runs, one per row")->required();
  app.add_option("--json", json, "also write every case to this file");
  app.add_option("--engine", engine, "closed (closed form, the default) or event (simulated, slower)");
  return RunProgram(&app, argc, argv, [&] { Run(csv, json, engine); });
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) { return orrery::Main(argc, argv); }
