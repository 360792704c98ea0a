// SPDX-License-Identifier: Apache-2.0
// Hostfiles of mpirun.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "model/base/plain_text.h"
#include "runtime/comm/secret.h"
#include "runtime/program/run/run_job.h"

namespace orrery::cli {

int64_t SlotsOf(const std::string& path) {
  constexpr int64_t kMostSlots = 4096;
  std::ifstream file(path);
  if (!file)
    throw InputError(fmt::format("cannot read the hostfile '{}'", path), "--hostfile FILE");
  int64_t all = 0;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, word;
    if (!(words >> host)) continue;
    int64_t slots = 1;
    bool good = comm::PlainHost(host) == host || host.find(':') != std::string::npos;
    while (words >> word) {
      const std::string key = "slots=";
      good = good && word.starts_with(key) &&
             ParseInteger(word.substr(key.size()), &slots) == NumberFault::kNone && slots >= 1 &&
             slots <= kMostSlots;
    }
    if (!good)
      throw InputError(fmt::format("{}, line {}: this is no host", path, number),
                       "NAME slots=N, N from 1 to 4096");
    all += slots;
  }
  if (all == 0)
    throw InputError(fmt::format("the hostfile '{}' names no host", path), "NAME slots=N");
  return all;
}

}  // namespace orrery::cli
