// SPDX-License-Identifier: Apache-2.0
// What the program of a clone's first answer lacks: ./plan builds plan-whole, which answers.
//
// The sources under LATER in the CMake lists are not part of that program. Every function of theirs that the rest calls stands
// here, and so a command line that the script ./plan took for one of the quick program still gets its answer.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "model/exchange/bundle.h"
#include "model/exchange/import.h"
#include "model/program/common/bench_flags.h"
#include "model/program/common/check_flags.h"
#include "model/program/common/fidelity_flags.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/lab_flags.h"
#include "model/program/common/launch_flags.h"
#include "model/program/common/program.h"
#include "model/program/common/run_flags.h"
#include "model/program/common/simulate_flags.h"
#include "model/program/common/step_picture.h"
#include "model/program/common/terminal.h"
#include "model/program/common/watch_flags.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/export_flags.h"
#include "model/program/plan/predict_several.h"
#include "model/report/page.h"

namespace orrery {
namespace {

// ./plan stands three folders above build/quick/bin.
[[noreturn]] void LeaveToWhole() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::string> words = {(folder / "../../../plan").string()};
  const std::vector<std::string>& looks = cli::CurrentTerminal().given;
  words.insert(words.end(), looks.begin(), looks.end());
  const std::vector<std::string>& own = cli::WordsOfCommand();
  words.insert(words.end(), own.begin() + 1, own.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  setenv("ORRERY_WHOLE", "1", 1);
  execv(arguments[0], arguments.data());
  throw InputError(
      fmt::format("only a larger program answers this; cannot start {} to build it: {}", words[0],
                  std::strerror(errno)));
}

}  // namespace

namespace cli {

#define ORRERY_LATER(Name)                                              \
  Answer Run##Name(const CommandLine&, std::size_t) { LeaveToWhole(); } \
  Description Describe##Name() { LeaveToWhole(); }
ORRERY_LATER(Export)
ORRERY_LATER(Provision)
ORRERY_LATER(Sweep)
ORRERY_LATER(Discover)
ORRERY_LATER(Open)
ORRERY_LATER(Diff)
ORRERY_LATER(Completion)
#undef ORRERY_LATER
Description DescribeSimulate() { LeaveToWhole(); }
Description DescribeRun() { LeaveToWhole(); }
Description DescribeLab() { LeaveToWhole(); }
Description DescribeBench() { LeaveToWhole(); }
Description DescribeValidate() { LeaveToWhole(); }
Description DescribeCalibrate() { LeaveToWhole(); }
Description DescribeCompare() { LeaveToWhole(); }
Description DescribeWatch() { LeaveToWhole(); }
Description DescribeCheck() { LeaveToWhole(); }
Description DescribeLaunch() { LeaveToWhole(); }

void TakeImports(JobFlags* job, LayoutFlags*, const std::function<void()>&,
                 const std::vector<Flag*>&) {
  if (!job->from.empty()) LeaveToWhole();
}
Answer PredictSeveral(const SeveralPredictions&) { LeaveToWhole(); }

const exchange::TargetInfo* ExportFlags::Target() const {
  if (target.given) LeaveToWhole();
  return nullptr;
}
void ExportFlags::SetFramework(JobFlags*) const {}
void ExportFlags::TakeFramework(JobFlags*, const LayoutFlags&) const {}
std::vector<PipelineSchedule> ExportFlags::Schedules(const JobFlags&) const { return {}; }
ExportResult MakeExport(const ExportFlags&, const report::Job&, const Candidate&,
                        const std::string&) {
  LeaveToWhole();
}
std::string WriteExport(const ExportFlags&, const ExportResult&, const std::string&) {
  LeaveToWhole();
}

}  // namespace cli

namespace exchange {
std::span<const Launcher> Launchers() { return {}; }  // ./plan prints the help that lists them
std::vector<std::string> Bundle::Missing() const { LeaveToWhole(); }
}  // namespace exchange

namespace report {
std::string Page(const nlohmann::ordered_json&) { LeaveToWhole(); }
void AddStepPicture(const orrery::Job&, const Strategy&, nlohmann::ordered_json*) {
  LeaveToWhole();
}
void AddStepPicture(const orrery::Job&, const ir::Plan&, nlohmann::ordered_json*) {
  LeaveToWhole();
}
}  // namespace report

namespace ir {
Plan ParsePlan(const std::string&, const std::string&) { LeaveToWhole(); }
}  // namespace ir

}  // namespace orrery
