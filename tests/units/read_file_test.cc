// SPDX-License-Identifier: Apache-2.0
// Files that somebody else may have made: read as far as a limit, or refused without a wait.
#include "model/base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace orrery {
namespace {

namespace fs = std::filesystem;

class ReadFile : public testing::Test {
 protected:
  ReadFile() {
    std::string made = fs::temp_directory_path() / "read-file-XXXXXX";
    folder_ = mkdtemp(made.data());
    std::ofstream(folder_ / "file") << "twelve bytes";
  }
  ~ReadFile() override { fs::remove_all(folder_); }

  std::string Text(const std::string& name, std::size_t most = 100,
                   Links links = Links::kRefuse) const {
    try {
      return RegularFile(folder_ / name, links).Text(most);
    } catch (const FileError& error) {
      return std::string(error.missing ? "missing: " : "refused: ") + error.what();
    }
  }

  fs::path folder_;
};

TEST_F(ReadFile, GivesARegularFileUpToTheLimit) {
  EXPECT_EQ(Text("file"), "twelve bytes");
  EXPECT_EQ(Text("file", 12), "twelve bytes");
  EXPECT_EQ(Text("file", 11), "refused: it is larger than 11 bytes, the most that is read");
  EXPECT_EQ(Text("none"), "missing: No such file or directory");
  EXPECT_EQ(Text("file/none"), "missing: Not a directory");
  std::ofstream(folder_ / "large") << std::string(3'000'000, 'x');
  EXPECT_EQ(Text("large", 1 << 22).size(), 3'000'000u);
}

TEST_F(ReadFile, RefusesPipesDevicesAndFoldersAtOnce) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "endless");
  EXPECT_EQ(Text("pipe"), "refused: it is no regular file");
  EXPECT_EQ(Text("", 100), "refused: it is no regular file");
  EXPECT_EQ(Text("endless", 100, Links::kFollow), "refused: it is no regular file");
}

TEST_F(ReadFile, FollowsLinksWhereItIsToldTo) {
  fs::create_symlink("file", folder_ / "link");
  EXPECT_EQ(Text("link", 100, Links::kFollow), "twelve bytes");
  EXPECT_EQ(Text("link"), "refused: it is a symbolic link, which is not followed");
}

}  // namespace
}  // namespace orrery
