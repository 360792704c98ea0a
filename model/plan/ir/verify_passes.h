// SPDX-License-Identifier: Apache-2.0
// The passes of Verify and what they share: the stages with their layouts, block variants, pieces,
// findings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/plan/ir/layout.h"
#include "model/plan/ir/usage.h"
#include "model/plan/ir/verify.h"

namespace orrery::ir {

// A block as some calls execute it: with the ops whose `when` flag these calls carry.
struct Variant {
  int32_t block;
  uint8_t flags;             // those that the block asks for
  std::vector<int32_t> ops;  // issue order
};

// Buffers cut at the ends of their views. Pieces of a buffer have consecutive numbers.
struct Pieces {
  explicit Pieces(const Program& program);
  std::vector<int32_t> begin, end;    // by view
  std::vector<BufferId> buffer;       // by piece
  std::vector<int64_t> offset, size;  // by piece, elements
};

struct Stage {
  Stage(const Plan& plan_in, const Program& program_in, const Layout& layout_in);
  const Plan& plan;
  const Program& program;
  const Layout& layout;
  Usage usage;
  std::vector<CallSpan> frame_spans;
  std::vector<Variant> variants;
  std::vector<int32_t> variant_of;  // by call
  Pieces pieces;

  const Op& op(const Variant& variant, int32_t index) const {
    return program.blocks[variant.block].ops[index];
  }
  const Buffer& buffer_of(ViewId view) const { return program.buffers[program.views[view].buffer]; }
  int64_t ViewBytes(ViewId view) const {
    return program.views[view].elements * DtypeBytes(buffer_of(view).dtype);
  }
  // True if the buffer keeps its contents from one step to the next (weights, optimizer state, loss
  // scale).
  bool Persists(BufferId buffer) const { return persists[buffer] != 0; }
  std::vector<char> persists;
};

// Collects findings; one per fault and place, and no more than a screenful.
class Findings {
 public:
  void Add(Fault fault, int stage, std::string where, std::string message);
  bool empty() const { return list_.empty(); }
  std::vector<Finding> Take() { return std::move(list_); }

 private:
  std::vector<Finding> list_;
};

// The point-to-point ops that meet: those of one sender in one direction. Between stages `from` is
// the sender's program; around any other axis every rank of the program does the same.
struct Channel {
  int axis, from, delta;  // delta: of the sender
  auto operator<=>(const Channel&) const = default;
};
Channel ChannelOf(const Mesh& mesh, int stage, const Op& op);
// True if members of the group run different programs.
bool CrossesStages(const Plan& plan, int group);
// True if ranks of the stage (index into Plan::programs) belong to the group.
bool IsMember(const Plan& plan, int group, int stage);

// Optimizers, by what they do: LAMB finds its direction in one op and applies it in another.
bool ReadsGradient(OpKind kind);
bool WritesParameters(OpKind kind);

std::string WhereOp(const Program& program, int32_t block, int32_t op, int32_t micro_batch = -1);
// The axes of `mask` that have more than one member.
uint16_t RealAxes(const Mesh& mesh, uint16_t mask);
std::string AxisNames(const Mesh& mesh, uint16_t mask);

// Indices, sizes and operand counts; false: the plan is too broken for the other passes. Needs no
// layout.
bool VerifyStructure(const Plan& plan, Findings* findings);
void VerifyShapes(const Plan& plan, Findings* findings);
void VerifyScales(const Plan& plan, Findings* findings);
void VerifyCodes(const Plan& plan, Findings* findings);
// Ops of the device and of the CPU read and write their own memory; copies alone pass between both.
void VerifySpaces(const Plan& plan, Findings* findings);
void VerifyLiveness(const Stage& stage, Findings* findings);
void VerifyLayout(const Stage& stage, Findings* findings);
void VerifyPartialSums(const std::vector<Stage>& stages, Findings* findings);
// Sequences that ranks share: one order of rows, each part of the keys met once, each part's gradient sent home whole.
void VerifyContext(const std::vector<Stage>& stages, Findings* findings);
void VerifyMatching(const std::vector<Stage>& stages, Findings* findings);
void VerifyCoverage(const std::vector<Stage>& stages, Findings* findings);
// The norm that updates clip by holds every gradient once.
void VerifyNorm(const std::vector<Stage>& stages, Findings* findings);
// `window` as in VerifyOptions. Expects a plan without mismatches.
void VerifyDeadlock(const std::vector<Stage>& stages, int window, Findings* findings);

}  // namespace orrery::ir
