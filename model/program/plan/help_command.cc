// SPDX-License-Identifier: Apache-2.0
// `plan help [COMMAND]` and `plan version`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/arch/data_root.h"
#include "model/program/common/program.h"
#include "model/program/common/version.h"
#include "model/program/plan/commands.h"

namespace orrery::cli {

namespace {

struct HelpFlags {
  Flag command, json;
  FlagSet set{"help [COMMAND]",
              "Says what a command does, with examples and all its flags.",
              {"plan help", "plan help predict"}};
  HelpFlags() {
    set.Positional(&command, "COMMAND", "one of the commands", Words::kList, CommandNames());
    DeclareJson(&json, &set, "help");
  }
};

struct VersionFlags {
  Flag json;
  FlagSet set{"version",
              "Prints the version of this program, the commit and the libraries that it was built "
              "with, and where its catalogues and your own files lie.",
              {"plan version", "plan version --json"}};
  VersionFlags() {
    set.Output(&json, "--json", "[FILE]", "schema orrery.version/1, instead of text or into FILE",
               "\"orrery.");
  }
};

// The form with flags only, and the commands.
std::string Overview() {
  std::string text = DescribeSearch().help + "\nOther commands\n";
  for (const Command& command : Commands()) {
    if (command.name[0] != '\0')
      text += fmt::format("  plan {:<25}{}\n", command.name, command.summary);
  }
  return text +
         "  plan help COMMAND             its flags, with examples\n\n"
         "With every command\n"
         "  --quiet                       the answer in one line, no progress\n"
         "  --color WHEN                  auto (default: on a terminal, unless NO_COLOR is set), "
         "always or\n"
         "                                never\n\n"
         "Exit codes: 0 ok, 1 failure, 2 wrong input, 3 nothing fits, 4 a check failed.\n";
}

}  // namespace

Description DescribeHelp() { return HelpFlags().set.Describe(); }
Description DescribeVersion() { return VersionFlags().set.Describe(); }

Answer RunHelp(const CommandLine& line, std::size_t first) {
  HelpFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeHelp().help};
  if (!flags.command.given) return HelpAnswer(Overview(), flags.json);
  const std::string& name = flags.command.text;
  if (const Command* command = FindCommand(name); command != nullptr)
    return HelpAnswer(command->describe().help, flags.json);
  std::vector<std::string> beside = {"plan-" + name, "--help"};
  if (flags.json.given) beside.insert(beside.end(), {"--json", flags.json.text});
  if (beside.back().empty()) beside.pop_back();
  ExecBeside(name, beside);
  throw InputError({{flags.command.where, fmt::format("there is no command '{}'", name),
                     SuggestName(name, CommandNames())}});
}

Answer RunVersion(const CommandLine& line, std::size_t first) {
  VersionFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeVersion().help};
  std::string catalogues = DataRoot(), own;
  for (const std::string& folder : UserFolders())
    own += fmt::format("{}{}", own.empty() ? "" : ", ", ShownPath(folder));
  const std::string commit = *kCommit ? fmt::format(" (commit {})", kCommit) : "";
  const std::string text = fmt::format(
      "plan {}{}\n  built with  {}: {}\n  without     {}\n  catalogues  {}\n  your files  {}\n",
      kVersion, commit, kBuild, kFeatures, *kMissing ? kMissing : "-", catalogues,
      own.empty() ? "none: neither .orrery/ here or above nor ~/.local/share/orrery" : own);
  return Deliver(ExitCode::kOk, text,
                 {{"schema", "orrery.version/1"},
                  {"version", kVersion},
                  {"commit", kCommit},
                  {"build", kBuild},
                  {"features", kFeatures},
                  {"missing", kMissing}},
                 flags.json);
}

}  // namespace orrery::cli
