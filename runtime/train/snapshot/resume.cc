// SPDX-License-Identifier: Apache-2.0
// Finds a snapshot that can be used, on all ranks the same, and reads it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "model/plan/ir/text_words.h"
#include "model/plan/ir/unit_codes.h"
#include "runtime/comm/gather.h"
#include "runtime/exec/index.h"
#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/snapshot/manifest_check.h"
#include "runtime/train/snapshot/snapshot.h"

namespace orrery::snapshot {
namespace {

using exec::At;

constexpr int32_t kSizeChannel = 32006, kTextChannel = 32007;

std::string_view TypeName(ir::Dtype dtype) {
  return ir::kDtypeWords.at(static_cast<std::size_t>(dtype));
}

// Rank 0's text to all.
std::string Tell(comm::Endpoint* endpoint, std::string text, double deadline_s) {
  auto size = static_cast<int64_t>(text.size());
  const std::string what = "a snapshot to be chosen";
  if (endpoint->rank() != 0) {
    comm::Wait(endpoint, endpoint->Receive(0, kSizeChannel, &size, sizeof size).get(), deadline_s,
               what);
    text.resize(At(size));
    comm::Wait(endpoint, endpoint->Receive(0, kTextChannel, text.data(), size).get(), deadline_s,
               what);
    return text;
  }
  for (int64_t peer = 1; peer < endpoint->size(); ++peer) {
    comm::Wait(endpoint, endpoint->Send(peer, kSizeChannel, &size, sizeof size).get(), deadline_s,
               what);
    comm::Wait(endpoint, endpoint->Send(peer, kTextChannel, text.data(), size).get(), deadline_s,
               what);
  }
  return text;
}

struct Source {  // slices of one state of one parameter
  const Slice* slice;
  const ShardFile* shard;
};

class Reader {
 public:
  Reader(exec::Executor* executor, std::string folder, int64_t step)
      : image_(executor->mutable_image()), folder_(std::move(folder)), step_(step) {}

  const Manifest& manifest() const { return manifest_; }

  // Why this rank cannot use it; empty: it can. Of the shard files it reads each P-th.
  std::string Refusal(const ResumeOptions& options, int64_t rank, int64_t ranks) {
    try {
      manifest_ = ReadManifest(ReadWhole(folder_ + "/" + kManifestName));
      if (manifest_.step != step_) {
        return fmt::format("its manifest is that of step {}, and its folder that of step {}",
                           manifest_.step, step_);
      }
      const std::string other = Difference(manifest_.model, ModelOf(*image_->plan));
      if (!other.empty()) return "it is of another model: " + other;
      if (manifest_.seed != options.seed) {
        return fmt::format("it was made with --seed {}, and this run has {}", manifest_.seed,
                           options.seed);
      }
      for (const ShardFile& shard : manifest_.shards) CheckSize(shard);
      CheckShapes();
      Index();
      CheckTypes();
      if (std::string missing = Missing(); !missing.empty()) return missing;
      for (std::size_t s = At(rank); s < manifest_.shards.size(); s += At(ranks))
        CheckShard(manifest_.shards[s]);
      return "";
    } catch (const SnapshotError& error) {
      return error.what();
    }
  }

  void Load() {
    for (const Held& held : StateOf(*image_)) {
      if (held.cast != nullptr) {
        LoadCodes(held);
      } else {
        LoadPiece(held);
      }
    }
    const cpu::Operand scale = LossScaleOf(*image_);
    if (scale.data != nullptr && static_cast<int64_t>(manifest_.loss_scale.size()) == scale.n)
      exec::FromNumbers(manifest_.loss_scale, scale);
  }

 private:
  void CheckSize(const ShardFile& shard) const {
    const std::string path = folder_ + "/" + shard.name;
    std::error_code error;
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (error) throw SnapshotError(fmt::format("{} is missing", shard.name));
    if (bytes != shard.bytes) {
      throw SnapshotError(
          fmt::format("{} is torn: {} bytes instead of {}", shard.name, bytes, shard.bytes));
    }
  }

  void CheckShard(const ShardFile& shard) const {
    if (HashOfFile(folder_ + "/" + shard.name) != shard.hash)
      throw SnapshotError(fmt::format("{} is torn: its hash differs", shard.name));
  }

  // Slices that fit the manifest's model need not fit the plan's: other rows would move all that follow.
  void CheckShapes() const {
    std::map<std::string, const ir::Param*> params;
    for (const ir::Param& param : image_->plan->params) params.emplace(param.name, &param);
    for (const ShardFile& shard : manifest_.shards) {
      for (const Slice& slice : shard.slices) {
        const ir::Param& param = *params.at(slice.param);
        const bool cut = slice.shards > 1 && param.shard_dim >= 0;
        if (cut && slice.shard_dim != param.shard_dim)
          throw SnapshotError(fmt::format("{}: {} is cut along dimension {}, and the plan cuts {}",
                                          shard.name, PlainText(slice.param), slice.shard_dim,
                                          param.shard_dim));
        if (param.real_rows == 0 && slice.shape != param.shape)
          throw SnapshotError(fmt::format("{}: {} is [{}], and the plan's is [{}]", shard.name,
                                          PlainText(slice.param), fmt::join(slice.shape, ", "),
                                          fmt::join(param.shape, ", ")));
      }
    }
  }

  // As this rank would have written them.
  void CheckTypes() const {
    const auto plain = [](ir::Dtype dtype) {
      return dtype == ir::Dtype::kTf32 ? ir::Dtype::kF32 : dtype;
    };
    for (const Held& held : StateOf(*image_)) {
      const auto found = sources_.find({held.state, ParamOf(held).name});
      if (!held.saved || held.cast != nullptr || found == sources_.end()) continue;
      for (const Source& source : found->second) {
        if (plain(source.slice->dtype) == plain(held.data.dtype)) continue;
        throw SnapshotError(fmt::format(
            "{}: {} of {} are of type {}, and this plan keeps {}; resume with the --precision "
            "that it was made with",
            source.shard->name, PlainText(held.state), ParamOf(held).name,
            TypeName(source.slice->dtype), TypeName(held.data.dtype)));
      }
    }
  }

  void Index() {
    for (const ShardFile& shard : manifest_.shards) {
      for (const Slice& slice : shard.slices)
        sources_[{slice.state, slice.param}].push_back({&slice, &shard});
    }
  }

  const ir::Param& ParamOf(const Held& held) const { return image_->plan->params[At(held.param)]; }

  // Without padding, which is zero in every layout and of another length in each.
  std::vector<Run> RunsOfHeld(const Held& held) const {
    const ir::Param& param = ParamOf(held);
    std::vector<Run> runs =
        RunsOf(CutOf(param.shape, held.shard_dim, held.shards, held.shard), held.begin, held.end);
    for (Run& run : runs) run.n = std::clamp<int64_t>(RealElements(param) - run.global, 0, run.n);
    std::erase_if(runs, [](const Run& run) { return run.n == 0; });
    return runs;
  }

  // Calls visit(source, overlaps) for all slices that hold some of a piece.
  template <class Visit>
  void ForEachSource(const Held& held, Visit visit) const {
    const auto found = sources_.find({held.state, ParamOf(held).name});
    if (found == sources_.end()) return;
    const std::vector<Run> to = RunsOfHeld(held);
    for (const Source& source : found->second) {
      const Slice& slice = *source.slice;
      const auto overlaps = Overlaps(RunsOf(slice.cut(), slice.begin, slice.end), to);
      if (!overlaps.empty()) visit(source, overlaps);
    }
  }

  // All must be there, and nothing that this plan has no use for.
  std::string Missing() const {
    std::set<std::string> states;
    for (const Held& held : StateOf(*image_)) {
      states.insert(held.state);
      int64_t there = 0, wanted = 0;
      for (const Run& run : RunsOfHeld(held)) wanted += run.n;
      std::vector<std::pair<int64_t, int64_t>> parts;  // first element, number
      ForEachSource(held, [&](const Source&, const std::vector<Overlap>& overlaps) {
        for (const Overlap& overlap : overlaps) parts.emplace_back(overlap.to, overlap.n);
      });
      std::sort(parts.begin(), parts.end());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        there += parts[i].second;
        if (i > 0 && parts[i].first < parts[i - 1].first + parts[i - 1].second)
          return fmt::format("it holds elements of {} ({}) twice", ParamOf(held).name, held.state);
      }
      if (there < wanted) {
        return fmt::format("it lacks {} of the {} elements of {} ({}) that rank {} needs",
                           wanted - there, wanted, ParamOf(held).name, held.state, image_->rank);
      }
    }
    for (const auto& [key, sources] : sources_) {
      if (states.count(key.first) == 0)
        return "it is of another optimizer: it keeps " + PlainText(key.first);
    }
    return "";
  }

  void LoadPiece(const Held& held) const {
    ForEachSource(held, [&](const Source& source, const std::vector<Overlap>& overlaps) {
      const Slice& slice = *source.slice;
      const int64_t width = ir::DtypeBytes(slice.dtype);
      std::vector<std::byte> bytes(At((slice.end - slice.begin) * width));
      ReadPart(folder_ + "/" + source.shard->name, slice.at, &bytes);
      for (const Overlap& o : overlaps) {
        Copy({bytes.data() + (o.from - slice.begin) * width, o.n, slice.dtype},
             {static_cast<std::byte*>(held.data.data) +
                  (o.to - held.begin) * ir::DtypeBytes(held.data.dtype),
              o.n, held.data.dtype});
      }
    });
  }

  // Of elements [begin, end) of a shard, from the files.
  std::vector<float> Numbers(Held held, int64_t begin, int64_t end) const {
    std::vector<float> numbers(At(end - begin));
    held.begin = begin;
    held.end = end;
    held.data = {numbers.data(), end - begin, ir::Dtype::kF32};
    LoadPiece(held);
    return numbers;
  }

  // Weights held in 8 bits are cast again, as before the first step: a tensor's scale is that of the whole tensor.
  void LoadCodes(const Held& held) const {
    const ir::Unit& unit = image_->program->units[At(held.unit)];
    const int64_t block = held.cast->attrs.Int(ir::Attr::kBlock);
    const ir::CodedSegment segment =
        ir::CodedSegments(unit, image_->plan->params, block).at(held.segment);
    Held whole = held;
    int64_t elements = segment.elements;
    if (block == 0) {
      whole.shard_dim = -1;
      whole.shard = 0;
      whole.shards = 1;
      elements *= held.shards;
    }
    const std::vector<float> numbers = Numbers(whole, 0, elements);
    ir::CodedSegment alone = segment;
    alone.offset = alone.first = 0;
    alone.elements = elements;
    std::vector<float> scales(At(segment.scales));
    ir::LargestOfUnit({alone}, 0, elements, numbers.data(), scales.data());
    const auto product = static_cast<ProductType>(held.cast->attrs.Int(ir::Attr::kProduct));
    const auto format = static_cast<ir::CastFormat>(held.cast->attrs.Int(ir::Attr::kFmt));
    for (float& scale : scales)
      scale = static_cast<float>(ir::TensorScale(product, format, double{scale}, 0));
    alone.elements = segment.elements;
    const std::vector<float> own = Numbers(held, held.begin, held.end);
    std::vector<float> codes(own.size());
    ir::CastUnit({alone}, format, held.begin, held.end - held.begin, own.data(), scales.data(),
                 codes.data());
    exec::FromNumbers({codes.begin(), codes.end()}, held.data);
    const cpu::Operand of_unit = image_->OnHost(image_->Resolve(held.cast->in.at(1), 0));
    exec::FromNumbers(
        {scales.begin(), scales.end()},
        {static_cast<std::byte*>(of_unit.data) + segment.first * ir::DtypeBytes(of_unit.dtype),
         segment.scales, of_unit.dtype});
  }

  static void Copy(const cpu::Operand& from, const cpu::Operand& to) {
    if (from.dtype == to.dtype) {
      std::memcpy(to.data, from.data, At(from.n * ir::DtypeBytes(from.dtype)));
    } else {
      exec::FromNumbers(exec::ToNumbers(from), to);
    }
  }

  exec::RankImage* image_;
  std::string folder_;
  int64_t step_;
  Manifest manifest_;
  std::map<std::pair<std::string, std::string>, std::vector<Source>> sources_;
};

// A sentence for each flag of training with another value than before; one that only one of them names means nothing there.
std::vector<std::string> Changes(const Conditions& before, const Conditions& now) {
  std::vector<std::string> changes;
  for (const auto& [name, value] : now) {
    const auto old = std::ranges::find(before, name, &Conditions::value_type::first);
    if (old == before.end() || old->second == value) continue;
    changes.push_back(fmt::format("{} was {} so far and is {} from here on", name,
                                  PlainText(old->second), value));
  }
  return changes;
}

// Rank 0's, so that all look at the same ones.
std::vector<int64_t> Candidates(comm::Endpoint* endpoint, const ResumeOptions& options) {
  std::string text;
  if (endpoint->rank() == 0) {
    for (const int64_t step : StepsIn(options.folder)) text += std::to_string(step) + " ";
  }
  std::istringstream in(Tell(endpoint, text, options.deadline_s));
  return {std::istream_iterator<int64_t>(in), {}};
}

// What all ranks together find: empty, or the first refusal.
std::string Agree(comm::Endpoint* endpoint, const std::string& mine, double deadline_s) {
  const auto all = comm::GatherText(endpoint, mine, deadline_s);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& t) { return !t.empty(); });
  return Tell(endpoint, first == all.end() ? "" : *first, deadline_s);
}

}  // namespace

Resumed Resume(exec::Executor* executor, comm::Endpoint* endpoint, const ResumeOptions& options) {
  const auto note = [&](const std::string& text) {
    if (endpoint->rank() == 0 && options.note) options.note(text);
  };
  if (const std::string bare = WithoutManifest(options.folder); !bare.empty())
    note(fmt::format("snapshot {} is not used: its manifest was deleted", bare));
  std::vector<int64_t> refused;
  for (const int64_t step : Candidates(endpoint, options)) {
    const std::string folder = options.folder + "/" + StepFolder(step);
    Reader reader(executor, folder, step);
    const std::string refusal = Agree(
        endpoint, reader.Refusal(options, endpoint->rank(), endpoint->size()), options.deadline_s);
    if (!refusal.empty()) {
      note(fmt::format("snapshot {} is not used: {}", folder, refusal));
      refused.push_back(step);
      continue;
    }
    reader.Load();
    executor->Push();
    const Manifest& manifest = reader.manifest();
    executor->set_steps_done(manifest.step);
    if (manifest.data != options.data)
      note(fmt::format("data were {} so far and are {} from here on", PlainText(manifest.data),
                       options.data));
    for (const std::string& change : Changes(manifest.conditions, options.conditions)) note(change);
    return {manifest.step, manifest.samples, refused};
  }
  throw SnapshotError(fmt::format("there is no snapshot to resume from in '{}'", options.folder));
}

}  // namespace orrery::snapshot
