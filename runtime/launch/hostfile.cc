// SPDX-License-Identifier: Apache-2.0
// Reads and writes lines of hosts.
#include "runtime/launch/hostfile.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "model/base/diagnostics.h"
#include "model/base/plain_text.h"
#include "model/hardware/cluster_file.h"
#include "runtime/launch/remote.h"

namespace orrery::launch {

std::vector<HostSlots> ReadHostfile(const std::string& path) {
  constexpr int64_t kMostSlots = 4096;
  std::ifstream file(path);
  if (!file)
    throw InputError(fmt::format("cannot read the hostfile '{}'", path),
                     "a file of lines NAME slots=N");
  std::vector<HostSlots> all;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    HostSlots host;
    std::string word;
    if (!(words >> host.host)) continue;
    bool good = IsHostName(host.host);
    while (words >> word) {
      const std::string key = "slots=";
      good = good && word.starts_with(key) &&
             ParseInteger(word.substr(key.size()), &host.slots) == NumberFault::kNone &&
             host.slots >= 1 && host.slots <= kMostSlots;
    }
    if (!good) {
      RefuseMachineFile(path, "a hostfile");
      throw InputError(fmt::format("{}, line {}: this is no host", path, number),
                       "NAME slots=N, N from 1 to 4096");
    }
    all.push_back(std::move(host));
  }
  if (all.empty())
    throw InputError(fmt::format("the hostfile '{}' names no host", path), "NAME slots=N");
  return all;
}

int64_t SlotsOf(const std::vector<HostSlots>& hosts) {
  int64_t all = 0;
  for (const HostSlots& host : hosts) all += host.slots;
  return all;
}

std::string HostfileText(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += fmt::format("{} slots={}{}\n", host.host, host.slots,
                        host.note.empty() ? "" : "  # " + host.note);
  }
  return text;
}

void WriteHostfile(const std::string& path, const std::string& text) {
  std::string part = path + ".XXXXXX";
  const int file = mkostemp(part.data(), O_CLOEXEC);
  const bool whole = file >= 0 && fchmod(file, 0644) == 0 &&
                     write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                     fsync(file) == 0;
  const int error = errno;
  if (file >= 0) close(file);
  if (whole && std::rename(part.c_str(), path.c_str()) == 0) return;
  const int reason = whole ? errno : error;
  if (file >= 0) unlink(part.c_str());
  throw InputError(fmt::format("cannot write the hostfile '{}': {}", path, std::strerror(reason)));
}

}  // namespace orrery::launch
