// SPDX-License-Identifier: Apache-2.0
// Verify, pass 2b: each op finds its operands in its own memory.
//
// That what was moved to the host is back before it is read needs no further rule: whatever a copy brings back is written by
// that copy, so an earlier reader reads before the write (pass 2), and one that names the buffer of the host fails here.
#include <fmt/format.h>

#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

// What runs on a CPU beside a GPU; everything else is a kernel of the device, input or communication.
bool RunsOnHost(OpKind kind) {
  return Info(kind).op_class == OpClass::kOptimizer || kind == OpKind::kZero ||
         kind == OpKind::kAdd;
}

class SpacePass {
 public:
  SpacePass(const Program& program, Findings* findings) : program_(program), findings_(*findings) {}

  void Run() {
    for (const Buffer& buffer : program_.buffers) {
      if (OnHost(buffer) && buffer.ring >= 0)
        findings_.Add(Fault::kSpace, program_.stage, buffer.name,
                      "a buffer of the host has no ring: rings are memory of the device");
    }
    for (size_t b = 0; b < program_.blocks.size(); ++b) {
      const std::vector<Op>& ops = program_.blocks[b].ops;
      for (size_t i = 0; i < ops.size(); ++i) {
        const std::string fault = FaultOf(ops[i]);
        if (!fault.empty())
          findings_.Add(Fault::kSpace, program_.stage,
                        WhereOp(program_, static_cast<int32_t>(b), static_cast<int32_t>(i)), fault);
      }
    }
  }

 private:
  const Buffer& BufferOf(ViewId view) const {
    return program_.buffers[program_.views[view].buffer];
  }

  std::string FaultOf(const Op& op) const {
    if (op.kind == OpKind::kCopy) {
      const Buffer &to = BufferOf(op.out[0]), &from = BufferOf(op.in[0]);
      if (to.dtype == from.dtype) return "";
      return fmt::format("copies {} to {}, which has another type", from.name, to.name);
    }
    const bool on_host = OnHost(program_, op);
    for (const auto* views : {&op.in, &op.out}) {
      for (const ViewId view : *views) {
        if (OnHost(BufferOf(view)) != on_host)
          return fmt::format("names {} in memory of the host, where not all of its operands are",
                             program_.views[view].name);
      }
    }
    if (on_host && !RunsOnHost(op.kind)) return "is no op of the CPU, and its operands are";
    return "";
  }

  const Program& program_;
  Findings& findings_;
};

}  // namespace

void VerifySpaces(const Plan& plan, Findings* findings) {
  for (const Program& program : plan.programs) SpacePass(program, findings).Run();
}

}  // namespace orrery::ir
