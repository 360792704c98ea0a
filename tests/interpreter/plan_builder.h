// SPDX-License-Identifier: Apache-2.0
// Test support: writes small plans by hand.
#pragma once

#include <string>
#include <vector>

#include "model/plan/ir/plan.h"

namespace orrery::interpreter {

class ProgramBuilder {
 public:
  explicit ProgramBuilder(int stage) { program_.stage = stage; }
  // Buffers; the result is the view of all of it.
  ir::ViewId Act(const std::string& name, int64_t elements) {
    return Add({.name = name, .elements = elements});
  }
  ir::ViewId Step(const std::string& name, int64_t elements, ir::BufferClass cls,
                  int32_t unit = -1) {
    return Add(
        {.name = name, .cls = cls, .elements = elements, .life = ir::Life::kStep, .unit = unit});
  }
  ir::ViewId Add(ir::Buffer buffer) {
    program_.buffers.push_back(buffer);
    const auto id = static_cast<ir::BufferId>(program_.buffers.size() - 1);
    return View(buffer.name, id, 0, buffer.elements);
  }
  ir::ViewId View(const std::string& name, ir::BufferId buffer, int64_t offset, int64_t elements) {
    program_.views.push_back({name, buffer, offset, elements});
    return static_cast<ir::ViewId>(program_.views.size() - 1);
  }
  int32_t AddUnit(ir::Unit unit) {
    program_.units.push_back(std::move(unit));
    return static_cast<int32_t>(program_.units.size() - 1);
  }
  // Blocks and calls.
  int32_t Block(const std::string& name) {
    program_.blocks.push_back({name, {}});
    return static_cast<int32_t>(program_.blocks.size() - 1);
  }
  ir::Op& Emit(ir::OpKind kind, std::vector<ir::ViewId> out, std::vector<ir::ViewId> in,
               ir::Attrs attrs = {}, uint8_t stream = 0) {
    ir::Op op;
    op.kind = kind;
    op.out = std::move(out);
    op.in = std::move(in);
    op.attrs = std::move(attrs);
    op.stream = stream;
    program_.blocks.back().ops.push_back(op);
    return program_.blocks.back().ops.back();
  }
  void Call(int32_t block, int32_t micro_batch) { calls_.push_back({block, micro_batch, 0}); }
  ir::Program Finish() {
    program_.schedule = ir::Compress(calls_);
    return program_;
  }

 private:
  ir::Program program_;
  std::vector<ir::Call> calls_;
};

}  // namespace orrery::interpreter
