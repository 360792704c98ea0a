// SPDX-License-Identifier: Apache-2.0
// Writes snapshots.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "runtime/comm/gather.h"
#include "runtime/exec/index.h"
#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/snapshot/manifest_check.h"
#include "runtime/train/snapshot/snapshot.h"

namespace orrery::snapshot {
namespace {

using exec::At;

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

// What the rank's file will hold, and where.
ShardFile CopyShard(const exec::RankImage& image, DiskBuffer* bytes) {
  ShardFile shard;
  shard.name = fmt::format("rank-{:05}.shard", image.rank);
  std::vector<const std::byte*> from;
  for (const Held& held : StateOf(image)) {
    Slice slice = SliceOf(*image.plan, held);
    if (!held.saved || slice.begin == slice.end) continue;
    const int64_t width = ir::DtypeBytes(slice.dtype);
    slice.at = (shard.bytes + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
    shard.bytes = slice.at + (slice.end - slice.begin) * width;
    from.push_back(static_cast<const std::byte*>(held.data.data) +
                   (slice.begin - held.begin) * width);
    shard.slices.push_back(std::move(slice));
  }
  bytes->Resize(At(shard.bytes));
  int64_t end = 0;
  for (std::size_t s = 0; s < shard.slices.size(); ++s) {
    const Slice& slice = shard.slices[s];
    std::memset(bytes->data() + end, 0, At(slice.at - end));  // between slices
    const int64_t n = (slice.end - slice.begin) * ir::DtypeBytes(slice.dtype);
    std::memcpy(bytes->data() + slice.at, from[s], At(n));
    end = slice.at + n;
  }
  return shard;
}

ShardFile WriteShard(ShardFile shard, const DiskBuffer& bytes, const std::string& folder) {
  MakeFolder(folder);
  WholeFile file(folder + "/" + shard.name);
  file.Write(bytes.data(), bytes.size());
  shard.hash = file.Hash();
  file.Commit();
  return shard;
}

void WriteText(const std::string& path, const std::string& text) {
  WholeFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

void WriteSnapshot(const Manifest& manifest, const std::string& folder,
                   const std::vector<int64_t>& refused) {
  const std::string name = StepFolder(manifest.step);
  SyncFolder(folder);
  WriteText(folder + "/" + name + "/" + kManifestName, ManifestText(manifest));
  WriteText(folder + "/" + kLatestName, name + "\n");
  Prune(folder, kKept, refused);
}

// On a thread of its own.
template <class Work>
auto Behind(Work work) {
  try {
    return std::async(std::launch::async, std::move(work));
  } catch (const std::system_error& error) {
    throw SnapshotError(fmt::format(
        "cannot start the thread that writes snapshots: {}; raise the limit (ulimit -u)",
        error.code().message()));
  }
}

template <class Future>
bool Done(const Future& future) {
  return !future.valid() || future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

void Saver::Begin(exec::Executor* executor, int64_t samples) {
  executor->Fetch();
  const exec::RankImage& image = executor->image();
  manifest_ = Manifest{};
  manifest_.step = executor->steps_done();
  manifest_.samples = samples;
  manifest_.seed = options_.seed;
  manifest_.data = options_.data;
  manifest_.conditions = options_.conditions;
  const std::string folder = options_.folder + "/" + StepFolder(manifest_.step);
  if (image.rank == 0) {
    manifest_.plan = ir::Digest(*image.plan);
    manifest_.model = ModelOf(*image.plan);
    if (const cpu::Operand scale = LossScaleOf(image); scale.data != nullptr)
      manifest_.loss_scale = exec::ToNumbers(scale);
    // Of an earlier attempt that was refused or cut off.
    std::error_code ignored;
    if (std::filesystem::exists(folder, ignored)) RemoveStep(options_.folder, manifest_.step);
    std::erase(refused_, manifest_.step);
  }
  comm::LargestOf(endpoint_, 0, options_.deadline_s);
  shard_ = CopyShard(image, &bytes_);
  shard_writer_ = Behind([this, folder] { return WriteShard(shard_, bytes_, folder); });
  stage_ = Stage::kShards;
  whole_ = false;
}

bool Saver::ReadyHere() const { return Done(shard_writer_) && Done(manifest_writer_); }

// Ranks meet for the shards alone: each meeting between steps takes from ranks that share cores what they run ahead of each
// other. The manifest is rank 0's, and the others hear of it when the next snapshot begins, or of its failure at once.
void Saver::Poll() {
  if (stage_ == Stage::kShards) return Agree();
  if (!manifest_writer_.valid() || !Done(manifest_writer_)) return;
  manifest_writer_.get();
  whole_ = true;
}

void Saver::Agree() {
  if (comm::LargestOf(endpoint_, ReadyHere() ? 0 : 1, options_.deadline_s) != 0) return;
  if (stage_ == Stage::kShards) return WriteManifest();
  if (manifest_writer_.valid()) manifest_writer_.get();
  whole_ = true;
  stage_ = Stage::kIdle;
}

// A rank whose shard could not be written says so here; the others hear of it.
void Saver::WriteManifest() {
  const ShardFile shard = shard_writer_.get();
  const auto shards = comm::GatherText(endpoint_, ShardText(shard), options_.deadline_s);
  stage_ = Stage::kManifest;
  if (endpoint_->rank() != 0) return;
  for (const std::string& text : shards) manifest_.shards.push_back(ReadShard(text));
  manifest_writer_ = Behind([this] { WriteSnapshot(manifest_, options_.folder, refused_); });
}

void Saver::Finish() {
  while (busy()) {
    Agree();
    if (busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace orrery::snapshot
