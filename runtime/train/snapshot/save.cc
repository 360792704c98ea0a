// SPDX-License-Identifier: Apache-2.0
// Writes snapshots.
#include <fmt/format.h>

#include <numeric>

#include "runtime/comm/gather.h"
#include "runtime/exec/index.h"
#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/snapshot/snapshot.h"

namespace orrery::snapshot {
namespace {

using exec::At;

constexpr int64_t kAlignment = 64;  // bytes

// The part of a piece that this rank writes.
Slice SliceOf(const ir::Plan& plan, const Held& held) {
  const ir::Param& param = plan.params[At(held.param)];
  const int64_t n = held.end - held.begin;
  return {held.state,
          param.name,
          param.shape,
          held.data.dtype,
          held.shard_dim,
          held.shards,
          held.shard,
          held.begin + comm::PieceBegin(n, held.replica, held.replicas),
          held.begin + comm::PieceBegin(n, held.replica + 1, held.replicas)};
}

ShardFile WriteShard(const exec::RankImage& image, const std::string& folder) {
  ShardFile shard;
  shard.name = fmt::format("rank-{:05}.shard", image.rank);
  WholeFile file(folder + "/" + shard.name);
  for (const Held& held : StateOf(image)) {
    Slice slice = SliceOf(*image.plan, held);
    if (!held.saved || slice.begin == slice.end) continue;
    file.PadTo(kAlignment);
    slice.at = file.bytes();
    const int64_t width = ir::DtypeBytes(slice.dtype);
    file.Write(static_cast<const std::byte*>(held.data.data) + (slice.begin - held.begin) * width,
               At((slice.end - slice.begin) * width));
    shard.slices.push_back(std::move(slice));
  }
  shard.bytes = file.bytes();
  shard.hash = file.Hash();
  file.Commit();
  return shard;
}

void WriteText(const std::string& path, const std::string& text) {
  WholeFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

}  // namespace

int64_t Save(exec::Executor* executor, comm::Endpoint* endpoint, const SaveOptions& options) {
  executor->Fetch();
  const exec::RankImage& image = executor->image();
  const int64_t step = executor->steps_done();
  const std::string folder = options.folder + "/" + StepFolder(step);
  if (image.rank == 0) {  // of an earlier attempt that was refused or cut off
    MakeFolder(options.folder);
    RemoveStep(options.folder, step);
  }
  comm::Wait(endpoint, endpoint->Barrier().get(), options.deadline_s, "a snapshot to begin");
  MakeFolder(folder);
  const ShardFile shard = WriteShard(image, folder);
  const auto shards = comm::GatherText(endpoint, ShardText(shard), options.deadline_s);
  if (image.rank != 0) return shard.bytes;

  Manifest manifest;
  manifest.step = step;
  manifest.samples = options.samples;
  manifest.seed = options.seed;
  manifest.data = options.data;
  manifest.plan = ir::Digest(*image.plan);
  manifest.model = ModelOf(*image.plan);
  if (const cpu::Operand scale = LossScaleOf(image); scale.data != nullptr)
    manifest.loss_scale = exec::ToNumbers(scale);
  for (const std::string& text : shards) manifest.shards.push_back(ReadShard(text));
  SyncFolder(options.folder);
  WriteText(folder + "/" + kManifestName, ManifestText(manifest));
  WriteText(options.folder + "/" + kLatestName, StepFolder(step) + "\n");
  Prune(options.folder, kKept);
  return shard.bytes;
}

}  // namespace orrery::snapshot
