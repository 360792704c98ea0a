// SPDX-License-Identifier: Apache-2.0
// One run at a time writes into a folder.
#pragma once

#include <string>

namespace orrery::snapshot {

// Holds DIR/.lock (flock) until it is destroyed or its process ends, however it ends; the file says
// who holds it. Makes the folder. Waits five seconds for the ranks of a run that was killed to be gone.
// Throws SnapshotError: another run has it, or it cannot be written.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace orrery::snapshot
