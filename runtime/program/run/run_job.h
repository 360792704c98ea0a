// SPDX-License-Identifier: Apache-2.0
// What `plan run` is to do: the plan and everything around it, from the flags.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/plan/ir/plan_facts.h"
#include "model/program/common/run_flags.h"
#include "runtime/data/make_source.h"
#include "runtime/launch/hostfile.h"
#include "runtime/launch/place.h"
#include "runtime/program/common/device.h"
#include "runtime/train/lr_schedule.h"
#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/weights/checkpoint.h"
#include "runtime/train/weights/export.h"

namespace orrery::cli {

struct RunJob : RankJob {
  ir::Plan plan;
  std::string digest;
  ir::PlanFacts facts;
  std::string name;       // of the model, or of the plan's file
  std::string layout;     // "tp 2, pp 2"; empty for a plan that was read
  std::string data;       // source of samples: its name, or the file's
  std::string data_from;  // the name again, or the file's path
  int64_t mask_token = -1;
  std::string save, resume;               // folders of snapshots; empty: none
  int64_t save_every = 0;                 // steps; 0: at the end
  double time_limit_s = 0;                // 0: none
  std::string hostfile;                   // of mpirun; empty: this machine
  std::vector<launch::HostSlots> placed;  // hosts of its ranks by place, where the plan names nodes
  comm::NodeOrder order;  // of the nodes that the launcher's hosts are; empty: any hosts will do
  train::LrSchedule lr_schedule;
  LoadedModel model;  // of --model; empty for a plan that was read
  std::string init_from;
  std::shared_ptr<const weights::HfWeights> given;  // of --init-from; null: none
  std::optional<weights::ExportOptions> export_hf;
  std::vector<std::string> notes;  // about the checkpoint and files of --from, for the user
  std::string tensorboard;         // folder of event files; empty: none
  bool profile = false;
  int64_t steps = 10;
  uint64_t seed = 1;
  int64_t log_every = 1;
  int64_t trace_steps = 1;  // the last ones

  int64_t ranks() const { return plan.mesh.ranks(); }
};

// Set for ranks that the run has started on `placed`.
constexpr const char* kHostsArePlaced = "ORRERY_HOSTS_ARE_PLACED";

// What TrainHere opens the data with.
train::DataSpec DataSpecOf(const RunJob& job);

// What of the job a snapshot keeps, to be compared when it is resumed: flags of the optimizer, its schedule, the batch.
snapshot::Conditions ConditionsOf(const RunJob& job);

// Reads --data and --mask-token, and the token file itself; --save, --save-every and --resume, and
// whether the folders hold what they should. Throws InputError. (run_input.cc)
void ReadDataFlags(const RunFlags& flags, RunJob* job);
void ReadSnapshotFlags(const RunFlags& flags, RunJob* job);
// Refuses a folder of --save that holds snapshots which the run does not go on from. Whoever writes into it holds its lock:
// until then another run may save there.
void CheckSaveFolder(const RunFlags& flags, const RunJob& job);

// --init-from without --model: the folder's config.json. (checkpoint_flags.cc, as the next)
void TakeCheckpointModel(RunFlags* flags);
// Opens the checkpoint and checks all of it but its numbers; chooses the family to export. Throws InputError.
void ReadCheckpointFlags(const RunFlags& flags, RunJob* job);

// Before any rank trains: files and folders of the output can be written. Throws InputError.
// (run_input.cc)
void CheckOutputs(const RunFlags& flags);

// Throws InputError: flags, files, layouts that cannot be lowered, a plan that `verify` refuses,
// and a number of ranks that is not the plan's.
RunJob ReadRunJob(RunFlags* flags, const launch::Place& place);

}  // namespace orrery::cli
