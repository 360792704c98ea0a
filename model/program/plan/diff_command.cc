// SPDX-License-Identifier: Apache-2.0
// `plan diff`.
#include "model/program/plan/bundle_diff.h"
#include "model/program/plan/commands.h"

namespace orrery::cli {
namespace {

struct DiffFlags {
  Flag before, after, json;
  FlagSet set{
      "diff OLD NEW [flags]",
      "Says by how much a step or a run moved between two bundles, in which term, and because of "
      "which flag, line of a file, or change of the program: the old question becomes the "
      "new one change by change, and is asked again after each.",
      {"plan predict --model gpt2-xl --topology dgx-h100 --nodes 1 --dp 8 --micro-batch 4 "
       "--global-batch 64 --bundle old.json",
       "plan diff old.json new.json"}};

  DiffFlags() {
    set.Positional(&before, "OLD", "a bundle that --bundle wrote", Words::kFile);
    set.Positional(&after, "NEW", "another one", Words::kFile);
    DeclareJson(&json, &set, "diff");
  }
};

}  // namespace

Description DescribeDiff() { return DiffFlags().set.Describe(); }

Answer RunDiff(const CommandLine& line, std::size_t first) {
  DiffFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeDiff().help};
  if (!flags.after.given)
    throw InputError({{line.where(line.words().size()), "`plan diff` compares two bundles",
                       "plan diff old.json new.json"}});
  const auto read = [](const Flag& file) {
    return AtFile(file, "a bundle", [&] { return ReadBundle(file.text); });
  };
  const Bundle before = read(flags.before), after = read(flags.after);
  const BundleDiff diff = Diff(before, after);
  Answer answer = Deliver(ExitCode::kOk, DiffText(diff), DiffJson(diff), flags.json);
  answer.brief = DiffBrief(diff);
  return answer;
}

}  // namespace orrery::cli
