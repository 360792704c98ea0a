// SPDX-License-Identifier: Apache-2.0
// Proves that a plan is executable: shapes, liveness, partial sums, matching, coverage, layout,
// deadlock freedom.
#pragma once

#include <string>
#include <vector>

#include "model/plan/ir/layout.h"
#include "model/plan/ir/plan.h"

namespace orrery::ir {

enum class Fault {
  kShape,
  kReadBeforeWrite,
  kStaleRead,
  kSlotOverrun,
  kPartialRead,
  kPartialGradient,
  kDoubleReduce,
  kCollectiveMismatch,
  kP2pMismatch,
  kCoverage,
  kByteClash,
  kDeadlock,
  kScale,
  kSpace,
};
const char* FaultName(Fault fault);  // "read-before-write", ...

struct Finding {
  Fault fault;
  int stage;
  std::string where;  // "B0[3] op 17 mm l3.dqkv"
  std::string message;
};

struct VerifyOptions {
  int window = 0;  // ops that an executor may have issued and unfinished; 0: one issuing thread per
                   // stream (no bound)
};
std::vector<Finding> Verify(const Plan& plan, const VerifyOptions& options = {});
// The same with the layouts that an executor will allocate, one per program.
std::vector<Finding> Verify(const Plan& plan, const std::vector<Layout>& layouts,
                            const VerifyOptions& options = {});

}  // namespace orrery::ir
