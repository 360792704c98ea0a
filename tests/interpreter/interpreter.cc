// SPDX-License-Identifier: Apache-2.0
// Setting up ranks from a plan, and reading results.
#include "tests/interpreter/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/exec/initial.h"
#include "tests/interpreter/machine.h"

namespace orrery::interpreter {
namespace {

using Scope = ir::Layout::Scope;

// The buffers that hold the state of a loss_scale op.
std::vector<bool> LossScaleBuffers(const ir::Program& program) {
  std::vector<bool> is(program.buffers.size(), false);
  for (const ir::Block& block : program.blocks)
    for (const ir::Op& op : block.ops)
      if (op.kind == ir::OpKind::kLossScale) is[program.views.at(op.out.at(0)).buffer] = true;
  return is;
}

bool Close(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b));
}

}  // namespace

Interpreter::Machine::Machine(const ir::Plan& the_plan, const RunOptions& the_options)
    : plan(the_plan), options(the_options), random(the_options.order_seed) {
  for (const ir::Program& program : plan.programs)
    layouts.push_back(ir::ComputeLayout(plan, program));
  for (size_t p = 0; p < plan.programs.size(); ++p)
    images.push_back(MakeImage(plan, plan.programs[p], layouts[p]));
  ranks.resize(plan.mesh.ranks());
  members.resize(plan.groups.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    RankState& rank = ranks[r];
    rank.coords = plan.mesh.Coords(static_cast<int64_t>(r));
    const size_t program = rank.coords.empty() ? 0 : rank.coords.at(plan.mesh.program_axis);
    rank.image = &images.at(program);
    rank.layout = &layouts.at(program);
    rank.memory = Memory(rank.image->grains);
    InitialiseRank(&rank);
    for (size_t g = 0; g < plan.groups.size(); ++g)
      members[g].push_back(ir::GroupMembers(plan.mesh, plan.groups[g], static_cast<int64_t>(r)));
  }
}

void Interpreter::Machine::InitialiseRank(RankState* rank) {
  const ir::Program& program = *rank->image->program;
  const std::vector<bool> scales = LossScaleBuffers(program);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const ir::Buffer& buffer = program.buffers[b];
    if (rank->layout->scope[b] != Scope::kStep) continue;
    std::vector<double> values(buffer.elements, 0.0);
    const bool weights =
        buffer.cls == ir::BufferClass::kParam || buffer.cls == ir::BufferClass::kMaster;
    if (weights) {
      if (buffer.unit < 0) throw PlanFault(buffer.name + ": parameters of no unit");
      const int64_t shard =
          buffer.unit_shard_axis < 0 ? 0 : rank->coords.at(buffer.unit_shard_axis);
      train::InitialUnit(options.data.seed, plan, program.units.at(buffer.unit), rank->coords,
                         shard * buffer.elements, values);
      if (buffer.cls == ir::BufferClass::kParam)
        BeginCodes(rank, buffer.unit, shard * buffer.elements, &values);
    } else if (scales[b]) {
      values[0] = options.initial_loss_scale;
    } else if (buffer.cls != ir::BufferClass::kOptimizer) {
      continue;
    }
    const int64_t bytes = ir::DtypeBytes(buffer.dtype), grain = rank->image->grain;
    const int64_t base = rank->layout->Address(static_cast<ir::BufferId>(b), 0);
    rank->memory.Write({base / grain, buffer.elements, static_cast<int32_t>(bytes / grain)},
                       values);
  }
  for (const auto& [view, values] : rank->first_scales)
    rank->memory.Write(rank->image->Resolve(*rank->layout, view, 0), values);
}

// Weights that are held in 8 bits begin as codes, with scales of their own.
void Interpreter::Machine::BeginCodes(RankState* rank, int32_t unit, int64_t first,
                                      std::vector<double>* values) {
  const ir::Program& program = *rank->image->program;
  const ir::Op* cast = ir::CastOfUnit(program, unit);
  if (cast == nullptr) return;
  const train::InitialCodes codes(options.data.seed, plan, program.units.at(unit), rank->coords,
                                  *cast);
  codes.Cast(first, *values);
  rank->first_scales.emplace_back(cast->in.at(1), codes.scales());
}

// Everything that must not survive from one step to the next turns NaN.
void Interpreter::Machine::BeginStep() {
  ++step;
  for (RankState& rank : ranks) {
    const ProgramImage& image = *rank.image;
    rank.done.assign(image.tasks.size(), 0);
    rank.head.assign(image.queues.size(), 0);
    rank.listed.assign(image.queues.size(), 0);
    rank.cell_left.resize(image.cells.size());
    for (size_t c = 0; c < image.cells.size(); ++c) rank.cell_left[c] = image.cells[c].tasks;
    for (size_t b = 0; b < image.program->buffers.size(); ++b) {
      const ir::Buffer& buffer = image.program->buffers[b];
      if (rank.layout->scope[b] != Scope::kStep) continue;
      using enum ir::BufferClass;
      if (buffer.cls == kParam || buffer.cls == kMaster || buffer.cls == kOptimizer ||
          buffer.cls == kScalar)
        continue;
      rank.memory.Forget(rank.layout->Address(static_cast<ir::BufferId>(b), 0) / image.grain,
                         buffer.elements * ir::DtypeBytes(buffer.dtype) / image.grain);
    }
  }
}

std::optional<Slice> Interpreter::Machine::StepView(const RankState& rank,
                                                    std::string_view name) const {
  const auto& views = rank.image->program->views;
  for (size_t v = 0; v < views.size(); ++v)
    if (views[v].name == name && rank.layout->scope[views[v].buffer] == Scope::kStep)
      return rank.image->Resolve(*rank.layout, static_cast<ir::ViewId>(v), 0);
  return std::nullopt;
}

double Interpreter::Machine::Scalar(const RankState& rank, std::string_view view,
                                    double absent) const {
  const std::optional<Slice> slice = StepView(rank, view);
  return slice ? rank.memory.Read(*slice).at(0) : absent;
}

StepResult Interpreter::Machine::Results() {
  StepResult result;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!StepView(ranks[r], "loss")) throw PlanFault(fmt::format("rank {} has no view `loss`", r));
    const double loss = Scalar(ranks[r], "loss", 0), norm = std::sqrt(Scalar(ranks[r], "gnorm", 0));
    if (r == 0) result = {loss, norm};
    if (std::isnan(loss) || !Close(loss, result.loss))
      throw PlanFault(fmt::format("rank {} has loss {}, rank 0 has {}", r, loss, result.loss));
    if (std::isnan(norm) &&
        options.initial_loss_scale == 1)  // with a loss scale it may be an overflow
      throw PlanFault(fmt::format("rank {} has gradient norm nan", r));
    if (std::isfinite(norm) != std::isfinite(result.gradient_norm) ||
        (std::isfinite(norm) && !Close(norm, result.gradient_norm)))
      throw PlanFault(fmt::format("rank {} has gradient norm {}, rank 0 has {}", r, norm,
                                  result.gradient_norm));
  }
  return result;
}

Interpreter::Interpreter(const ir::Plan& plan, const RunOptions& options)
    : machine_(std::make_unique<Machine>(plan, options)) {}
Interpreter::~Interpreter() = default;

StepResult Interpreter::Step() {
  machine_->RunStep();
  return machine_->Results();
}

std::vector<double> Interpreter::Read(int64_t rank, std::string_view view) const {
  const RankState& state = machine_->ranks.at(rank);
  const std::optional<Slice> slice = machine_->StepView(state, view);
  if (!slice) throw PlanFault(fmt::format("rank {} has no whole-step view `{}`", rank, view));
  return state.memory.Read(*slice);
}

void Interpreter::Write(int64_t rank, std::string_view view, const std::vector<double>& values) {
  RankState& state = machine_->ranks.at(rank);
  const std::optional<Slice> slice = machine_->StepView(state, view);
  if (!slice || slice->n != static_cast<int64_t>(values.size()))
    throw PlanFault(fmt::format("rank {} has no whole-step view `{}` of {} elements", rank, view,
                                values.size()));
  state.memory.Write(*slice, values);
}

int64_t Interpreter::executed() const { return machine_->executed; }

}  // namespace orrery::interpreter
