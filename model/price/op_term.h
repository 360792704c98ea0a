// SPDX-License-Identifier: Apache-2.0
// Which term of the breakdown an op's time belongs to, in simulated and in measured steps.
#pragma once

#include "model/price/breakdown.h"

namespace orrery {

// The axis of a message.
CommAxis AxisOf(const ir::Plan& plan, const ir::Op& op);

// A kernel of the optimizer: gradient norm and update.
bool Updates(const ir::Op& op);

// Exposed communication for messages, fixed costs for loads of input, the optimizer's kernels, compute for all others.
double Breakdown::*TermOf(const ir::Plan& plan, const ir::Op& op);
// BreakdownTerm::name of it.
const char* TermNameOf(const ir::Plan& plan, const ir::Op& op);

}  // namespace orrery
