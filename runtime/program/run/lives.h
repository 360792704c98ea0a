// SPDX-License-Identifier: Apache-2.0
// The lives of a supervised run: what each did, also where it ended without a word, and what came of all of them.
#pragma once

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/program/run/run_job.h"
#include "runtime/train/train_rank.h"

namespace orrery::cli {

// The file that a life tells its steps, in the environment of its ranks.
inline constexpr const char* kStepsFile = "ORRERY_STEPS_FILE";

// Rank 0's steps, a line each, in kStepsFile: at most a second of them is lost when the rank is killed.
class LifeHook : public launch::StepHook {
 public:
  LifeHook(const RunJob& job, const comm::Endpoint* endpoint) : job_(job), endpoint_(endpoint) {}
  void BeforeTraining(exec::Executor* executor) override;
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override;
  void AfterTraining(exec::Executor* executor) override;

 private:
  const RunJob& job_;
  const comm::Endpoint* endpoint_;
  std::ofstream file_;  // closed: another rank, or nobody asked
  std::chrono::steady_clock::time_point flushed_;
};

// How a life ended.
struct LifeEnd {
  std::string cause;   // End() adds what the ranks' launcher says of a failure
  int64_t saved = -1;  // the newest snapshot then; -1: none
  bool failed = false;
};

class Lives {
 public:
  // In `folder`, which is made. Not kept: what ranks' launcher says of each end, and nothing else.
  Lives(const RunJob& job, std::string folder, bool kept);
  ~Lives();  // removes its files
  Lives(const Lives&) = delete;
  Lives& operator=(const Lives&) = delete;

  bool kept() const { return kept_; }
  // Why the last life's ranks failed, in their words or in those of what started them; "": nobody has said so.
  const std::string& said() const { return said_; }
  bool any() const { return !lives_.empty(); }
  std::string steps_file() const { return folder_ + "/.life.steps"; }
  std::string record_file() const { return folder_ + "/.life.json"; }  // for --json of a life

  std::string cause_file() const { return folder_ + "/.life.cause"; }  // launch::kCauseFile

  void Begin(int64_t behind);  // the newest snapshot; -1: none
  void End(const LifeEnd& end);
  // Schema orrery.run/1 of the last life, as far as it left one, with "lives" and "whole_run".
  nlohmann::ordered_json Record() const;

 private:
  struct Life {
    int64_t behind = -1;
    double began_s = 0, seconds = 0;  // since the supervisor's start; of the clock
    LifeEnd end;
    nlohmann::ordered_json heading, steps = nlohmann::ordered_json::array();
  };
  void RemoveFiles() const;
  double Now() const;
  nlohmann::ordered_json Whole() const;

  const RunJob& job_;
  std::string folder_, said_;
  bool kept_;
  std::chrono::steady_clock::time_point start_;
  std::vector<Life> lives_;
  nlohmann::ordered_json record_;  // of the last; null: it left none
};

}  // namespace orrery::cli
