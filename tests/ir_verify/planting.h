// SPDX-License-Identifier: Apache-2.0
// Small lowered plans and the ways to break them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/plan/ir/layout.h"
#include "model/plan/ir/plan.h"
#include "model/plan/lower/lower.h"

namespace orrery::ir {

ModelSpec TinyGpt();
Workload TinyWork(int64_t global_batch);
// Aborts the test program if the strategy is refused.
Plan LowerTiny(const Strategy& strategy, int64_t global_batch = 8, const Lora& lora = {});
std::vector<Layout> LayoutsOf(const Plan& plan);

using OpTest = std::function<bool(const Program&, const Op&)>;
OpTest Is(OpKind kind);
OpTest Writes(const std::string& view);  // the first output carries this name
OpTest Reads(const std::string& view);
OpTest InGroup(const Plan& plan, const std::string& group);
OpTest Both(OpTest a, OpTest b);

// The block of that name; aborts if there is none.
Block& BlockOf(Program& program, const std::string& name);
// Index of the n-th op that passes; aborts if there is none.
size_t Find(const Program& program, const Block& block, const OpTest& test, int n = 0);
// The view of that name; aborts if there is none.
ViewId Named(const Program& program, const std::string& name);
// Removes all ops that pass, in all blocks of all programs; returns how many.
int Drop(Plan& plan, const OpTest& test);
// Changes all ops that pass; returns how many.
int Change(Plan& plan, const OpTest& test, const std::function<void(Op&)>& change);
void MoveOp(Block& block, size_t from, size_t to);
// The schedule as a list of calls, edited and compressed again.
void EditCalls(Program& program, const std::function<void(std::vector<Call>&)>& edit);

}  // namespace orrery::ir
