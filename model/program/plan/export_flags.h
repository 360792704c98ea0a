// SPDX-License-Identifier: Apache-2.0
// The flags of an export, of `plan export` and of `plan --export`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/exchange/bundle.h"
#include "model/program/common/answer.h"
#include "model/program/common/flags.h"
#include "model/program/common/job.h"
#include "model/program/common/job_flags.h"

namespace orrery::cli {

struct ExportFlags {
  Flag target, launcher, out, image, strict, force;

  // `to`: the name of the flag for the target, "--to" or "--export".
  void Declare(FlagSet* flags, const char* to);
  // Null: not given. Throws InputError.
  const exchange::TargetInfo* Target() const;
  const exchange::Launcher& TheLauncher() const;
  // The target's framework, where the user names none: its behaviour is what is predicted.
  void SetFramework(JobFlags* job) const;
  // With what is fixed of the layout, the one that its files start.
  void TakeFramework(JobFlags* job, const LayoutFlags& layout) const;
  // The framework's schedules that the target has, too, where it lacks some. Empty: it has all of them, or none.
  std::vector<PipelineSchedule> Schedules(const JobFlags& job) const;
};

std::vector<std::string> TargetNames();
std::vector<std::string> LauncherNames();

// The files of one layout, and what became of each field.
struct ExportResult {
  exchange::Bundle bundle;
  std::string launcher;
  std::vector<exchange::File> files;  // plan.json the last

  bool Complete() const { return bundle.Missing().empty(); }
  nlohmann::ordered_json Json() const;
  std::string json_text;  // of plan.json
};
// `chosen`: a sentence on what the search decided, for the head of each file; "": nothing.
ExportResult MakeExport(const ExportFlags& flags, const report::Job& job,
                        const Candidate& candidate, const std::string& chosen = "");
// Writes the files where a folder is given; "": the text of all files but plan.json. Else what was written, and what is not expressed.
std::string WriteExport(const ExportFlags& flags, const ExportResult& result,
                        const std::string& folder);

}  // namespace orrery::cli
