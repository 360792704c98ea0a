// SPDX-License-Identifier: Apache-2.0
// Test support: a case trained on threads against the same job on one rank.
#pragma once

#include "tests/parity/jobs.h"
#include "tests/runtime/training.h"

namespace orrery::runtime_test {

inline constexpr int64_t kTrainedSteps = 20;

// The parity jobs in one precision, with a learning rate at which rounding does not grow over the
// steps.
inline parity::Job InPrecision(parity::Job job, Precision precision) {
  job.work.precision = precision;
  job.optimizer.lr = 1e-3;
  if (precision == Precision::kFp16) job.initial_loss_scale = 1024;
  return job;
}

// One rank's run of the job; trained once.
const Trained& OneRankRun(const parity::Job& job);

// The largest that any case below has shown so far.
extern Deviation worst_deviation;

// Fails the test where loss or norm deviate by more than the tolerance (relative), or an arena is
// not as large as the layout says.
void ExpectLikeOneRank(const parity::Job& job, const Strategy& strategy, double tolerance);

}  // namespace orrery::runtime_test
