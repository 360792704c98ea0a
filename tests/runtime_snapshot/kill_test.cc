// SPDX-License-Identifier: Apache-2.0
// Runs that are killed at random moments and resumed, again and again, end as if nothing had
// happened. ORRERY_KILLS sets how often (20).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
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
#include "tests/runtime_snapshot/processes.h"

namespace orrery::snapshot {
namespace {

using nlohmann::json;
using train::Folder;

using Clock = std::chrono::steady_clock;

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

pid_t Start(const std::string& arguments, const std::string& output) {
  std::vector<std::string> words = Words(arguments);
  words.insert(words.begin(), ProgramPath("plan-run"));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  train::WriteBytes(output, "");
  const pid_t child = fork();
  if (child != 0) return child;
  const int file = open(output.c_str(), O_WRONLY | O_APPEND);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  alarm(120);
  execv(pointers[0], pointers.data());
  _exit(127);
}

class Killer {
 public:
  Killer(const Folder& folder, std::string job, bool over_mpi)
      : where_(folder / "s"), output_(folder / "output"), job_(std::move(job)), mpi_(over_mpi) {}

  void Kill(int times) {
    for (int i = 0; i < times; ++i) KillOnce();
  }

  // One run that ends by SIGKILL; most of them while they save.
  void KillOnce() {
    const pid_t child = Start(job_ + " --steps 1000000 --save-every 1 --save " + where_ +
                                  (StepsIn(where_).empty() ? "" : " --resume " + where_),
                              output_);
    const bool anywhere = !mpi_ && random_() % 4 == 0;
    if (!anywhere) AwaitSaving(child);
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (anywhere ? 300000 : 30000)));
    pid_t victim = child;
    if (mpi_) {
      const std::vector<pid_t> ranks = RunsBelow(child);
      EXPECT_FALSE(ranks.empty()) << ReadText(output_);
      if (!ranks.empty()) victim = ranks[random_() % ranks.size()];
    }
    kill(victim, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(mpi_ ? WIFEXITED(status) && WEXITSTATUS(status) == 1
                     : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << ReadText(output_);
    refused_ += ReadText(output_).find("is not used") != std::string::npos ? 1 : 0;
  }

  // Against a run that nobody has killed: each loss and every byte of the last snapshot.
  void ExpectNothingHappened(const std::string& untouched) {
    const int64_t step = StepsIn(where_).empty() ? 0 : StepsIn(where_).front();
    const std::string to = job_ + " --json --steps " + std::to_string(step + 5);
    const Outcome whole = RunPlan(Words("run " + to + " --save " + untouched));
    ASSERT_EQ(whole.code, 0) << whole.err;
    const Outcome rest = RunPlan(Words("run " + to + " --save " + where_ + " --resume " + where_));
    ASSERT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(rest.err, "");
    const json all = json::parse(whole.out)["steps"], last = json::parse(rest.out)["steps"];
    ASSERT_EQ(last.size(), 5u);
    for (std::size_t i = 0; i < last.size(); ++i)
      EXPECT_EQ(last[i]["loss"], all[static_cast<std::size_t>(step) + i]["loss"]);
    int files = 0;
    const std::string newest = "/" + StepFolder(step + 5);
    for (const auto& entry : std::filesystem::directory_iterator(untouched + newest)) {
      const std::string name = newest + "/" + entry.path().filename().string();
      EXPECT_EQ(ReadWhole(where_ + name), ReadWhole(untouched + name)) << name;
      ++files;
    }
    EXPECT_GE(files, 3);  // shards of two ranks and a manifest at least
    EXPECT_EQ(refused_, 0) << "a snapshot was torn: its manifest came before its shards";
    EXPECT_EQ(StepsIn(where_).size(), 2u);
    testing::Test::RecordProperty("steps", static_cast<int>(step));
  }

 private:
  void AwaitSaving(pid_t child) const {
    const auto until = Clock::now() + std::chrono::seconds(60);
    while (Clock::now() < until && ReadText(output_).find("saved ") == std::string::npos) {
      siginfo_t ended{};
      waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid == child) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const std::string where_, output_, job_;
  const bool mpi_;
  std::mt19937 random_{static_cast<uint32_t>(FromEnvironment("ORRERY_MUTATION_SEED", 12345))};
  int refused_ = 0;
};

int Kills() { return std::max(1, static_cast<int>(FromEnvironment("ORRERY_KILLS", 20))); }

// A job of four ranks.
std::string Gpt(const Folder& folder, const std::string& layout) {
  const std::string file = folder / "gpt.yaml";
  train::WriteBytes(
      file,
      "name: small\nfamily: decoder\nlayers: 2\nhidden: 16\nffn: 64\nheads: 4\nvocab: 50\n"
      "max_positions: 8\nnorm: layer-norm\nactivation: gelu\npositions: learned\n"
      "tied_embeddings: true\n");
  return "--model " + file + " --seq-len 8 --global-batch 8 --micro-batch 2 --ranks 4 " + layout;
}

TEST(Killed, ThreadsAtAnyMoment) {
  const Folder folder;
  Killer killer(folder, "--model linear-20-1 --comm local --ranks 2 --dp 2", false);
  killer.Kill(Kills() * 2 / 5);
  killer.ExpectNothingHappened(folder / "untouched");
}

TEST(Killed, ThreadsOfPipelinesAtAnyMoment) {
  for (const std::string layout : {"--tp 2 --pp 2", "--pp 2 --dp 2 --zero 3"}) {
    const Folder folder;
    Killer killer(folder, Gpt(folder, layout + " --comm local"), false);
    killer.Kill(Kills() / 5);
    killer.ExpectNothingHappened(folder / "untouched");
  }
}

TEST(Killed, AnyMpiRankOfTensorParallelZeroAtAnyMoment) {
#ifdef ORRERY_HAS_MPI
  if (launch::FindMpirun().empty()) GTEST_SKIP() << "no mpirun";
  const Folder folder;
  Killer killer(folder, Gpt(folder, "--tp 2 --dp 2 --zero 1 --comm mpi"), true);
  killer.Kill((Kills() + 9) / 10);
  killer.ExpectNothingHappened(folder / "untouched");
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

TEST(Killed, AnyMpiRankAtAnyMoment) {
#ifdef ORRERY_HAS_MPI
  if (launch::FindMpirun().empty()) GTEST_SKIP() << "no mpirun";
  const Folder folder;
  Killer killer(folder, "--model linear-20-1 --comm mpi --ranks 2 --dp 2", true);
  killer.Kill((Kills() + 9) / 10);
  killer.ExpectNothingHappened(folder / "untouched");
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

}  // namespace
}  // namespace orrery::snapshot
