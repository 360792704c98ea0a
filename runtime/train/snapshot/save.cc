// SPDX-License-Identifier: Apache-2.0
// Writes snapshots.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "runtime/comm/gather.h"
#include "runtime/exec/index.h"
#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/snapshot/manifest_check.h"
#include "runtime/train/snapshot/snapshot.h"

namespace orrery::snapshot {
namespace {

using exec::At;

// Of messages that no plan and no other part of a run sends.
constexpr int32_t kReportSize = 32011, kReportText = 32012;

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
  shard_ = CopyShard(image, &bytes_);  // while rank 0 looks after the folder
  comm::LargestOf(endpoint_, 0, options_.deadline_s);
  shard_writer_ = writer_.Run([this, folder] { return WriteShard(shard_, bytes_, folder); });
  stage_ = Stage::kShards;
  whole_ = false;
  if (image.rank != 0) return;
  reports_ = std::vector<Report>(At(endpoint_->size()));
  for (std::size_t peer = 1; peer < reports_.size(); ++peer)
    reports_[peer].operation = endpoint_->Receive(static_cast<int64_t>(peer), kReportSize,
                                                  &reports_[peer].size, sizeof reports_[peer].size);
}

bool Saver::ReadyHere() const { return stage_ == Stage::kManifest && Done(manifest_writer_); }

// The manifest is rank 0's: the others hear that it is there when the next snapshot begins, or at once that it is not.
void Saver::Poll() {
  if (stage_ == Stage::kShards) endpoint_->rank() == 0 ? TakeReports() : SendReport();
  if (!manifest_writer_.valid() || !Done(manifest_writer_)) return;
  manifest_writer_.get();
  whole_ = true;
}

// A rank whose shard could not be written says so here; the others hear of it.
void Saver::SendReport() {
  if (shard_writer_.valid()) {
    if (!Done(shard_writer_)) return;
    reports_ = std::vector<Report>(2);
    Report &size = reports_[0], &text = reports_[1];
    text.text = ShardText(shard_writer_.get());
    size.size = static_cast<int64_t>(text.text.size());
    size.operation = endpoint_->Send(0, kReportSize, &size.size, sizeof size.size);
    text.operation = endpoint_->Send(0, kReportText, text.text.data(), size.size);
  }
  for (Report& report : reports_) report.whole = report.whole || report.operation->Test();
  if (std::ranges::all_of(reports_, &Report::whole)) stage_ = Stage::kManifest;
}

// Rank 0: once all shards are on the disk, the manifest.
void Saver::TakeReports() {
  if (shard_writer_.valid() && Done(shard_writer_)) {
    reports_[0].text = ShardText(shard_writer_.get());
    reports_[0].whole = true;
  }
  bool all = reports_[0].whole;
  for (std::size_t peer = 1; peer < reports_.size(); ++peer) all = Take(peer) && all;
  if (!all) return;
  for (const Report& report : reports_) manifest_.shards.push_back(ReadShard(report.text));
  stage_ = Stage::kManifest;
  manifest_writer_ = writer_.Run([this] { WriteSnapshot(manifest_, options_.folder, refused_); });
}

bool Saver::Take(std::size_t peer) {
  Report& report = reports_[peer];
  if (!report.sized && report.operation->Test()) {
    report.sized = true;
    report.text.resize(At(report.size));
    report.operation = endpoint_->Receive(static_cast<int64_t>(peer), kReportText,
                                          report.text.data(), report.size);
  }
  report.whole = report.whole || (report.sized && report.operation->Test());
  return report.whole;
}

void Saver::Finish() {
  while (busy()) {
    Poll();
    if (comm::LargestOf(endpoint_, ReadyHere() ? 0 : 1, options_.deadline_s) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    if (manifest_writer_.valid()) manifest_writer_.get();
    whole_ = true;
    stage_ = Stage::kIdle;
  }
}

}  // namespace orrery::snapshot
