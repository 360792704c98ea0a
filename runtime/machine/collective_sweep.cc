// SPDX-License-Identifier: Apache-2.0
// Runs `plan-bench COLLECTIVE` and reads its JSON.
#include "runtime/machine/collective_sweep.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "runtime/launch/mpirun.h"

namespace orrery::machine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter",
                                        "broadcast",  "all_to_all", "sendrecv"};
constexpr int kPasses = 3;
constexpr double kMicrosecond = 1e-6;

using Key = std::pair<int64_t, int64_t>;  // ranks, bytes
using Passes = std::map<Key, std::vector<double>>;

// Standard output goes nowhere for a while: the table that the ranks print is not asked for.
class Silence {
 public:
  Silence() : kept_(dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
  ~Silence() {
    dup2(kept_, STDOUT_FILENO);
    close(kept_);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  int kept_;
};

void RunPass(const std::string& collective, int64_t ranks, Passes* passes) {
  const fs::path file =
      fs::temp_directory_path() / fmt::format("orrery-sweep-{}-{}.json", getpid(), collective);
  const Silence silence;
  const int code =
      launch::RunMpirun(launch::FindMpirun(), ranks,
                        {launch::OwnProgram(), collective, "-b", "256", "-e", "16M", "-f", "4",
                         "-n", "8", "-w", "2", "-c", "0", "--json", file.string()},
                        "plan bench");
  if (code != 0) throw std::runtime_error(fmt::format("{} on {} ranks failed", collective, ranks));
  std::ifstream text(file);
  const nlohmann::json json = nlohmann::json::parse(text);
  for (const auto& row : json.at("rows")) {
    const int64_t bytes = row.at("size");
    if (bytes > 0) (*passes)[{ranks, bytes}].push_back(row.at("out_of_place").at("time_us"));
  }
  fs::remove(file);
}

}  // namespace

std::vector<CollectiveTime> SweepCollectives(int64_t cores,
                                             const std::function<void(const std::string&)>& note) {
  std::vector<CollectiveTime> times;
  if (launch::FindMpirun().empty()) return times;
  for (const char* collective : kCollectives) {
    Passes passes;
    for (int64_t ranks = 2; ranks <= std::max<int64_t>(2 * cores, 2); ranks *= 2) {
      note(fmt::format("{} on {} ranks", collective, ranks));
      for (int pass = 0; pass < kPasses; ++pass) RunPass(collective, ranks, &passes);
    }
    for (const auto& [key, us] : passes) {
      const auto [least, most] = std::minmax_element(us.begin(), us.end());
      times.push_back(
          {collective, key.first, key.second, *least * kMicrosecond, *most / *least - 1});
    }
  }
  return times;
}

}  // namespace orrery::machine
