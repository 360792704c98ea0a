// SPDX-License-Identifier: Apache-2.0
// The folders as layers: every #include of model/, runtime/ and calib/ points down the table below,
// the CMake files list the folders in the same order, and no engine names a parallelism strategy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAreArray;

// The allowed order: a file includes files of its own folder and of folders above it in this table.
// To add a folder, put a row here and its name into the CMakeLists.txt of model/, runtime/ or calib/.
constexpr const char* kFolders[] = {
    "model/base",
    "model/arch",
    "model/hardware",
    "model/plan/ir",
    "model/plan/lower",
    "model/framework",
    "model/collectives/nccl",
    "model/collectives",
    "model/collectives/algorithms",
    "model/price",
    "model/engine/network",
    "model/engine/closed",
    "model/engine/event",
    "model/memory",
    "model/twin",
    "model/exchange",
    "model/provision",
    "model/discover",
    "model/report",
    "model/program/common",
    "model/program/plan",
    "model/program/simulate",
    "runtime",  // half.h
    "runtime/device/cpu",
    "runtime/device/cpu/loops",
    "runtime/device",
    "runtime/device/cuda",
    "runtime/comm",
    "runtime/launch",
    "runtime/data",
    "runtime/exec",
    "runtime/train",
    "runtime/train/snapshot",
    "runtime/train/weights",
    "runtime/timing",
    "runtime/machine",
    "runtime/health",
    "runtime/lab",
    "calib/import",
    "calib/measure",
    "calib/validate",
    "calib/compare",
    "calib/fit",
    "calib/sweeps",
    "runtime/program/common",
    "runtime/program/run",
    "runtime/program/bench",
    "runtime/program/lab",
    "runtime/program/check",
    "runtime/program/launch",
    "calib/program/shapes",
    "calib/program/validate",
    "calib/program/compare",
    "calib/program/calibrate",
    "calib/program/watch",
    "calib/program/python",
};

// What is still to be turned round. A line that no longer holds is an error too.
const std::set<std::string> kOpenArrows = {};

fs::path Root() { return ORRERY_SOURCE_DIR; }

std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool IsSource(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".h" || ending == ".cc" || ending == ".cu" || ending == ".inc";
}

std::string FolderOf(const std::string& file) { return fs::path(file).parent_path().string(); }
std::string Top(const std::string& folder) { return folder.substr(0, folder.find('/')); }
bool IsProgram(const std::string& folder) { return folder.find("/program/") != std::string::npos; }

// Position in kFolders; -1: it is not there.
int LayerOf(const std::string& folder) {
  const auto at = std::find(std::begin(kFolders), std::end(kFolders), folder);
  return at == std::end(kFolders) ? -1 : static_cast<int>(at - std::begin(kFolders));
}

struct Include {
  std::string from, to;  // files, from the root
  std::string Text() const { return from + " -> " + to; }
};

// Sources of model/, runtime/ and calib/, as paths from the root.
std::vector<std::string> Sources() {
  std::vector<std::string> files;
  for (const char* top : {"model", "runtime", "calib"}) {
    for (const auto& entry : fs::recursive_directory_iterator(Root() / top)) {
      if (entry.is_regular_file() && IsSource(entry.path()))
        files.push_back(fs::relative(entry.path(), Root()).string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Include> IncludesOf(const std::string& file) {
  std::vector<Include> includes;
  std::ifstream lines(Root() / file);
  for (std::string line; std::getline(lines, line);) {
    std::erase(line, ' ');
    constexpr std::string_view kStart = "#include\"";
    if (!line.starts_with(kStart)) continue;
    const std::size_t end = line.find('"', kStart.size());
    includes.push_back({file, line.substr(kStart.size(), end - kStart.size())});
  }
  return includes;
}

// As it stands there: "path" or <path>.
std::string FirstInclude(const std::string& file) {
  std::ifstream lines(Root() / file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#include ")) return line.substr(line.find(' ') + 1);
  }
  return "";
}

std::vector<Include> AllIncludes() {
  std::vector<Include> all;
  for (const std::string& file : Sources()) {
    const std::vector<Include> more = IncludesOf(file);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// Why a folder must not include another; "": it may.
std::string Forbidden(const std::string& from, const std::string& to) {
  if (from == to) return "";
  if (LayerOf(to) > LayerOf(from)) return "points up";
  if (!IsProgram(from) && IsProgram(to)) return "a library includes a program";
  // The Python package is several programs as functions.
  if (IsProgram(to) && !to.ends_with("/common") && from != "calib/program/python")
    return "a program includes another program";
  if (Top(from) != Top(to) && Top(to) != "model" && from != "runtime/program/bench")
    return "runtime/ and calib/ do not know each other, plan bench excepted";
  if (from == "runtime/lab" && to != "model/base") return "lab stands alone";
  return "";
}

TEST(Layers, EveryIncludePointsDown) {
  const std::vector<Include> includes = AllIncludes();
  ASSERT_GT(includes.size(), 1000u);
  std::set<std::string> open;
  for (const Include& include : includes) {
    const std::string why = Forbidden(FolderOf(include.from), FolderOf(include.to));
    if (why.empty()) continue;
    if (kOpenArrows.count(include.Text()) != 0)
      open.insert(include.Text());
    else
      ADD_FAILURE() << include.Text() << ": " << why;
  }
  EXPECT_EQ(open, kOpenArrows) << "take arrows that are gone out of kOpenArrows";
}

TEST(Layers, EveryIncludeNamesAFileFromTheRoot) {
  for (const Include& include : AllIncludes())
    EXPECT_TRUE(fs::exists(Root() / include.to)) << include.Text();
}

// So that a build without ORRERY_UNITY compiles each of these headers alone; `ninja headers` compiles
// the others.
TEST(Layers, ASourceIncludesItsOwnHeaderFirst) {
  for (const std::string& file : Sources()) {
    const std::string header = fs::path(file).replace_extension(".h").string();
    if (file == header || !fs::exists(Root() / header)) continue;
    EXPECT_EQ(FirstInclude(file), "\"" + header + "\"") << file;
  }
}

TEST(Layers, EveryFolderHasARow) {
  for (const std::string& file : Sources()) EXPECT_GE(LayerOf(FolderOf(file)), 0) << file;
  for (const std::string folder : kFolders)
    EXPECT_TRUE(fs::is_directory(Root() / folder)) << folder;
}

// Rules that a mistake in this file would switch off.
TEST(Layers, TheRulesForbidWhatTheyShould) {
  EXPECT_EQ(Forbidden("model/base", "model/arch"), "points up");
  EXPECT_EQ(Forbidden("model/twin", "model/program/common"), "points up");
  EXPECT_EQ(Forbidden("calib/fit", "model/program/common"), "a library includes a program");
  EXPECT_EQ(Forbidden("runtime/program/run", "model/program/plan"),
            "a program includes another program");
  EXPECT_NE(Forbidden("calib/fit", "runtime/comm"), "");
  EXPECT_EQ(Forbidden("calib/program/python", "model/program/plan"), "");
  EXPECT_NE(Forbidden("runtime/program/run", "calib/import"), "");
  EXPECT_NE(Forbidden("runtime/lab", "runtime/comm"), "");
  EXPECT_EQ(Forbidden("runtime/program/bench", "calib/import"), "");
  EXPECT_EQ(Forbidden("model/arch", "model/base"), "");
}

// The folders that foreach() or set() lists in a CMakeLists.txt, in order.
std::vector<std::string> ListedIn(const std::string& top) {
  static const std::regex kList("(?:foreach\\(folder|set\\(folders) ([^)]*)\\)");
  const std::string text = ReadAll(Root() / top / "CMakeLists.txt");
  std::smatch match;
  if (!std::regex_search(text, match, kList)) return {};
  std::istringstream words(match[1].str());
  std::vector<std::string> folders;
  for (std::string word; words >> word;) folders.push_back(top + "/" + word);
  return folders;
}

TEST(Layers, CMakeListsTheFoldersInThisOrder) {
  for (const std::string top : {"model", "runtime", "calib"}) {
    std::vector<std::string> expected;
    for (const std::string folder : kFolders) {
      if (Top(folder) == top && folder != top && fs::exists(Root() / folder / "CMakeLists.txt"))
        expected.push_back(folder);
    }
    EXPECT_THAT(ListedIn(top), ElementsAreArray(expected)) << top << "/CMakeLists.txt";
  }
}

// Cases that orrery_test() without SLOW would run in ./check, and SLOW without any.
TEST(Tests, CasesThatAreSlowAreDeclared) {
  static const std::regex kCall("orrery_test\\(([^)]*)\\)");
  static const std::regex kSlow("(TEST(_[FP])?|INSTANTIATE_TEST_SUITE_P)\\(\\s*\\w+Slow,");
  int slow = 0;
  for (const auto& entry : fs::directory_iterator(Root() / "tests")) {
    const fs::path list = entry.path() / "CMakeLists.txt";
    if (!fs::exists(list)) continue;
    const std::string text = ReadAll(list);
    for (std::sregex_iterator call(text.begin(), text.end(), kCall), end; call != end; ++call) {
      std::istringstream words((*call)[1].str());
      std::string name;
      words >> name;
      bool declared = false, found = false;
      for (std::string word; words >> word;) {
        declared = declared || word == "SLOW";
        if (word.ends_with(".cc") && fs::exists(entry.path() / word))
          found = found || std::regex_search(ReadAll(entry.path() / word), kSlow);
      }
      EXPECT_EQ(declared, found) << name;
      slow += found;
    }
  }
  EXPECT_GT(slow, 5);
}

TEST(Layers, EnginesAndPricesNameNoStrategy) {
  static const std::regex kNames(
      "zero[123]|ZeRO|1[fF]1[bB]|[gG][pP]ipe|fsdp|FSDP|"
      "(tensor|data|pipeline|sequence|context|expert)_parallel|scatter_gather|"
      "strategy\\.h|Strategy ");
  for (const char* folder : {"model/engine", "model/price"}) {
    for (const auto& entry : fs::recursive_directory_iterator(Root() / folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string file = fs::relative(entry.path(), Root()).string();
      const std::string text = ReadAll(entry.path());
      std::smatch match;
      EXPECT_FALSE(std::regex_search(text, match, kNames)) << file << " names '" << match[0] << "'";
    }
  }
}

}  // namespace
}  // namespace orrery
