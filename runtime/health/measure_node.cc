// SPDX-License-Identifier: Apache-2.0
// One rank's compute, memory and disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "runtime/comm/gather.h"
#include "runtime/health/health.h"
#include "runtime/train/peak.h"

namespace orrery::check {
namespace {

constexpr std::size_t kCopied = std::size_t{64} << 20;  // beyond the caches of a core
constexpr std::size_t kWritten = std::size_t{64} << 20;
constexpr int kCopies = 5;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes read and written per second by the best of a few copies.
double MeasureMemory() {
  std::vector<char> from(kCopied, 1), to(kCopied, 2);
  double best = 0;
  for (int i = 0; i < kCopies; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), kCopied);
    best = std::max(best, 2 * static_cast<double>(kCopied) / std::max(1e-9, SecondsSince(start)));
    from[static_cast<std::size_t>(i)] = to[kCopied - 1 - static_cast<std::size_t>(i)];
  }
  return best;
}

// A file that is gone again whatever happens.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder) : path_(folder + "/orrery-check-XXXXXX") {
    file_ = mkstemp(path_.data());
  }
  ~ScratchFile() {
    if (file_ < 0) return;
    close(file_);
    unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  int file() const { return file_; }

 private:
  std::string path_;
  int file_ = -1;
};

double MeasureDisk(const std::string& folder, std::string* problem) {
  const ScratchFile scratch(folder);
  if (scratch.file() < 0) {
    *problem = fmt::format("cannot write to {}: {}", folder, std::strerror(errno));
    return 0;
  }
  // Not zeros: file systems that compress would write nothing.
  std::vector<unsigned char> block(std::size_t{1} << 20);
  unsigned state = 12345;
  for (unsigned char& byte : block)
    byte = static_cast<unsigned char>((state = state * 1103515245u + 12345u) >> 16);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t done = 0; done < kWritten; done += block.size()) {
    if (write(scratch.file(), block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
      *problem = fmt::format("cannot write 64 MiB to {}: {}", folder, std::strerror(errno));
      return 0;
    }
  }
  if (fsync(scratch.file()) != 0) {
    *problem = fmt::format("cannot sync a file in {}: {}", folder, std::strerror(errno));
    return 0;
  }
  return static_cast<double>(kWritten) / std::max(1e-9, SecondsSince(start));
}

}  // namespace

NodeHealth MeasureNode(const std::string& disk) {
  NodeHealth health;
  health.compute = launch::MeasurePeak();
  health.memory = MeasureMemory();
  health.disk = MeasureDisk(disk, &health.problem);
  return health;
}

std::vector<NodeHealth> GatherNodes(comm::Endpoint* endpoint, const NodeHealth& own,
                                    double deadline_s) {
  const std::string text = fmt::format("{} {} {} {}\n{}", own.compute, own.memory, own.disk,
                                       endpoint->host(), own.problem);
  // Wall clocks; every rank by a name of its own, so that none is taken for granted.
  const auto wall = [] {
    return static_cast<int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                    std::chrono::system_clock::now().time_since_epoch())
                                    .count());
  };
  const std::vector<std::string> texts = comm::GatherText(endpoint, text, deadline_s);
  const std::vector<comm::ClockOffset> clocks =
      comm::CompareClocks(endpoint, deadline_s, wall, fmt::format("rank {}", endpoint->rank()));
  std::vector<NodeHealth> nodes;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    NodeHealth node;
    char* at = const_cast<char*>(texts[rank].c_str());
    node.compute = std::strtod(at, &at);
    node.memory = std::strtod(at, &at);
    node.disk = std::strtod(at, &at);
    const std::string rest = at + (*at == ' ' ? 1 : 0);
    const std::size_t end = rest.find('\n');
    node.host = rest.substr(0, end);
    if (end != std::string::npos) node.problem = rest.substr(end + 1);
    if (rank < clocks.size()) {
      node.skew = clocks[rank].ahead_s;
      node.skew_error = clocks[rank].error_s;
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace orrery::check
