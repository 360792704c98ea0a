// SPDX-License-Identifier: Apache-2.0
// Tiny plans and their mutations.
#include "tests/ir_verify/planting.h"

#include <algorithm>

#include "model/base/check.h"

namespace orrery::ir {

ModelSpec TinyGpt() {
  ModelSpec model;
  model.name = "tiny";
  model.layers = 4;
  model.hidden = 16;
  model.ffn = 64;
  model.heads = model.kv_heads = 8;
  model.head_dim = 2;
  model.vocab = 22;
  model.max_positions = 9;
  model.tied_embeddings = true;
  return model;
}

Workload TinyWork(int64_t global_batch) {
  Workload work;
  work.seq_len = 8;
  work.global_batch = global_batch;
  return work;
}

Plan LowerTiny(const Strategy& strategy, int64_t global_batch, const Lora& lora) {
  Workload work = TinyWork(global_batch);
  work.lora = lora;
  ModelSpec model = TinyGpt();
  if (strategy.split_products) {  // which then has some
    model.gated = true;
    model.activation = Activation::kSwiglu;
    model.positions = Positions::kRotary;
  }
  LowerResult result = Lower(model, work, strategy);
  const Refusal* refusal = std::get_if<Refusal>(&result);
  ORRERY_CHECK(refusal == nullptr, "{}", refusal->reason);
  return std::move(std::get<Plan>(result));
}

std::vector<Layout> LayoutsOf(const Plan& plan) {
  std::vector<Layout> layouts;
  for (const Program& program : plan.programs) layouts.push_back(ComputeLayout(plan, program));
  return layouts;
}

OpTest Is(OpKind kind) {
  return [=](const Program&, const Op& op) { return op.kind == kind; };
}

OpTest Writes(const std::string& view) {
  return [=](const Program& program, const Op& op) {
    return !op.out.empty() && program.views[op.out[0]].name == view;
  };
}

OpTest Reads(const std::string& view) {
  return [=](const Program& program, const Op& op) {
    return std::any_of(op.in.begin(), op.in.end(),
                       [&](ViewId in) { return program.views[in].name == view; });
  };
}

OpTest InGroup(const Plan& plan, const std::string& group) {
  int index = -1;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    if (plan.groups[g].name == group) index = static_cast<int>(g);
  }
  ORRERY_CHECK(index >= 0, "no group {}", group);
  return [=](const Program&, const Op& op) {
    return op.group == index && Info(op.kind).op_class == OpClass::kCollective;
  };
}

OpTest Both(OpTest a, OpTest b) {
  return [=](const Program& program, const Op& op) { return a(program, op) && b(program, op); };
}

Block& BlockOf(Program& program, const std::string& name) {
  const auto it = std::find_if(program.blocks.begin(), program.blocks.end(),
                               [&](const Block& block) { return block.name == name; });
  ORRERY_CHECK(it != program.blocks.end(), "no block {}", name);
  return *it;
}

size_t Find(const Program& program, const Block& block, const OpTest& test, int n) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    if (test(program, block.ops[i]) && n-- == 0) return i;
  }
  ORRERY_CHECK(false, "no such op in {}", block.name);
}

ViewId Named(const Program& program, const std::string& name) {
  const auto view = std::ranges::find(program.views, name, &View::name);
  ORRERY_CHECK(view != program.views.end(), "no view {}", name);
  return static_cast<ViewId>(view - program.views.begin());
}

int Drop(Plan& plan, const OpTest& test) {
  int dropped = 0;
  for (Program& program : plan.programs) {
    for (Block& block : program.blocks) {
      dropped += static_cast<int>(
          std::erase_if(block.ops, [&](const Op& op) { return test(program, op); }));
    }
  }
  return dropped;
}

int Change(Plan& plan, const OpTest& test, const std::function<void(Op&)>& change) {
  int changed = 0;
  for (Program& program : plan.programs) {
    for (Block& block : program.blocks) {
      for (Op& op : block.ops) {
        if (!test(program, op)) continue;
        change(op);
        ++changed;
      }
    }
  }
  return changed;
}

void MoveOp(Block& block, size_t from, size_t to) {
  Op op = std::move(block.ops[from]);
  block.ops.erase(block.ops.begin() + static_cast<std::ptrdiff_t>(from));
  block.ops.insert(block.ops.begin() + static_cast<std::ptrdiff_t>(to), std::move(op));
}

void EditCalls(Program& program, const std::function<void(std::vector<Call>&)>& edit) {
  std::vector<Call> calls = Expand(program.schedule);
  edit(calls);
  program.schedule = Compress(calls);
}

}  // namespace orrery::ir
