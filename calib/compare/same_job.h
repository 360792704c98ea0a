// SPDX-License-Identifier: Apache-2.0
// Whether a log of another program is of the job that was predicted.
//
// Scripts of `plan export` print their plan's digest, and most programs print their own arguments: both are held against the
// prediction. Where a log has neither, it is taken on trust.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calib/import/log_facts.h"
#include "calib/import/log_runs.h"
#include "calib/import/loss_faults.h"
#include "calib/import/training_log.h"
#include "model/arch/model_spec.h"
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
  std::string unread;  // a sentence: why the arguments that the log holds tell nothing; "": they do
  std::optional<measured::LossFault> loss;  // losses that are no numbers
  std::vector<int> runs;                  // lines of the first steps of later runs in the same log
  std::size_t other_batch = 0;            // steps of another global batch than the plan's
  std::map<double, std::size_t> batches;  // those, by their batch

  bool OnTrust() const { return digest.empty() && same.empty(); }
};

class PlannedJob {
 public:
  PlannedJob() = default;
  // `prediction`: a record or a trace of this project. `digest`, `size`: of its plan; "" and 0: not said.
  PlannedJob(const SourcePtr& prediction, std::string digest, const measured::StepSize& size);

  // Throws InputError with the log's line: a run of another plan, of a layout of other degrees, of another model, on other
  // GPUs. Where the digest is another one it says what else is. A log of this project's own says its digest alone, elsewhere.
  // `steps`: those of the plan's global batch, which may grow in the log, without the first of later runs, which warms up as
  // that of the first does. Others are counted. Throws InputError: none is.
  ToldJob Check(const measured::TrainingLog& log, std::vector<measured::StepSample>* steps) const;

 private:
  struct Found;
  void CheckRun(const measured::TrainingLog& log, const measured::LoggedRun& run,
                const std::string& others, ToldJob* told) const;
  void FindGpus(const measured::LogFacts& facts, Found* found) const;
  void FindArguments(const measured::LoggedRun& run, Found* found, ToldJob* told) const;
  void FindModel(const measured::LoggedRun& run, const ModelSpec& model, Found* found) const;
  void FindLayout(const measured::LoggedRun& run, Found* found) const;
  void FindBatch(const measured::TrainingLog& log, const measured::LoggedRun& run,
                 Found* found) const;
  void CheckDigests(const SourcePtr& text, const measured::LogFacts& facts, const Found& found,
                    const std::string& others) const;
  // Of a step that is not of the plan's batch; absent: it is, or nobody knows.
  std::optional<double> OtherBatch(const measured::TrainingLog& log,
                                   const measured::StepSample& step,
                                   const measured::LogFacts& facts) const;

  std::string name_, digest_;
  measured::StepSize size_;
  double parameters_ = 0;
  std::optional<ModelSpec> model_;  // where its name is one that this program knows
  exchange::Values values_;         // of its layout and work, by field
};

// "micro-batch, tp" of fields' names.
std::string WordsOf(const std::vector<std::string>& fields);
// "the log says zero 1 (line 12), the plan 0", and the like, a sentence each. Empty: nothing to say.
std::vector<std::string> Words(const ToldJob& told);

}  // namespace orrery::compare
