// SPDX-License-Identifier: Apache-2.0
// Opens without following links, and puts a text in its place when it is whole.
#include "model/base/write_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "model/base/input_files.h"
#include "model/base/read_file.h"

namespace orrery {
namespace {

constexpr const char* kIsLink = "it is a symbolic link, which is not followed";

bool IsDevice(const std::string& path) { return path.starts_with("/dev/"); }

std::string Why(const std::string& path) {
  struct stat found {};
  if (errno == ELOOP || (lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode)))
    return kIsLink;
  return std::strerror(errno);
}

// What the last part of a path lies in.
std::string FolderOf(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A file that reaches a limit (`ulimit -f`) is an error to be told, not the end of the program. Of this thread alone: others
// may be a user's.
class LimitedFileSize {
 public:
  LimitedFileSize() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~LimitedFileSize() {
    const timespec at_once{};
    while (sigtimedwait(&signal_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  LimitedFileSize(const LimitedFileSize&) = delete;
  LimitedFileSize& operator=(const LimitedFileSize&) = delete;

 private:
  sigset_t signal_{}, before_{};
};

// "" or why not.
std::string WriteAll(int file, std::string_view text) {
  const LimitedFileSize limited;
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return std::strerror(errno);
    }
  }
  return "";
}

constexpr mode_t kMode = 0666;  // less the umask

std::string WriteInPlace(const std::string& path, std::string_view text) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (IsDevice(path) ? 0 : O_NOFOLLOW);
  // A pipe that nobody reads from would be waited for without a word.
  struct stat there {};
  const bool pipe = stat(path.c_str(), &there) == 0 && S_ISFIFO(there.st_mode);
  int file = open(path.c_str(), flags | (pipe ? O_NONBLOCK : 0), kMode);
  if (file < 0 && pipe && errno == ENXIO) {
    std::fprintf(stderr, "waiting for '%s': it is a pipe, and nobody reads from it yet\n",
                 path.c_str());
    file = open(path.c_str(), flags, kMode);
  }
  if (file < 0) return Why(path);
  if (pipe) (void)fcntl(file, F_SETFL, flags & ~O_CREAT & ~O_TRUNC);
  std::string why = WriteAll(file, text);
  if (close(file) != 0 && why.empty()) why = std::strerror(errno);
  return why;
}

// Under another name next to it, and renamed when it is whole: a full disk leaves what was there. `old`: that, or none.
std::string WriteAside(const std::string& path, std::string_view text, const struct stat* old) {
  static std::atomic<int> number = 0;
  const std::string folder = FolderOf(path);
  const std::string aside = (folder == "/" ? "" : folder) + "/.orrery." + std::to_string(getpid()) +
                            "." + std::to_string(++number) + ".part";
  unlink(aside.c_str());  // of an earlier process with this number
  const int file = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (file < 0) {
    // Who may write to a file, and not into its folder, has no other way.
    const bool closed = errno == EACCES || errno == EPERM || errno == EROFS;
    return closed && old != nullptr ? WriteInPlace(path, text) : std::strerror(errno);
  }
  std::string why = WriteAll(file, text);
  if (old != nullptr) {
    // Another's file stays another's where that is allowed.
    if (fchown(file, old->st_uid, old->st_gid) == 0 || errno == EPERM)
      (void)fchmod(file, old->st_mode & 07777);
    if (why.empty() && fsync(file) != 0) why = std::strerror(errno);
  }
  if (close(file) != 0 && why.empty()) why = std::strerror(errno);
  if (why.empty() && rename(aside.c_str(), path.c_str()) != 0) why = std::strerror(errno);
  if (!why.empty()) unlink(aside.c_str());
  return why;
}

}  // namespace

std::string WriteTextFile(const std::string& path, std::string_view text) {
  const std::string why = WhyInput(path);
  return why.empty() ? RewriteTextFile(path, text) : why;
}

std::string RewriteTextFile(const std::string& path, std::string_view text) {
  struct stat old {};
  const bool there = !IsDevice(path) && lstat(path.c_str(), &old) == 0;
  if (there && S_ISLNK(old.st_mode)) return kIsLink;
  if (IsDevice(path) || (there && !S_ISREG(old.st_mode))) return WriteInPlace(path, text);
  if (there && access(path.c_str(), W_OK) != 0) return std::strerror(errno);
  return WriteAside(path, text, there ? &old : nullptr);
}

std::string WhyNotWritable(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    if (S_ISLNK(found.st_mode) && !IsDevice(path)) return kIsLink;
    if (S_ISDIR(found.st_mode)) return "it is a folder";
    return access(path.c_str(), W_OK) == 0 ? WhyInput(path) : std::strerror(errno);
  }
  const std::string folder = FolderOf(path);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return errno == ENOENT ? "there is no folder '" + folder + "'" : std::strerror(errno);
}

std::string WhyNotReplaced(const std::string& path, std::string_view holds) {
  constexpr std::size_t kHead = 1024;
  constexpr std::string_view kGzip = "\x1f\x8b";
  struct stat found {};
  if (holds.empty() || lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return "";
  try {
    std::string head(kHead, '\0');
    head.resize(RegularFile(path, Links::kRefuse).Read(head.data(), kHead, 0));
    if (head.empty() || head.find(holds) != std::string::npos) return "";
    if (path.ends_with(".gz") && head.starts_with(kGzip)) return "";
  } catch (const FileError& error) {
    return error.what();
  }
  return "it holds something else";
}

std::string WhyNoFolder(const std::string& path) {
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();  // "link/": what is behind
  struct stat found {};
  if (lstat(folder.c_str(), &found) == 0 && S_ISLNK(found.st_mode)) return kIsLink;
  while (stat(folder.c_str(), &found) != 0) {
    if (errno != ENOENT || FolderOf(folder) == folder) return std::strerror(errno);
    folder = FolderOf(folder);
  }
  if (!S_ISDIR(found.st_mode)) return "'" + folder + "' is no folder";
  if (access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return "'" + folder + "': " + std::strerror(errno);
}

}  // namespace orrery
