// SPDX-License-Identifier: Apache-2.0
// Files that are either there as a whole or not at all, and the folders that hold them.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::snapshot {

// A snapshot that cannot be written or read; says which file and why.
struct SnapshotError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Another run writes there.
struct FolderInUse : SnapshotError {
  using SnapshotError::SnapshotError;
};

// Memory that a disk can read from without a copy, as large as what it held most.
class DiskBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;  // of logical blocks of disks, at most

  void Resize(std::size_t bytes);  // contents are lost where it grows; throws std::bad_alloc
  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  std::size_t size_ = 0, room_ = 0;
};

// Written as PATH.part; Commit() flushes it to the disk, renames it and flushes its folder. Without
// a commit nothing is left.
class WholeFile {
 public:
  explicit WholeFile(std::string path);  // throws SnapshotError, as do Write and Commit
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void Write(const void* from, std::size_t bytes);
  void PadTo(int64_t multiple);
  void Commit();
  int64_t bytes() const { return bytes_; }
  std::string Hash() const;  // XXH3-128 of what was written, 32 hex digits

 private:
  void Flush();
  void WriteAll(const std::byte* from, std::size_t bytes);
  std::size_t WriteUncached(const std::byte* from, std::size_t bytes);
  [[noreturn]] void Fail() const;

  std::string path_, part_;
  int file_ = -1;
  int64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
  XXH3_state_t* hash_;
};

std::string HashOf(const std::string& text);  // likewise
// Regular files; a link is not followed (one to a whole step's folder is). They throw SnapshotError.
std::string HashOfFile(const std::string& path);
std::string ReadWhole(const std::string& path);
// Bytes [at, at + out.size()) of a file; throws SnapshotError.
void ReadPart(const std::string& path, int64_t at, std::vector<std::byte>* out);

void MakeFolder(const std::string& path);  // and those above it; throws SnapshotError
void SyncFolder(const std::string& path);

// Snapshots lie in DIR/step-00000040; a folder without a manifest is none.
inline constexpr char kManifestName[] = "manifest";
inline constexpr char kLatestName[] = "LATEST";
std::string StepFolder(int64_t step);
std::vector<int64_t> StepsIn(const std::string& folder);  // that have a manifest, newest first
// The step that was saved last: LATEST's, if it has a manifest, else the newest; -1: none. Throws SnapshotError where
// LATEST is no regular file or a link: no run has written it.
int64_t LastSaved(const std::string& folder);
// The folder that LATEST names, if it is there and has lost its manifest; else "". A run writes LATEST last: somebody has
// deleted the manifest since. Throws as LastSaved().
std::string WithoutManifest(const std::string& folder);
// What has the name of a snapshot and is no folder, in which one could be written; "": nothing.
std::string StepFileIn(const std::string& folder);
// Leaves the newest `keep` snapshots, and those of the steps `refused`, which do not count: they may be torn, or somebody
// else's; and links to folders elsewhere. Manifests go first: what is half removed is no snapshot.
void Prune(const std::string& folder, std::size_t keep, const std::vector<int64_t>& refused = {});
// Of a link the link alone; no file that is none of a run.
void RemoveStep(const std::string& folder, int64_t step);

}  // namespace orrery::snapshot
