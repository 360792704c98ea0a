// SPDX-License-Identifier: Apache-2.0
// Shapes of a plan's ops as OpCost takes them: read off attributes and operand views, nothing stored.
#pragma once

#include <optional>
#include <variant>

#include "model/plan/ir/plan.h"
#include "model/price/op_cost.h"

namespace orrery {

double ElementBytes(const ir::Program& program, ir::ViewId view);
double ViewBytes(const ir::Program& program, ir::ViewId view);
double OperandBytes(const ir::Program& program, const ir::Op& op);  // inputs and outputs

GemmShape MatmulShape(const ir::Program& program, const ir::Op& op);
// `context_parallel` ranks share a sequence: attention still sees the keys of all of them.
AttentionShape AttentionShapeOf(const ir::Program& program, const ir::Op& op,
                                double context_parallel = 1);

// Row look-ups move the rows they touch, not the whole table: read and write, or read, read and write.
using MemoryShape = std::variant<TrafficShape, LossShape>;
MemoryShape MemoryShapeOf(const ir::Program& program, const ir::Op& op);

// Under what an op's time stands in a table of measured kernels; nullopt: communication and input.
struct MeasuredShape {
  std::string kernel;
  KernelTable::Shape shape;
  auto operator<=>(const MeasuredShape&) const = default;
};
std::optional<MeasuredShape> MeasuredShapeOf(const ir::Program& program, const ir::Op& op);

}  // namespace orrery
