// SPDX-License-Identifier: Apache-2.0
// Legality of offload, the choice of units, and the copies of activations.
#include "model/plan/lower/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "model/plan/ir/usage.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/stage_builder.h"

namespace orrery {
namespace {

using ir::OpKind;

std::optional<Refusal> CheckOptimizer(const Workload& work, double share) {
  if (!(share >= 0 && share <= 1)) {
    return Refusal{fmt::format("optimizer offload of a share of {} of the parameters", share),
                   "a share from 0 to 1"};
  }
  switch (work.optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
      return std::nullopt;
    case Optimizer::kLamb:
    case Optimizer::kMuon:
    case Optimizer::kAdam8bit:
      break;
  }
  if (share == 0) return std::nullopt;
  return Refusal{"optimizer offload is lowered for SGD, Adam and AdamW alone",
                 "--optimizer adamw, or no --offload optimizer"};
}

std::optional<Refusal> CheckWeights(const Strategy& s) {
  if (!s.offload.weights) return std::nullopt;
  if (s.offload.optimizer < 1)
    return Refusal{"offload of weights whose optimizer states stay on the GPU",
                   "the CPU updates what lies with it: --offload optimizer+weights"};
  if (s.zero < 3)
    return Refusal{fmt::format("offload of weights with ZeRO {}", s.zero),
                   "--zero 3: weights that each pass fetches"};
  return std::nullopt;
}

std::optional<Refusal> CheckActivations(const ModelSpec& model, const Strategy& s) {
  if (model.family != Family::kDecoder && model.family != Family::kEncoder)
    return Refusal{"activation offload is lowered for decoders and encoders alone",
                   "drop activations from --offload"};
  if (SplitsBackward(s.schedule))
    return Refusal{"activation offload with the zero-bubble schedule is not lowered",
                   "weight gradients read activations in a pass of their own; use 1f1b"};
  if (s.cp > 1)
    return Refusal{"activation offload with context parallelism is not lowered",
                   "drop activations from --offload, or use cp 1"};
  const std::vector<LayerRange> chunks = BalanceLayers(model.layers, s);
  const bool some = std::ranges::any_of(chunks, [](const LayerRange& c) { return c.count > 1; });
  if (!some)
    return Refusal{"activation offload needs a model chunk of two layers or more",
                   "the last layer of a chunk stays: its backward pass comes next"};
  if (s.offload.activation_layers >= model.layers)
    return Refusal{fmt::format("activation offload of {} of {} layers", s.offload.activation_layers,
                               model.layers),
                   "the last layer of a chunk stays: its backward pass comes next"};
  return std::nullopt;
}

// A buffer's place in the ops of a block.
struct Place {
  int first = -1, last = -1;
  bool only_layers = true;  // all ops that name it are of layers
  bool moves = true;        // none of them is a transfer
};

std::map<ir::BufferId, Place> PlacesIn(const ir::Program& program, int block) {
  std::map<ir::BufferId, Place> places;
  const std::vector<ir::Op>& ops = program.blocks[static_cast<std::size_t>(block)].ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool transfer = ops[i].kind == OpKind::kSend || ops[i].kind == OpKind::kRecv;
    for (const auto* views : {&ops[i].in, &ops[i].out}) {
      for (const ir::ViewId view : *views) {
        Place& place = places[program.views[static_cast<std::size_t>(view)].buffer];
        if (place.first < 0) place.first = static_cast<int>(i);
        place.last = static_cast<int>(i);
        if (ops[i].segment != ir::Segment::kLayer) place.only_layers = false;
        if (transfer) place.moves = false;
      }
    }
  }
  return places;
}

// What a forward block leaves for its backward block, by the layer that names it last.
struct Kept {
  ir::BufferId buffer;
  int layer;
};

std::vector<Kept> KeptBy(const ir::Program& program, int forward, int backward) {
  const std::map<ir::BufferId, Place> before = PlacesIn(program, forward),
                                      behind = PlacesIn(program, backward);
  const ir::Usage usage = ir::AnalyseUsage(program);
  std::vector<Kept> kept;
  for (const auto& [id, place] : before) {
    const ir::Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    const auto read = behind.find(id);
    if (buffer.cls != ir::BufferClass::kActivation || buffer.life != ir::Life::kDerived ||
        read == behind.end() || usage.blocks_of[static_cast<std::size_t>(id)].size() != 2)
      continue;
    const ir::Op& last =
        program.blocks[static_cast<std::size_t>(forward)].ops[static_cast<std::size_t>(place.last)];
    if (!place.moves || !read->second.moves || !read->second.only_layers ||
        last.segment != ir::Segment::kLayer)
      continue;
    kept.push_back({id, last.layer});
  }
  return kept;
}

class ActivationMover {
 public:
  ActivationMover(int forward, int backward, uint8_t first, int layers, ir::Program* program)
      : forward_(static_cast<std::size_t>(forward)),
        backward_(static_cast<std::size_t>(backward)),
        first_(first),
        layers_(layers),
        program_(*program) {}

  void Run() {
    int last_layer = -1, first_layer = std::numeric_limits<int>::max();
    for (const ir::Op& op : program_.blocks[forward_].ops) {
      if (op.segment != ir::Segment::kLayer || op.layer < 0) continue;
      last_layer = std::max<int>(last_layer, op.layer);
      first_layer = std::min<int>(first_layer, op.layer);
    }
    if (layers_ > 0) last_layer = std::min(last_layer, first_layer + layers_);
    for (const Kept& kept :
         KeptBy(program_, static_cast<int>(forward_), static_cast<int>(backward_))) {
      if (kept.layer < last_layer) Move(kept);
    }
    Insert(forward_, down_, true);
    Insert(backward_, up_, false);
  }

 private:
  void Move(const Kept& kept) {
    const auto at = static_cast<std::size_t>(kept.buffer);
    const ir::BufferId host = Twin(at, "@host"), back = Twin(at, "@back");
    program_.buffers[static_cast<std::size_t>(host)].space = ir::Space::kHost;
    program_.buffers[static_cast<std::size_t>(host)].life = ir::Life::kMicroBatch;
    const ir::ViewId from = Whole(kept.buffer), held = Whole(host), to = Whole(back);
    down_.push_back(Copy(held, from, HostStream::kDown, ir::Phase::kForward, kept.layer));
    up_.push_back(Copy(to, held, HostStream::kUp, ir::Phase::kBackward, kept.layer));
    std::map<ir::ViewId, ir::ViewId> renamed;
    for (ir::Op& op : program_.blocks[backward_].ops) {
      for (auto* views : {&op.in, &op.out}) {
        for (ir::ViewId& view : *views) {
          if (program_.views[static_cast<std::size_t>(view)].buffer == kept.buffer)
            view = Renamed(view, back, &renamed);
        }
      }
    }
  }

  ir::BufferId Twin(std::size_t of, const char* suffix) {
    ir::Buffer twin = program_.buffers[of];
    twin.name += suffix;
    twin.ring = -1;
    program_.buffers.push_back(std::move(twin));
    return static_cast<ir::BufferId>(program_.buffers.size() - 1);
  }

  ir::ViewId Whole(ir::BufferId buffer) {
    const ir::Buffer& of = program_.buffers[static_cast<std::size_t>(buffer)];
    for (std::size_t v = 0; v < program_.views.size(); ++v) {
      if (program_.views[v].buffer == buffer && program_.views[v].elements == of.elements)
        return static_cast<ir::ViewId>(v);
    }
    program_.views.push_back({of.name, buffer, 0, of.elements});
    return static_cast<ir::ViewId>(program_.views.size() - 1);
  }

  // The same part of the buffer that came back.
  ir::ViewId Renamed(ir::ViewId view, ir::BufferId back, std::map<ir::ViewId, ir::ViewId>* known) {
    const auto found = known->find(view);
    if (found != known->end()) return found->second;
    ir::View part = program_.views[static_cast<std::size_t>(view)];
    const std::string& whole = program_.buffers[static_cast<std::size_t>(part.buffer)].name;
    ir::ViewId renamed = -1;
    if (part.elements == program_.buffers[static_cast<std::size_t>(back)].elements) {
      renamed = Whole(back);
    } else {
      part.name = program_.buffers[static_cast<std::size_t>(back)].name +
                  part.name.substr(std::min(whole.size(), part.name.size()));
      part.buffer = back;
      program_.views.push_back(std::move(part));
      renamed = static_cast<ir::ViewId>(program_.views.size() - 1);
    }
    known->emplace(view, renamed);
    return renamed;
  }

  ir::Op Copy(ir::ViewId to, ir::ViewId from, HostStream stream, ir::Phase phase, int layer) const {
    ir::Op op;
    op.kind = OpKind::kCopy;
    op.out = {to};
    op.in = {from};
    op.stream = static_cast<uint8_t>(first_ + static_cast<uint8_t>(stream));
    op.phase = phase;
    op.segment = ir::Segment::kLayer;
    op.layer = static_cast<int16_t>(layer);
    return op;
  }

  // Copies of layer l go behind the last op of layer l + 1, or in front of its first one.
  void Insert(std::size_t block, const std::vector<ir::Op>& copies, bool behind) {
    std::vector<ir::Op>& ops = program_.blocks[block].ops;
    std::map<int, int> edge;  // by layer
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].segment != ir::Segment::kLayer || ops[i].layer < 0) continue;
      const auto at = static_cast<int>(i);
      const auto [place, added] = edge.try_emplace(ops[i].layer, at);
      if (behind && !added) place->second = at;
    }
    std::multimap<int, const ir::Op*> at;
    for (const ir::Op& copy : copies) at.emplace(edge.at(copy.layer + 1), &copy);
    std::vector<ir::Op> merged;
    merged.reserve(ops.size() + copies.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const auto [begin, end] = at.equal_range(static_cast<int>(i));
      if (behind) merged.push_back(std::move(ops[i]));
      for (auto copy = begin; copy != end; ++copy) merged.push_back(*copy->second);
      if (!behind) merged.push_back(std::move(ops[i]));
    }
    ops = std::move(merged);
  }

  const std::size_t forward_, backward_;
  const uint8_t first_;
  const int layers_;  // 0: all but the last
  ir::Program& program_;
  std::vector<ir::Op> down_, up_;
};

}  // namespace

std::optional<Refusal> CheckOffload(const ModelSpec& model, const Workload& work,
                                    const Strategy& strategy) {
  if (auto refused = CheckOptimizer(work, strategy.offload.optimizer)) return refused;
  if (auto refused = CheckWeights(strategy)) return refused;
  if (!strategy.offload.activations) return std::nullopt;
  return CheckActivations(model, strategy);
}

std::vector<char> UnitsOnHost(const std::vector<double>& elements, double share) {
  constexpr double kRounding = 1e-9;
  const double all = std::accumulate(elements.begin(), elements.end(), 0.0);
  std::vector<char> on_host(elements.size(), 0);
  double moved = 0;
  for (std::size_t u = 0; u < elements.size() && share > 0; ++u) {
    moved += elements[u];
    if (moved > share * all * (1 + kRounding)) break;
    on_host[u] = 1;
  }
  return on_host;
}

void OffloadActivations(int forward_block, int backward_block, uint8_t first, int layers,
                        ir::Program* program) {
  ActivationMover(forward_block, backward_block, first, layers, program).Run();
}

std::vector<double> KeptBytes(const ir::Program& program, int forward_block, int backward_block) {
  std::vector<double> bytes;
  for (const Kept& kept : KeptBy(program, forward_block, backward_block)) {
    const auto layer = static_cast<std::size_t>(std::max(0, kept.layer));
    if (bytes.size() <= layer) bytes.resize(layer + 1);
    bytes[layer] += static_cast<double>(
        ir::BufferBytes(program.buffers[static_cast<std::size_t>(kept.buffer)]));
  }
  return bytes;
}

// Gradients come to the host when their norm is known; the CPU updates its copy of the weights, which the device's
// follow: three queues, so that units pass through them beside each other. Weights that are on the host stay there.
void StageBuilder::PlaceStates() {
  if (std::exchange(placed_, true) || ctx_.strategy.offload.optimizer <= 0) return;
  std::vector<double> elements;
  std::vector<std::size_t> trained;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].trained) continue;
    trained.push_back(u);
    elements.push_back(static_cast<double>(units_[u].shard));
  }
  const std::vector<char> on_host = UnitsOnHost(elements, ctx_.strategy.offload.optimizer);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    UnitState& unit = units_[trained[i]];
    const int index = static_cast<int>(trained[i]);
    unit.on_host = on_host[i] != 0;
    // What stages add up together stays for that.
    unit.streams = unit.on_host && ctx_.streams_gradients() && !unit.tied;
    if (ctx_.streams_gradients()) {
      DeclareGradients(index);
      DeclareTail(index);
    }
    if (!unit.on_host) continue;
    if (unit.master < 0 && !ctx_.strategy.offload.weights)
      unit.master = Make("M." + program_.units[trained[i]].name, unit.shard, ctx_.state,
                         ir::BufferClass::kMaster, ir::Life::kStep);
    for (const ir::ViewId view :
         {unit.master, unit.first_moment, unit.second_moment, unit.moment_scales}) {
      if (view < 0) continue;
      ir::Buffer& buffer = BufferOf(view);
      buffer.space = ir::Space::kHost;
      buffer.unit = index;
      buffer.unit_shard_axis = static_cast<int8_t>(ctx_.sharded() ? ctx_.ShardAxis() : -1);
    }
  }
}

// In the queue of reductions, as in DeepSpeed (stage_1_and_2.py: copy_grads_in_partition on the reduction stream;
// async_accumulate_grad_in_cpu_via_gpu brings the sum so far back, adds on the GPU and sends it again;
// set_norm_for_param_grad_in_gpu measures what goes last) and in PyTorch's fully_shard (foreach_reduce, whose CPU adds instead).
// As AddReduced(): what compute adds, and what goes behind it, stands behind the next reduction.
void StageBuilder::StreamGradient(int index, ir::ViewId reduced, bool final_touch) {
  BlockState& state = blocks_[block_];
  UnitState& unit = units_[index];
  const std::string& name = program_.units[index].name;
  const uint8_t queue = ctx_.strategy.overlap_grad_reduce ? kDpStream : kCompute;
  const bool began = !state.streamed.insert(index).second || (final_touch && unit.shared);
  const uint8_t when = began ? 0 : ir::kWhenLater;  // a sum is on the host
  const ir::ViewId sum = HostTwin(reduced, "Gh." + name);
  BufferOf(sum).cls = ir::BufferClass::kGrad;
  BufferOf(sum).life = ir::Life::kStep;
  const auto emit = [&](ir::OpKind kind, ir::ViewId to, std::vector<ir::ViewId> from,
                        uint8_t stream, uint8_t runs) -> ir::Op& {
    ir::Op& op = Emit(kind, {to}, std::move(from));
    op.stream = stream;
    op.when = runs;
    return op;
  };
  const ir::ViewId back = SumFromHost(reduced);
  emit(ir::OpKind::kCopy, back, {sum}, queue, when);
  const std::size_t first = state.ops.size();
  emit(ir::OpKind::kAdd, reduced, {reduced, back}, kCompute, when)
      .attrs.Set(ir::Attr::kElements, double(unit.shard));
  if (final_touch) {
    const std::size_t reducing = state.ops.size();
    AllReduce(reduced, kGroupDpOuter,
              ctx_.reduces_between_groups() ? ctx_.StreamBetweenGroups() : queue);
    const ir::Phase phase = phase_;
    phase_ = ir::Phase::kGradNorm;
    if (norm_ >= 0) EmitSumSq(index, reduced);
    phase_ = phase;
    for (std::size_t i = reducing; i < state.ops.size(); ++i) state.ops[i].when = ir::kWhenLast;
  }
  emit(ir::OpKind::kCopy, sum, {reduced}, queue, 0);
  if (ctx_.strategy.overlap_grad_reduce) PutOff(first, &state.pending_adds[0]);
}

// Where the sum of earlier micro-batches comes back to.
ir::ViewId StageBuilder::SumFromHost(ir::ViewId reduced) {
  const ir::Buffer like = BufferOf(reduced);
  const ir::ViewId back = Make("Gb." + like.name.substr(3), like.elements, like.dtype, like.cls);
  ir::Buffer& buffer = BufferOf(back);
  buffer.unit = like.unit;
  buffer.unit_shard_axis = like.unit_shard_axis;
  if (like.ring < 0) return back;
  buffer.ring = static_cast<int16_t>(
      RingIndex(program_.rings[static_cast<std::size_t>(like.ring)].name + ".sum", 2));
  buffer.ring_index = like.ring_index;
  return back;
}

ir::ViewId StageBuilder::HostTwin(ir::ViewId view, const std::string& name) {
  const ir::Buffer like = BufferOf(view);
  const ir::ViewId twin =
      Make(name, program_.views[static_cast<std::size_t>(view)].elements, like.dtype, like.cls);
  ir::Buffer& buffer = BufferOf(twin);
  buffer.space = ir::Space::kHost;
  buffer.unit = like.unit;
  buffer.unit_shard_axis = like.unit_shard_axis;
  return twin;
}

void StageBuilder::Copy(ir::ViewId to, ir::ViewId from, HostStream stream) {
  Emit(ir::OpKind::kCopy, {to}, {from}).stream = ctx_.StreamOf(stream);
}

ir::ViewId StageBuilder::ToHost(ir::ViewId view, const std::string& name) {
  if (Has(name)) return Make(name, 0, ctx_.full);
  const ir::ViewId twin = HostTwin(view, name);
  Copy(twin, view, HostStream::kDown);
  return twin;
}

}  // namespace orrery
