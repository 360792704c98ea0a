// SPDX-License-Identifier: Apache-2.0
// Verify, pass 2: every read finds what this call, this micro-batch or this step wrote.
//
// Each block is walked once per variant. What it reads before writing and what it writes is a
// summary; pieces with equal summaries in all variants behave alike and are followed through the
// calls as one.
#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

using Scope = Layout::Scope;

struct Exposed {
  int32_t piece;
  int32_t op;
};
struct Summary {
  std::vector<Exposed> reads;   // before any write in the variant; not of call buffers
  std::vector<int32_t> writes;  // pieces; not of call buffers
};

class LivenessPass {
 public:
  LivenessPass(const Stage& stage, Findings* findings) : stage_(stage), findings_(*findings) {}

  void Run() {
    for (size_t v = 0; v < stage_.variants.size(); ++v) summaries_.push_back(Summarise(v));
    Classify();
    Walk();
  }

 private:
  bool CallScope(int32_t piece) const {
    const Scope scope = stage_.layout.scope[stage_.pieces.buffer[piece]];
    return scope == Scope::kCall || scope == Scope::kRing;
  }

  Summary Summarise(size_t v) {
    const Variant& variant = stage_.variants[v];
    const Pieces& pieces = stage_.pieces;
    std::vector<char> written(pieces.buffer.size(), 0), exposed(pieces.buffer.size(), 0);
    Summary summary;
    for (int32_t i : variant.ops) {
      const Op& op = stage_.op(variant, i);
      for (ViewId view : op.in) {
        for (int32_t p = pieces.begin[view]; p < pieces.end[view]; ++p) {
          if (written[p] || exposed[p]) continue;
          exposed[p] = 1;
          if (CallScope(p)) {
            ReportInCall(variant, i, p);
          } else {
            summary.reads.push_back({p, i});
          }
        }
      }
      for (ViewId view : op.out) {
        for (int32_t p = pieces.begin[view]; p < pieces.end[view]; ++p) {
          if (!written[p] && !CallScope(p)) summary.writes.push_back(p);
          written[p] = 1;
        }
      }
    }
    return summary;
  }

  void ReportInCall(const Variant& variant, int32_t op, int32_t piece) {
    bool later = false;  // then the bytes hold what the previous call left
    for (int32_t i : variant.ops) {
      if (i < op) continue;
      for (ViewId view : stage_.op(variant, i).out) {
        later = later || (stage_.pieces.begin[view] <= piece && piece < stage_.pieces.end[view]);
      }
    }
    findings_.Add(
        later ? Fault::kStaleRead : Fault::kReadBeforeWrite, stage_.program.stage,
        WhereOp(stage_.program, variant.block, op),
        fmt::format("reads {}, which {}", Name(piece),
                    later ? "is written only later in this call" : "nothing in this call writes"));
  }

  // Pieces that the same variants read and write, in the same way, share a class.
  void Classify() {
    const size_t count = stage_.pieces.buffer.size();
    std::vector<uint64_t> signature(count, 0);
    auto mix = [&](int32_t piece, uint64_t code) {
      uint64_t& hash = signature[piece];
      hash = (hash ^ (code + 1)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 31;
    };
    for (size_t v = 0; v < summaries_.size(); ++v) {
      for (const Exposed& read : summaries_[v].reads) mix(read.piece, 2 * v);
      for (int32_t piece : summaries_[v].writes) mix(piece, 2 * v + 1);
    }
    std::unordered_map<uint64_t, int32_t> known;
    class_of_.assign(count, -1);
    for (size_t p = 0; p < count; ++p) {
      if (signature[p] == 0) continue;
      const BufferId buffer = stage_.pieces.buffer[p];
      const bool per_batch = stage_.layout.scope[buffer] == Scope::kMicroBatch;
      if (stage_.Persists(buffer)) continue;
      mix(static_cast<int32_t>(p), per_batch ? 1u << 20 : 1u << 21);
      const auto [it, added] =
          known.try_emplace(signature[p], static_cast<int32_t>(per_batch_.size()));
      if (added) per_batch_.push_back(per_batch);
      class_of_[p] = it->second;
    }
    // Summaries of classes: one representative piece each.
    for (Summary& summary : summaries_) {
      std::vector<char> seen(per_batch_.size(), 0);
      std::erase_if(summary.reads, [&](const Exposed& read) {
        const int32_t c = class_of_[read.piece];
        return c < 0 || std::exchange(seen[c], 1);
      });
      seen.assign(per_batch_.size(), 0);
      std::erase_if(summary.writes, [&](int32_t piece) {
        const int32_t c = class_of_[piece];
        return c < 0 || std::exchange(seen[c], 1);
      });
    }
  }

  void Walk() {
    const auto batches = static_cast<size_t>(stage_.plan.micro_batches);
    std::vector<std::vector<char>> written(per_batch_.size());
    for (size_t c = 0; c < written.size(); ++c) written[c].assign(per_batch_[c] ? batches : 1, 0);
    std::vector<char> ever(per_batch_.size(), 0);
    for (size_t i = 0; i < stage_.layout.calls.size(); ++i) {
      const int32_t m = stage_.layout.calls[i].micro_batch;
      const Summary& summary = summaries_[stage_.variant_of[i]];
      for (const Exposed& read : summary.reads) {
        const int32_t c = class_of_[read.piece];
        if (!written[c][per_batch_[c] ? m : 0]) Report(i, read, ever[c]);
      }
      for (int32_t piece : summary.writes) {
        const int32_t c = class_of_[piece];
        written[c][per_batch_[c] ? m : 0] = 1;
        ever[c] = 1;
      }
    }
  }

  void Report(size_t call, const Exposed& read, bool other_batch) {
    const Call& at = stage_.layout.calls[call];
    findings_.Add(
        other_batch ? Fault::kStaleRead : Fault::kReadBeforeWrite, stage_.program.stage,
        WhereOp(stage_.program, at.block, read.op, at.micro_batch),
        fmt::format("reads {}, which {} wrote", Name(read.piece),
                    other_batch ? "only another micro-batch" : "nothing before it in the step"));
  }

  std::string Name(int32_t piece) const {
    const Pieces& pieces = stage_.pieces;
    const Buffer& buffer = stage_.program.buffers[pieces.buffer[piece]];
    if (pieces.size[piece] == buffer.elements) return buffer.name;
    return fmt::format("{}[{}..{})", buffer.name, pieces.offset[piece],
                       pieces.offset[piece] + pieces.size[piece]);
  }

  const Stage& stage_;
  Findings& findings_;
  std::vector<Summary> summaries_;  // by variant
  std::vector<int32_t> class_of_;   // by piece; -1: needs no watching
  std::vector<char> per_batch_;     // by class
};

}  // namespace

void VerifyLiveness(const Stage& stage, Findings* findings) { LivenessPass(stage, findings).Run(); }

}  // namespace orrery::ir
