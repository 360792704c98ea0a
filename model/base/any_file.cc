// SPDX-License-Identifier: Apache-2.0
// Opens without waiting: opening a pipe that nobody writes into would never return, whatever a user asks for meanwhile.
#include "model/base/any_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

namespace orrery {
namespace {

using PipeClock = std::chrono::steady_clock;

constexpr int kLookMilliseconds = 200;
constexpr auto kSilence = std::chrono::seconds(3);

std::function<void()>& Look() {
  static std::function<void()> look;
  return look;
}

}  // namespace

void WhileWaitingForPipes(std::function<void()> look) { Look() = std::move(look); }

AnyFile::AnyFile(std::string path) : path_(std::move(path)) {
  file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat about {};
  pipe_ = file_ >= 0 && fstat(file_, &about) == 0 && !S_ISREG(about.st_mode);
}

AnyFile::~AnyFile() {
  if (file_ >= 0) close(file_);
}

// A pipe that no one has opened yet would be read as an empty file: poll() knows the difference.
void AnyFile::Wait() {
  const auto begin = PipeClock::now();
  pollfd one{file_, POLLIN, 0};
  int ready = 0;
  while ((ready = poll(&one, 1, kLookMilliseconds)) == 0 || (ready < 0 && errno == EINTR)) {
    if (Look()) Look()();
    if (said_ || any_ || PipeClock::now() - begin < kSilence) continue;
    said_ = true;
    std::fprintf(stderr, "waiting for '%s': it is a pipe, and nobody has written into it yet\n",
                 path_.c_str());
  }
}

long AnyFile::Read(char* to, std::size_t bytes) {
  for (;;) {
    if (pipe_) Wait();
    const ssize_t n = read(file_, to, bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    any_ = any_ || n > 0;
    return n;
  }
}

}  // namespace orrery
