// SPDX-License-Identifier: Apache-2.0
// Files through descriptors of one opened folder, so that nothing can be swapped in between.
#include "model/exchange/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "model/base/input_files.h"

namespace orrery::exchange {
namespace {

[[noreturn]] void Refuse(const std::string& what, int error, const std::string& hint = "") {
  throw InputError(fmt::format("cannot write {}: {}", what, std::strerror(error)), hint);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  // False: what was written may be lost.
  bool Close() {
    const int number = number_;
    number_ = -1;
    return close(number) == 0;
  }

 private:
  int number_;
};

// Removes what was written when not all could be.
class Drafts {
 public:
  explicit Drafts(int folder) : folder_(folder) {}
  ~Drafts() {
    for (const std::string& name : names_) unlinkat(folder_, name.c_str(), 0);
  }
  Drafts(const Drafts&) = delete;
  Drafts& operator=(const Drafts&) = delete;

  void Write(const std::string& folder, const File& file) {
    const std::string name = fmt::format(".{}.{}.part", file.name, getpid());
    const mode_t mode = file.executable ? 0755 : 0644;
    unlinkat(folder_, name.c_str(), 0);  // of an earlier process with this number
    Descriptor out(
        openat(folder_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    const std::string path = folder + "/" + file.name;
    if (out.get() < 0) Refuse(path, errno);
    names_.push_back(name);
    for (std::string_view rest = file.text; !rest.empty();) {
      const ssize_t written = write(out.get(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) Refuse(path, errno);
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    if (fsync(out.get()) != 0 || !out.Close()) Refuse(path, errno);
  }

  void Publish(const std::string& folder, const std::vector<File>& files) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (renameat(folder_, names_[i].c_str(), folder_, files[i].name.c_str()) != 0)
        Refuse(folder + "/" + files[i].name, errno);
    }
    names_.clear();
  }

 private:
  int folder_;
  std::vector<std::string> names_;
};

}  // namespace

void WriteFiles(const std::string& folder, const std::vector<File>& files, bool replace) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    Refuse(fmt::format("folder {}", folder), errno);
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.get() < 0) Refuse(fmt::format("folder {}", folder), errno, "a folder, no link to one");
  for (const File& file : files) {
    struct stat there {};
    if (fstatat(opened.get(), file.name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const std::string path = folder + "/" + file.name;
    if (S_ISDIR(there.st_mode)) Refuse(path, EISDIR);
    if (const std::string why = WhyInput(path); !why.empty())
      throw InputError(fmt::format("--out: cannot write '{}': {}", path, why),
                       "another folder for --out");
    if (!replace)
      throw InputError(fmt::format("{} is there already", path),
                       "another --out, or --force replaces it");
  }
  Drafts drafts(opened.get());
  for (const File& file : files) drafts.Write(folder, file);
  drafts.Publish(folder, files);
  fsync(opened.get());
}

}  // namespace orrery::exchange
