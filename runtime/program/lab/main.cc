// SPDX-License-Identifier: Apache-2.0
// The program behind `plan lab`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/lab_flags.h"
#include "model/program/common/program.h"
#include "runtime/lab/error.h"
#include "runtime/lab/launch.h"
#include "runtime/lab/measure.h"
#include "runtime/lab/state.h"
#include "runtime/program/lab/read_settings.h"

namespace orrery::lab {
namespace {

using cli::Answer;
using cli::ExitCode;

constexpr std::size_t kBehindLab = 2;  // plan lab

State RunningLab(const std::string& name) {
  std::optional<State> state = ReadState(name);
  if (!state) {
    throw InputError(fmt::format("no lab '{}' is up", name),
                     LabNames().empty() ? "plan lab up --nodes 4" : SuggestName(name, LabNames()));
  }
  if (!state->Alive()) {
    throw LabError(fmt::format("the switch of lab '{}' has stopped", name),
                   "`plan lab up` builds it anew, `plan lab down` removes what is left");
  }
  return *state;
}

Answer Up(const cli::LabFlags& flags) {
  const Settings settings = ReadSettings(flags);
  bool already = false;
  BringUp(settings, &already);
  std::string text = fmt::format("lab '{}' is up{}: {}\n", settings.name, already ? " already" : "",
                                 Describe(settings));
  const std::string name = settings.name == "lab" ? "" : " --name " + settings.name;
  text += fmt::format(
      "  topology  {}\n  run       plan lab run{} -- COMMAND\n"
      "  remove    plan lab down{}\n",
      TopologyFile(settings), name, name);
  return {ExitCode::kOk, text};
}

Answer Down(const std::string& name) {
  std::string text;
  {
    const Lock lock;
    text = Remove(name);
    RemoveLabsFolder();
  }
  return {ExitCode::kOk, text.empty() ? fmt::format("no lab '{}' is up\n", name)
                                      : fmt::format("lab '{}' is down: {}\n", name, text)};
}

std::string Self() { return std::filesystem::read_symlink("/proc/self/exe"); }

Answer Ranks(const cli::LabFlags& flags, const std::string& name,
             const std::vector<std::string>& command) {
  Diagnostics diagnostics;
  const auto asked = cli::ReadInteger(flags.ranks, 1, 1024, &diagnostics);
  if (command.empty()) {
    diagnostics.Error(flags.action.where, "which command?",
                      "plan lab run -- plan run --model gpt2-micro");
  }
  diagnostics.ThrowIfAny();
  const State state = RunningLab(name);
  const int code = RunRanks(state, asked.value_or(state.settings.nodes), Self(), command);
  return {static_cast<ExitCode>(code), ""};
}

[[noreturn]] void Enter(const cli::LabFlags& flags, const std::string& name,
                        std::vector<std::string> command) {
  const State state = RunningLab(name);
  const Settings& s = state.settings;
  std::vector<std::string> hosts;
  for (int node = 0; node < s.nodes; ++node) hosts.push_back(s.HostName(node));
  hosts.push_back(s.HeadName());
  std::string wanted = flags.node.given ? flags.node.text : s.HeadName();
  if (std::all_of(wanted.begin(), wanted.end(), [](char c) { return c >= '0' && c <= '9'; }) ||
      wanted == "head") {
    wanted = s.name + "-" + wanted;
  }
  const auto found = std::find(hosts.begin(), hosts.end(), wanted);
  if (found == hosts.end()) {
    throw InputError({{flags.node.where, fmt::format("no node '{}'", flags.node.text),
                       SuggestName(wanted, hosts)}});
  }
  if (command.empty()) command = {"/bin/sh"};
  ExecOnNode(state, static_cast<int>(found - hosts.begin()), command);
}

Answer Act(const cli::LabFlags& flags, const std::vector<std::string>& command, bool has_command) {
  const std::string action = ReadAction(flags, has_command);
  const std::string name = ReadLabName(flags);
  if (flags.json.given && (action == "run" || action == "enter"))
    throw InputError(
        {{flags.json.where, fmt::format("`plan lab {}` answers nothing itself", action),
          "its command does: --json behind the --"}});
  if (action == "up") return Up(flags);
  if (action == "down") return Down(name);
  if (action == "status") return {ExitCode::kOk, StatusText(flags.name.given ? name : "")};
  if (action == "measure") return {ExitCode::kOk, MeasureLab(RunningLab(name), Self())};
  if (action == "run") return Ranks(flags, name, command);
  Enter(flags, name, command);
}

Answer LabCommand(const cli::CommandLine& line) {
  const std::vector<std::string>& words = line.words();
  const auto split = std::find(words.begin(), words.end(), "--");
  const std::vector<std::string> command(split == words.end() ? split : split + 1, words.end());
  const cli::CommandLine own(std::vector<std::string>(words.begin(), split));
  cli::LabFlags flags;
  if (flags.set.Parse(own, kBehindLab)) return {ExitCode::kOk, cli::DescribeLab().help};
  try {
    const Answer answer = Act(flags, command, split != words.end());
    if (!flags.json.given) return answer;
    return cli::Deliver(answer.code, answer.text,
                        {{"schema", "orrery.lab/1"},
                         {"action", flags.action.text},
                         {"name", flags.name.given ? flags.name.text : "lab"},
                         {"text", answer.text}},
                        flags.json);
  } catch (const LabError& error) {
    fmt::print(stderr, "plan lab: error: {}\n", error.what());
    if (!error.hint.empty()) fmt::print(stderr, "  hint: {}\n", error.hint);
    cli::DeliverFailure(error.what(), ExitCode::kFailure);
    return {ExitCode::kFailure, ""};
  }
}

}  // namespace
}  // namespace orrery::lab

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("lab", argc, argv, orrery::lab::LabCommand, {{"-n", "--ranks"}});
}
