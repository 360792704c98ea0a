// SPDX-License-Identifier: Apache-2.0
// Whether a log of another program is of the job that was predicted.
//
// Scripts of `plan export` print their plan's digest, and most programs print their own arguments: both are held against the
// prediction. Where a log has neither, it is taken on trust.
#pragma once

#include <string>
#include <vector>

#include "calib/import/log_facts.h"
#include "calib/import/training_log.h"
#include "model/exchange/setting.h"

namespace orrery::compare {

// A setting that the log and the prediction both name, and not alike.
struct Difference {
  std::string field, planned, logged;
  Location where;  // in the log
};

// What a log says of its job.
struct ToldJob {
  std::string digest;             // of the plan whose script started it; "": not said
  std::vector<std::string> same;  // fields of the layout in which log and prediction agree
  std::vector<Difference> other;  // settings that do not make it another layout
  std::string unread;             // why the arguments that the log holds tell nothing; "": they do
  std::vector<int> runs;          // lines of the first steps of later runs in the same log
  std::size_t other_batch = 0;    // steps of another global batch than the plan's
  double batch = 0;               // of the last of those

  bool OnTrust() const { return digest.empty() && same.empty(); }
};

class PlannedJob {
 public:
  PlannedJob() = default;
  // `prediction`: a record or a trace of this project. `digest`, `size`: of its plan; "" and 0: not said.
  PlannedJob(const SourcePtr& prediction, std::string digest, const measured::StepSize& size);

  // Throws InputError with the log's line: another plan, a layout of other degrees, another model, other GPUs.
  // `facts`: ReadLogFacts() of the log's text.
  ToldJob Check(const measured::TrainingLog& log, const measured::LogFacts& facts) const;
  // Those of the plan's global batch, which may grow in the log, without the first of later runs, which warms up as that of the
  // first does. Others are counted in `told`. Throws InputError: none is.
  std::vector<measured::StepSample> StepsOfBatch(const measured::TrainingLog& log,
                                                 const measured::LogFacts& facts,
                                                 ToldJob* told) const;

 private:
  void CheckDigests(const SourcePtr& log, const measured::LogFacts& facts) const;
  void CheckArguments(const SourcePtr& log, ToldJob* told) const;

  std::string name_, digest_;
  measured::StepSize size_;
  double parameters_ = 0;
  exchange::Values values_;  // of its layout and work, by field
};

// "the log says zero 1 (line 12), the plan 0", and the like, a sentence each. Empty: nothing to say.
std::vector<std::string> Words(const ToldJob& told);

}  // namespace orrery::compare
