// SPDX-License-Identifier: Apache-2.0
// Reads size forms from small lowered plans.
#include "model/memory/chunk_forms.h"

#include <algorithm>

#include "model/base/check.h"
#include "model/plan/ir/usage.h"
#include "model/plan/lower/schedules.h"

namespace orrery {
namespace {

constexpr int kSmallDp = 2;

class FormReader {
 public:
  FormReader(const ir::Program& program, int dp, const std::array<int, kSlackGroups>& slack,
             const Allocation& allocation)
      : program_(program),
        dp_(dp),
        slack_(slack),
        allocation_(allocation),
        usage_(ir::AnalyseUsage(program)),
        held_(HeldBytes(program, allocation.holding)) {}

  ChunkForm Read() {
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) Place(static_cast<ir::BufferId>(b));
    if (allocation_.gradient_copy > 0) GradientCopies();
    if (allocation_.dummies) form_.once.fixed = ShapesOfGradients(program_);
    const int blocks = static_cast<int>(usage_.by_block.size());
    if (allocation_.holding.static_layout) {
      for (int block = 0; block < blocks; ++block) Scratch(block);
      return std::move(form_);
    }
    for (int block = 1; block + 1 < blocks; ++block) Ops(block);
    Scratch(blocks - 1);
    return std::move(form_);
  }

 private:
  SizeForm SizeOf(ir::BufferId id) const {
    const ir::Buffer& buffer = program_.buffers[id];
    const auto bytes = static_cast<double>(held_[id]);
    if (buffer.unit_shard_axis >= 0 && bytes > 0) {
      // Without the padding of the unit to a multiple of the shards.
      const auto& segments = program_.units[buffer.unit].segments;
      double elements = 0;
      for (const ir::UnitSegment& segment : segments)
        elements += static_cast<double>(segment.elements);
      return {0, 0,
              std::min(bytes * dp_, elements * static_cast<double>(ir::DtypeBytes(buffer.dtype)))};
    }
    if (buffer.cls == ir::BufferClass::kActivation) return {bytes, 0, 0};
    return {0, bytes, 0};
  }

  void GradientCopies() {
    for (const ir::BufferId id : CopiedGradients(program_)) {
      const auto bytes = static_cast<double>(ir::DtypeBytes(program_.buffers[id].dtype));
      form_.step += SizeOf(id) * (allocation_.gradient_copy / bytes);
    }
  }

  bool CallScope(ir::BufferId id) const {
    const ir::Buffer& buffer = program_.buffers[id];
    return buffer.life == ir::Life::kDerived && usage_.blocks_of[id].size() == 1;
  }

  // 0 forward, 1 backward, 2 weight gradient; one chunk per program.
  static int Part(int32_t block) { return std::clamp(block - 1, 0, 2); }

  void Place(ir::BufferId id) {
    const ir::Buffer& buffer = program_.buffers[id];
    if (ir::OnHost(buffer)) return;
    if (buffer.life == ir::Life::kStep) {
      if (buffer.cls != ir::BufferClass::kScalar)  // a few bytes, whatever the number of its chunks
        form_.step += SizeOf(id);
      if (ComesLate(buffer, allocation_.holding)) form_.late += SizeOf(id);
      return;
    }
    const auto& blocks = usage_.blocks_of[id];
    if (blocks.empty()) return;
    if (CallScope(id)) {
      if (buffer.ring >= 0 && allocation_.holding.static_layout) AddRing(id);
      return;
    }
    static constexpr FrameKind kKinds[3][3] = {{FrameKind::kFF, FrameKind::kFB, FrameKind::kFW},
                                               {FrameKind::kBB, FrameKind::kBB, FrameKind::kBW},
                                               {FrameKind::kWW, FrameKind::kWW, FrameKind::kWW}};
    const FrameKind kind = kKinds[Part(blocks.front())][Part(blocks.back())];
    const auto group = std::find(slack_.begin(), slack_.end(), buffer.extra_slots) - slack_.begin();
    ORRERY_CHECK(group < kSlackGroups, "buffer {} has {} extra slots", buffer.name,
                 buffer.extra_slots);
    // Slack is room in a layout; live bytes do not know it.
    form_.frames[allocation_.holding.static_layout ? group : 0][static_cast<int>(kind)] +=
        SizeOf(id);
  }

  void AddRing(ir::BufferId id) {
    const ir::Buffer& buffer = program_.buffers[id];
    std::size_t first = 0;
    for (int r = 0; r < buffer.ring; ++r) first += std::max(1, program_.rings[r].slots);
    const std::size_t slot =
        first + buffer.ring_index % std::max(1, program_.rings[buffer.ring].slots);
    if (form_.rings.size() <= slot) form_.rings.resize(slot + 1);
    form_.rings[slot].Add(SizeOf(id));
  }

  void Scratch(int block) {
    const bool end = block + 1 == static_cast<int>(usage_.by_block.size());
    const std::size_t ops = program_.blocks[block].ops.size();
    std::vector<SizeForm> change(ops + 1);
    for (const ir::Touch& touch : usage_.by_block[block]) {
      const ir::Buffer& buffer = program_.buffers[touch.buffer];
      if (!CallScope(touch.buffer) || buffer.ring >= 0 || ir::OnHost(buffer)) continue;
      const SizeForm size = SizeOf(touch.buffer);
      change[touch.first_op] += size;
      change[touch.last_op + 1] -= size;
    }
    SizeForm alive, most;
    for (std::size_t op = 0; op < ops; ++op) {
      alive += change[op];
      if (!end) form_.scratch.Add(alive);
      if (alive.At(1, kSmallDp) > most.At(1, kSmallDp)) most = alive;
    }
    if (end) form_.end = most;
  }

  // Op by op of a forward, backward or weight-gradient block. The frames that a call takes or returns count as held
  // all through it elsewhere (schedule_slots.h), so that their bytes go off before their first and after their last op.
  void Ops(int block) {
    const std::vector<ir::Op>& ops = program_.blocks[block].ops;
    std::vector<SizeForm> change(ops.size() + 1);
    for (const ir::Touch& touch : usage_.by_block[block]) {
      const ir::Buffer& buffer = program_.buffers[touch.buffer];
      if (buffer.life == ir::Life::kStep || ir::OnHost(buffer)) continue;
      const SizeForm size = SizeOf(touch.buffer);
      const auto& blocks = usage_.blocks_of[touch.buffer];
      const bool own = CallScope(touch.buffer);
      if (!own && blocks.front() == block) change[0] -= size;
      if (blocks.front() == block) change[touch.first_op] += size;
      if (blocks.back() == block) change[touch.last_op + 1] -= size;
    }
    SizeForm alive;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      alive += change[i];
      const int name = static_cast<int>(ops[i].kind) * 16 + static_cast<int>(ops[i].segment);
      form_.ops[Part(block)].push_back({alive + LossCopies(ops[i]), {}, name});
    }
  }

  SizeForm LossCopies(const ir::Op& op) const {
    if (!ReadsLogits(op.kind)) return {};
    const ir::Buffer& logits = program_.buffers[program_.views[op.in.front()].buffer];
    if (ir::DtypeBytes(logits.dtype) != 2) return {};
    return {allocation_.loss * static_cast<double>(logits.elements), 0, 0};
  }

  const ir::Program& program_;
  const int dp_;
  const std::array<int, kSlackGroups> slack_;
  const Allocation allocation_;
  const ir::Usage usage_;
  const std::vector<int64_t> held_;  // bytes by buffer
  ChunkForm form_;
};

template <class Op>
void EachForm(ChunkForm& a, const ChunkForm& b, const Op& op) {
  op(a.step, b.step);
  op(a.late, b.late);
  op(a.once, b.once);
  op(a.end, b.end);
  for (int g = 0; g < kSlackGroups; ++g) {
    for (int k = 0; k < kFrameKinds; ++k) op(a.frames[g][k], b.frames[g][k]);
  }
}

bool Covers(const OpForm& a, const OpForm& b) {
  return a.bytes.Covers(b.bytes) && a.per_layer.Covers(b.per_layer);
}

// Keeps the ops that some argument can make the fullest.
void Prune(std::vector<OpForm>& ops) {
  std::vector<OpForm> kept;
  kept.reserve(ops.size());
  for (const OpForm& op : ops) {
    if (std::any_of(kept.begin(), kept.end(),
                    [&](const OpForm& known) { return Covers(known, op); }))
      continue;
    std::erase_if(kept, [&](const OpForm& known) { return Covers(op, known); });
    kept.push_back(op);
  }
  ops.assign(kept.begin(), kept.end());
  ops.shrink_to_fit();  // few are left of thousands where a sequence goes round a ring
}

void Prune(ChunkForm& form) {
  for (std::vector<OpForm>& ops : form.ops) Prune(ops);
  SizeForm rings;
  for (const MaxForm& slot : form.rings) {
    if (slot.forms().size() > 1) return;
    if (!slot.forms().empty()) rings += slot.forms().front();
  }
  form.all_rings = rings;
}

// The ops of three layers that stand as far from the call's first or last op as with two layers, and with any more.
std::vector<OpForm> Grown(const std::vector<OpForm>& two, const std::vector<OpForm>& three) {
  std::vector<OpForm> grown;
  const auto add = [&](const OpForm& before, OpForm op) {
    op.per_layer = Min(op.bytes - before.bytes, {});
    grown.push_back(op);
  };
  const std::size_t count = std::min(two.size(), three.size());
  for (std::size_t i = 0; i < count && two[i].op == three[i].op; ++i) add(two[i], three[i]);
  for (std::size_t i = 1; i <= count; ++i) {
    const OpForm& before = two[two.size() - i];
    const OpForm& op = three[three.size() - i];
    if (before.op != op.op) break;
    add(before, op);
  }
  return grown;
}

ChunkForm WithoutTransients(const ChunkForm& form) {
  ChunkForm sums;
  sums.step = form.step;
  sums.late = form.late, sums.once = form.once;
  sums.frames = form.frames;
  sums.end = form.end;
  return sums;
}

// Growth from two to three layers; the base never exceeds what any of the three plans asks.
ChunkForms Interpolate(std::array<ChunkForm, 3> small) {
  ChunkForms forms;
  forms.per_layer = WithoutTransients(small[2]);
  EachForm(forms.per_layer, small[1], [](SizeForm& a, const SizeForm& b) { a -= b; });
  const auto minus_layers = [&](const ChunkForm& form, double layers) {
    ChunkForm base = WithoutTransients(form);
    EachForm(base, forms.per_layer, [&](SizeForm& a, const SizeForm& b) { a -= b * layers; });
    return base;
  };
  forms.base = minus_layers(small[1], 2);
  EachForm(forms.base, minus_layers(small[0], 1),
           [](SizeForm& a, const SizeForm& b) { a = Min(a, b); });
  for (int call = 0; call < kCallKinds; ++call)
    small[2].ops[call] = Grown(small[1].ops[call], small[2].ops[call]);
  for (ChunkForm& form : small) Prune(form);
  forms.small = std::move(small);
  return forms;
}

ModelSpec WithLayers(const ModelSpec& model, int64_t layers) {
  ModelSpec copy = model;
  copy.layers = layers;
  return copy;
}

Workload SmallWork(const Workload& work, const Strategy& s) {
  Workload small = work;
  small.global_batch = s.data_parallel() * s.micro_batch * 2;
  return small;
}

std::array<int, kSlackGroups> Slack(const Strategy& s) {
  return {0, s.recv_slots, s.send_slots - 1};
}

std::vector<ChunkForm> ReadStages(const ir::Plan& plan, const Strategy& s,
                                  const Allocation& allocation) {
  std::vector<ChunkForm> stages;
  for (const ir::Program& program : plan.programs) {
    stages.push_back(
        FormReader(program, static_cast<int>(s.shards()), Slack(s), allocation).Read());
  }
  return stages;
}

}  // namespace

bool SameFrames(const PlanForms& a, const PlanForms& b) {
  const auto same = [](const ChunkForm& one, const ChunkForm& other) {
    return one.frames == other.frames;
  };
  const auto same_chunks = [&](const ChunkForms& one, const ChunkForms& other) {
    return same(one.base, other.base) && same(one.per_layer, other.per_layer) &&
           one.none.has_value() == other.none.has_value() &&
           (!one.none || same(*one.none, *other.none));
  };
  return a.static_layout == b.static_layout && a.slack == b.slack && a.recompute == b.recompute &&
         std::ranges::equal(a.stages, b.stages, same) &&
         std::ranges::equal(a.chunks, b.chunks, same_chunks) &&
         (a.taken == nullptr) == (b.taken == nullptr) &&
         (!a.taken || SameFrames(*a.taken, *b.taken));
}

bool NeedsStageForms(const ModelSpec& model) {
  return model.family == Family::kMlp || model.family == Family::kEncoderDecoder;
}

Strategy FormStrategy(const ModelSpec& model, const Strategy& strategy) {
  Strategy s = strategy;
  s.gradients_on_host = StreamsGradients(strategy);
  const bool alone = s.shards() == 1;
  if (alone && !s.offload.weights) s.zero = 0;
  s.dp = s.zero > 0 && !alone ? kSmallDp : 1;
  s.dp_outer = 1;  // replicas of the shards reduce in place
  if (!NeedsStageForms(model)) s.pp = s.pp > 1 ? 3 : 1;
  s.vpp = 1;
  s.micro_batch = 1;
  s.schedule = SplitsBackward(s.schedule) ? PipelineSchedule::kZeroBubble : PipelineSchedule::k1F1B;
  s.count_embedding = s.count_head = false;
  s.layout = nullptr;
  if (s.offload.optimizer > 0) s.offload.optimizer = 1;  // no less: which units move is left out
  return s;
}

// Where activations travel, none that backward passes read counts: few of them are on the device, and those are left out.
void LeaveOutKept(PlanForms* forms) {
  const auto leave_out = [](ChunkForm* form) {
    for (auto& group : form->frames) group[static_cast<int>(FrameKind::kFB)] = {};
  };
  for (ChunkForm& stage : forms->stages) leave_out(&stage);
  for (ChunkForms& chunk : forms->chunks) {
    leave_out(&chunk.base);
    leave_out(&chunk.per_layer);
    if (chunk.none) leave_out(&*chunk.none);
  }
}

// Frames that a call brings forth.
SizeForm BroughtForth(const ChunkForm& form, int call) {
  static constexpr FrameKind kFirst[] = {FrameKind::kFF, FrameKind::kBB, FrameKind::kWW};
  static constexpr FrameKind kLast[] = {FrameKind::kFW, FrameKind::kBW, FrameKind::kWW};
  SizeForm sum;
  for (const auto& group : form.frames)
    for (int kind = static_cast<int>(kFirst[call]); kind <= static_cast<int>(kLast[call]); ++kind)
      sum += group[static_cast<std::size_t>(kind)];
  return sum;
}

// Where products of some layers are cast and those of others are not: the least of both, and of ops the start of their call
// alone, when nothing of what it brings forth is there.
ChunkForm LeastOf(const ChunkForm& a, const ChunkForm& b) {
  ChunkForm least = WithoutTransients(a);
  EachForm(least, b, [](SizeForm& x, const SizeForm& y) { x = Min(x, y); });
  least.scratch.Add(SizeForm{});
  return least;
}

PlanForms LeastOf(const PlanForms& a, const PlanForms& b) {
  PlanForms least = a;
  least.frames_by_sample = false;
  for (std::size_t place = 0; place < least.chunks.size(); ++place) {
    ChunkForms& chunk = least.chunks[place];
    const ChunkForms& other = b.chunks[place];
    chunk.base = LeastOf(chunk.base, other.base);
    chunk.per_layer = LeastOf(chunk.per_layer, other.per_layer);
    if (chunk.none && other.none) chunk.none = LeastOf(*chunk.none, *other.none);
    for (int call = 0; call < kCallKinds; ++call) {
      const SizeForm base = BroughtForth(chunk.base, call);
      const SizeForm layer = BroughtForth(chunk.per_layer, call);
      for (std::size_t i = 0; i < chunk.small.size(); ++i) {
        ChunkForm& small = chunk.small[i];
        if (call == 0) small = LeastOf(small, other.small[i]);
        if (!a.chunks[place].small[i].ops[call].empty())
          small.ops[call] = {{SizeForm{} - base - layer * double(i + 1), SizeForm{} - layer}};
      }
      if (chunk.none && !a.chunks[place].none->ops[call].empty())
        chunk.none->ops[call] = {{SizeForm{} - BroughtForth(*chunk.none, call), {}}};
    }
  }
  return least;
}

// Layouts of one stage receive and send nothing.
void NoteGroups(PlanForms* forms) {
  forms->frames_by_sample = true;
  const auto by_sample = [](const SizeForm& f) { return f.fixed == 0 && f.shard == 0; };
  const auto note = [&](const ChunkForm& form) {
    for (int g = 0; g < kSlackGroups; ++g) {
      forms->holds[g] |=
          std::ranges::any_of(form.frames[g], [](const SizeForm& f) { return f != SizeForm{}; });
      forms->frames_by_sample &= std::ranges::all_of(form.frames[g], by_sample);
    }
  };
  for (const ChunkForm& stage : forms->stages) note(stage);
  for (const ChunkForms& chunk : forms->chunks) {
    note(chunk.base);
    note(chunk.per_layer);
    if (chunk.none) note(*chunk.none);
  }
}

std::variant<PlanForms, Refusal> ReadPlanForms(const ModelSpec& model, const Workload& work,
                                               const Strategy& s, const Allocation& allocation) {
  if (s.offload.activations) {
    Strategy resident = s;
    resident.offload.activations = false;
    std::variant<PlanForms, Refusal> forms = ReadPlanForms(model, work, resident, allocation);
    if (auto* read = std::get_if<PlanForms>(&forms)) LeaveOutKept(read);
    return forms;
  }
  if (work.fp8_skip.any()) {
    Workload cast = work, plain = work;
    cast.fp8_skip = plain.fp8_skip = {};
    plain.fp8 = Fp8::kOff;
    Strategy whole = s;
    whole.fp8_weights = false;
    const std::variant<PlanForms, Refusal> first = ReadPlanForms(model, cast, s, allocation);
    const std::variant<PlanForms, Refusal> second = ReadPlanForms(model, plain, whole, allocation);
    for (const auto* forms : {&first, &second})
      if (const auto* refusal = std::get_if<Refusal>(forms)) return *refusal;
    return LeastOf(std::get<PlanForms>(first), std::get<PlanForms>(second));
  }
  PlanForms forms;
  forms.static_layout = allocation.holding.static_layout;
  forms.slack = Slack(s);
  const Workload small = SmallWork(work, s);
  if (NeedsStageForms(model)) {
    auto lowered = Lower(model, small, s);
    if (auto* refusal = std::get_if<Refusal>(&lowered)) return *refusal;
    forms.stages = ReadStages(std::get<ir::Plan>(lowered), s, allocation);
    for (ChunkForm& form : forms.stages) Prune(form);
    NoteGroups(&forms);
    return forms;
  }
  std::array<std::vector<ChunkForm>, 3> by_layers;
  for (int layers = 1; layers <= 3; ++layers) {
    auto lowered = Lower(WithLayers(model, int64_t{layers} * s.pp), small, s);
    if (auto* refusal = std::get_if<Refusal>(&lowered)) return *refusal;
    by_layers[layers - 1] = ReadStages(std::get<ir::Plan>(lowered), s, allocation);
  }
  const int first_place =
      s.pp > 1 ? static_cast<int>(ChunkPlace::kFirst) : static_cast<int>(ChunkPlace::kOnly);
  for (int stage = 0; stage < s.pp; ++stage) {
    forms.chunks[first_place + stage] =
        Interpolate({std::move(by_layers[0][stage]), std::move(by_layers[1][stage]),
                     std::move(by_layers[2][stage])});
  }
  if (s.pp > 1) {
    // Nothing but the embedding on the first stage, the head on the last one; with adapters the first one has layers.
    const int first = work.lora.on() ? 1 : 0;
    Strategy ends = s;
    ends.layout = std::make_shared<const std::vector<int>>(std::vector<int>{first, 1, 0});
    auto lowered = Lower(WithLayers(model, first + 1), small, ends);
    if (auto* refusal = std::get_if<Refusal>(&lowered)) return *refusal;
    std::vector<ChunkForm> stages = ReadStages(std::get<ir::Plan>(lowered), ends, allocation);
    for (const int stage : {0, 2}) {
      if (stage == 0 && first > 0) continue;
      Prune(stages[stage]);
      forms.chunks[first_place + stage].none = std::move(stages[stage]);
    }
  }
  NoteGroups(&forms);
  return forms;
}

}  // namespace orrery
