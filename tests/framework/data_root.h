// SPDX-License-Identifier: Apache-2.0
// A copy of the catalogues that a test may add files to.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace orrery {

class TestRoot {
 public:
  explicit TestRoot(const std::string& folder) : folder_(folder) {
    namespace fs = std::filesystem;
    fs::remove_all(folder_);
    for (const char* part : {"scenarios/models", "topologies", "calib/profiles"}) {
      fs::create_directories(folder_ / part);
      fs::copy(fs::path(ORRERY_SOURCE_DIR) / part, folder_ / part, fs::copy_options::recursive);
    }
  }
  ~TestRoot() { std::filesystem::remove_all(folder_); }
  TestRoot(const TestRoot&) = delete;
  TestRoot& operator=(const TestRoot&) = delete;

  // `name` is below the root: "calib/profiles/framework/mine.yaml".
  std::string Add(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string path() const { return folder_.string(); }
  std::map<std::string, std::string> environment() const { return {{"ORRERY_ROOT", path()}}; }

 private:
  std::filesystem::path folder_;
};

// DataRoot() of this process, as long as it lives.
class UseRoot {
 public:
  explicit UseRoot(const TestRoot& root) { setenv("ORRERY_ROOT", root.path().c_str(), 1); }
  ~UseRoot() { unsetenv("ORRERY_ROOT"); }
  UseRoot(const UseRoot&) = delete;
  UseRoot& operator=(const UseRoot&) = delete;
};

}  // namespace orrery
