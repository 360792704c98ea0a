// SPDX-License-Identifier: Apache-2.0
// Verify, pass 7: the stages' programs run to their end together.
//
// First a contracted run: between its communication ops a call is one task, and these tasks follow
// each other in issue order. That only adds dependencies, so a contracted run that completes proves
// the plan. If it gets stuck, or the executor looks ahead by a bounded window, the run is repeated
// op by op with the true hazards.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "model/plan/ir/cells.h"
#include "model/plan/ir/hazards.h"
#include "model/plan/ir/rendezvous.h"
#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

bool Meets(const Plan& plan, const Op& op) {
  const OpClass cls = Info(op.kind).op_class;
  return cls == OpClass::kPointToPoint ||
         (cls == OpClass::kCollective && CrossesStages(plan, op.group));
}

// Numbers the matches: the k-th op of a channel or communicator meets the k-th of its partners.
class Matches {
 public:
  explicit Matches(const Plan& plan) : plan_(plan) {}

  // Lines: channels and communicators; the same number on all stages.
  int32_t LineOf(int stage, const Op& op) {
    if (Info(op.kind).op_class == OpClass::kPointToPoint)
      return Number({0, ChannelOf(plan_.mesh, stage, op), -1, 0}, 2);
    int32_t members = 0;
    for (size_t s = 0; s < plan_.programs.size(); ++s)
      members += IsMember(plan_, op.group, static_cast<int>(s));
    return Number({1, {}, op.group, op.stream}, members);
  }
  void StartStage() { count_.assign(members_.size(), {0, 0}); }
  int32_t Next(int32_t line, bool receives) {
    if (static_cast<size_t>(line) >= count_.size()) count_.resize(line + 1, {0, 0});
    const auto k = static_cast<size_t>(count_[line][receives]++);
    auto& ids = ids_[line];
    if (k == ids.size()) {
      ids.push_back(static_cast<int32_t>(needed_.size()));
      needed_.push_back(members_[line]);
    }
    return ids[k];
  }
  const std::vector<int32_t>& needed() const { return needed_; }

 private:
  struct Key {
    int kind;
    Channel channel;
    int group;
    uint8_t stream;
    auto operator<=>(const Key&) const = default;
  };
  int32_t Number(const Key& key, int32_t members) {
    const auto [it, added] = lines_.try_emplace(key, static_cast<int32_t>(members_.size()));
    if (added) {
      members_.push_back(members);
      ids_.emplace_back();
    }
    return it->second;
  }

  const Plan& plan_;
  std::map<Key, int32_t> lines_;
  std::vector<int32_t> members_;           // by line
  std::vector<std::vector<int32_t>> ids_;  // by line: numbers of matches
  std::vector<std::array<int32_t, 2>>
      count_;                    // by line, for the stage being numbered: others, receives
  std::vector<int32_t> needed_;  // by match
};

// The contracted tasks of one stage.
class Contraction {
 public:
  Contraction(const Stage& stage, int index, Matches* matches)
      : stage_(stage), matches_(*matches), cells_(stage.program, stage.layout, Cutting()) {
    matches_.StartStage();
    FindOwnLanes();
    for (const Variant& variant : stage.variants) steps_.push_back(StepsOf(variant, index));
    last_.assign(cells_.count() * (lanes_ + 1), -1);
    needed_.assign(lanes_, -1);
    tasks_.lanes = static_cast<int>(lanes_);
  }

  StageTasks Build() {
    size_t tasks = 0;
    for (const int32_t variant : stage_.variant_of) tasks += steps_[variant].size();
    tasks_.Reserve(tasks);
    for (size_t c = 0; c < stage_.layout.calls.size(); ++c) {
      for (const Step& step : steps_[stage_.variant_of[c]])
        Add(step, stage_.layout.calls[c].micro_batch);
    }
    return std::move(tasks_);
  }

 private:
  struct Access {
    ViewId view;
    bool write;
  };
  struct Step {  // a communication op, or the ops between two of them
    int32_t lane = 0;
    int32_t line = -1;
    bool receives = false;
    std::vector<Access> accesses;
  };

  std::vector<char> Cutting() const {
    std::vector<char> cutting(stage_.program.views.size(), 0);
    for (const Block& block : stage_.program.blocks) {
      for (const Op& op : block.ops) {
        if (!Meets(stage_.plan, op)) continue;
        for (ViewId view : op.in) cutting[view] = 1;
        for (ViewId view : op.out) cutting[view] = 1;
      }
    }
    return cutting;
  }

  // Point-to-point ops keep a lane of their own if nothing else is on their stream; the rest stays
  // in issue order.
  void FindOwnLanes() {
    std::vector<char> own(stage_.plan.streams.size(), 1);
    for (const Block& block : stage_.program.blocks) {
      for (const Op& op : block.ops) {
        if (Info(op.kind).op_class != OpClass::kPointToPoint) own[op.stream] = 0;
      }
    }
    lane_of_.assign(own.size(), 0);
    for (const Block& block : stage_.program.blocks) {
      for (const Op& op : block.ops) {
        int32_t& lane = lane_of_[op.stream];
        if (own[op.stream] && lane == 0) lane = static_cast<int32_t>(lanes_++);
      }
    }
  }

  std::vector<Step> StepsOf(const Variant& variant, int index) {
    std::vector<Step> steps;
    bool open = false;  // the last step still takes ops
    for (int32_t i : variant.ops) {
      const Op& op = stage_.op(variant, i);
      if (Meets(stage_.plan, op)) {
        Step step;
        step.lane = lane_of_[op.stream];
        step.line = matches_.LineOf(index, op);
        step.receives = op.kind == OpKind::kRecv;
        steps.push_back(std::move(step));
        open = false;
      } else if (!open) {
        steps.emplace_back();
        open = true;
      }
      for (ViewId view : op.in) Touch(view, false, &steps.back());
      for (ViewId view : op.out) Touch(view, true, &steps.back());
    }
    return steps;
  }

  void Touch(ViewId view, bool write, Step* step) const {
    if (!cells_.Touches(view)) return;
    for (Access& known : step->accesses) {
      if (known.view != view) continue;
      known.write = known.write || write;
      return;
    }
    step->accesses.push_back({view, write});
  }

  void Need(int32_t task, int32_t lane) {
    if (task >= 0 && tasks_.lane[task] != lane)
      needed_[tasks_.lane[task]] = std::max(needed_[tasks_.lane[task]], task);
  }

  // The task counts as added while its cells are walked: it never waits for itself, being on its
  // own lane.
  void Add(const Step& step, int32_t micro_batch) {
    const auto id = static_cast<int32_t>(tasks_.lane.size());
    tasks_.Add(step.lane, step.line < 0 ? -1 : matches_.Next(step.line, step.receives));
    for (const Access& access : step.accesses) {
      cells_.Each(access.view, micro_batch, [&](size_t cell) {
        int32_t* const writer = last_.data() + cell * (lanes_ + 1);
        int32_t* const reader = writer + 1;  // by lane
        Need(*writer, step.lane);
        if (!access.write) {
          reader[step.lane] = id;
          return;
        }
        for (size_t lane = 0; lane < lanes_; ++lane) {
          Need(reader[lane], step.lane);
          reader[lane] = -1;
        }
        *writer = id;
      });
    }
    for (int32_t& task : needed_) {
      if (task >= 0) tasks_.WaitFor(task);
      task = -1;
    }
  }

  const Stage& stage_;
  Matches& matches_;
  const Cells cells_;
  size_t lanes_ = 1;
  std::vector<int32_t> lane_of_;          // by stream; 0: in issue order with the rest
  std::vector<std::vector<Step>> steps_;  // by variant
  std::vector<int32_t> last_;  // by cell: the task that wrote it, then by lane the last to read it
  std::vector<int32_t> needed_;  // by lane
  StageTasks tasks_;
};

bool Empty(const std::vector<std::vector<int32_t>>& stuck) {
  return std::all_of(stuck.begin(), stuck.end(), [](const auto& heads) { return heads.empty(); });
}

bool ContractedRunCompletes(const std::vector<Stage>& stages) {
  Matches matches(stages[0].plan);
  std::vector<StageTasks> tasks;
  for (size_t s = 0; s < stages.size(); ++s)
    tasks.push_back(Contraction(stages[s], static_cast<int>(s), &matches).Build());
  return Empty(RunRendezvous(tasks, matches.needed(), 0));
}

void RunOpByOp(const std::vector<Stage>& stages, int window, Findings* findings) {
  const Plan& plan = stages[0].plan;
  Matches matches(plan);
  std::vector<StageTasks> tasks(stages.size());
  std::vector<std::vector<Instance>> instances;
  auto op_of = [&](size_t s, const Instance& it) -> const Op& {
    return plan.programs[s].blocks[it.block].ops[it.op];
  };
  for (size_t s = 0; s < stages.size(); ++s) {
    instances.push_back(Unfold(plan, plan.programs[s], stages[s].layout));
    matches.StartStage();
    tasks[s].lanes = static_cast<int>(plan.streams.size());
    for (const Instance& it : instances[s]) {
      const Op& op = op_of(s, it);
      const bool meets = Meets(plan, op);
      tasks[s].Add(op.stream, meets ? matches.Next(matches.LineOf(static_cast<int>(s), op),
                                                   op.kind == OpKind::kRecv)
                                    : -1);
      for (int32_t wait : it.waits) tasks[s].WaitFor(wait);
    }
  }
  const auto stuck = RunRendezvous(tasks, matches.needed(), window);
  for (size_t s = 0; s < stuck.size(); ++s) {
    if (stuck[s].empty()) continue;
    const Instance& oldest = instances[s][*std::min_element(stuck[s].begin(), stuck[s].end())];
    std::string others;
    for (int32_t head : stuck[s]) {
      const Instance& it = instances[s][head];
      others +=
          fmt::format("{}{}: {}", others.empty() ? "" : "; ", plan.streams[op_of(s, it).stream],
                      WhereOp(plan.programs[s], it.block, it.op, it.micro_batch));
    }
    findings->Add(
        Fault::kDeadlock, plan.programs[s].stage,
        WhereOp(plan.programs[s], oldest.block, oldest.op, oldest.micro_batch),
        fmt::format("never completes{}; streams stand at {}",
                    window > 0 ? fmt::format(" with {} ops in flight", window) : "", others));
  }
}

}  // namespace

void VerifyDeadlock(const std::vector<Stage>& stages, int window, Findings* findings) {
  if (window == 0 && ContractedRunCompletes(stages)) return;
  RunOpByOp(stages, window, findings);
}

}  // namespace orrery::ir
