// SPDX-License-Identifier: Apache-2.0
// The program behind `plan compare`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "calib/compare/compare.h"
#include "calib/program.h"

namespace orrery {
namespace {

measured::TrainingLog ReadNamed(const std::string& path) {
  measured::TrainingLog log = measured::ReadTrainingLog(measured::ReadLogSource(path));
  if (log.garbled_lines > 0) std::cerr << Render(log.garbled, false);
  return log;
}

void Run(const std::string& predicted, const std::string& measured, const std::string& json) {
  const compare::Comparison comparison =
      compare::Compare(ReadNamed(predicted), ReadNamed(measured));
  if (!json.empty()) {
    std::ofstream file(json, std::ios::binary);
    file << ComparisonJson(comparison);
    file.close();
    if (!file) throw InputError(fmt::format("cannot write {}", json));
  }
  std::cout << ComparisonText(comparison);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Compares a predicted step with a measured one: which kind of work, phase and stream is off, "
      "by how much, and which profile constants govern it.\n\nExamples\n"
      "  plan simulate --model gpt2-micro --topology localhost --dp 2 --trace predicted.json\n"
      "  plan run --model gpt2-micro --topology localhost --dp 2 --trace measured.json\n"
      "  plan compare predicted.json measured.json");
  app.name("plan compare");
  std::string predicted, measured, json;
  app.add_option("PREDICTED", predicted, "trace or record of plan simulate")->required();
  app.add_option("MEASURED", measured,
                 "trace or record of plan run, or a log or trace of another program")
      ->required();
  app.add_option("--json", json, "also write the comparison to this file");
  return RunProgram(&app, argc, argv, [&] { Run(predicted, measured, json); });
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) { return orrery::Main(argc, argv); }
