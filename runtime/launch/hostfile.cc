// SPDX-License-Identifier: Apache-2.0
// Reads and writes lines of hosts.
#include "runtime/launch/hostfile.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "model/base/diagnostics.h"
#include "model/base/input_files.h"
#include "model/base/plain_text.h"
#include "model/base/read_file.h"
#include "model/hardware/cluster_file.h"
#include "runtime/launch/remote.h"

namespace orrery::launch {

namespace {

constexpr int64_t kMostSlots = 4096;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;
constexpr std::size_t kLongestShown = 64;  // letters of a faulty word

std::string Shown(const std::string& word) { return word.substr(0, kLongestShown); }

// The number of "slots=8" and the like; nullopt: the word is another key's.
std::optional<int64_t> Count(const std::string& word, std::initializer_list<const char*> keys,
                             const Location& where) {
  const std::size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  if (equals == std::string::npos || std::ranges::find(keys, key) == keys.end())
    return std::nullopt;
  int64_t number = 0;
  if (ParseInteger(word.substr(equals + 1), &number) != NumberFault::kNone || number < 1 ||
      number > kMostSlots)
    throw InputError({{where, fmt::format("'{}' is no count of slots", Shown(word)),
                       fmt::format("{}=N, N from 1 to {}", key, kMostSlots)}});
  return number;
}

void CheckName(const std::string& name, const Location& where) {
  if (IsHostName(name)) return;
  const bool address = name.starts_with('[') && name.find(':') != std::string::npos;
  if (!address && name.find('[') != std::string::npos)
    throw InputError(
        {{where, fmt::format("'{}' is a list of hosts, and a line is one", Shown(name)),
          "a line NAME slots=N for each host: scontrol show hostnames LIST"}});
  throw InputError({{where, fmt::format("'{}': this is no host", Shown(name)),
                     address ? "an address of IPv6 stands without brackets"
                             : "NAME slots=N, N from 1 to 4096"}});
}

// A line without its comment. `said`: it has slots of its own.
HostSlots ReadHost(const std::string& line, const Location& where, bool* said) {
  std::istringstream words(line);
  HostSlots host;
  std::string word;
  words >> host.host;
  CheckName(host.host, where);
  std::optional<int64_t> slots, most;
  while (words >> word) {
    if (slots && word.starts_with("slots="))
      throw InputError({{where, fmt::format("{} has slots twice", host.host), "NAME slots=N"}});
    if (const auto number = Count(word, {"slots"}, where))
      slots = number;
    else if (const auto limit = Count(word, {"max_slots", "max-slots"}, where))
      most = limit;
    else
      throw InputError({{where, fmt::format("'{}' is no key of a host", Shown(word)),
                         "NAME slots=N max_slots=M"}});
  }
  host.slots = slots.value_or(1);
  // Open MPI's own message is a page, and its report of an error in Open MPI another.
  if (most && *most < host.slots)
    throw InputError(
        {{where, fmt::format("max_slots={} is below slots={}", *most, host.slots),
          "max_slots is the most that mpirun --oversubscribe may start: slots or more"}});
  *said = slots.has_value();
  return host;
}

SourcePtr ReadAll(const std::string& path) {
  try {
    const RegularFile file(path, Links::kFollow);
    NoteInput(file.descriptor(), path);
    return std::make_shared<Source>(Source{path, file.Text(kMostBytes)});
  } catch (const FileError& error) {
    throw InputError(fmt::format("cannot read the hostfile '{}': {}", path, error.what()),
                     "a file of lines NAME slots=N, up to 16 MiB");
  }
}

}  // namespace

std::vector<HostSlots> ReadHostfile(const std::string& path) {
  const SourcePtr source = ReadAll(path);
  if (source->text.starts_with("\xef\xbb\xbf"))
    throw InputError({{{source, 1, 1},
                       "the file begins with a byte order mark, which no launcher reads",
                       "sed -i '1s/^\\xEF\\xBB\\xBF//' " + path}});
  if (KindOfClusterFile(*source) != ClusterFile::kHostfile) RefuseMachineFile(source, "a hostfile");
  std::vector<HostSlots> all;
  std::map<std::string, std::pair<int, bool>> seen;  // line, and whether it says slots
  std::istringstream lines(source->text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Location where{source, number, 1};
    bool said = false;
    HostSlots host = ReadHost(line, where, &said);
    // A host once for each slot is Open MPI's other way.
    const auto [before, first] = seen.try_emplace(host.host, number, said);
    if (!first && (said || before->second.second))
      throw InputError({{where,
                         fmt::format("the hostfile has {} twice, first in line {}", host.host,
                                     before->second.first),
                         "one line per node, with all its ranks: NAME slots=N"}});
    all.push_back(std::move(host));
  }
  if (all.empty())
    throw InputError(fmt::format("the hostfile '{}' names no host", path), "NAME slots=N");
  return all;
}

std::vector<HostSlots> ReadHostfileOfMpirun(const std::string& path) {
  std::vector<HostSlots> all;
  for (HostSlots& host : ReadHostfile(path)) {
    if (host.host.find(':') != std::string::npos)
      throw InputError(
          fmt::format("the hostfile '{}' has {}: mpirun takes no address of IPv6", path, host.host),
          "the host's name");
    const auto same = std::ranges::find(all, host.host, &HostSlots::host);
    if (same == all.end())
      all.push_back(std::move(host));
    else
      same->slots += host.slots;
  }
  const SourcePtr source = ReadAll(path);
  if (const std::size_t at = source->text.find('\r'); at != std::string::npos) {
    const auto before = source->text.begin() + static_cast<std::ptrdiff_t>(at);
    const auto line = 1 + std::count(source->text.begin(), before, '\n');
    const Location where{source, static_cast<int>(line), 1};
    throw InputError({{where, "mpirun does not read line ends of Windows (CR LF)",
                       "tr -d '\\r' < " + path + " > hosts"}});
  }
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
