// SPDX-License-Identifier: Apache-2.0
// The plan IR: one executable description of a training step, predicted, simulated and run alike.
//
// Five rules: (1) the op list of a block is the issue order and defines liveness; (2) an op waits for an
// earlier-issued op iff both touch a common byte of the arena and one of them writes; (3) each stream is a
// FIFO and streams run concurrently; (4) one communicator per (group, stream), whose members issue the same
// sequence; (5) the micro-batch is the only symbol: a call binds it. No parallelism strategy appears here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/plan/ir/op.h"

namespace orrery::ir {

using BufferId = int32_t;

// kE4m3, kE5m2: 8-bit floats; kE8m0: powers of two; kE2m1x2: two 4-bit floats per element.
enum class Dtype : uint8_t {
  kF64,
  kF32,
  kTf32,
  kF16,
  kBf16,
  kI32,
  kU8,
  kE4m3,
  kE5m2,
  kE8m0,
  kE2m1x2
};
int64_t DtypeBytes(Dtype dtype);  // tf32 is stored in 4 bytes

// Named axes: rank = row-major index of the coordinates, with the axes in `order`. Behind them stand unions: names for
// several axes taken together, whose coordinate is the row-major index over these. A union gives no ranks of its own.
struct MeshAxis {
  std::string name;
  int size = 1;
  uint16_t of = 0;  // a union: mask over the axes before it
  bool operator==(const MeshAxis&) const = default;
};
struct Mesh {
  std::vector<MeshAxis> axes;
  int program_axis = 0;        // the axis whose coordinate selects the program (pipeline stage)
  std::vector<uint8_t> order;  // of the plain axes, outermost first; empty: as they are listed

  int64_t ranks() const;
  std::vector<int> Coords(int64_t rank) const;  // of unions too
  int64_t Rank(const std::vector<int>& coords) const;
  int AxisIndex(std::string_view name) const;  // -1 if absent
  std::size_t plain() const;                   // axes that are no unions
  std::size_t At(std::size_t place) const;     // the axis at a place of `order`
  int64_t Stride(std::size_t axis) const;      // ranks between neighbours along a plain axis
  uint16_t Plain(uint16_t mask) const;         // the same axes without unions
  bool operator==(const Mesh&) const = default;
};

// The ranks that differ from a member only on `axes`. A special group restricts one axis to some coordinates
// (first and last stage for tied embeddings); a rank outside them is no member.
struct Group {
  std::string name;   // "dp", "pp+dp+tp", "emb"
  uint16_t axes = 0;  // mask over Mesh::axes, unions left out
  int restricted_axis = -1;
  std::vector<int> allowed;  // coordinates on restricted_axis
  bool operator==(const Group&) const = default;
};
std::vector<int64_t> GroupMembers(const Mesh& mesh, const Group& group,
                                  int64_t rank);  // rank order; empty: no member
int64_t GroupSize(const Mesh& mesh, const Group& group);

// A tensor of the whole model, trained unless it is frozen.
// The last three are parts of a packed tensor.
enum class Init : uint8_t { kNormal, kOnes, kZeros, kCodes, kScales, kGroups };
struct Param {
  std::string name;            // "l3.qkv.w"
  std::vector<int64_t> shape;  // global
  int8_t shard_dim = -1;       // dimension split over shard_axis; -1: replicated
  int8_t shard_axis = -1;
  uint16_t partial_over = 0;  // axes over which a rank's raw gradient is partial (verify)
  int16_t tie =
      -1;  // parameters with equal tie >= 0 hold the same values (tied embeddings on two stages)
  int64_t real_rows = 0;  // rows before padding of dim 0 (padded vocabulary); 0: all are real
  Init init = Init::kNormal;
  double init_std = 0.02;
  bool decay = true;    // takes part in weight decay
  bool frozen = false;  // never updated; a unit holds frozen parameters or trained ones
  Packed packing = Packed::kNone;
  std::vector<int64_t> of;  // packed: shape of the tensor that it is a part of, else empty
  bool operator==(const Param&) const = default;
};

// A flat unit: parameters laid out one after another and padded; gradient bucket, ZeRO gather and optimizer call.
struct UnitSegment {
  int32_t param;
  int64_t offset;    // elements
  int64_t elements;  // of the local (tensor-sharded) piece
  bool operator==(const UnitSegment&) const = default;
};
struct Unit {
  std::string name;                   // "u3", "wte"
  std::vector<UnitSegment> segments;  // sharded first, replicated over the tensor axis last
  int64_t elements = 0;               // padded
  int64_t replicated_from =
      0;  // first element of the replicated tail (== end of data when there is none)
  bool operator==(const Unit&) const = default;
};

enum class BufferClass : uint8_t {
  kParam,
  kGathered,
  kGrad,
  kGradTransient,
  kMaster,
  kOptimizer,
  kActivation,
  kScalar
};
// kDerived: one block names it -> a call; several -> a micro-batch. kMicroBatch: a micro-batch even if one block
// names it (sent and received tensors: their slots then alternate from call to call).
enum class Life : uint8_t { kStep, kDerived, kMicroBatch };
// Ops work in one space; copies pass between them. An op in memory of the host is one of the CPU.
enum class Space : uint8_t { kDevice, kHost };

struct Buffer {
  std::string name;
  BufferClass cls = BufferClass::kActivation;
  Dtype dtype = Dtype::kF32;
  int64_t elements = 0;
  Life life = Life::kDerived;
  uint8_t extra_slots = 0;  // slack on top of the derived slots (received tensors)
  int16_t ring =
      -1;  // index into Program::rings: own region outside the shared scratch; only for call buffers
  int16_t ring_index = 0;       // slot = ring_index mod slots
  int32_t unit = -1;            // index into Program::units
  int8_t unit_shard_axis = -1;  // the buffer is shard coord(axis) of the unit
  Space space = Space::kDevice;
  bool operator==(const Buffer&) const = default;
};
struct View {        // a contiguous piece of a buffer
  std::string name;  // "G.u3/rep"; a view of a whole buffer carries the buffer's name
  BufferId buffer = -1;
  int64_t offset = 0;  // elements
  int64_t elements = 0;
  bool operator==(const View&) const = default;
};
struct Ring {
  std::string name;
  int slots = 1;
  bool operator==(const Ring&) const = default;
};

struct Block {
  std::string name;  // P, F<c>, B<c>, W<c>, E
  std::vector<Op> ops;
  bool operator==(const Block&) const = default;
};

// Nested loops of calls. Micro-batch of a call = its micro_batch + sum over enclosing loops of index * stride.
struct Item {
  int32_t block = -1;  // >= 0: a call
  int32_t micro_batch = 0;
  uint8_t flags = 0;  // kWhenLast ...
  int32_t count = 0;  // block < 0: a loop
  int32_t stride = 0;
  std::vector<Item> body;
  bool operator==(const Item&) const = default;
};
struct Call {
  int32_t block;
  int32_t micro_batch;
  uint8_t flags;
  bool operator==(const Call&) const = default;
};

struct Program {
  int stage = 0;
  std::vector<Unit> units;
  std::vector<Ring> rings;
  std::vector<Buffer> buffers;
  std::vector<View> views;
  std::vector<Block> blocks;
  std::vector<Item> schedule;
  bool operator==(const Program&) const = default;
};

struct Plan {
  std::string title;  // model, workload and layout in words
  std::string
      framework;  // whose defaults the plan was made with, as --framework takes it; empty: not known
  Mesh mesh;
  std::vector<Group> groups;
  std::vector<std::string> streams;  // stream 0 is compute
  std::vector<Param> params;
  std::vector<Program> programs;  // one per coordinate of the program axis
  int micro_batches = 1;
  // Of the cluster, in the order of ranks: rank r is on the node at r / GPUs of a node. Empty: as they are numbered.
  std::vector<int32_t> nodes;
  int64_t alignment = 256;  // bytes
  bool frame_pool = true;   // layout: one slot pool over frames of nearly equal size
  bool operator==(const Plan&) const = default;
};

// Of plans from texts and of layouts alike.
inline constexpr int64_t kMostElements = int64_t{1} << 44;  // of one buffer or parameter
inline constexpr int64_t kMostCalls = int64_t{1} << 22;     // of one program

// Schedules (schedule.cc).
std::vector<Call> Expand(const std::vector<Item>& schedule);
std::vector<Item> Compress(const std::vector<Call>& calls);  // Expand(Compress(x)) == x
// `longer` with `times` times what it has beyond `shorter`: counts of loops and micro-batches go on as they grew.
// nullopt: the two differ in anything else.
std::optional<std::vector<Item>> Lengthened(const std::vector<Item>& shorter,
                                            const std::vector<Item>& longer, int64_t times);

// Text form (text.cc), its parser (parse.cc; errors as InputError with line and column), and the digest of the
// text (XXH3-128, 32 hex digits), parameter metadata included. Title and framework take no part in the digest.
std::string ToText(const Plan& plan);
Plan ParsePlan(const std::string& text, const std::string& source_name);
std::string Digest(const Plan& plan);
// By a line of these words and the digest a job's log names its plan.
inline constexpr char kPlanLine[] = "Orrery plan ";
inline constexpr std::size_t kDigestLetters = 32;

}  // namespace orrery::ir
