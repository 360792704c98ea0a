// SPDX-License-Identifier: Apache-2.0
// Test support, preloaded into a run: storage as the file $ORRERY_TEST_STORAGE says, read at each call:
// "slow MS" lets fsync take so long, "full" lets writes of parts of snapshots fail.
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Milliseconds of "slow"; -1: full; 0: neither.
int Storage() {
  const char* path = std::getenv("ORRERY_TEST_STORAGE");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "re");
  if (file == nullptr) return 0;
  char word[16] = "";
  int number = 0;
  const int got = std::fscanf(file, "%15s %d", word, &number);
  std::fclose(file);
  if (got >= 1 && std::strcmp(word, "full") == 0) return -1;
  return got == 2 && std::strcmp(word, "slow") == 0 ? number : 0;
}

bool OfSnapshot(int file) {
  char name[64], path[4096];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  const ssize_t n = readlink(name, path, sizeof path - 1);
  if (n <= 0) return false;
  path[n] = '\0';
  return std::strstr(path, ".part") != nullptr;
}

}  // namespace

extern "C" int fsync(int file) {
  static const auto next = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  if (const int slow = Storage(); slow > 0) usleep(static_cast<useconds_t>(slow) * 1000);
  return next(file);
}

extern "C" ssize_t write(int file, const void* bytes, size_t n) {
  static const auto next =
      reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  if (OfSnapshot(file) && Storage() < 0) {
    errno = ENOSPC;
    return -1;
  }
  return next(file, bytes, n);
}
