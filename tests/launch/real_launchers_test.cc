// SPDX-License-Identifier: Apache-2.0
// A real Slurm and a real torchrun on this machine (slurm_jobs.sh, torchrun_jobs.sh): jobs that lose a
// node or run into their time limit have the losses of one that nothing disturbs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/run_plan.h"
#include "tests/launch/curve.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string WhyNot() {
  if (geteuid() != 0) return "a Slurm of one's own needs root here";
  const std::string missing =
      MissingProgram({"slurmctld", "slurmd", "srun", "sbatch", "munged", "unshare", "python3"});
  if (!missing.empty()) return fmt::format("there is no {}: install slurm-wlm and munge", missing);
  if (std::system("unshare -m true 2>/dev/null") != 0) return "no mount namespace can be made";
  return "";
}

TEST(Slurm, LostNodesAndTimeLimitsLeaveTheLossesAsTheyAre) {
  const std::string why = WhyNot();
  if (!why.empty()) GTEST_SKIP() << why;
  const std::string folder = ScratchFolder() + "/slurm";
  std::filesystem::create_directory(folder);
  const int status = std::system(
      fmt::format("PATH=$PATH:/usr/sbin timeout 900 unshare -m --propagation private bash "
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
  EXPECT_THAT(ReadText(folder + "/shared.said"),
              AllOf(HasSubstr("shared.csv: 288 rows in "), HasSubstr(": 96 predicted")));
  EXPECT_EQ(ReadText(folder + "/shared.csv"), ReadText(folder + "/alone.csv"));
  // A rank that nobody can ask any more is named by its host; Slurm queues the job again.
  EXPECT_THAT(killed, AllOf(HasSubstr("has ended, or its connection is lost"),
                            HasSubstr("resumed behind step"),
                            HasSubstr("attempt 1 on node[0-3] ended with 85")));
  ExpectUndisturbed(killed, 4, 0);
  EXPECT_THAT(limited, AllOf(HasSubstr("stopped by SIGUSR1"),
                             HasSubstr("attempt 0 on node[0-3] ended with 85"),
                             HasSubstr("resumed behind step")));
  ExpectUndisturbed(limited, 4, 0);
}

// Elastic: two agents, of which one is killed with its rank; the other one goes on alone.
TEST(Torchrun, FromTwoRanksToOneWithTheSameLosses) {
  const std::string missing = MissingProgram({"torchrun", "python3", "ps"});
  if (!missing.empty()) GTEST_SKIP() << "there is no " << missing << ": install python3-torch";
  const std::string folder = ScratchFolder() + "/torchrun";
  std::filesystem::create_directory(folder);
  const int status = std::system(
      fmt::format("timeout 600 bash '{}/tests/launch/torchrun_jobs.sh' '{}' '{}' >'{}/said' 2>&1",
                  ORRERY_SOURCE_DIR, folder, ProgramPath("plan"), folder)
          .c_str());
  ASSERT_EQ(status, 0) << ReadText(folder + "/said");
  const std::string log = ReadText(folder + "/log");
  EXPECT_THAT(log, AllOf(HasSubstr("2 ranks on"), HasSubstr("1 rank on"),
                         HasSubstr("resumed behind step")));
  // Sums of one rank are those of two but for their rounding.
  ExpectUndisturbed(log, 2, 1e-4);
}

}  // namespace
}  // namespace orrery
