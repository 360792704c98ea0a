// SPDX-License-Identifier: Apache-2.0
// Shapes of a plan's ops as OpCost takes them: read off attributes and operand views, nothing stored.
#pragma once

#include <initializer_list>
#include <optional>
#include <variant>
#include <vector>

#include "model/collectives/algorithm.h"
#include "model/plan/ir/matrices.h"
#include "model/plan/ir/plan.h"
#include "model/price/op_cost.h"

namespace orrery {

double ElementBytes(const ir::Program& program, ir::ViewId view);
double ViewBytes(const ir::Program& program, ir::ViewId view);
double OperandBytes(const ir::Program& program, const ir::Op& op);  // inputs and outputs

// The largest power of two, at most 16, that divides the bytes of each of these rows.
double RowBytes(std::initializer_list<double> elements, double element_bytes);
GemmShape MatmulShape(const ir::Program& program, const ir::Op& op);
// Of the rank that has most to do: in a ring without zigzag the last one sees all keys at each step.
AttentionShape AttentionShapeOf(const ir::Program& program, const ir::Op& op);

// Row look-ups move the rows they touch, not the whole table: read and write, or read, read and write.
using MemoryShape = std::variant<TrafficShape, LossShape>;
MemoryShape MemoryShapeOf(const ir::Program& program, const ir::Op& op);

struct CollectiveShape {
  Collective kind = Collective::kAllReduce;
  double bytes = 0;      // S of collectives/algorithm.h
  bool context = false;  // among ranks that share sequences
  bool whole = false;    // no product is cut in pieces for it
};

// A message to the next rank of a ring, inside a pass.
struct HopShape {
  double bytes = 0;
  int forwards = 0;  // the hop of its pass that has brought it, from 1 on; 0: a kernel has made it
  int from = -1, to = -1;  // slots that hold it here and where it arrives; -1: not to be replaced
};

// Between memory of the device and of the host.
struct HostCopyShape {
  double bytes = 0;
};

// An op of the optimizer: its parameters on this rank, and the bytes of its operands.
struct UpdateShape {
  ir::OpKind kind = ir::OpKind::kAdam;
  double elements = 0;
  double bytes = 0;
  double moment_bytes = 4;  // of one moment of one parameter
  double weight_bytes = 4;  // of a weight that the update reads: of its fp32 copy, if there is one
  bool on_host = false;     // the CPU executes it
  std::vector<ir::UnitMatrix> matrices;  // Muon: that it orthogonalises,
  double share = 0;                      // and how much of that work this rank does
};

using OpShape = std::variant<GemmShape, AttentionShape, TrafficShape, LossShape, CollectiveShape,
                             HopShape, UpdateShape, HostCopyShape>;

enum class Pass : uint8_t { kNone, kForward, kBackward };
enum class Surcharge : uint8_t {
  kNothing,
  kLoss,
  kEmbedding
};  // what a framework adds a fixed time to

// All that the price of an op depends on.
struct ShapedOp {
  OpShape shape;
  Pass pass = Pass::kNone;
  Surcharge surcharge = Surcharge::kNothing;
  bool weight_gradient = false;  // may be put off by zero-bubble schedules
  double accumulated = 0;        // elements of a gradient that it adds to
  bool module = false;    // a framework's module: a product, norm or look-up that reads weights
  bool gathered = false;  // and these weights were gathered for it
  int awaited_hops = 0;   // it starts when so many hops of its pass have arrived
  int index = -1;         // of the ops of a micro-batch (layer_ops.h); -1: not one of them
};
// nullopt: costs nothing that is worth counting (input, transfers between stages).
std::optional<ShapedOp> ShapeOf(const ir::Plan& plan, const ir::Program& program, const ir::Op& op);

// Under what an op's time stands in a table of measured kernels; nullopt: communication and input.
struct MeasuredShape {
  std::string kernel;
  KernelTable::Shape shape;
  auto operator<=>(const MeasuredShape&) const = default;
};
std::optional<MeasuredShape> MeasuredShapeOf(const ir::Program& program, const ir::Op& op);

}  // namespace orrery
