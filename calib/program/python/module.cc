// SPDX-License-Identifier: Apache-2.0
// orrery._orrery: commands of `plan` as functions from words to JSON. orrery/__init__.py makes Python of it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "calib/program/validate/validate_command.h"
#include "model/arch/catalogue.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/program/common/fidelity_flags.h"
#include "model/program/common/simulate_flags.h"
#include "model/program/plan/commands.h"
#include "model/program/simulate/simulate_command.h"
#include "model/provision/offers.h"

namespace py = pybind11;

namespace orrery::cli {
namespace {

struct Function {
  Answer (*run)(const CommandLine& line);
  Description (*describe)();
};

// Those whose answer is one JSON document. The key is the command, "" of `plan` itself.
const std::map<std::string, Function>& Functions() {
  static const std::map<std::string, Function> functions = {
      {"", {[](const CommandLine& line) { return RunSearch(line, 1); }, DescribeSearch}},
      {"predict", {[](const CommandLine& line) { return RunPredict(line, 2); }, DescribePredict}},
      {"provision",
       {[](const CommandLine& line) { return RunProvision(line, 2); }, DescribeProvision}},
      {"simulate", {RunSimulate, DescribeSimulate}},
      {"validate", {RunValidate, DescribeValidate}},
  };
  return functions;
}

// As `plan COMMAND WORD... --json` prints it. Throws InputError.
std::string AnswerOf(const std::string& command, const std::vector<std::string>& words) {
  std::vector<std::string> line = {"plan"};
  if (!command.empty()) line.push_back(command);
  line.insert(line.end(), words.begin(), words.end());
  line.emplace_back("--json");
  const py::gil_scoped_release others_may_run;
  return Functions().at(command).run(CommandLine(std::move(line))).text;
}

std::vector<std::string> Names(const std::string& kind) {
  if (kind == "models") return ModelNames();
  if (kind == "topologies") return TopologyNames();
  if (kind == "gpus") return ProfileIds("gpu");
  if (kind == "frameworks") return FrameworkNames();
  if (kind == "offers") return OfferNames();
  throw InputError("no names of '" + kind + "'", "models, topologies, gpus, frameworks or offers");
}

// Flags of a command: what stands behind them ("N"; "": a switch), and whether they may be given several times.
std::map<std::string, std::pair<std::string, bool>> Flags(const std::string& command) {
  std::map<std::string, std::pair<std::string, bool>> flags;
  for (const FlagInfo& info : Functions().at(command).describe().flags) {
    if (!info.positional) flags[info.name] = {info.value, info.several};
  }
  return flags;
}

}  // namespace
}  // namespace orrery::cli

PYBIND11_MODULE(_orrery, module) {
  module.doc() = "Commands of plan as functions from words to JSON; use the package orrery.";
  py::register_exception<orrery::InputError>(module, "InputError", PyExc_ValueError);
  module.def("answer", orrery::cli::AnswerOf, py::arg("command"), py::arg("words"),
             "The JSON text of `plan COMMAND WORD... --json`.");
  module.def("names", orrery::cli::Names, py::arg("kind"));
  module.def("flags", orrery::cli::Flags, py::arg("command"));
  module.def(
      "help",
      [](const std::string& command) {
        return orrery::cli::Functions().at(command).describe().help;
      },
      py::arg("command"), "The text of `plan COMMAND --help`.");
}
