// SPDX-License-Identifier: Apache-2.0
// Snapshots of training: every rank writes a shard, any number of ranks in any layout reads them.
//
// DIR/step-00000040/rank-00003.shard holds what rank 3 alone answers for of weights (master weights
// where there are such) and optimizer moments; ranks that hold the same elements share the writing.
// Every file is written aside, flushed, renamed; DIR/step-00000040/manifest comes last and makes
// the snapshot; DIR/LATEST names it. The two newest are kept, and those that the run refused to resume from.
#pragma once

#include <functional>
#include <future>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"
#include "runtime/train/snapshot/files.h"
#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/snapshot/writer_thread.h"

namespace orrery::snapshot {

inline constexpr std::size_t kKept = 2;

struct SaveOptions {
  std::string folder;
  uint64_t seed = 1;
  std::string data;  // name of the source
  double deadline_s = 120;
  Conditions conditions = {};
};

// Writes snapshots next to training. A rank copies its state in Begin(), a thread of its own writes the
// copy; once all shards are on the disk, that of rank 0 writes the manifest. Storage may take as
// long as it likes: nobody waits for it with a deadline.
class Saver {
 public:
  Saver(SaveOptions options, comm::Endpoint* endpoint)
      : options_(std::move(options)), endpoint_(endpoint) {}

  // Every rank calls these behind the same steps. `samples`: read so far. Throw SnapshotError (the
  // snapshots that were there stay as they are) and comm::CommError. Poll() waits for nobody: each barrier between steps takes
  // from ranks that share cores what they run ahead of each other.
  void Begin(exec::Executor* executor, int64_t samples);  // only while !busy()
  void Poll();                                            // nothing to do while !busy()
  void Finish();                                          // waits until it is whole on all ranks
  bool busy() const { return stage_ != Stage::kIdle; }    // up to Finish(), the same on all ranks
  // The last that was begun is on the disk, as far as this rank knows: rank 0 sees it first.
  bool whole() const { return whole_; }
  int64_t step() const { return manifest_.step; }  // of the last that was begun
  // Steps of snapshots in the folder that this run cannot use: they stay, and are none of the newest. Only while !busy().
  void set_refused(std::vector<int64_t> steps) { refused_ = std::move(steps); }

 private:
  enum class Stage { kIdle, kShards, kManifest };
  // What a peer's shard holds, as text, on its way to rank 0.
  struct Report {
    int64_t size = 0;
    std::string text;
    bool sized = false, whole = false;
    comm::OperationPtr operation;
  };
  bool ReadyHere() const;
  void SendReport();
  void TakeReports();
  bool Take(std::size_t peer);

  SaveOptions options_;
  std::vector<int64_t> refused_;
  comm::Endpoint* endpoint_;
  Stage stage_ = Stage::kIdle;
  bool whole_ = false;
  Manifest manifest_;            // rank 0: what it will say
  ShardFile shard_;              // of this rank
  std::vector<Report> reports_;  // rank 0: by peer; others: their own
  DiskBuffer bytes_;             // what its file will hold
  std::future<ShardFile> shard_writer_;
  std::future<void> manifest_writer_;
  WriterThread writer_;  // last: ends first
};

struct ResumeOptions {
  std::string folder;
  uint64_t seed = 1;
  std::string data;
  double deadline_s = 120;
  std::function<void(const std::string&)>
      note;                    // called on rank 0: what was refused and why, or differs
  Conditions conditions = {};  // of this run
};
struct Resumed {
  int64_t step = 0, samples = 0;
  std::vector<int64_t> refused;  // newer ones, torn or of something else
};

// Every rank calls it before its first step: fills the arena from the newest snapshot that is whole
// and of this model. Throws SnapshotError when there is none.
Resumed Resume(exec::Executor* executor, comm::Endpoint* endpoint, const ResumeOptions& options);

}  // namespace orrery::snapshot
