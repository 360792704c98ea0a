// SPDX-License-Identifier: Apache-2.0
// What a run reads of HuggingFace's checkpoints, and what it is to write.
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "runtime/program/run/run_job.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigName[] = "config.json";

// Of the checkpoint's folder; empty: there is none.
std::string ConfigNextTo(const std::string& path) {
  std::error_code error;
  fs::path folder(path);
  if (!fs::is_directory(folder, error)) folder = folder.parent_path();
  const fs::path config = folder / kConfigName;
  return fs::is_regular_file(config, error) ? config.string() : "";
}

void ReadCheckpoint(const Flag& flag, RunJob* job) {
  std::string family = job->model.hf_family, config;
  if (job->model.hf_config != nullptr) config = job->model.hf_config->text;
  std::vector<std::string> notes;
  const std::string next = ConfigNextTo(flag.text);
  if (!next.empty()) {
    try {
      LoadedModel beside = LoadModel(next);
      if (family.empty()) {
        family = beside.hf_family;
        config = beside.hf_config->text;
      }
      const double here = job->model.spec.norm_epsilon;
      const double there = std::exchange(beside.spec.norm_epsilon, here);
      if (there != here)
        notes.push_back(
            fmt::format("{} has norms with epsilon {}, and the model that is trained with {}", next,
                        there, here));
      if (!SameModel(beside.spec, job->model.spec))
        notes.push_back(
            fmt::format("{} describes another model than --model, which is trained", next));
    } catch (const InputError&) {  // a model that cannot be planned: its tensors tell
    }
  }
  const auto given =
      std::make_shared<weights::HfWeights>(flag.text, family, job->model.spec, job->plan);
  job->given = given;
  job->init_from = flag.text;
  for (const std::string& note : given->notes()) notes.push_back(note);
  for (const std::string& note : weights::DifferencesOf(config, given->table()))
    notes.push_back(note);
  for (const std::string& note : notes) job->notes.push_back(flag.name + ": " + note);
}

// The family to write, and its config.json: that of the model's file; of the checkpoint that it began with; or the
// first that can say the model.
weights::ExportOptions ExportOptionsOf(const Flag& flag, const RunJob& job) {
  weights::ExportOptions options;
  options.folder = flag.text;
  options.model = job.model.spec;
  const std::string family = !job.model.hf_family.empty() ? job.model.hf_family
                             : job.given != nullptr       ? job.given->table().family
                                                          : HfFamilyLike(job.model.spec);
  if (family.empty())
    throw InputError(fmt::format("no family of HuggingFace models is like {}", job.model.spec.name),
                     "--model with a config.json");
  options.table = TensorsOf(family);
  options.config = job.model.hf_config != nullptr ? job.model.hf_config->text
                                                  : HfConfigText(family, job.model.spec);
  return options;
}

}  // namespace

void TakeCheckpointModel(RunFlags* flags) {
  if (!flags->init_from.given || flags->plan.given || flags->job.model.given) return;
  const std::string config = ConfigNextTo(flags->init_from.text);
  if (config.empty()) return;
  flags->job.model = flags->init_from;
  flags->job.model.name = "--model";
  flags->job.model.text = config;
}

void ReadCheckpointFlags(const RunFlags& flags, RunJob* job) {
  for (const Flag* flag : {&flags.init_from, &flags.export_hf}) {
    if (flag->given && flags.plan.given)
      throw InputError(
          {{flag->where,
            flag->name + ": a plan text says too little about the model: how many heads",
            "--model and a layout"}});
  }
  if (flags.init_from.given) AtFlag(flags.init_from, [&] { ReadCheckpoint(flags.init_from, job); });
  if (!flags.export_hf.given) return;
  AtFlag(flags.export_hf, [&] {
    job->export_hf = ExportOptionsOf(flags.export_hf, *job);
    weights::CheckExport(*job->export_hf, job->plan);
  });
}

}  // namespace orrery::cli
