// SPDX-License-Identifier: Apache-2.0
// A file of any kind, read once from its beginning: also a pipe, which somebody is to write into.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace orrery {

class AnyFile {
 public:
  explicit AnyFile(std::string path);  // descriptor() < 0: errno says why
  ~AnyFile();
  AnyFile(const AnyFile&) = delete;
  AnyFile& operator=(const AnyFile&) = delete;

  int descriptor() const { return file_; }
  // Up to `bytes`; 0: the end; -1: errno says why. Waits for who writes into a pipe, and says so once after three seconds.
  long Read(char* to, std::size_t bytes);

 private:
  void Wait();

  std::string path_;
  int file_ = -1;
  bool pipe_ = false, said_ = false, any_ = false;
};

// What a program looks at several times a second while it waits for a pipe; it may end the process. Once, at its start.
void WhileWaitingForPipes(std::function<void()> look);

}  // namespace orrery
