// SPDX-License-Identifier: Apache-2.0
// Builds the program of one pipeline stage op by op: buffers by name, parameters by unit, gathers by use.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/plan/ir/casts.h"
#include "model/plan/ir/unit_codes.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/offload.h"
#include "model/plan/lower/schedules.h"

namespace orrery {

// Mesh axes of every lowered plan, outermost first. A ring of groups (a2a_ring) takes the place of the expert axis, which
// has one rank; behind them stand unions where ranks share a sequence (LowerContext::ContextAxis, ShardAxis).
enum LoweredAxis : int { kAxisPp, kAxisDpOuter, kAxisDp, kAxisEp, kAxisCp, kAxisTp, kPlainAxes };
// Streams of every lowered plan.
enum LoweredStream : uint8_t {
  kCompute,
  kTpStream,
  kDpStream,
  kGatherStream,
  kSendAct,
  kRecvAct,
  kSendGrad,
  kRecvGrad,
  kSendKeys,  // with a ring over the sequence, likewise the next
  kRecvKeys
};
// Groups of every lowered plan (index into Plan::groups); members of size 1 are declared but never used.
enum LoweredGroup : int {
  kGroupTp,
  kGroupDp,
  kGroupDpOuter,
  kGroupData,
  kGroupLoss,
  kGroupNorm,
  kGroupNormSharded,
  kGroupShardedTensor,
  kGroupTied,
  kLoweredGroups,
  // Of plans whose ranks share sequences.
  kGroupReplicas = kLoweredGroups,  // that hold the same weights
  kGroupContext,
  kGroupHeads  // a2a_ring: that change heads for positions
};
// Tags of collectives that cross stages; tags inside a stage count from kFirstLocalTag.
enum CrossStageTag : int32_t { kTagLoss = 1, kTagNorm, kTagTied, kFirstLocalTag = 100 };

// Whether each rank of a layer holds the whole token table, the whole output matrix.
inline bool HoldsWholeTable(const ModelSpec& model, const Strategy& s) {
  return s.whole_embedding && s.tp > 1 && !model.tied_embeddings;
}
inline bool HoldsWholeHead(const ModelSpec& model, const Strategy& s) {
  return s.whole_head && s.tp > 1 && !model.tied_embeddings && model.family != Family::kEncoder;
}

// Everything that the emitters ask of model, workload and strategy, resolved once.
struct LowerContext {
  const ModelSpec& model;
  const Workload& work;
  Strategy strategy;  // zero is 0 when the sharding group has one member
  const LowerOptions& options;
  int64_t micro_batches = 1;
  ir::Dtype activation, gradient,
      full;         // dtypes of activations and weights, gradients, fp32 tensors
  ir::Dtype state;  // of the optimizer: master weights and moments
  ir::Dtype mask = ir::Dtype::kU8;
  bool low_precision = false;  // weights are kept in fewer bits than fp32
  bool master = false;         // a separate fp32 (or sharded) master copy exists
  bool clip = false;           // a gradient norm is computed
  bool loss_scaling = false;
  bool tied_across_stages = false;
  bool hooked = false;             // ZeRO 3 of one rank: its hooks run, and gather nothing
  std::vector<LayerRange> chunks;  // by virtual stage

  int64_t batch() const { return strategy.micro_batch; }
  bool sp() const { return strategy.sequence_parallel && strategy.tp > 1; }
  bool whole_embedding() const { return HoldsWholeTable(model, strategy); }
  bool whole_head() const { return HoldsWholeHead(model, strategy); }
  bool scatter_gather() const {
    return strategy.scatter_gather && strategy.tp > 1 && strategy.pp > 1 && !sp();
  }
  // Of a sequence, on this rank: all positions, or those of its part.
  int64_t Positions() const { return work.seq_len / strategy.cp; }
  int64_t Rows() const { return Positions() * strategy.micro_batch; }
  int64_t ShardRows() const { return sp() ? Rows() / strategy.tp : Rows(); }  // residual stream
  // Ranks in a ring of groups of ranks that change heads for positions.
  bool two_level() const {
    const ContextLayout& c = strategy.context;
    return strategy.cp > 1 && c.method == CpMethod::kA2aRing && c.inner > 1 &&
           c.inner < strategy.cp;
  }
  bool rings_keys() const;  // keys and values go round
  // Of transfers between stages; those of the way back of a V have four of their own.
  uint8_t StreamOf(LoweredStream stream, bool back) const {
    return static_cast<uint8_t>(back ? FirstBackStream() + stream - kSendAct : stream);
  }
  uint8_t StreamOf(HostStream stream) const {
    return static_cast<uint8_t>(FirstBackStream() +
                                (strategy.schedule == PipelineSchedule::kZeroBubbleV ? 4 : 0) +
                                static_cast<int>(stream));
  }
  // Of what sharding groups reduce between them: the last one.
  uint8_t StreamBetweenGroups() const {
    return static_cast<uint8_t>(StreamOf(HostStream::kDown) +
                                (strategy.offload.on() ? std::size(kHostStreamNames) : 0));
  }
  int FirstBackStream() const { return rings_keys() ? kRecvKeys + 1 : kSendKeys; }
  uint16_t ContextAxes() const {  // as a mask; 0: each rank holds whole sequences
    if (strategy.cp == 1) return 0;
    return static_cast<uint16_t>(1u << kAxisCp | (two_level() ? 1u << kAxisEp : 0u));
  }
  int ContextAxis() const { return two_level() ? kPlainAxes : static_cast<int>(kAxisCp); }
  int ShardAxis() const {  // of ZeRO
    if (strategy.cp == 1) return kAxisDp;
    return two_level() ? kPlainAxes + 1 : static_cast<int>(kPlainAxes);
  }
  int ReplicaGroup() const { return strategy.cp == 1 ? kGroupData : kGroupReplicas; }
  bool sharded() const { return strategy.zero > 0; }
  // Behind each backward pass, into the shards of the gradients.
  bool scatters() const { return strategy.zero >= 2 && !strategy.reduce_once; }
  // In the last micro-batch, beside the backward pass, on a stream of its own.
  bool reduces_between_groups() const {
    return scatters() && strategy.overlap_grad_reduce && strategy.dp_outer > 1;
  }
  // Gradients of units whose states are on the host go there behind each backward pass.
  bool streams_gradients() const { return StreamsGradients(strategy); }
  // Each pass fetches weights before it reads them: gathers them, or copies them from the host.
  bool fetches_weights() const { return strategy.zero == 3 || strategy.offload.weights; }
  // Adapters are cut by columns, and ranks see all rows.
  bool cuts_adapters() const {
    return strategy.tp > 1 && strategy.adapter_split != AdapterSplit::kRows;
  }
  bool adapters_gather() const { return cuts_adapters() && sp() && strategy.adapter_gathers; }
  bool frozen() const { return work.lora.on(); }  // every parameter but those of adapters
  // Of the residual stream in front of layer `index`: nothing in front of the first adapters is trained.
  bool NeedsStreamGrad(int64_t index) const { return !frozen() || index > 0; }
  bool split_backward() const { return SplitsBackward(strategy.schedule); }
};
LowerContext MakeContext(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                         const LowerOptions& options);

// A parameter inside a unit of the stage; invalid by default ("this layer has no such parameter").
struct ParamRef {
  int unit = -1;
  int segment = -1;
  explicit operator bool() const { return unit >= 0; }
};

// The other parts of a weight in few bits, whose codes stand where the weight would (packed.h).
struct PackedWeight {
  ir::Packed packing = ir::Packed::kNone;
  int shard_dim = -1;
  ParamRef scales, groups;
};

// Of one tensor with a delayed scale: its largest magnitude in this step, and its decode scale.
struct ScaleSlot {
  ir::ViewId amax = -1, scale = -1;
  bool recorded = false;  // the tensor is a weight, whose magnitude is taken already
};

struct ParamDecl {
  std::string name;
  std::vector<int64_t> shape;
  int shard_dim = -1;
  ir::Init init = ir::Init::kNormal;
  bool decay = true;
  int64_t real_rows = 0;
  int tie = -1;
  bool partial =
      false;  // replicated over the tensor axis, raw gradient partial over it in every layout
  bool adapter = false;                    // trained where all other parameters are frozen
  bool common = false;                     // read by all layers
  bool once = false;                       // gathered once per step (coded.h)
  ir::Packed packing = ir::Packed::kNone;  // a part of a packed weight: init says which
  std::vector<int64_t> of = {};            // and its shape
};

// Finds views of a program by name; the names are those of the views themselves.
class ViewNames {
 public:
  // -1: there is none.
  ir::ViewId Find(const std::vector<ir::View>& views, std::string_view name) const {
    return Find(views, name, std::hash<std::string_view>{}(name));
  }
  // The same; where there is none, `name` is that of the next view.
  ir::ViewId FindOrAdd(const std::vector<ir::View>& views, std::string_view name) {
    const std::size_t hash = std::hash<std::string_view>{}(name);
    if (const ir::ViewId known = Find(views, name, hash); known >= 0) return known;
    if (2 * ++count_ > slots_.size()) Grow();
    Place({hash, static_cast<ir::ViewId>(views.size())});
    return -1;
  }

 private:
  struct Slot {
    std::size_t hash = 0;
    ir::ViewId view = -1;
  };
  ir::ViewId Find(const std::vector<ir::View>& views, std::string_view name,
                  std::size_t hash) const {
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[at];
      if (slot.view < 0) return -1;
      if (slot.hash == hash && views[static_cast<std::size_t>(slot.view)].name == name)
        return slot.view;
    }
  }
  void Place(const Slot& slot) {
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].view >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
  void Grow() {
    std::vector<Slot> before(2 * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.view >= 0) Place(slot);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(512);  // a power of two, at most half of them taken
  std::size_t count_ = 0;
};

class StageBuilder {
 public:
  StageBuilder(const LowerContext& context, ir::Plan* plan, int stage);
  const LowerContext& ctx() const { return ctx_; }
  int stage() const { return program_.stage; }

  // Units. `partial_tail`: raw gradients of all replicated members are partial over the tensor axis.
  // `pipelined_ring`: gathers and transient gradients may live in the stage's rings.
  std::vector<ParamRef> AddUnit(const std::string& name, const std::vector<ParamDecl>& params,
                                bool partial_tail, bool layer_unit);
  void SetNormWeightZero(int unit) { units_[unit].norm_weight = 0; }  // second copy of a tied unit
  void SetShared(int unit) { units_[unit].shared = true; }  // two of a stage's chunks may use it

  // Blocks and the cursor that labels ops.
  void SelectBlock(int block) { block_ = block; }
  int block() const { return block_; }
  void Label(ir::Phase phase, ir::Segment segment, int layer = -1) {
    phase_ = phase;
    segment_ = segment;
    layer_ = layer;
  }
  ir::Phase phase() const { return phase_; }
  // Of products of the layer that ops are labelled with.
  Fp8 recipe() const { return ctx_.work.RecipeOf(layer_, ctx_.model.layers); }
  void SetPhase(ir::Phase phase) { phase_ = phase; }

  // Buffers by name: created at first mention, whole view returned.
  ir::ViewId Act(std::string name, int64_t elements);  // activation type
  ir::ViewId Make(std::string name, int64_t elements, ir::Dtype dtype,
                  ir::BufferClass cls = ir::BufferClass::kActivation,
                  ir::Life life = ir::Life::kDerived, int extra_slots = 0);
  // A buffer of one call in slot `index` mod `slots` of a ring of its own.
  ir::ViewId MakeInRing(const std::string& name, int64_t elements, const std::string& ring,
                        int slots, int index);
  // Weights in few bits: by the parameter of their codes.
  void SetPacked(ParamRef codes, const PackedWeight& rest) {
    packed_[{codes.unit, codes.segment}] = rest;
  }
  const PackedWeight* PackedAt(ParamRef codes) const {
    const auto found = packed_.find({codes.unit, codes.segment});
    return found == packed_.end() ? nullptr : &found->second;
  }
  bool Has(const std::string& name) const { return views_.Find(program_.views, name) >= 0; }
  ir::ViewId Sub(ir::ViewId whole, const std::string& suffix, int64_t offset, int64_t elements);

  // Parameters as operands. Weight: the resident or gathered weight; Grad: where gradients accumulate.
  ir::ViewId Weight(ParamRef ref);
  void FreeWeight(ParamRef ref);  // a fetched unit: its next use fetches it again, not ahead
  ir::ViewId Grad(ParamRef ref);
  // Around the ops that touch a unit's gradients in the current block; nothing for a frozen unit. `final`: no later block touches them.
  void BeginGrad(int unit);
  void EndGrad(int unit, bool final_touch);

  // Low precision. A cast weight: held for the step, or for one use where weights are gathered for each.
  ir::ViewId MakeWeightCast(const std::string& name, int64_t elements, ir::Dtype dtype);
  // Delayed scales: the place of a tensor in the step's buffers, by its name without what recomputation and gathers add.
  ScaleSlot SlotOf(const std::string& tensor, bool gradient);
  // Weights held in 8 bits (coded.h): whether this one is, and its scales.
  bool Coded(ParamRef ref) const { return units_[ref.unit].coded; }
  ir::ViewId CodeScales(ParamRef ref);
  // Weights that are gathered once per step: whether this one is, and its name.
  bool GatheredOnce(ParamRef ref) const { return units_[ref.unit].once; }
  std::string ParamName(ParamRef ref) const;
  // What `emit` emits runs in the first micro-batch only.
  template <class Function>
  void OncePerStep(const Function& emit) {
    std::vector<ir::Op>& ops = blocks_[block_].ops;
    const std::size_t first = ops.size();
    const ir::Phase phase = phase_;
    phase_ = ir::Phase::kSetup;
    emit();
    phase_ = phase;
    for (std::size_t i = first; i < ops.size(); ++i) ops[i].when = ir::kWhenFirst;
  }
  ir::Op& LastOp() { return blocks_[block_].ops.back(); }

  // Ops.
  ir::Op& Emit(ir::OpKind kind, std::vector<ir::ViewId> out, std::vector<ir::ViewId> in,
               ir::Attrs attrs = {});
  void Matmul(ir::ViewId c, ir::ViewId a, ir::ViewId b, int64_t m, int64_t n, int64_t k, bool ta,
              bool tb, bool acc = false, ir::ViewId bias = -1);
  // Tensor-parallel reduction of a full-sequence partial sum: all-reduce in place, or reduce-scatter to the
  // sequence shard. The producing op (the last emitted) is marked as yielding a partial sum.
  ir::ViewId ReduceTensor(ir::ViewId full, const std::string& shard_name, int64_t width);
  ir::ViewId ReduceGathered(ir::ViewId full, const std::string& shard_name,
                            int64_t width);  // without the mark
  ir::ViewId GatherSequence(ir::ViewId shard, const std::string& full_name,
                            int64_t width);  // identity without SP
  // This rank's rows of a tensor that is equal on all tensor ranks; identity without SP.
  ir::ViewId TakeSequence(ir::ViewId full, const std::string& shard_name, int64_t width);
  void GatherTensor(ir::ViewId full, ir::ViewId shard);  // all-gather over the tensor group
  void AllReduce(ir::ViewId x, int group, uint8_t stream, int reduce_op = 0, int32_t tag = 0);
  void Send(ir::ViewId x, int delta, uint8_t stream, int32_t tag);
  // A tensor that is equal on all tensor ranks: scattered before the transfer and gathered behind it where the
  // strategy says so. The parts take the slack slots, the whole tensors need none.
  void SendBoundary(ir::ViewId x, int delta, uint8_t stream, int32_t tag);
  void RecvBoundary(ir::ViewId x, int delta, uint8_t stream, int32_t tag);
  const std::string& NameOf(ir::ViewId view) const { return program_.views[view].name; }
  void Recv(ir::ViewId x, int delta, uint8_t stream, int32_t tag);
  // One collective, or a message to or from a neighbour, in the phase of its place.
  ir::Op& Communicate(ir::OpKind kind, ir::ViewId out, ir::ViewId in, int group);
  void Pass(ir::ViewId x, ir::ViewId arrived, int axis);  // x to the next rank, from the one before
  void MarkYields(uint16_t axes) { blocks_[block_].ops.back().yields = axes; }
  void MarkPartial();  // the last op's first output is a partial sum over the tensor axis

  void EmitBegin();  // block P
  void EmitEnd();    // block E: reductions, norm, optimizer, gathers
  ir::Program Finish(std::vector<ir::Item> schedule);

  int64_t GroupSize(int group) const;

 private:
  // Units of one kind are used one after another; those of different kinds alternate.
  enum UnitKind : uint8_t {
    kPlainUnit,
    kAdapterUnit,
    kCodeUnit,
    kScaleUnit,
    kCommonUnit,  // read by all layers: gathered once per block
    kUnitKinds
  };
  struct UnitState {
    UnitKind kind = kPlainUnit;
    ir::Dtype dtype = ir::Dtype::kBf16;  // of its weights
    bool partial_tail = false, layer_unit = false, tied = false;
    bool trained = true;
    bool coded = false;                   // its weights are held in 8 bits
    std::vector<ir::CodedSegment> codes;  // then: its parameters,
    int64_t first_scale = 0;              // and where their scales lie among those of the stage
    bool once = false;                    // its weights are gathered in the first micro-batch alone
    bool on_host = false;                 // its states, and the CPU updates it
    bool streams = false;                 // then: its gradients go there behind each backward pass
    bool shared = false;                  // embedding and head use it
    double norm_weight = 1;
    int64_t shard = 0;      // elements of one ZeRO shard
    int64_t tail_from = 0;  // first element whose raw gradient is partial over the tensor axis
    ir::ViewId weight = -1, grad = -1, grad_shard = -1, master = -1, first_moment = -1,
               second_moment = -1, moment_scales = -1;
    ir::ViewId tail = -1;              // of `grad`, from tail_from on
    bool reduced_in_backward = false;  // what is reduced once per step
  };
  struct Use {
    int unit;
    std::size_t at;
    ir::ViewId gathered;
    bool again = false;  // fetched a second time, behind FreeWeight()
    bool freed = false;
  };
  struct BlockState {
    std::vector<ir::Op> ops;
    std::array<std::vector<Use>, kUnitKinds> uses;
    std::map<int, ir::ViewId> open_grads;  // unit -> transient gradient
    std::set<int> streamed;                // units whose gradients have gone to the host
    // Of reductions that the next unit's backward pass hides: the sum, and what sharding groups then reduce between them;
    // those of codes stand next to the others of their layer.
    std::array<std::vector<ir::Op>, 2> pending_adds;
    std::vector<uint8_t> use_phase;
  };

  // Delayed scales of forward tensors (0) and of gradients (1).
  struct Scales {
    std::map<std::string, int64_t> slots;
    ir::ViewId amax = -1, scale = -1, history = -1;
  };
  // coded.cc. Of all weights of the stage that are held in 8 bits: largest magnitudes, scales and, delayed, histories.
  struct WeightScales {
    ir::ViewId amax = -1, scale = -1, history = -1;
    int64_t count = 0;
  };
  void DeclareCodes(int unit);
  ir::ViewId ScalesOfUnit(ir::ViewId whole, int unit);
  void EmitCodeScales();
  void EmitDelayedCodeScales();  // in front of the updates
  void EmitCodes();              // behind them
  void MarkHooked();
  // offload.cc
  void PlaceStates();
  void StreamGradient(int unit, ir::ViewId reduced, bool final_touch);
  ir::ViewId HostTwin(ir::ViewId view, const std::string& name);
  ir::ViewId SumFromHost(ir::ViewId reduced);
  ir::ViewId ToHost(ir::ViewId view, const std::string& name);  // copied at first mention
  void Copy(ir::ViewId to, ir::ViewId from, HostStream stream);
  ir::Buffer& BufferOf(ir::ViewId view) {
    return program_
        .buffers[static_cast<std::size_t>(program_.views[static_cast<std::size_t>(view)].buffer)];
  }

  void EmitScales();
  void EmitAmaxReduction();
  void Grow(ir::ViewId whole, int64_t elements);

  ir::ViewId BoundaryPart(ir::ViewId x, int extra_slots);
  void SetKind(const ParamDecl& first, UnitState* unit) const;
  // Whether its weights are cut over the ranks that ZeRO 3 shards over. Scales of packed weights are whole everywhere.
  bool Gathered(const UnitState& unit) const {
    return (ctx_.strategy.zero == 3 || unit.once) && unit.kind != kScaleUnit;
  }
  bool Fetched(const UnitState& unit) const {
    return (ctx_.fetches_weights() || unit.once) && unit.kind != kScaleUnit;
  }
  void DeclareUnitBuffers(int unit);
  ir::ViewId DeclareOfUnit(int unit, const char* prefix, ir::BufferClass cls, ir::Dtype dtype,
                           bool shard);
  void DeclareMomentScales(int unit);
  void DeclareGradients(int unit);
  void DeclareTail(int unit);
  // Each backward pass leaves its gradient in a buffer of its own.
  bool Transient(const UnitState& unit) const {
    return ctx_.scatters() || (unit.streams && !ctx_.sharded());
  }
  ir::ViewId ParamView(ir::ViewId whole, ParamRef ref);
  void ReduceTail(ir::ViewId tail, uint8_t stream);
  void ReduceUnit(int unit, uint8_t when);
  ir::ViewId Scatter(int unit, ir::ViewId transient);
  void AddReduced(UnitState* unit, ir::ViewId reduced, bool final_touch);
  void PutOff(std::size_t first, std::vector<ir::Op>* pending);
  void InsertGathers(BlockState& state);
  ir::Op FetchOp(ir::OpKind kind, ir::ViewId to, ir::ViewId from, const ir::Op& reader);
  void EmitFetch(const Use& use, const ir::Op& reader, std::vector<ir::Op>* ops);
  int RingIndex(const std::string& name, int slots);
  void EmitGradNorm();
  void EmitSumSq(int unit, ir::ViewId gradient);
  void EmitOptimizer(int unit);
  // Layers alone: embedding and head stay with AdamW. Gains and biases of a layer go with its matrices.
  bool UsesMuon(const UnitState& unit) const {
    return ctx_.work.optimizer == Optimizer::kMuon && unit.layer_unit;
  }
  double MuonWork(int unit) const;
  void EmitLamb(int unit, const std::vector<ir::ViewId>& weights_out, ir::ViewId source,
                ir::Attrs attrs);
  ir::ViewId GradOperand(int unit) const;

  const LowerContext& ctx_;
  ir::Plan* plan_;
  ir::Program program_;
  ViewNames views_;
  std::vector<UnitState> units_;
  std::vector<BlockState> blocks_;
  std::array<Scales, 2> scales_;
  WeightScales weight_scales_;
  int block_ = 0;
  ir::Phase phase_ = ir::Phase::kSetup;
  ir::Segment segment_ = ir::Segment::kStep;
  int layer_ = -1;
  int32_t next_tag_ = kFirstLocalTag;
  int next_use_ = 0;
  bool placed_ = false;  // states, by PlaceStates()
  std::map<std::pair<int, int>, PackedWeight> packed_;
  std::array<int, kUnitKinds> next_gather_{};
  std::array<int, kUnitKinds> next_grad_{};  // ring positions: neighbours take neighbouring slots
  ir::ViewId loss_ = -1, norm_ = -1, loss_scale_ = -1;

 public:
  ir::ViewId loss() const { return loss_; }
  ir::ViewId loss_scale() const { return loss_scale_; }  // -1 without loss scaling
};

}  // namespace orrery
