// SPDX-License-Identifier: Apache-2.0
// What the JSON of a supervised run says of its lives, and what a run says where nothing can be saved.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/launch/mpirun.h"
#include "tests/cli/run_plan.h"
#include "tests/runtime_data/testing.h"
#include "tests/runtime_snapshot/job.h"
#include "tests/runtime_snapshot/processes.h"

namespace orrery::snapshot::lives {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using train::Folder;

constexpr const char* kJob = "--model linear-20-1 --ranks 2 --dp 2 --comm local ";

// The last life's steps alone stood in it.
TEST(Supervised, JsonHasEachLife) {
  const Folder folder;
  Job run(folder,
          fmt::format("{}--steps 100000000 --log-every 1000000 --save-every 500 --supervise "
                      "--save {} --json {}",
                      kJob, folder / "s", folder / "all.json"));
  ASSERT_TRUE(run.Await("saved ")) << run.output();
  const std::vector<pid_t> below = RunsBelow(run.child());
  ASSERT_FALSE(below.empty());
  const std::size_t so_far = run.output().size();
  kill(below.back(), SIGKILL);
  ASSERT_TRUE(run.Await("resumed behind step ", so_far)) << run.output();
  ASSERT_TRUE(run.Await("saved ", so_far)) << run.output();
  kill(run.child(), SIGTERM);
  ASSERT_EQ(run.End(), 85) << run.output();
  const json record = json::parse(ReadText(folder / "all.json"));
  EXPECT_EQ(record["schema"], "orrery.run/1");
  ASSERT_EQ(record["lives"].size(), 2u);
  const json &first = record["lives"][0], &second = record["lives"][1], &all = record["whole_run"];
  EXPECT_THAT(first["cause"].get<std::string>(), HasSubstr("signal 9"));
  EXPECT_EQ(first["failed"], true);
  EXPECT_TRUE(first["continues_behind_step"].is_null());
  EXPECT_EQ(first["steps"][0]["step"], 1);
  EXPECT_EQ(first["ranks"], 2);
  EXPECT_EQ(second["cause"], "stopped by SIGTERM");
  EXPECT_EQ(second["failed"], false);
  EXPECT_EQ(second["continues_behind_step"], first["saved_step"]);
  EXPECT_EQ(second["steps"][0]["step"], first["saved_step"].get<int64_t>() + 1);
  EXPECT_EQ(second["layout"], first["layout"]);
  // No step is missing, however the first life ended, and those that were done again count once.
  EXPECT_EQ(all["first_step"], 1);
  EXPECT_EQ(all["last_step"], record["steps"].back()["step"]);
  EXPECT_EQ(all["steps"], all["last_step"]);
  EXPECT_EQ(all["steps"].get<int64_t>() + all["steps_repeated"].get<int64_t>(),
            static_cast<int64_t>(first["steps"].size() + second["steps"].size()));
  EXPECT_EQ(all["failures"], 1);
  EXPECT_GE(all["seconds"].get<double>(),
            first["seconds"].get<double>() + second["seconds"].get<double>());
  for (const char* name : {"/.life.steps", "/.life.json"})
    EXPECT_FALSE(std::filesystem::exists(folder / "s" + name)) << name;
}

// It had the exit code alone.
TEST(Supervised, JsonNamesTheRankThatFailed) {
#ifndef ORRERY_HAS_MPI
  GTEST_SKIP() << "built without MPI";
#endif
  if (launch::FindMpirun().empty()) GTEST_SKIP() << "no mpirun";
  const Folder folder;
  Job run(folder, fmt::format("--model linear-20-1 --ranks 2 --dp 2 --comm mpi --steps 100000000 "
                              "--log-every 1000000 --save-every 500 --supervise --max-restarts 0 "
                              "--save {} --json {}",
                              folder / "s", folder / "all.json"));
  ASSERT_TRUE(run.Await("saved ")) << run.output();
  const std::vector<pid_t> below = RunsBelow(run.child());
  ASSERT_GE(below.size(), 3u);  // the run, and its ranks below mpirun
  kill(below.back(), SIGKILL);
  ASSERT_EQ(run.End(), 1) << run.output();
  const json record = json::parse(ReadText(folder / "all.json"));
  ASSERT_EQ(record["lives"].size(), 1u);
  EXPECT_THAT(record["lives"][0]["cause"].get<std::string>(),
              testing::ContainsRegex("exit code 1: rank [01] on .*: ended by signal 9 \\(Killed"));
  EXPECT_FALSE(std::filesystem::exists(folder / "s/.life.cause"));
}

TEST(Supervised, JsonOnStandardOutputStandsAlone) {
  const Folder folder;
  const Outcome outcome = RunPlan(
      Words(fmt::format("run {}--steps 20 --supervise --json --save {}", kJob, folder / "s")));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(record.is_object()) << outcome.out;
  ASSERT_EQ(record["lives"].size(), 1u);
  EXPECT_EQ(record["lives"][0]["cause"], "done");
  EXPECT_EQ(record["lives"][0]["steps"].size(), 20u);
  EXPECT_EQ(record["whole_run"]["steps"], 20);
  EXPECT_EQ(record["steps"].size(), 20u);
}

// It said: wait for it. Root writes anywhere, so somebody else runs it.
TEST(Ended, AResumeWhereNothingCanBeSavedNamesSave) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local --ranks 1 ";
  ASSERT_EQ(RunPlan(Words(job + "--steps 2 --save " + (folder / "s"))).code, 0);
  namespace fs = std::filesystem;
  const fs::perms others = fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                           fs::perms::others_exec;
  fs::permissions(folder / "", others, fs::perm_options::add);
  fs::permissions(folder / "s", others | fs::perms::owner_read | fs::perms::owner_exec);
  const std::string as = getuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups " : "";
  const std::string said = folder / "said";
  const std::string command = fmt::format(
      "{}{} --model linear-20-1 --comm local --ranks 1 --steps 4 "
      "--resume {} > {} 2>&1",
      as, ProgramPath("plan-run"), folder / "s", said);
  const int status = std::system(command.c_str());
  fs::permissions(folder / "s", fs::perms::owner_write, fs::perm_options::add);
  if (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127)
    GTEST_SKIP() << "cannot become another user: " << ReadText(said);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(ReadText(said), testing::AllOf(HasSubstr("cannot write into"),
                                             HasSubstr("a run that continues saves there, too"),
                                             HasSubstr("--save DIR: another folder")));
}

}  // namespace
}  // namespace orrery::snapshot::lives
