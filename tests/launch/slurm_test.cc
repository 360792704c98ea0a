// SPDX-License-Identifier: Apache-2.0
// A real Slurm on this machine (slurm_jobs.sh): jobs that lose a node and that run into their time
// limit have the losses of one that nothing disturbs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// By step, as printed.
std::map<int64_t, std::string> CurveOf(const std::string& log) {
  std::map<int64_t, std::string> curve;
  const std::regex line("step +([0-9]+)/[0-9]+ +loss +([^ ]+)");
  for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at)
    curve[std::stoll((*at)[1])] = (*at)[2];
  return curve;
}

void ExpectUndisturbed(const std::string& log) {
  const auto curve = CurveOf(log);
  ASSERT_GT(curve.size(), 5u) << log;
  const Outcome whole =
      RunPlan({"run", "--model", "linear-20-1", "--dp", "4", "--global-batch", "24", "--comm",
               "local", "--log-every", "10", "--steps", std::to_string(curve.rbegin()->first)});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto undisturbed = CurveOf(whole.out);
  for (const auto& [step, loss] : curve) {
    if (step % 10 != 0) continue;  // the last one of an attempt is printed, too
    ASSERT_TRUE(undisturbed.contains(step)) << step;
    ASSERT_EQ(loss, undisturbed.at(step)) << step;
  }
}

std::string WhyNot() {
  if (geteuid() != 0) return "a Slurm of one's own needs root here";
  for (const char* program :
       {"slurmctld", "slurmd", "srun", "sbatch", "munged", "unshare", "python3"}) {
    if (std::system(
            fmt::format("PATH=$PATH:/usr/sbin command -v {} >/dev/null", program).c_str()) != 0)
      return fmt::format("there is no {}: install slurm-wlm and munge", program);
  }
  if (std::system("unshare -m true 2>/dev/null") != 0) return "no mount namespace can be made";
  return "";
}

TEST(Slurm, LostNodesAndTimeLimitsLeaveTheLossesAsTheyAre) {
  const std::string why = WhyNot();
  if (!why.empty()) GTEST_SKIP() << why;
  const std::string folder = ScratchFolder() + "/slurm";
  std::filesystem::create_directory(folder);
  const int status = std::system(
      fmt::format("PATH=$PATH:/usr/sbin timeout 400 unshare -m --propagation private bash "
                  "'{}/tests/launch/slurm_jobs.sh' '{}' '{}' >'{}/said' 2>&1",
                  ORRERY_SOURCE_DIR, folder, ProgramPath("plan"), folder)
          .c_str());
  const std::string killed = ReadText(folder + "/killed/log"),
                    limited = ReadText(folder + "/limited/log");
  ASSERT_EQ(status, 0) << ReadText(folder + "/said") << killed << limited
                       << ReadText(folder + "/ctld.log");
  EXPECT_THAT(
      ReadText(folder + "/launched"),
      AllOf(HasSubstr("4 of 4 nodes good"), HasSubstr("(srun; at least 4"), HasSubstr("4 ranks")));
  // A rank that nobody can ask any more is named by its host; Slurm queues the job again.
  EXPECT_THAT(killed, AllOf(HasSubstr("has ended, or its connection is lost"),
                            HasSubstr("resumed behind step"),
                            HasSubstr("attempt 1 on node[0-3] ended with 85")));
  ExpectUndisturbed(killed);
  EXPECT_THAT(limited, AllOf(HasSubstr("stopped by SIGUSR1"),
                             HasSubstr("attempt 0 on node[0-3] ended with 85"),
                             HasSubstr("resumed behind step")));
  ExpectUndisturbed(limited);
}

}  // namespace
}  // namespace orrery
