// SPDX-License-Identifier: Apache-2.0
// Output files are whole or absent, and links are never followed.
#include "model/exchange/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OutputFolder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (fs::temp_directory_path() / "output-XXXXXX").string();
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(path_); }
  std::string In(const std::string& name) const { return path_ + "/" + name; }
  std::size_t Entries(const std::string& folder) const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  std::string path_;
};

TEST_F(OutputFolder, HoldsEveryFileWithItsMode) {
  WriteFiles(In("job"), {{"train.sh", "echo\n", true}, {"plan.json", "{}\n", false}}, false);
  EXPECT_EQ(ReadAll(In("job/train.sh")), "echo\n");
  EXPECT_EQ(access(In("job/train.sh").c_str(), X_OK), 0);
  EXPECT_EQ(fs::status(In("job/plan.json")).permissions() & fs::perms::owner_exec, fs::perms::none);
  EXPECT_EQ(Entries(In("job")), 2u);
}

TEST_F(OutputFolder, KeepsWhatIsThereUnlessToldOtherwise) {
  WriteFiles(In("job"), {{"a", "old", false}}, false);
  EXPECT_THAT(ErrorOf([&] {
                WriteFiles(In("job"), {{"b", "", false}, {"a", "new", false}}, false);
              }),
              HasSubstr("is there already"));
  EXPECT_EQ(ReadAll(In("job/a")), "old");
  EXPECT_EQ(Entries(In("job")), 1u);
  WriteFiles(In("job"), {{"a", "new", false}}, true);
  EXPECT_EQ(ReadAll(In("job/a")), "new");
}

TEST_F(OutputFolder, ReplacesALinkInTheFilesPlaceAndLeavesItsTarget) {
  std::ofstream(In("precious")) << "precious";
  fs::create_directory(In("job"));
  fs::create_symlink(In("precious"), In("job/train.sh"));
  EXPECT_THAT(ErrorOf([&] {
                WriteFiles(In("job"), {{"train.sh", "x", true}}, false);
              }),
              HasSubstr("is there already"));
  WriteFiles(In("job"), {{"train.sh", "x", true}}, true);
  EXPECT_EQ(ReadAll(In("precious")), "precious");
  EXPECT_FALSE(fs::is_symlink(In("job/train.sh")));
}

TEST_F(OutputFolder, RefusesALinkToAFolder) {
  fs::create_directory(In("real"));
  fs::create_symlink(In("real"), In("link"));
  EXPECT_THAT(ErrorOf([&] {
                WriteFiles(In("link"), {{"a", "x", false}}, true);
              }),
              HasSubstr("cannot write folder"));
  EXPECT_EQ(Entries(In("real")), 0u);
}

// As --save does.
TEST_F(OutputFolder, MakesTheFoldersAroundIt) {
  WriteFiles(In("one/more/place/"), {{"a", "x", false}}, false);
  EXPECT_EQ(ReadAll(In("one/more/place/a")), "x");
  WriteFiles(In("file"), {{"a", "x", false}}, false);
  EXPECT_THAT(ErrorOf([&] {
                WriteFiles(In("file/a/b"), {{"a", "x", false}}, true);
              }),
              HasSubstr("cannot write folder"));
}

// A disk that fills up behind the first file.
TEST_F(OutputFolder, WritesNothingWhereOneFileCannotBeWritten) {
  WriteFiles(In("job"), {{"a", "old", false}}, false);
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = ErrorOf([&] {
    WriteFiles(In("job"), {{"a", "new", false}, {"b", std::string(5000, 'x'), false}}, true);
  });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(error, HasSubstr("cannot write"));
  EXPECT_EQ(ReadAll(In("job/a")), "old");
  EXPECT_EQ(Entries(In("job")), 1u);
}

}  // namespace
}  // namespace orrery::exchange
