// SPDX-License-Identifier: Apache-2.0
// Snapshots of training: every rank writes a shard, any number of ranks in any layout reads them.
//
// DIR/step-00000040/rank-00003.shard holds what rank 3 alone answers for of weights (master weights
// where there are such) and optimizer moments; ranks that hold the same elements share the writing.
// Every file is written aside, flushed, renamed; DIR/step-00000040/manifest comes last and makes
// the snapshot; DIR/LATEST names it. The two newest are kept.
#pragma once

#include <functional>
#include <string>

#include "runtime/exec/executor.h"
#include "runtime/train/snapshot/files.h"

namespace orrery::snapshot {

inline constexpr std::size_t kKept = 2;

struct SaveOptions {
  std::string folder;
  uint64_t seed = 1;
  std::string data;     // name of the source
  int64_t samples = 0;  // read so far
  double deadline_s = 120;
};

// Every rank calls it after the same step. Returns the bytes that this rank wrote. Throws
// SnapshotError (the snapshots that were there stay as they are) and comm::CommError.
int64_t Save(exec::Executor* executor, comm::Endpoint* endpoint, const SaveOptions& options);

struct ResumeOptions {
  std::string folder;
  uint64_t seed = 1;
  std::string data;
  double deadline_s = 120;
  std::function<void(const std::string&)> note;  // called on rank 0: what was refused and why
};
struct Resumed {
  int64_t step = 0, samples = 0;
};

// Every rank calls it before its first step: fills the arena from the newest snapshot that is whole
// and of this model. Throws SnapshotError when there is none.
Resumed Resume(exec::Executor* executor, comm::Endpoint* endpoint, const ResumeOptions& options);

}  // namespace orrery::snapshot
