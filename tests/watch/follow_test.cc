// SPDX-License-Identifier: Apache-2.0
// A log that is rotated or truncated while `plan watch` follows it: the new one counts, from its first line.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "calib/program/watch/watch_command.h"

namespace orrery::watch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kFollowed = R"({"schema": "orrery.predict/1", "prediction": {
  "layout": "tp 1, pp 1, dp 8", "digest": "d1", "gpus": 8, "global_batch": 512, "step_time_s": 1.0,
  "step_time_interval_s": [0.9, 1.1], "tokens_per_s": 80000,
  "breakdown": {"compute_s": 0.8, "data_exposed_s": 0.15, "fixed_s": 0.05},
  "memory": {"total_bytes": 3.2e10, "allocated_bytes": 3e10, "workspaces_bytes": 0, "context_bytes": 0}}})";

// From this step on: one that warms up, and those of so many seconds.
std::string Lines(int step, int steps, double seconds) {
  std::string text;
  for (int i = 0; i <= steps; ++i)
    text += fmt::format(
        " iteration {:8}/    1000 | consumed samples: 512 | elapsed time per iteration (ms): "
        "{:.1f} | global batch size: 512 | lm loss: 1.0E+00 |\n",
        step + i, 1e3 * (i == 0 ? 3 : seconds));
  return text;
}

class Follow : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("orrery-follow-{}", getpid());
    fs::create_directories(folder_);
    std::ofstream(folder_ / "plan.json") << kFollowed;
  }
  void TearDown() override {
    if (watcher_ > 0) kill(watcher_, SIGKILL);
    if (watcher_ > 0) waitpid(watcher_, nullptr, 0);
    fs::remove_all(folder_);
  }

  std::string log() const { return (folder_ / "train.log").string(); }
  // plan watch in a process of its own, whose output and errors are files.
  void Start() {
    watcher_ = fork();
    if (watcher_ != 0) return;
    // Not the streams: stderr is to write at once.
    for (const auto& [name, stream] : {std::pair{"out", 1}, std::pair{"err", 2}})
      dup2(open((folder_ / name).c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), stream);
    const std::string plan = (folder_ / "plan.json").string();
    const cli::Answer answer = cli::RunWatch(
        cli::CommandLine({"plan", "watch", log(), "--against", plan, "--json", "--idle", "60s"}));
    std::fflush(nullptr);
    _exit(static_cast<int>(answer.code));
  }
  std::string Read(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  // Until the file holds the text; false: it never did.
  bool Comes(const char* name, const std::string& text) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      if (Read(name).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << "no '" << text << "' in\n" << Read(name) << Read("err");
    return false;
  }
  // Ends it as ^C does; its exit code.
  int End() {
    kill(watcher_, SIGINT);
    int status = -1;
    waitpid(watcher_, &status, 0);
    watcher_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path folder_;
  pid_t watcher_ = 0;
};

TEST_F(Follow, ARotatedLogIsTheNewFile) {
  std::ofstream(log()) << Lines(10, 4, 1.5);
  Start();
  ASSERT_TRUE(Comes("out", "\"since_step\":11"));
  // As logrotate does it; the new one is the longer one.
  fs::rename(log(), folder_ / "train.log.1");
  std::ofstream(log()) << Lines(100, 20, 1.7);
  ASSERT_TRUE(Comes("err", "train.log was replaced: following the new one"));
  ASSERT_TRUE(Comes("out", "\"since_step\":101"));
  // What the job writes on is read on.
  std::ofstream(log(), std::ios::app) << Lines(200, 20, 1.0);
  ASSERT_TRUE(Comes("out", "was_outside"));
  EXPECT_EQ(End(), 4);
  EXPECT_THAT(Read("out"), HasSubstr("\"steps\":41"));  // those of the new file alone
}

TEST_F(Follow, ATruncatedLogBeginsAnew) {
  std::ofstream(log()) << Lines(10, 30, 1.0);
  Start();
  std::ofstream(log(), std::ios::app) << Lines(41, 5, 1.5);
  ASSERT_TRUE(Comes("out", "\"since_step\":41"));
  // As copytruncate does it: the same file, of which the job writes on from its beginning.
  std::ofstream(log()) << Lines(100, 4, 1.0);
  ASSERT_TRUE(Comes("err", "train.log was replaced: following the new one"));
  std::ofstream(log(), std::ios::app) << Lines(105, 4, 1.6);
  ASSERT_TRUE(Comes("out", "\"since_step\":105"));
  EXPECT_EQ(End(), 4);
}

// The exit code is of all that was followed, so the last line says why.
TEST_F(Follow, AGoodLogBehindASlowOneIsNotJustInside) {
  std::ofstream(log()) << Lines(10, 4, 1.5);
  Start();
  ASSERT_TRUE(Comes("out", "\"since_step\":11"));
  fs::rename(log(), folder_ / "train.log.1");
  std::ofstream(log()) << Lines(100, 4, 1.0);
  ASSERT_TRUE(Comes("err", "train.log was replaced: following the new one"));
  EXPECT_EQ(End(), 4);
  EXPECT_THAT(Read("out"), HasSubstr("\"inside\":false,\"outside_before\":true"));
}

// Ranks print their peaks one after the other, and the largest moves to another line.
TEST_F(Follow, MemoryIsSaidOnce) {
  const auto peak = [](int rank, double mb) {
    return fmt::format(
        "[Rank {}] (after 12 iterations) memory (MB) | allocated: 9.5 | max allocated: {:.1f} | "
        "reserved: 9.5 | max reserved: 9.5\n",
        rank, mb);
  };
  std::ofstream(log()) << Lines(10, 2, 1.0) << peak(0, 40000);
  Start();
  ASSERT_TRUE(Comes("out", "\"what\":\"memory\""));
  std::ofstream(log(), std::ios::app) << peak(4, 42000) << Lines(13, 4, 1.5);
  ASSERT_TRUE(Comes("out", "\"what\":\"step_time\""));
  EXPECT_EQ(End(), 4);
  const std::string out = Read("out");
  EXPECT_EQ(out.find("\"what\":\"memory\""), out.rfind("\"what\":\"memory\"")) << out;
}

// As a file is that takes the place of one that was removed between two looks.
TEST_F(Follow, ALogOfTheSameLengthIsTheNewFile) {
  std::ofstream(log()) << Lines(100, 4, 1.5);
  Start();
  ASSERT_TRUE(Comes("out", "\"since_step\":101"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::string other = Lines(200, 4, 1.7);
  ASSERT_EQ(other.size(), fs::file_size(log()));
  const int file = open(log().c_str(), O_WRONLY);
  ASSERT_EQ(write(file, other.data(), other.size()), static_cast<ssize_t>(other.size()));
  close(file);
  ASSERT_TRUE(Comes("err", "train.log was replaced: following the new one"));
  ASSERT_TRUE(Comes("out", "\"since_step\":201"));
  EXPECT_EQ(End(), 4);
}

// Half of a number is another number: a line counts when it has ended.
TEST_F(Follow, ALineThatIsBeingWrittenIsNotReadYet) {
  std::ofstream(log()) << Lines(10, 4, 1.5);
  Start();
  ASSERT_TRUE(Comes("out", "\"since_step\":11"));
  const std::string next = Lines(15, 0, 1.5);  // of 3 s
  const std::size_t cut = next.find("3000.0") + 1;
  std::ofstream(log(), std::ios::app) << next.substr(0, cut);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  std::ofstream(log(), std::ios::app) << next.substr(cut) << Lines(16, 3, 1.5);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(End(), 4);
  EXPECT_EQ(Read("out").find("was_outside"), std::string::npos) << Read("out");
  EXPECT_THAT(Read("out"), HasSubstr("\"steps\":9"));
}

// What was read of it would be gone for the next look: it waited for ever.
TEST_F(Follow, APipeIsNotFollowed) {
  ASSERT_EQ(mkfifo(log().c_str(), 0600), 0);
  try {
    cli::RunWatch(
        cli::CommandLine({"plan", "watch", log(), "--against", (folder_ / "plan.json").string()}));
    ADD_FAILURE() << "it was followed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("is no file that can be followed"),
                                             HasSubstr("--once reads a pipe to its end")));
  }
}

TEST_F(Follow, ALogThatIsAwayForAWhileIsWaitedFor) {
  std::ofstream(log()) << Lines(10, 4, 1.5);
  Start();
  ASSERT_TRUE(Comes("out", "\"since_step\":11"));
  fs::remove(log());
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_EQ(waitpid(watcher_, nullptr, WNOHANG), 0);  // it follows on
  std::ofstream(log()) << Lines(100, 4, 1.7);
  ASSERT_TRUE(Comes("out", "\"since_step\":101"));
  EXPECT_EQ(End(), 4);
}

// What never becomes a log is not followed for ever; what is young may.
TEST_F(Follow, WhatIsNoLogIsSaidAtOnce) {
  const auto watched = [&](const std::string& text, std::chrono::minutes age) -> std::string {
    std::ofstream(log()) << text;
    fs::last_write_time(log(), fs::file_time_type::clock::now() - age);
    try {
      cli::RunWatch(cli::CommandLine({"plan", "watch", log(), "--against",
                                      (folder_ / "plan.json").string(), "--idle", "0.1s"}));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(watched("SwitchName=leaf0 Nodes=n[0-3]\n", std::chrono::minutes(0)),
              HasSubstr("not a log of training"));
  EXPECT_THAT(watched("dear diary\n", std::chrono::minutes(60)),
              HasSubstr("no line of this file is a measurement"));
  for (const char* begun : {"dear diary\n", ""})
    EXPECT_THAT(watched(begun, std::chrono::minutes(0)), HasSubstr("no step of it could be timed"));
  EXPECT_THAT(watched("using world size: 8, data-parallel size: 8\n", std::chrono::minutes(60)),
              HasSubstr("no step of it could be timed"));
}

TEST_F(Follow, ALossThatIsNoNumberIsSaidWhenItComes) {
  std::string lines = Lines(10, 4, 1.0);
  std::ofstream(log()) << lines;
  Start();
  std::string lost = Lines(15, 4, 1.0);
  for (std::size_t at = 0; (at = lost.find("1.0E+00", at)) != std::string::npos;)
    lost.replace(at, 7, "nan");
  std::ofstream(log(), std::ios::app) << lost;
  ASSERT_TRUE(Comes("out", "\"event\":\"loss\""));
  EXPECT_THAT(Read("out"), HasSubstr("\"since_step\":15"));
  EXPECT_EQ(End(), 4);
}

}  // namespace
}  // namespace orrery::watch
