// SPDX-License-Identifier: Apache-2.0
// Refuses manifests that no run has written.
#include "runtime/train/snapshot/manifest_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "runtime/train/snapshot/files.h"

namespace orrery::snapshot {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 40, kMostSamples = int64_t{1} << 56;
constexpr int64_t kMostBytes = int64_t{1} << 50;    // of one shard file
constexpr int64_t kMostPadding = int64_t{1} << 20;  // rows: those of a vocabulary
constexpr std::size_t kHashDigits = 32;

using Shapes = std::map<std::string, std::vector<int64_t>>;

[[noreturn]] void Refuse(const std::string& what) {
  throw SnapshotError(
      fmt::format("its manifest says what no run writes: {}; copy the snapshot again", what));
}

// The product; -1: a factor below 1, or more than any file holds.
int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t n : shape) {
    if (n < 1 || n > kMostBytes / elements) return -1;
    elements *= n;
  }
  return elements;
}

// What all slices of a parameter share, and in a state of it.
struct Common {
  std::map<std::pair<std::string, std::string>, ir::Dtype> types;  // by state and parameter
  std::map<std::string, const Slice*> cuts;                        // a slice of each parameter
};

class ShardCheck {
 public:
  ShardCheck(const Shapes& model, const ShardFile& shard, Common* common)
      : model_(model), shard_(shard), common_(common) {}

  void Run(std::size_t rank) {
    if (shard_.name != fmt::format("rank-{:05}.shard", rank))
      Refuse(fmt::format("shard {} is called '{}'", rank, PlainText(shard_.name)));
    const bool hex = shard_.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (shard_.hash.size() != kHashDigits || !hex) Fail("its hash is none");
    if (shard_.bytes < 0 || shard_.bytes > kMostBytes) Fail("its size");
    int64_t end = 0;
    for (const Slice& slice : shard_.slices) end = Check(slice, end);
    if (end != shard_.bytes) Fail("its size is not that of its slices");
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    Refuse(fmt::format("{}: {}", shard_.name, what));
  }
  [[noreturn]] void Fail(const Slice& slice, const char* what) const {
    Fail(fmt::format("{} of {}: {}", PlainText(slice.state), PlainText(slice.param), what));
  }

  // The byte behind the slice; `behind` is that of the one before.
  int64_t Check(const Slice& slice, int64_t behind) const {
    CheckLikeOthers(slice);
    const int64_t elements = Elements(slice.shape);
    if (elements < 0 || !FitsModel(slice)) Fail(slice, "a shape that its model has not");
    if (slice.shard_dim >= static_cast<int>(slice.shape.size())) Fail(slice, "its dimension");
    const int64_t length =
        slice.shard_dim < 0 ? 1 : slice.shape[static_cast<std::size_t>(slice.shard_dim)];
    if (slice.shards < 1 || length % slice.shards != 0 || slice.shard < 0 ||
        slice.shard >= slice.shards)
      Fail(slice, "its part of a dimension");
    if (slice.begin < 0 || slice.begin >= slice.end || slice.end > elements / slice.shards)
      Fail(slice, "its elements");
    const int64_t at = (behind + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
    if (slice.at != at) Fail(slice, "its place in the file");
    const int64_t end = at + (slice.end - slice.begin) * ir::DtypeBytes(slice.dtype);
    if (end > shard_.bytes) Fail(slice, "it ends behind its file");
    return end;
  }

  void CheckLikeOthers(const Slice& slice) const {
    const auto type = common_->types.try_emplace({slice.state, slice.param}, slice.dtype).first;
    if (type->second != slice.dtype) Fail(slice, "a type that other slices have not");
    const Slice& other = *common_->cuts.try_emplace(slice.param, &slice).first->second;
    if (other.shape != slice.shape || other.shard_dim != slice.shard_dim ||
        other.shards != slice.shards)
      Fail(slice, "a shape that other slices have not");
  }

  // Of a parameter of the model, the first dimension maybe padded.
  bool FitsModel(const Slice& slice) const {
    const auto found = model_.find(slice.param);
    if (found == model_.end() || found->second.size() != slice.shape.size()) return false;
    for (std::size_t d = 0; d < slice.shape.size(); ++d) {
      const int64_t more = slice.shape[d] - found->second[d];
      // Where rows are cut, padding fills up the last shard: more would move the rows of the others.
      const int64_t most =
          slice.shard_dim == 0 && slice.shards > 1 ? slice.shards - 1 : kMostPadding;
      if (more != 0 && (d > 0 || more < 0 || more > most)) return false;
    }
    return true;
  }

  const Shapes& model_;
  const ShardFile& shard_;
  Common* common_;
};

}  // namespace

std::string PlainText(std::string_view text) {
  constexpr std::size_t kMost = 64;
  std::string plain(text.substr(0, kMost));
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kMost ? plain + "..." : plain;
}

void CheckManifest(const Manifest& m) {
  if (m.step < 0 || m.step > kMostSteps) Refuse("its step");
  if (m.samples < 0 || m.samples > kMostSamples) Refuse("its samples");
  for (const double number : m.loss_scale) {
    if (!std::isfinite(number) || number < 0) Refuse("its loss scale");
  }
  const Shapes model(m.model.begin(), m.model.end());
  if (model.size() != m.model.size()) Refuse("a parameter that its model has twice");
  for (const auto& [name, shape] : model) {
    if (Elements(shape) < 0) Refuse(fmt::format("the shape of {}", PlainText(name)));
  }
  Common common;
  for (std::size_t r = 0; r < m.shards.size(); ++r) ShardCheck(model, m.shards[r], &common).Run(r);
}

}  // namespace orrery::snapshot
