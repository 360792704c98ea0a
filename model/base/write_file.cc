// SPDX-License-Identifier: Apache-2.0
// Opens without following links.
#include "model/base/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace

std::string WriteTextFile(const std::string& path, std::string_view text) {
  const std::string why = WhyInput(path);
  return why.empty() ? RewriteTextFile(path, text) : why;
}

std::string RewriteTextFile(const std::string& path, std::string_view text) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (IsDevice(path) ? 0 : O_NOFOLLOW);
  constexpr mode_t kMode = 0666;  // less the umask
  const int file = open(path.c_str(), flags, kMode);
  if (file < 0) return Why(path);
  std::string why;
  while (!text.empty() && why.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      why = std::strerror(errno);
    }
  }
  if (close(file) != 0 && why.empty()) why = std::strerror(errno);
  return why;
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
  struct stat found {};
  while (stat(folder.c_str(), &found) != 0) {
    if (errno != ENOENT || FolderOf(folder) == folder) return std::strerror(errno);
    folder = FolderOf(folder);
  }
  if (!S_ISDIR(found.st_mode)) return "'" + folder + "' is no folder";
  if (access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return "'" + folder + "': " + std::strerror(errno);
}

}  // namespace orrery
