// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan watch`.
#include "model/program/common/watch_flags.h"

namespace orrery::cli {

WatchFlags::WatchFlags()
    : set("watch LOG --against PLAN.json [flags]",
          "Follows the log of a training job (Megatron-LM, DeepSpeed, torchtitan, nanotron, "
          "HuggingFace's Trainer, llm.c, nanoGPT, CSV, what plan run prints) and says when its "
          "step time leaves the 80 % interval of the prediction or "
          "its memory the predicted peak: since which step, which term or rank fits, what it costs "
          "at this rate. Ends with 4 when either was left or the loss is no number any more, with "
          "0 "
          "otherwise.",
          {"plan watch train.log --against plan.json",
           "plan watch train.log --against plan.json --once --json",
           "plan watch train.log --against plan.json --stop && echo fine"}) {
  set.Positional(&log, "LOG", "the job's log; it may still grow, or have yet to come",
                 Words::kFile);
  set.Value(&against, "--against", "FILE",
            "JSON of `plan`, `plan predict` or `plan simulate`; of several layouts the first",
            Words::kFile);
  set.Switch(&once, "--once", "the log is finished: check it and end");
  set.Switch(&stop, "--stop", "end when the step time or memory is outside, or the loss no number");
  set.Value(
      &patience, "--patience", "N",
      "steps in a row that must be outside (default 3); a line counts as those it is the mean of");
  set.Value(&idle, "--idle", "TIME",
            "end when the log has not grown for so long (default: never), such as 10min");
  set.Switch(&json, "--json", "an event per line as JSON, schema orrery.watch/1, instead of text");
}

Description DescribeWatch() { return WatchFlags().set.Describe(); }

}  // namespace orrery::cli
