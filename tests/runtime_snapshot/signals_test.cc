// SPDX-License-Identifier: Apache-2.0
// Requests to stop that come twice, as `timeout` and its process group deliver them, at any moment of a run's
// start and of its steps: it ends in order, with a snapshot if it has done a step. ORRERY_SIGNALS sets how many
// runs of each kind (2), ORRERY_MUTATION_SEED the seed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "runtime/comm/tcp_socket.h"
#include "runtime/launch/mpirun.h"
#include "runtime/train/snapshot/files.h"
#include "tests/cli/run_plan.h"
#include "tests/from_environment.h"
#include "tests/runtime_data/testing.h"
#include "tests/runtime_snapshot/processes.h"

namespace orrery::snapshot {
namespace {

using train::Folder;
using Clock = std::chrono::steady_clock;

void Sleep(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// A command in a process group of its own.
class Group {
 public:
  Group(const std::vector<std::string>& words, std::string output, bool ignores_keys = false)
      : output_(std::move(output)) {
    train::WriteBytes(output_, "");
    std::vector<std::string> all = words;
    std::vector<char*> pointers;
    for (std::string& word : all) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    child_ = fork();
    if (child_ != 0) {
      setpgid(child_, child_);
      return;
    }
    setpgid(0, 0);
    signal(SIGINT, ignores_keys ? SIG_IGN : SIG_DFL);  // tests may run where it is ignored
    const int file = open(output_.c_str(), O_WRONLY | O_APPEND);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
      setenv(name, "1", 1);
    execvp(pointers[0], pointers.data());
    _exit(127);
  }
  ~Group() {
    kill(-child_, SIGKILL);
    if (!ended_) waitpid(child_, nullptr, 0);
  }

  pid_t child() const { return child_; }
  std::string output() const { return ReadText(output_); }
  bool Await(const std::string& text) {
    for (const auto until = Clock::now() + std::chrono::seconds(60); Clock::now() < until;
         Sleep(5)) {
      if (output().find(text) != std::string::npos) return true;
    }
    return false;
  }
  void SignalTwice(int number) const {
    kill(child_, number);
    kill(-child_, number);
  }
  // Exit code, or 128 + signal, as a shell has it; -1: no end.
  int End(int seconds) {
    int status = 0;
    const auto until = Clock::now() + std::chrono::seconds(seconds);
    while (waitpid(child_, &status, WNOHANG) == 0) {
      if (Clock::now() > until) return -1;
      Sleep(5);
    }
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  std::string output_;
  pid_t child_ = -1;
  bool ended_ = false;
};

// Processes that have the folder among their words: ranks that outlive what started them.
int Left(const std::string& folder) {
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (std::atoi(entry.path().filename().c_str()) <= 0) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string words((std::istreambuf_iterator<char>(file)), {});
    left += words.find("plan-run") != std::string::npos && words.find(folder) != std::string::npos;
  }
  return left;
}

std::vector<std::string> RunWords(const std::string& more, const Folder& folder) {
  std::vector<std::string> words =
      Words("--model linear-20-1 --dp 2 --steps 100000000 --log-every 1 --timeout 60s " + more +
            " --save " + (folder / "s"));
  words.insert(words.begin(), ProgramPath("plan-run"));
  return words;
}

std::vector<std::string> Behind(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Requests : public testing::Test {
 protected:
  // `codes`: those that end in order; by the signal itself only who has not begun to listen. `longest`: milliseconds in which
  // a run starts and does its first steps.
  void Run(const std::function<std::vector<std::string>(const Folder&)>& words, int64_t longest,
           const std::vector<int>& codes, int signal = SIGTERM) {
    const auto runs = static_cast<int>(FromEnvironment("ORRERY_SIGNALS", 2));
    for (int i = 0; i < runs; ++i) {
      const Folder folder;
      Group run(words(folder), folder / "output");
      const bool in_steps = only_in_steps_ || i % 2 == 1;
      if (in_steps) {
        ASSERT_TRUE(run.Await("step  ")) << run.output();
      }
      Sleep(static_cast<int64_t>(random_() % static_cast<uint64_t>(in_steps ? 100 : longest)));
      run.SignalTwice(signal);
      const int code = run.End(40);
      Judge(folder, run.output(), code, codes, signal);
      if (HasFailure()) return;
    }
    for (const auto& [what, times] : seen_) RecordProperty(what, times);
  }

  bool must_save_ = true, only_in_steps_ = false;

 private:
  void Judge(const Folder& folder, const std::string& output, int code,
             const std::vector<int>& codes, int signal) {
    for (const auto until = Clock::now() + std::chrono::seconds(40);
         Left(folder / "s") > 0 && Clock::now() < until;)
      Sleep(20);
    EXPECT_EQ(Left(folder / "s"), 0) << "ranks are left behind\n" << output;
    const bool stepped = output.find("step  ") != std::string::npos;
    const bool saved = !StepsIn(folder / "s").empty();
    EXPECT_TRUE(saved || !stepped || !must_save_) << "no snapshot, exit code " << code << "\n"
                                                  << output;
    const bool in_order = std::ranges::find(codes, code) != codes.end();
    EXPECT_TRUE(in_order || (code == 128 + signal && !saved)) << code << "\n" << output;
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "s", none))
      EXPECT_NE(entry.path().extension(), ".part") << output;
    ++seen_[saved ? "with a snapshot" : "before the first step"];
  }

  std::mt19937_64 random_{FromEnvironment("ORRERY_MUTATION_SEED", 1)};
  std::map<std::string, int> seen_;
};

bool HasMpi() {
#ifdef ORRERY_HAS_MPI
  return !launch::FindMpirun().empty();
#else
  return false;
#endif
}

TEST_F(Requests, TwiceEndThreadsInOrder) {
  Run([](const Folder& f) { return RunWords("--ranks 2 --comm local", f); }, 400, {85});
}

TEST_F(Requests, TwiceEndRanksOfMpirunInOrder) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  Run([](const Folder& f) { return RunWords("--ranks 2 --comm mpi", f); }, 2500, {85});
}

TEST_F(Requests, TwiceEndASupervisedRunInOrder) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  Run([](const Folder& f) { return RunWords("--ranks 2 --comm mpi --supervise", f); }, 2500, {85});
}

std::vector<std::string> SomebodysMpirun(const Folder& folder) {
  return Behind({"mpirun", "--oversubscribe", "-np", "2"}, RunWords("", folder));
}

// By a second SIGTERM it ends itself at once, by one its ranks after a second: what they can save until then depends on the
// machine, and so does whether they have begun to listen. Nothing is left behind, and nothing torn.
TEST_F(Requests, TwiceToSomebodysMpirunLeaveNothingTorn) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  must_save_ = false;
  Run(SomebodysMpirun, 2500, {85, 1, 143});
}

// It hands these on to ranks that are there.
TEST_F(Requests, TwiceHandedOnBySomebodysMpirunEndInOrder) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  only_in_steps_ = true;
  Run(SomebodysMpirun, 2500, {85}, SIGUSR1);
}

TEST_F(Requests, TwiceEndTheRanksOfALaunchInOrder) {
  const auto words = [](const Folder& f) {
    const int port = comm::PortOf(comm::Listen(0, true));
    return Behind({ProgramPath("plan-launch"), "--nodes", "1", "--slots", "2", "--port",
                   std::to_string(port), "--start", "rank", "--"},
                  RunWords("", f));
  };
  Run(words, 1500, {85, 143});
}

// One thread takes the signals; on the stacks of the others no handler may run.
TEST(Listening, AllThreadsOfARunButOneBlockRequests) {
  const Folder folder;
  Group run(RunWords("--ranks 2 --comm local", folder), folder / "output");
  ASSERT_TRUE(run.Await("step  ")) << run.output();
  int threads = 0, open = 0;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", run.child()))) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      ++threads;
      open += std::ranges::any_of(std::array{SIGTERM, SIGUSR1, SIGINT},
                                  [&](int signal) { return (blocked >> (signal - 1) & 1) == 0; });
    }
  }
  EXPECT_GE(threads, 4);
  EXPECT_EQ(open, 1);
}

std::string NameOf(int signal) { return fmt::format("SIG{}", sigabbrev_np(signal)); }

bool Blocks(pid_t process, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigBlk:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

// MPI's libraries alone load for a third of a second: what comes meanwhile waits for who knows what to do with it.
TEST(Listening, ARequestThatComesWhileTheProgramLoadsIsTaken) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    const Folder folder;
    std::vector<std::string> words = RunWords("--ranks 2 --comm local", folder);
    words.front() = ProgramPath("plan");
    words.insert(words.begin() + 1, "run");
    Group run(words, folder / "output");
    std::error_code none;
    const std::string exe = fmt::format("/proc/{}/exe", run.child());
    for (const auto until = Clock::now() + std::chrono::seconds(60);
         std::filesystem::read_symlink(exe, none).filename() != "plan-run" && Clock::now() < until;)
      std::this_thread::yield();
    EXPECT_TRUE(Blocks(run.child(), signal));
    kill(run.child(), signal);
    EXPECT_EQ(run.End(40), 85) << run.output();
    EXPECT_THAT(run.output(), testing::HasSubstr("stopped by " + NameOf(signal)));
    EXPECT_THAT(run.output(), testing::Not(testing::HasSubstr("no steps remain")));
  }
}

// mpirun hands on SIGUSR1, whatever came.
TEST(Listening, RanksOfARunNameTheRequestThatCame) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  // Each way and each request once; runtime_signals_test_full: all pairs.
  const bool all = FromEnvironment("ORRERY_EVERY_REQUEST", 0) > 0;
  constexpr std::array kWays = {"--ranks 2 --comm mpi", "--ranks 2 --comm mpi --supervise",
                                "--ranks 2 --comm local --supervise"};
  constexpr std::array kRequests = {SIGTERM, SIGUSR1, SIGINT};
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    for (std::size_t request = 0; request < kRequests.size(); ++request) {
      if (!all && way != request) continue;
      const int signal = kRequests[request];
      const Folder folder;
      Group run(RunWords(kWays[way], folder), folder / "output");
      ASSERT_TRUE(run.Await("step  ")) << run.output();
      kill(run.child(), signal);
      EXPECT_EQ(run.End(40), 85) << run.output();
      EXPECT_THAT(run.output(), testing::HasSubstr("stopped by " + NameOf(signal) + "; continue"));
    }
  }
}

pid_t ParentOf(pid_t process) {
  std::ifstream stat(fmt::format("/proc/{}/stat", process));
  std::string pid, name, state;
  pid_t parent = 0;
  return stat >> pid >> name >> state >> parent ? parent : 0;
}

// mpirun ends with 1 then, whatever its ranks have done in the two seconds that it leaves them.
TEST(Listening, ARunIsStoppedByWayOfItsMpirun) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  constexpr int kTries = 5;  // a machine that is busy may not run them in that time
  for (const int signal : {SIGINT, SIGTERM}) {
    int saved = 0;
    for (int i = 0; i < kTries && saved == 0; ++i) {
      const Folder folder;
      Group run(RunWords("--ranks 2 --comm mpi", folder), folder / "output");
      ASSERT_TRUE(run.Await("step  ")) << run.output();
      const std::vector<pid_t> ranks = RunsBelow(run.child());
      ASSERT_EQ(ranks.size(), 2u);
      const pid_t mpirun = ParentOf(ranks.back());
      ASSERT_NE(mpirun, run.child());
      kill(mpirun, signal);
      const int code = run.End(40);
      if (StepsIn(folder / "s").empty()) {
        EXPECT_EQ(code, 1);
        EXPECT_NE(run.output().find("plan run: error: "), std::string::npos);
        continue;
      }
      ++saved;
      EXPECT_EQ(code, 85);
      EXPECT_NE(run.output().find("stopped by SIG"), std::string::npos);
      EXPECT_EQ(run.output().find("error"), std::string::npos);
    }
    EXPECT_EQ(saved, 1) << "killed each time before a snapshot was there";
  }
}

// It kills its ranks, also in the middle of a step: whoever starts them so is told what to send instead.
TEST(Listening, RanksOfSomebodysMpirunSayWhatItDoes) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const char* const said = "mpirun kills its ranks 2 s after Ctrl-C or SIGTERM";
  const Folder folder, own;
  Group theirs(SomebodysMpirun(folder), folder / "output");
  ASSERT_TRUE(theirs.Await("step  ")) << theirs.output();
  EXPECT_THAT(theirs.output(), testing::HasSubstr(said));
  kill(theirs.child(), SIGUSR1);
  EXPECT_EQ(theirs.End(40), 85) << theirs.output();
  Group ours(RunWords("--ranks 2 --comm mpi", own), own / "output");
  ASSERT_TRUE(ours.Await("step  ")) << ours.output();
  EXPECT_THAT(ours.output(), testing::Not(testing::HasSubstr(said)));
  kill(ours.child(), SIGUSR1);
  EXPECT_EQ(ours.End(40), 85) << ours.output();
}

// Nothing came to the run that started it.
TEST(Listening, ARankBesideTheFirstNamesTheRequestThatCameToIt) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  for (const int signal : {SIGUSR1, SIGINT}) {
    const Folder folder;
    Group run(RunWords("--ranks 2 --comm mpi", folder), folder / "output");
    ASSERT_TRUE(run.Await("step  ")) << run.output();
    const std::vector<pid_t> ranks = RunsBelow(run.child());
    ASSERT_EQ(ranks.size(), 2u);
    kill(ranks.back(), signal);
    EXPECT_EQ(run.End(40), 85) << run.output();
    EXPECT_THAT(run.output(), testing::HasSubstr("stopped by " + NameOf(signal) + "; continue"));
  }
}

// A key that is pressed again is meant, sooner than a second SIGTERM.
TEST(Listening, ASecondKeyEndsARunAtOnce) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const Folder folder;
  Group run(RunWords("--ranks 2 --comm mpi", folder), folder / "output");
  ASSERT_TRUE(run.Await("step  ")) << run.output();
  const std::vector<pid_t> ranks = RunsBelow(run.child());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks.back(), SIGSTOP);  // the step does not end
  kill(run.child(), SIGINT);
  ASSERT_TRUE(run.Await("a second one ends it at once")) << run.output();
  EXPECT_EQ(run.End(1), -1) << run.output();
  kill(run.child(), SIGINT);
  EXPECT_EQ(run.End(2), 128 + SIGINT) << run.output();
}

TEST(Listening, AKeyMeansNothingToARunThatIgnoresIt) {
  const Folder folder;
  Group run(RunWords("--ranks 2 --comm local", folder), folder / "output", true);
  ASSERT_TRUE(run.Await("step  ")) << run.output();
  kill(run.child(), SIGINT);
  EXPECT_EQ(run.End(1), -1) << run.output();
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(40), 85) << run.output();
}

TEST(Listening, ASecondRequestThatIsMeantEndsARunAtOnce) {
  const Folder folder;
  // The step never ends: its other rank is no process that runs.
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  Group run(RunWords("--ranks 2 --comm mpi", folder), folder / "output");
  ASSERT_TRUE(run.Await("step  ")) << run.output();
  const std::vector<pid_t> ranks = RunsBelow(run.child());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks.back(), SIGSTOP);
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(4), -1) << run.output();
  kill(run.child(), SIGTERM);
  EXPECT_EQ(run.End(10), 128 + SIGTERM) << run.output();
}

}  // namespace
}  // namespace orrery::snapshot
