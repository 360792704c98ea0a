// SPDX-License-Identifier: Apache-2.0
// Runs one step: picks streams at random and executes whatever the plan permits, until nothing is left.
#include <fmt/format.h>

#include <algorithm>

#include "tests/interpreter/machine.h"

namespace orrery::interpreter {
namespace {

using ir::OpKind;

bool IsCollective(OpKind kind) { return ir::Info(kind).op_class == ir::OpClass::kCollective; }
bool IsTransfer(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

}  // namespace

void Interpreter::Machine::RunStep() {
  BeginStep();
  listed_.clear();
  for (size_t r = 0; r < ranks.size(); ++r) List(static_cast<int64_t>(r));
  while (!listed_.empty()) {
    std::swap(listed_[random() % listed_.size()], listed_.back());
    const Seat seat = listed_.back();
    listed_.pop_back();
    ranks[seat.rank].listed[seat.stream] = 0;
    try {
      TryRun(seat);
    } catch (const PlanFault& fault) {
      throw PlanFault(fmt::format("{}: {}", Where(seat), fault.what()));
    }
  }
  for (size_t r = 0; r < ranks.size(); ++r)
    for (size_t s = 0; s < ranks[r].head.size(); ++s)
      if (Head(static_cast<int64_t>(r), static_cast<int>(s)) != nullptr)
        throw PlanFault("deadlock; heads of the streams:" + HeadsOfAllStreams());
}

void Interpreter::Machine::List(int64_t rank) {
  for (size_t s = 0; s < ranks[rank].head.size(); ++s) {
    if (ranks[rank].listed[s] != 0 || Head(rank, static_cast<int>(s)) == nullptr) continue;
    ranks[rank].listed[s] = 1;
    listed_.push_back({static_cast<int32_t>(rank), static_cast<int32_t>(s)});
  }
}

const Task* Interpreter::Machine::Head(int64_t rank, int stream) const {
  const RankState& state = ranks[rank];
  const std::vector<int32_t>& queue = state.image->queues[stream];
  const size_t at = state.head[stream];
  return at < queue.size() ? &state.image->tasks[queue[at]] : nullptr;
}

bool Interpreter::Machine::Ready(int64_t rank, const Task* task) const {
  if (task == nullptr) return false;
  return std::all_of(task->waits.begin(), task->waits.end(),
                     [&](int32_t w) { return ranks[rank].done[w] != 0; });
}

bool Interpreter::Machine::TryRun(Seat seat) {
  const Task* task = Head(seat.rank, seat.stream);
  if (!Ready(seat.rank, task)) return false;
  if (IsCollective(task->op->kind)) return TryCollective(seat, *task);
  if (IsTransfer(task->op->kind)) return TryTransfer(seat, *task);
  if (task->op->kind == OpKind::kLoad)
    RunLoad(seat, *task);
  else
    RunKernel(seat, *task);
  Finish(seat);
  return true;
}

// Global index, within the step, of the first sample that an op works on.
int64_t Interpreter::Machine::FirstSample(int64_t rank, const Task& task) const {
  int64_t parts = 1, part = 0;
  if (task.op->group >= 0) {
    const std::vector<int64_t>& group = members.at(task.op->group)[rank];
    parts = static_cast<int64_t>(group.size());
    part = std::find(group.begin(), group.end(), rank) - group.begin();
    if (part == parts) throw PlanFault("the rank is no member of the data group");
  }
  return (task.micro_batch * parts + part) * task.op->attrs.Int(ir::Attr::kBatch);
}

void Interpreter::Machine::RunKernel(Seat seat, const Task& task) {
  RankState& rank = ranks[seat.rank];
  const bool draws = ir::Draws(task.op->attrs);
  Window window(&rank.memory, *rank.image, task);
  task.kernel({*task.op, window.out(), window.in(), rank.coords, step, task.unit, plan.params,
               options.data.seed, draws ? FirstSample(seat.rank, task) : 0});
  window.Close();
}

void Interpreter::Machine::RunLoad(Seat seat, const Task& task) {
  RankState& rank = ranks[seat.rank];
  train::LoadPlace place{step, FirstSample(seat.rank, task), 0};
  if (const int64_t axis = task.op->attrs.Int(ir::Attr::kAxis); axis >= 0)
    place.first_position = rank.coords.at(axis) * task.op->attrs.Int(ir::Attr::kSeq);
  place.positions = ir::PositionsOf(task.op->attrs, rank.coords);
  Window window(&rank.memory, *rank.image, task);
  const Operand out = window.out()[0];
  train::LoadSynthetic(options.data, *task.op, place, {out.data, static_cast<size_t>(out.n)});
  window.Close();
}

bool Interpreter::Machine::TryCollective(Seat seat, const Task& task) {
  if (task.op->group < 0) throw PlanFault("collective without a group");
  const std::vector<int64_t>& group = members.at(task.op->group)[seat.rank];
  if (std::find(group.begin(), group.end(), seat.rank) == group.end())
    throw PlanFault("the rank is no member of the collective's group");
  for (const int64_t member : group) {
    const Task* other = Head(member, seat.stream);
    if (other == nullptr || !IsCollective(other->op->kind) || other->op->group != task.op->group ||
        !Ready(member, other))
      return false;
    if (other->op->kind != task.op->kind || other->op->tag != task.op->tag ||
        other->op->attrs != task.op->attrs)
      Mismatch(seat, {static_cast<int32_t>(member), seat.stream},
               "members of a group reach different collectives");
  }
  std::vector<Window> windows;
  std::vector<MemberOperands> operands;
  windows.reserve(group.size());
  for (const int64_t member : group) {
    windows.emplace_back(&ranks[member].memory, *ranks[member].image, *Head(member, seat.stream));
    operands.push_back({windows.back().in()[0], windows.back().out()[0]});
  }
  const bool maximum = task.op->attrs.Int(ir::Attr::kReduceOp) == 1;
  if (task.op->kind == OpKind::kAllReduce) AllReduce(operands, maximum);
  if (task.op->kind == OpKind::kAllGather) AllGather(operands);
  if (task.op->kind == OpKind::kReduceScatter) ReduceScatter(operands, maximum);
  if (task.op->kind == OpKind::kAllToAll) AllToAll(operands);
  for (Window& window : windows) window.Close();
  for (const int64_t member : group) Finish({static_cast<int32_t>(member), seat.stream});
  return true;
}

bool Interpreter::Machine::TryTransfer(Seat seat, const Task& task) {
  const ir::Op& op = *task.op;
  const int64_t partner = PeerRank(seat.rank, op.peer);
  const OpKind wanted = op.kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend;
  for (size_t s = 0; s < ranks[partner].head.size(); ++s) {
    const Task* other = Head(partner, static_cast<int>(s));
    if (other == nullptr || other->op->kind != wanted || other->op->peer.axis != op.peer.axis ||
        other->op->peer.delta != -op.peer.delta || other->op->tag != op.tag ||
        !Ready(partner, other))
      continue;
    const Seat there{static_cast<int32_t>(partner), static_cast<int32_t>(s)};
    Window mine(&ranks[seat.rank].memory, *ranks[seat.rank].image, task);
    Window theirs(&ranks[partner].memory, *ranks[partner].image, *other);
    const bool sends = op.kind == OpKind::kSend;
    const Operand from = (sends ? mine : theirs).in()[0], to = (sends ? theirs : mine).out()[0];
    if (from.n != to.n || task.micro_batch != other->micro_batch)
      Mismatch(seat, there, "sender and receiver differ in size or micro-batch");
    std::copy(from.data, from.data + from.n, to.data);
    (sends ? theirs : mine).Close();
    Finish(seat);
    Finish(there);
    return true;
  }
  return false;
}

// Advances the stream and turns memory NaN whose last reader this was.
void Interpreter::Machine::Finish(Seat seat) {
  RankState& rank = ranks[seat.rank];
  const int32_t index = rank.image->queues[seat.stream][rank.head[seat.stream]++];
  const Task& task = rank.image->tasks[index];
  rank.done[index] = 1;
  ++executed;
  for (int32_t c = task.cell_begin; c < task.cell_end; ++c) {
    const int32_t cell = rank.image->task_cells[c];
    if (--rank.cell_left[cell] == 0)
      rank.memory.Forget(rank.image->cells[cell].at, rank.image->cells[cell].n);
  }
  List(seat.rank);
}

int64_t Interpreter::Machine::PeerRank(int64_t rank, const ir::Peer& peer) const {
  if (peer.axis < 0) throw PlanFault("point-to-point op without a peer");
  std::vector<int> coords = ranks[rank].coords;
  const int size = plan.mesh.axes.at(peer.axis).size;
  coords[peer.axis] = ((coords[peer.axis] + peer.delta) % size + size) % size;
  return plan.mesh.Rank(coords);
}

void Interpreter::Machine::Mismatch(Seat a, Seat b, const std::string& what) const {
  throw PlanFault(fmt::format("{}: {} against {}", what, Where(a), Where(b)));
}

std::string Interpreter::Machine::Where(Seat seat) const {
  const Task* task = Head(seat.rank, seat.stream);
  return fmt::format("rank {} stream {} {}", seat.rank, plan.streams.at(seat.stream),
                     task == nullptr ? "(empty)" : ranks[seat.rank].image->Describe(*task));
}

std::string Interpreter::Machine::HeadsOfAllStreams() const {
  std::string text;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t s = 0; s < ranks[r].head.size(); ++s) {
      const Task* task = Head(static_cast<int64_t>(r), static_cast<int>(s));
      if (task == nullptr) continue;
      text += "\n  " + Where({static_cast<int32_t>(r), static_cast<int32_t>(s)});
      for (const int32_t wait : task->waits)
        if (ranks[r].done[wait] == 0)
          text += " | waits for " + ranks[r].image->Describe(ranks[r].image->tasks[wait]);
      if (task->waits.empty() || Ready(static_cast<int64_t>(r), task))
        text += " | waits for its partners";
    }
  }
  return text;
}

}  // namespace orrery::interpreter
