// SPDX-License-Identifier: Apache-2.0
// A job under way: flags first, then the model file's defaults, then our own; every default leaves a note.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/framework/presets.h"
#include "model/plan/ir/plan.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/names.h"

namespace orrery::cli {

class JobMaker {
 public:
  explicit JobMaker(const JobFlags& flags) : flags_(flags) {}
  report::Job Make();
  // What is trained is the plan's.
  report::Job Make(const ir::Plan& plan, const std::string& file);

 private:
  report::Job Finish();
  void CompareGpus();
  void RequireModel();
  // What needs no file.
  void ReadPlain();
  std::optional<double> ReadRate(const Flag& flag);
  void LoadModelFile();
  void LoadCluster();
  void SetWorkload();
  // A framework may have no fused attention, or none for the chip; then a job does not assume one.
  void SetAttention();
  void CheckRecipe();
  // Published runs, which the profiles rest on, are read by the same rule.
  void SetDropout();
  void SetLengths(const TrainingDefaults& defaults);
  // Sequences of kDefaultBatchTokens, rounded up to a multiple of the GPUs, or of the smallest of their halves that is no
  // less: then data parallelism over all of them, or over a power of two less, divides the batch.
  int64_t DefaultBatch(int64_t seq_len, std::string* rule) const;
  void SetPrecision(const std::string& by_model);
  void ReadSkipped();
  void CheckProducts();
  void CheckWeights();
  void CheckPrecision();
  // Facts that the user states, over those of the framework, named or not.
  void TakeFacts();
  void CheckNccl() const;
  void TakeWeights();
  std::string AndFact(const std::string& fact) const;
  // What an alias stands for is part of the answer.
  void TakeFramework();
  // A plan text may say what it was made for; --framework overrides it.
  void TakeRecordedFramework(const std::string& recorded, const std::string& file);
  // A framework that was calibrated on this very cluster; else one that offers every axis.
  void SetFramework();
  void FromModel(std::string what, const char* flag) {
    job_.decisions.push_back({std::move(what), flag, "", true});
  }
  void Own(std::string what, const char* flag, std::string why = "") {
    job_.decisions.push_back({std::move(what), flag, std::move(why), false});
  }

  const JobFlags& flags_;
  report::Job job_;
  SearchRequest request_;
  Diagnostics diagnostics_;
  std::optional<int64_t> seq_len_;
  std::optional<Precision> precision_;
  std::optional<Fp8> fp8_;
  std::optional<Optimizer> optimizer_;
  std::optional<bool> attention_;
  std::optional<double> dropout_, attention_dropout_;
  FrameworkMatch framework_{nullptr, nullptr};
  int64_t ranks_ = 0;     // of a plan; 0: there is none
  std::string recorded_;  // what a plan says of its framework, in words
};

}  // namespace orrery::cli
