// SPDX-License-Identifier: Apache-2.0
// Runs that something ends, and the supervisor that starts them again: signals, time limits, locks,
// storage that is slow or full, ranks that are killed or stopped. ORRERY_FAULTS sets how many random
// faults (6; runtime_supervised_test_full: 20), ORRERY_MUTATION_SEED their seed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "runtime/launch/mpirun.h"
#include "runtime/train/snapshot/files.h"
#include "tests/cli/run_plan.h"
#include "tests/from_environment.h"
#include "tests/runtime_data/testing.h"
#include "tests/runtime_snapshot/job.h"
#include "tests/runtime_snapshot/processes.h"

namespace orrery::snapshot {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using train::Folder;
using Clock = std::chrono::steady_clock;

bool HasMpi() {
#ifdef ORRERY_HAS_MPI
  return !launch::FindMpirun().empty();
#else
  return false;
#endif
}

constexpr const char* kJob = "--model linear-20-1 --ranks 2 --dp 2 --comm local ";

std::map<int64_t, double> LossesOf(const std::string& arguments) {
  const Outcome outcome = RunPlan(Words("run " + arguments + " --json"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::map<int64_t, double> losses;
  if (outcome.code != 0) return losses;
  const json record = json::parse(outcome.out);
  for (const json& step : record["steps"]) losses[step["step"]] = step["loss"];
  return losses;
}

// What a run that was ended goes on with is what one run would have done.
void ExpectSameCurve(const std::string& job, const std::string& where, double tolerance) {
  ASSERT_FALSE(StepsIn(where).empty());
  const int64_t to = StepsIn(where).front() + 5;
  const auto whole = LossesOf(job + fmt::format("--steps {}", to));
  const auto rest = LossesOf(job + fmt::format("--steps {} --resume {}", to, where));
  ASSERT_EQ(rest.size(), 5u);
  for (const auto& [step, loss] : rest)
    EXPECT_NEAR(loss, whole.at(step), tolerance * std::abs(loss)) << step;
}

TEST(Ended, BySignalsAfterTheStepWithASnapshotAndItsOwnCode) {
  for (const auto& [number, name] : {std::pair(SIGTERM, "SIGTERM"), std::pair(SIGUSR1, "SIGUSR1"),
                                     std::pair(SIGINT, "SIGINT")}) {
    const Folder folder;
    Job run(folder, kJob + ("--steps 100000000 --log-every 100 --save " + (folder / "s")));
    ASSERT_TRUE(run.Await("step  100"));
    kill(run.child(), number);
    EXPECT_EQ(run.End(), 85) << run.output();
    EXPECT_THAT(run.output(),
                HasSubstr(fmt::format("plan run: stopped by {}; continue with", name)));
    ExpectSameCurve(kJob, folder / "s", 0);
  }
}

TEST(Ended, ByATimeLimit) {
  const Folder folder;
  Job run(folder,
          kJob + ("--steps 100000000 --log-every 10000 --time-limit 1s --save " + (folder / "s")));
  EXPECT_EQ(run.End(), 85) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("stopped by the time limit"));
  ExpectSameCurve(kJob, folder / "s", 0);
}

TEST(Ended, RanksOfMpirunBySignal) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const Folder folder;
  const std::string job = "--model linear-20-1 --ranks 2 --dp 2 --comm mpi ";
  Job run(folder, job + "--steps 100000000 --log-every 100 --save " + (folder / "s"));
  ASSERT_TRUE(run.Await("step  100"));
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(), 85) << run.output();
  ExpectSameCurve(kJob, folder / "s", 0);
}

TEST(Ended, WithoutAFolderItSaysThatNothingIsSaved) {
  const Folder folder;
  Job run(folder, kJob + std::string("--steps 100000000 --log-every 10000 --time-limit 300ms"));
  EXPECT_EQ(run.End(), 85);
  EXPECT_THAT(run.output(), HasSubstr("nothing is saved: --save DIR was not given"));
}

TEST(Locked, TwoRunsDoNotWriteIntoOneFolder) {
  const Folder folder;
  Job first(folder,
            kJob + ("--steps 100000000 --log-every 1000 --save-every 50 --save " + (folder / "s")));
  ASSERT_TRUE(first.Await("saved "));
  const Outcome second = RunPlan(Words("run " + std::string(kJob) + "--steps 3 --save " +
                                       (folder / "s") + " --resume " + (folder / "s")));
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another run writes into '"));
  EXPECT_THAT(second.err, HasSubstr(fmt::format("process {} on ", first.child())));
  // mpirun's account of the exit code is none of the cause.
  EXPECT_THAT(second.err, Not(HasSubstr("mpirun detected")));
}

// Slower than the time after which a rank counts as dead.
TEST(Storage, ThatIsSlowIsNoDeadRank) {
  const Folder folder;
  train::WriteBytes(folder / "storage", "slow 1500");
  Job run(folder,
          kJob + fmt::format("--steps 40 --log-every 10 --timeout 0.6s --save-every 10 "
                             "--save {}",
                             folder / "s"),
          folder / "storage");
  EXPECT_EQ(run.End(), 0) << run.output();
  EXPECT_EQ(StepsIn(folder / "s"), (std::vector<int64_t>{40, 30}));
  ExpectSameCurve(kJob, folder / "s", 0);
}

TEST(Supervised, WhatCannotBeMeantIsRefused) {
  const Folder folder;
  const std::string job = "run --model linear-20-1 --comm local ";
  const std::pair<std::string, const char*> wrong[] = {
      {"--supervise", "--supervise continues from snapshots"},
      {"--max-restarts 2", "--max-restarts needs --supervise"},
      {"--host-test true", "--host-test needs --supervise and --hostfile"},
      {"--time-limit soon", "soon"},
      {"--time-limit 0s", "--time-limit is no time"},
      {"--hostfile /no/such/file", "cannot read the hostfile '/no/such/file'"},
      {"--hostfile /dev/zero", "the hostfile '/dev/zero': it is no regular file"},
      {"--lr-end 1e-4", "--lr-end needs a schedule that falls"},
      {"--lr-schedule cosine --warmup 10 --steps 10", "the warm-up of 10 steps leaves none of 10"},
      {"--lr-schedule cosine --lr-end 1", "--lr-end is above --lr"},
      {"--lr-schedule cosine --lr-power 2", "--lr-power is that of a polynomial"},
      {"--trace /no/such/folder/file", "there is no folder '/no/such/folder'"},
      {"--json /", "cannot write '/': it is a folder"},
      {"--save /proc/s", "cannot write into"}};
  for (const auto& [flags, message] : wrong) {
    const Outcome outcome = RunPlan(Words(job + flags));
    EXPECT_EQ(outcome.code, 2) << flags;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(Supervised, GivesUpAfterFailuresWithoutProgress) {
  const Folder folder;
  train::WriteBytes(folder / "storage", "full");
  Job run(folder,
          kJob + fmt::format("--steps 100 --log-every 100 --save-every 10 --supervise "
                             "--max-restarts 1 --save {}",
                             folder / "s"),
          folder / "storage");
  EXPECT_EQ(run.End(), 1);
  EXPECT_THAT(run.output(), HasSubstr("No space left on device"));
  EXPECT_THAT(run.output(), HasSubstr("gives up: 2 failures in a row behind step 0"));
}

// A life that saved something before it failed begins the count, and the next one goes on with it.
TEST(Supervised, CountsFailuresBehindOneSnapshot) {
  const Folder folder;
  const std::string storage = folder / "storage";
  train::WriteBytes(storage, "");
  Job run(folder,
          kJob + fmt::format("--steps 100000000 --log-every 1000000 --save-every 10 --supervise "
                             "--max-restarts 1 --save {}",
                             folder / "s"),
          storage);
  ASSERT_TRUE(run.Await("saved "));
  train::WriteBytes(storage, "full");
  EXPECT_EQ(run.End(), 1);
  EXPECT_THAT(run.output(), HasSubstr("gives up: 2 failures in a row behind step "));
  const std::size_t restart = run.output().find("restart 1 of 1");
  ASSERT_NE(restart, std::string::npos) << run.output();
  EXPECT_EQ(run.output().find("restart 1 of 1", restart + 1), std::string::npos) << run.output();
}

// The hosts of a run become fewer while it runs: the planner picks a layout for those that are left.
TEST(Supervised, GoesOnOnFewerRanksInAnotherLayout) {
  const Folder folder;
  train::WriteBytes(folder / "hosts", "localhost slots=4\n");
  const std::string job = "--model linear-20-1 --global-batch 24 --comm local ";
  const std::string schedule = "--lr-schedule cosine --warmup 50 --lr-steps 40000 ";
  Job run(folder, job + schedule +
                      fmt::format("--ranks 4 --dp 4 --steps 40000 --log-every 20 --save-every 20 "
                                  "--supervise --hostfile {} --save {}",
                                  folder / "hosts", folder / "s"));
  ASSERT_TRUE(run.Await("saved "));
  train::WriteBytes(folder / "hosts", "# one has gone\nlocalhost slots=3\n");
  const std::vector<pid_t> below = RunsBelow(run.child());
  ASSERT_FALSE(below.empty());
  const std::size_t so_far = run.output().size();
  kill(below.front(), SIGKILL);
  ASSERT_TRUE(run.Await("saved ", so_far));
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(), 85) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("ended with signal 9 (Killed); it continues behind step "));
  EXPECT_THAT(run.output(), HasSubstr("3 of 4 ranks are left: the planner picks the layout"));
  EXPECT_THAT(run.output().substr(so_far), HasSubstr("3 ranks on "));
  ExpectSameCurve(job + "--ranks 1 " + schedule, folder / "s", 1e-4);
}

TEST(Supervised, AKilledRankOfMpirunIsNamedAndStartedAgain) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const Folder folder;
  Job run(folder, fmt::format("--model linear-20-1 --ranks 2 --dp 2 --comm mpi --steps 100000000 "
                              "--log-every 1000000 --save-every 10 --supervise --save {}",
                              folder / "s"));
  ASSERT_TRUE(run.Await("saved "));
  const std::vector<pid_t> below = RunsBelow(run.child());
  ASSERT_GE(below.size(), 3u);
  const std::size_t so_far = run.output().size();
  kill(below.back(), SIGKILL);
  ASSERT_TRUE(run.Await("it continues behind step ", so_far)) << run.output();
  ASSERT_TRUE(run.Await("resumed behind step ", so_far)) << run.output();
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(), 85) << run.output();
  EXPECT_THAT(run.output(), testing::ContainsRegex("rank [01] on .*: ended by signal 9 .Killed."));
  ExpectSameCurve(kJob, folder / "s", 0);
}

// Hosts as mpirun reaches them: its agent starts what it is told here, unless the host is lost.
class TwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasMpi()) GTEST_SKIP() << "no MPI";
    train::WriteBytes(folder_ / "hosts", "localhost slots=2\nfar-away slots=2\n");
    train::WriteBytes(folder_ / "agent", fmt::format("#!/bin/sh\n[ -e '{}' ] && exit 255\nshift\n"
                                                     "FAR_AWAY='{}' exec /bin/sh -c \"$*\"\n",
                                                     folder_ / "lost", folder_ / "hosts"));
    std::filesystem::permissions(folder_ / "agent", std::filesystem::perms::owner_all);
    setenv("OMPI_MCA_plm_rsh_agent", (folder_ / "agent").c_str(), 1);
    setenv("OMPI_MCA_plm", "rsh", 1);
    // Two daemons of one job on one machine: Open MPI 4.1 (btl/vader) names shared memory by a rank's place below its daemon,
    // so that rank 0 of each would write into the other's, and ranks end by SIGSEGV in MPI_Init or their first message.
    setenv("OMPI_MCA_btl", "self,tcp", 1);
  }
  void TearDown() override {
    for (const char* name : {"OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm", "OMPI_MCA_btl"})
      unsetenv(name);
  }
  std::string Command() const {
    return fmt::format(
        "{}--ranks 4 --dp 4 --comm mpi --steps 100000000 --log-every 1000000 --save-every 20 "
        "--timeout 3s --supervise --hostfile {} --save {}",
        kModel, folder_ / "hosts", folder_ / "s");
  }
  // mpirun's daemon on the other host, and its ranks: those that have the agent's mark.
  std::vector<pid_t> FarAway() const {
    std::vector<pid_t> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t process = std::atoi(entry.path().filename().c_str());
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      for (std::string word; process > 0 && std::getline(file, word, '\0');)
        if (word == "FAR_AWAY=" + (folder_ / "hosts")) all.push_back(process);
    }
    return all;
  }
  void ExpectGoesOnWithTwo(Job* run, std::size_t so_far) {
    ASSERT_TRUE(run->Await("host far-away is lost", so_far)) << run->output();
    ASSERT_TRUE(run->Await("2 of 4 ranks are left: the planner picks the layout", so_far));
    ASSERT_TRUE(run->Await("resumed behind step ", so_far)) << run->output();
    ASSERT_TRUE(run->Await("saved ", so_far)) << run->output();
    kill(run->child(), SIGTERM);
    EXPECT_EQ(run->End(), 85) << run->output();
    EXPECT_EQ(ReadText(folder_ / "s/hosts"), "localhost slots=2\n");
    ExpectSameCurve(kModel + std::string("--ranks 1 --comm local "), folder_ / "s", 1e-4);
  }

  // All processes of the second host get `signal`; the job has to go on with the first one.
  void Stop(int signal) {
    Job run(folder_, Command());
    ASSERT_TRUE(run.Await("saved ")) << run.output();
    const std::size_t so_far = run.output().size();
    const std::vector<pid_t> far = FarAway();
    ASSERT_GE(far.size(), 3u) << run.output();
    train::WriteBytes(folder_ / "lost", "");
    for (const pid_t process : far) kill(process, signal);
    ExpectGoesOnWithTwo(&run, so_far);
    for (const pid_t process : far) kill(process, SIGKILL);  // those that are only stopped
  }

  static constexpr const char* kModel = "--model linear-20-1 --global-batch 24 ";
  Folder folder_;
};

// Lost for a while: the job shrinks, and grows again once the host answers.
TEST_F(TwoHosts, AHostThatComesBackIsTakenInAgain) {
  Job run(folder_, Command() + " --host-wait 1s --host-test :");
  ASSERT_TRUE(run.Await("saved ")) << run.output();
  std::size_t so_far = run.output().size();
  train::WriteBytes(folder_ / "lost", "");
  for (const pid_t process : FarAway()) kill(process, SIGKILL);
  ASSERT_TRUE(run.Await("roll call: 1 of 2 hosts answer after ", so_far)) << run.output();
  ASSERT_TRUE(run.Await("2 of 4 ranks are left: the planner picks the layout", so_far));
  ASSERT_TRUE(run.Await("saved ", run.output().size())) << run.output();
  so_far = run.output().size();
  std::filesystem::remove(folder_ / "lost");
  ASSERT_TRUE(run.Await("host far-away answers again", so_far)) << run.output();
  ASSERT_TRUE(run.Await("4 ranks on ", so_far)) << run.output();
  ASSERT_TRUE(run.Await("resumed behind step ", so_far)) << run.output();
  ASSERT_TRUE(run.Await("saved ", run.output().size())) << run.output();
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(), 85) << run.output();
  EXPECT_EQ(ReadText(folder_ / "s/hosts"), "localhost slots=2\nfar-away slots=2\n");
  ExpectSameCurve(kModel + std::string("--ranks 1 --comm local "), folder_ / "s", 1e-4);
}

// Down for less than --host-wait: the next attempt has all hosts.
TEST_F(TwoHosts, AHostThatIsBackInTimeIsWaitedFor) {
  Job run(folder_, Command() + " --host-wait 60s");
  ASSERT_TRUE(run.Await("saved ")) << run.output();
  train::WriteBytes(folder_ / "lost", "");
  for (const pid_t process : FarAway()) kill(process, SIGKILL);
  ASSERT_TRUE(run.Await("it continues behind step ")) << run.output();
  Sleep(1500);
  std::filesystem::remove(folder_ / "lost");
  ASSERT_TRUE(run.Await("roll call: 2 of 2 hosts answer after ")) << run.output();
  ASSERT_TRUE(run.Await("resumed behind step ")) << run.output();
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(), 85) << run.output();
  EXPECT_FALSE(run.Says("the planner picks the layout", 0)) << run.output();
}

// The agent fails, or it is the agent that is at fault: the only other host is left out once mpirun has tried it, too.
TEST_F(TwoHosts, TheOnlyOtherHostIsLeftOutOnceMpirunHasNotReachedItEither) {
  train::WriteBytes(folder_ / "lost", "");
  Job run(folder_, Command());
  ASSERT_TRUE(run.Await("saved ")) << run.output();
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(), 85) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("mpirun cannot start its daemons on all hosts: "));
  EXPECT_THAT(run.output(),
              HasSubstr("host far-away is lost: 'true' ended with exit code 255; mpirun has not "
                        "reached it, either"));
  EXPECT_THAT(run.output(), HasSubstr("2 of 4 ranks are left: the planner picks the layout"));
  EXPECT_THAT(run.output(), Not(HasSubstr("restart 2 of 3")));
  EXPECT_EQ(ReadText(folder_ / "s/hosts"), "localhost slots=2\n");
}

// Without an agent nothing is known of any host, and one rank here is not what was asked for.
TEST_F(TwoHosts, AnAgentThatIsNotThereLosesNoHost) {
  setenv("OMPI_MCA_plm_rsh_agent", "/no/such/agent", 1);
  Job run(folder_, Command() + " --max-restarts 1");
  EXPECT_EQ(run.End(), 1) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("the way to them may be at fault"));
  EXPECT_THAT(run.output(), HasSubstr("cannot start /no/such/agent"));
  EXPECT_THAT(run.output(), Not(HasSubstr("is lost")));
}

// It restarted onto that host until it gave up.
TEST(Supervised, TheOnlyOtherHostIsLeftOutWhereItsNameDoesNotResolve) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  if (launch::FindProgram("ssh").empty()) GTEST_SKIP() << "no ssh";
  const Folder folder;
  train::WriteBytes(folder / "hosts", "localhost slots=2\nnohost.invalid slots=2\n");
  Job run(folder, fmt::format("--model linear-20-1 --global-batch 24 --ranks 4 --best-layout "
                              "--steps 20 --hostfile {} --supervise --save {}",
                              folder / "hosts", folder / "s"));
  EXPECT_EQ(run.End(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("its name does not resolve on this host"));
  EXPECT_THAT(run.output(), HasSubstr("2 of 4 ranks are left: the planner picks the layout"));
  EXPECT_THAT(run.output(), Not(HasSubstr("restart")));
}

using TwoHostsSlow = TwoHosts;
TEST_F(TwoHostsSlow, AHostThatGoesDownIsFoundAndExcluded) { Stop(SIGKILL); }

// Nothing is closed and nothing answers, as after a power failure.
TEST_F(TwoHosts, AHostThatFallsSilentIsFoundAndExcluded) { Stop(SIGSTOP); }

// One fault after the other, at random moments, and the same curve at the end.
TEST(Supervised, SurvivesRandomFaults) {
  const auto faults = static_cast<int>(FromEnvironment("ORRERY_FAULTS", 6));
  std::mt19937_64 random(FromEnvironment("ORRERY_MUTATION_SEED", 1));
  const Folder folder;
  const std::string storage = folder / "storage", where = folder / "s";
  train::WriteBytes(storage, "");
  Job run(folder,
          kJob + fmt::format("--steps 100000000 --log-every 1000000 --save-every 10 --timeout 0.6s "
                             "--supervise --max-restarts 20 --save {}",
                             where),
          storage);
  std::map<std::string, int> seen;
  int64_t newest = 0;
  for (int i = 0; i < faults; ++i) {
    ASSERT_TRUE(run.Await("saved ", seen.empty() ? 0 : run.output().size())) << run.output();
    const std::size_t so_far = run.output().size();
    Sleep(static_cast<int>(random() % 60));
    const std::vector<pid_t> below = RunsBelow(run.child());
    ASSERT_FALSE(below.empty()) << run.output();
    switch (random() % 4) {
      case 0:
        ++seen["killed"];
        kill(below.front(), SIGKILL);
        EXPECT_TRUE(run.Await("ended with signal 9 (Killed); it continues behind", so_far));
        break;
      case 1:
        ++seen["stopped"];
        kill(below.front(), SIGSTOP);
        EXPECT_TRUE(run.Await("has been stopped for 0.6 s: it is killed", so_far));
        break;
      case 2:
        ++seen["slow"];
        train::WriteBytes(storage, "slow 1500");
        Sleep(700);
        train::WriteBytes(storage, "");
        EXPECT_FALSE(run.Says("supervisor: ", static_cast<int>(so_far))) << run.output();
        break;
      default:
        ++seen["full"];
        train::WriteBytes(storage, "full");
        EXPECT_TRUE(run.Await("No space left on device", so_far));
        EXPECT_TRUE(run.Await("ended with exit code 1; it continues behind", so_far));
        train::WriteBytes(storage, "");
    }
    const std::vector<int64_t> steps = StepsIn(where);
    ASSERT_FALSE(steps.empty());
    EXPECT_GE(steps.front(), newest) << "a snapshot is lost";
    newest = steps.front();
  }
  ASSERT_TRUE(run.Await("saved ", run.output().size())) << run.output();
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(), 85) << run.output();
  EXPECT_THAT(run.output(), Not(HasSubstr("is not used")));
  ExpectSameCurve(kJob, where, 0);
  for (const auto& [name, times] : seen) RecordProperty(name, times);
}

}  // namespace
}  // namespace orrery::snapshot
