// SPDX-License-Identifier: Apache-2.0
// What a run reads besides its plan: data and snapshots.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "model/arch/data_root.h"
#include "runtime/program/run/run_job.h"
#include "runtime/train/snapshot/files.h"

namespace orrery::cli {
namespace {

constexpr char kCorpus[] = "corpus";

[[noreturn]] void Fail(const Flag& flag, std::string message, std::string hint = "") {
  throw InputError({{flag.where, flag.name + ": " + std::move(message), std::move(hint)}});
}

void ReadTokenFile(const RunFlags& flags, RunJob* job) {
  std::error_code error;
  if (!std::filesystem::exists(job->data_from, error)) {
    std::vector<std::string> names = train::SourceNames();
    names.push_back(kCorpus);
    Fail(flags.data, fmt::format("there is no file and no source '{}'", job->data),
         SuggestName(job->data, names));
  }
  try {
    train::CheckTokenFile(job->data_from, DataSpecOf(*job), train::ShapeOf(job->plan));
  } catch (const train::DataError& cause) {
    Fail(flags.data, cause.what());
  }
}

std::string Path(const std::string& text) { return text.empty() ? "." : text; }

}  // namespace

train::DataSpec DataSpecOf(const RunJob& job) {
  train::DataSpec spec;
  spec.seed = job.seed;
  spec.vocab = job.facts.vocab;
  spec.token_types = job.facts.token_types;
  spec.mask_token = job.mask_token;
  return spec;
}

// From the plan, which may have been read from a file.
snapshot::Conditions ConditionsOf(const RunJob& job) {
  snapshot::Conditions conditions;
  const auto add = [&](const char* name, double value) {
    conditions.emplace_back(name, fmt::format("{:g}", value));
  };
  std::map<ir::Attr, double> largest;  // weights without decay lie next to others
  constexpr ir::Attr kOfTraining[] = {ir::Attr::kLr, ir::Attr::kWd, ir::Attr::kClip,
                                      ir::Attr::kRate};
  for (const ir::Program& program : job.plan.programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops) {
        for (const ir::Attr attr : kOfTraining)
          largest[attr] = std::max(largest[attr], op.attrs.Get(attr));
      }
    }
  }
  const double lr = largest[ir::Attr::kLr];
  add("--lr", lr);
  add("--weight-decay", largest[ir::Attr::kWd]);
  add("--clip-norm", largest[ir::Attr::kClip]);
  add("--dropout", largest[ir::Attr::kRate]);
  const train::LrSchedule& schedule = job.lr_schedule;
  constexpr const char* kShapes[] = {"constant", "cosine", "polynomial"};
  conditions.emplace_back("--lr-schedule", kShapes[static_cast<int>(schedule.shape)]);
  add("--warmup", static_cast<double>(schedule.warmup));
  if (schedule.shape != train::LrShape::kConstant) {
    add("--lr-steps", static_cast<double>(schedule.steps));
    add("--lr-end", schedule.end * lr);
    if (schedule.shape == train::LrShape::kPolynomial) add("--lr-power", schedule.power);
  }
  add("--global-batch", static_cast<double>(job.facts.samples));
  if (job.facts.has_tokens && job.facts.samples > 0)
    add("--seq-len", static_cast<double>(job.facts.tokens / job.facts.samples));
  return conditions;
}

void ReadDataFlags(const RunFlags& flags, RunJob* job) {
  Diagnostics diagnostics;
  job->data = flags.data.given        ? flags.data.text
              : job->facts.has_tokens ? "synthetic"
                                      : "random-set";
  job->mask_token =
      ReadInteger(flags.mask_token, 0, std::max<int64_t>(job->facts.vocab - 1, 0), &diagnostics)
          .value_or(-1);
  diagnostics.ThrowIfAny();
  job->data_from = job->data == kCorpus ? DataRoot() + "/scenarios/data/corpus.txt" : job->data;
  const std::vector<std::string> names = train::SourceNames();
  if (std::find(names.begin(), names.end(), job->data) == names.end()) ReadTokenFile(flags, job);
}

void CheckOutputs(const RunFlags& flags) {
  flags.set.CheckOutputs();
  for (const Flag* flag : {&flags.tensorboard, &flags.save, &flags.export_hf}) {
    if (!flag->given) continue;
    try {
      snapshot::MakeFolder(Path(flag->text));
    } catch (const snapshot::SnapshotError& error) {
      Fail(*flag, error.what(), "a folder that can be written");
    }
  }
}

void ReadSnapshotFlags(const RunFlags& flags, RunJob* job) {
  Diagnostics diagnostics;
  if (flags.resume.given) job->resume = Path(flags.resume.text);
  if (flags.save.given) job->save = Path(flags.save.text);
  job->save_every = ReadInteger(flags.save_every, 1, int64_t{1} << 40, &diagnostics).value_or(0);
  diagnostics.ThrowIfAny();
  // A run that goes on is saved where it came from; one of no steps only exports.
  if (job->save.empty() && (job->save_every > 0 || job->steps > 0)) job->save = job->resume;
  if (job->save.empty() && job->save_every > 0)
    Fail(flags.save_every, "--save-every needs a folder", "--save DIR");
  for (const auto& [flag, folder] :
       {std::pair(&flags.resume, job->resume), {&flags.save, job->save}}) {
    try {
      if (!folder.empty()) snapshot::LastSaved(folder);
    } catch (const snapshot::SnapshotError& error) {
      Fail(flag->given ? *flag : flags.resume, error.what(),
           "remove it: without LATEST the newest snapshot counts");
    }
  }
  if (!job->resume.empty() && snapshot::StepsIn(job->resume).empty()) {
    const std::string bare = snapshot::WithoutManifest(job->resume);
    Fail(flags.resume,
         bare.empty() ? fmt::format("there is no snapshot in '{}'", job->resume)
                      : fmt::format("the manifest of snapshot '{}' was deleted", bare),
         "omit it to start from scratch");
  }
  CheckSaveFolder(flags, *job);  // at once, where it holds some already
}

void CheckSaveFolder(const RunFlags& flags, const RunJob& job) {
  std::error_code ignored;
  if (const std::string file = job.save.empty() ? "" : snapshot::StepFileIn(job.save);
      !file.empty())
    Fail(flags.save.given ? flags.save : flags.resume,
         fmt::format("'{}' has the name of a snapshot and is no folder", file),
         "move it away: a run does not replace it");
  const bool same = std::filesystem::equivalent(job.save, job.resume, ignored);
  if (job.save.empty() || same) return;
  const bool empty = snapshot::StepsIn(job.save).empty();
  // From scratch it would write over the shards of a run that somebody has taken for saved.
  if (const std::string bare = empty ? snapshot::WithoutManifest(job.save) : ""; !bare.empty())
    Fail(flags.save, fmt::format("the manifest of snapshot '{}' was deleted", bare),
         "remove that folder and LATEST to start from scratch, or use another folder");
  if (empty || flags.supervise.given) return;  // a supervisor goes on by itself
  Fail(flags.save, fmt::format("'{}' holds snapshots already", job.save),
       "continue from them with --resume, or use another folder");
}

}  // namespace orrery::cli
