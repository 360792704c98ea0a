// SPDX-License-Identifier: Apache-2.0
// The flags of a run of weeks: tokens, limits, failures, checkpoints, input. `plan` and `plan provision` share them.
#pragma once

#include "model/program/common/flags.h"
#include "model/program/common/job.h"
#include "model/provision/frontier.h"

namespace orrery::cli {

struct LongRunFlags {
  Flag tokens, deadline, budget;
  Flag failures, recovery, checkpoint, storage, spares, straggler, setup, input, as_of;

  void Declare(FlagSet* set);
  // The first limit, or whatever means nothing without tokens; null: none is given.
  const Flag* AnyButTokens() const;
};

struct LongRun {
  Conditions conditions;
  std::optional<Seconds> deadline;
  std::optional<Dollars> budget;
  bool tokens_given = false;
  int64_t today = 0;  // days since 1970-01-01, for the age of prices

  // What its input pipeline and storage deliver.
  InputRates InputLimits() const;
  // The mean run; one without a price breaks no budget.
  bool Keeps(const RunEstimate& run, bool priced) const;
};
// Everything but the tokens where none are given (0 then). Throws InputError.
LongRun ReadLongRun(const LongRunFlags& flags);
// 20 per parameter for decoders (Hoffmann et al. 2022, arXiv:2203.15556). Throws InputError for other families.
double DefaultTokens(const LongRunFlags& flags, const report::Job& job);
// Throws InputError: less than a step, of one sequence where no batch was given.
void CheckTokens(const LongRunFlags& flags, bool batch_given, const report::Job& job,
                 double tokens);

// Counts 2^k and 3 x 2^k: "8", "8,12,20", "8..512".
std::vector<int64_t> ReadNodeCounts(const Flag& flag, int64_t most, Diagnostics* diagnostics);

}  // namespace orrery::cli
