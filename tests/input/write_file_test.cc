// SPDX-License-Identifier: Apache-2.0
// Texts that cannot be written whole leave what was there.
#include "model/base/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace orrery {
namespace {

namespace fs = std::filesystem;

class WriteFile : public testing::Test {
 protected:
  WriteFile() {
    std::string name = testing::TempDir() + "/write-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~WriteFile() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string Text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::ptrdiff_t Files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

// As on a full disk; the limit's signal would end the program.
TEST_F(WriteFile, KeepsTheOldTextWhereTheNewOneHasNoRoom) {
  ASSERT_EQ(WriteTextFile(Path("answer.json"), "the old answer"), "");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string why = WriteTextFile(Path("answer.json"), std::string(100000, 'x'));
  const std::string fresh = WriteTextFile(Path("fresh.json"), std::string(100000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(why, "File too large");
  EXPECT_EQ(fresh, "File too large");
  EXPECT_EQ(Text(Path("answer.json")), "the old answer");
  EXPECT_EQ(Files(), 1);  // no half of a file
}

TEST_F(WriteFile, KeepsTheModeOfAFileAndFollowsNoLink) {
  ASSERT_EQ(WriteTextFile(Path("own"), "1"), "");
  ASSERT_EQ(chmod(Path("own").c_str(), 0640), 0);
  EXPECT_EQ(WriteTextFile(Path("own"), "2"), "");
  struct stat now {};
  ASSERT_EQ(stat(Path("own").c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 07777, 0640U);
  EXPECT_EQ(Text(Path("own")), "2");
  fs::create_symlink("own", Path("link"));
  EXPECT_THAT(WriteTextFile(Path("link"), "3"), testing::HasSubstr("symbolic link"));
  EXPECT_EQ(Text(Path("own")), "2");
  EXPECT_EQ(WriteTextFile("/dev/null", "4"), "");
}

}  // namespace
}  // namespace orrery
