// SPDX-License-Identifier: Apache-2.0
// Documents name what exists: sections, files and folders; each folder's README stays short.
#include <fmt/format.h>
#include <glob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace orrery {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ORRERY_SOURCE_DIR;

std::string Text(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> FilesUnder(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    if (entry.is_regular_file() && entry.path().extension() == extension)
      files.push_back(entry.path());
  }
  return files;
}

// READMEs of all folders of the repository.
std::vector<fs::path> FolderReadmes() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || name.starts_with(".") || name.starts_with("build")) continue;
    for (const fs::path& file : FilesUnder(name, ".md")) {
      if (file.filename() == "README.md") files.push_back(file);
    }
  }
  return files;
}

std::set<std::string> Matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

// "## 2. Kernels" is section 2, "### 2.1 Matrix products" section 2.1.
std::set<std::string> SectionsOf(const std::string& document) {
  return Matches("\n" + document, "\n#{2,3} ([0-9]+(?:\\.[0-9]+)?)\\.? ");
}

constexpr const char* kCitation = "DERIVATIONS\\.md, section ([0-9]+(?:\\.[0-9]+)*)";

TEST(Derivations, EverySourceNamesASectionThatExists) {
  const std::set<std::string> sections = SectionsOf(Text(kRoot / "calib/DERIVATIONS.md"));
  ASSERT_TRUE(sections.contains("2.1"));
  int citing = 0;
  for (const fs::path& file : FilesUnder("calib", ".yaml")) {
    for (const std::string& cited : Matches(Text(file), kCitation)) {
      EXPECT_TRUE(sections.contains(cited)) << file << " cites section " << cited;
      ++citing;
    }
  }
  EXPECT_GE(citing, 40);
}

TEST(Derivations, EverySectionOnConstantsIsCited) {
  std::set<std::string> cited;
  for (const fs::path& file : FilesUnder("calib/profiles", ".yaml"))
    cited.merge(Matches(Text(file), kCitation));
  for (const std::string& section : SectionsOf(Text(kRoot / "calib/DERIVATIONS.md"))) {
    const bool heads_others = section == "2" || section == "4" || section == "9";
    if (section == "10") continue;  // on how constants were found
    if (section == "1" || heads_others) continue;
    EXPECT_TRUE(cited.contains(section)) << section;
  }
}

// The jobs of the fits say how many constants they free.
TEST(Derivations, CountWhatTheJobsFit) {
  const std::string text = Text(kRoot / "calib/DERIVATIONS.md");
  std::set<std::string> all;  // some are fitted by two jobs
  for (const char* job : {"published-runs.yaml", "published-memory.yaml", "dl1.yaml"}) {
    const std::set<std::string> freed =
        Matches(Text(kRoot / "calib/fit/jobs" / job), "\n  - \\{of: ([^,\\]]*)");
    const std::string row = "`calib/fit/jobs/" + std::string(job) + "`";
    const std::size_t at = text.find(row);
    ASSERT_NE(at, std::string::npos) << job;
    EXPECT_THAT(text.substr(at, text.find('\n', at) - at),
                testing::EndsWith(fmt::format("| {} |", freed.size())));
    all.insert(freed.begin(), freed.end());
  }
  EXPECT_THAT(text, testing::HasSubstr(fmt::format("\n{} in all.", all.size())));
}

TEST(Derivations, PriorOfTheClockShareIsThatOfTheJob) {
  const std::string job = Text(kRoot / "calib/fit/jobs/published-runs.yaml");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      job, found,
      std::regex("family-blackwell:clock_share\", prior: ([0-9.]+), spread: ([0-9.]+)")));
  const std::string text = Text(kRoot / "calib/DERIVATIONS.md");
  EXPECT_THAT(text, testing::HasSubstr("`clock_share` on a B200 is " + found[1].str() +
                                       " with a spread of " + found[2].str()));
}

// What was chosen with errors in view is named by what exists.
TEST(Derivations, ConstantsChosenWithErrorsInViewExist) {
  const std::string text = Text(kRoot / "calib/DERIVATIONS.md");
  const std::size_t begin = text.find("| constants | what was seen |");
  ASSERT_NE(begin, std::string::npos);
  std::string profiles;
  for (const fs::path& file : FilesUnder("calib/profiles", ".yaml")) profiles += Text(file);
  std::istringstream rows(text.substr(begin));
  int named = 0;
  for (std::string row; std::getline(rows, row) && row.starts_with("|");) {
    const std::string constants = row.substr(0, row.find('|', 1));
    for (const std::string& key : Matches(constants, "`([a-z]+(?:_[a-z]+)*)`")) {
      const bool framework = fs::exists(kRoot / "calib/profiles/framework" / (key + ".yaml"));
      EXPECT_TRUE(framework || profiles.find("  " + key + ": {value") != std::string::npos) << key;
      ++named;
    }
  }
  EXPECT_GE(named, 15);
}

// A source is readable from a clone: it names a file here or a publication.
TEST(Sources, NoneIsADocumentOutsideOfTheRepository) {
  for (const fs::path& file : FilesUnder("calib/profiles", ".yaml"))
    EXPECT_THAT(Text(file), testing::Not(testing::HasSubstr(" study"))) << file;
}

TEST(Readme, FitsTwoScreensAndFoldersOneScreen) {
  const auto lines = [](const fs::path& path) {
    const std::string text = Text(path);
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_LE(lines(kRoot / "README.md"), 95);
  for (const fs::path& file : FolderReadmes()) EXPECT_LE(lines(file), 40) << file;
  EXPECT_GE(FolderReadmes().size(), 30u);
}

// Paths in backticks with a folder and an extension exist; placeholders are in capitals.
TEST(Readme, NamesFilesThatExist) {
  std::vector<fs::path> documents = FolderReadmes();
  for (const char* name : {"README.md", "CONTRIBUTING.md", "calib/DERIVATIONS.md"})
    documents.push_back(kRoot / name);
  constexpr const char* kPath =
      "`((?:model|calib|runtime|scenarios|topologies|tests|bench|notebooks|cmake)"
      "/[a-z0-9_./@-]*)[` ]";
  int named = 0;
  for (const fs::path& document : documents) {
    for (const std::string& path : Matches(Text(document), kPath)) {
      if (path.ends_with(".") || path.find("..") != std::string::npos) continue;
      const bool there = fs::exists(kRoot / path) || fs::exists(kRoot / (path + ".h")) ||
                         fs::exists(kRoot / (path + ".cc"));
      EXPECT_TRUE(there) << document << " names " << path;
      ++named;
    }
  }
  EXPECT_GE(named, 30);
}

// Names of the first column of tables headed file, path or folder, in backticks.
std::vector<std::string> MapOf(const std::string& readme) {
  std::vector<std::string> names;
  bool inside = false;
  std::istringstream in(readme);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| ")) {
      inside = inside && line.starts_with("|");
      continue;
    }
    const std::string cell = line.substr(0, line.find('|', 1));
    if (cell == "| file " || cell == "| path " || cell == "| folder ") inside = true;
    if (!inside) continue;
    for (const std::string& name : Matches(cell, "`([^`]+)`")) names.push_back(name);
  }
  return names;
}

bool Exists(const fs::path& folder, const std::string& pattern) {
  glob_t found;
  const bool any = glob((folder / pattern).c_str(), 0, nullptr, &found) == 0;
  globfree(&found);
  return any;
}

TEST(Readme, FileMapsAreCurrent) {
  int named = 0;
  for (const fs::path& file : FolderReadmes()) {
    for (const std::string& name : MapOf(Text(file))) {
      const bool stem = Exists(file.parent_path(), name + ".*");  // `matmul`
      EXPECT_TRUE(stem || Exists(file.parent_path(), name)) << file << " maps " << name;
      ++named;
    }
  }
  EXPECT_GE(named, 200);
}

// Every library of the twin says what it is for, alone or with its siblings.
TEST(Readme, EveryFolderOfModelHasOne) {
  for (const fs::path& file : FilesUnder("model", ".txt")) {
    if (file.filename() != "CMakeLists.txt") continue;
    const fs::path folder = file.parent_path();
    EXPECT_TRUE(fs::exists(folder / "README.md") || fs::exists(folder.parent_path() / "README.md"))
        << folder;
  }
}

}  // namespace
}  // namespace orrery
