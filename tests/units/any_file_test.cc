// SPDX-License-Identifier: Apache-2.0
// Files that may be pipes: read while somebody writes, waited for with words, and left when a program says so.
#include "model/base/any_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

class AnyFileTest : public testing::Test {
 protected:
  AnyFileTest() {
    std::string made = fs::temp_directory_path() / "any-file-XXXXXX";
    folder_ = mkdtemp(made.data());
    pipe_ = folder_ / "pipe";
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
  }
  ~AnyFileTest() override { fs::remove_all(folder_); }

  fs::path folder_;
  std::string pipe_;
};

TEST_F(AnyFileTest, APipeIsReadToItsEndHoweverLateItIsWrittenInto) {
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::ofstream out(pipe_);
    out << "first " << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    out << std::string(200'000, 'x');
  });
  const std::string text = ReadSource(pipe_)->text;
  writer.join();
  EXPECT_EQ(text.size(), 200'006u);
  EXPECT_TRUE(text.starts_with("first x"));
}

TEST_F(AnyFileTest, ACompressedPipeSaysHowToReadIt) {
  std::thread writer([&] { std::ofstream(pipe_) << std::string("\x1f\x8b\x08\0\0", 5); });
  try {
    (void)ReadSource(pipe_);
    ADD_FAILURE() << "it was read";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("gzip -dc"));
  }
  writer.join();
}

TEST_F(AnyFileTest, AWriterWithoutWordsIsAnEmptyFile) {
  std::thread writer([&] { std::ofstream out(pipe_); });
  EXPECT_EQ(ReadSource(pipe_)->text, "");
  writer.join();
}

TEST_F(AnyFileTest, APipeThatNobodyWritesIntoIsWaitedForWithWordsUntilTheProgramEnds) {
  const std::string said = folder_ / "said";
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(said.c_str(), "w", stderr) == nullptr) _exit(1);
    int looks = 0;
    WhileWaitingForPipes([&] {
      if (++looks == 18) std::fflush(stderr), _exit(85);  // five a second
    });
    ReadSource(pipe_);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 85);
  EXPECT_THAT(ReadSource(said)->text,
              testing::AllOf(testing::StartsWith("waiting for '" + pipe_ + "'"),
                             testing::HasSubstr("nobody has written into it")));
}

}  // namespace
}  // namespace orrery
