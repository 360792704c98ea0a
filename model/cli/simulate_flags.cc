// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan simulate`.
#include "model/cli/simulate_flags.h"

#include "model/cli/commands.h"

namespace orrery::cli {

SimulateFlags::SimulateFlags()
    : set("simulate --model NAME [flags]",
          "Plays one training step of one given layout op by op on its cluster: who computes, "
          "waits "
          "and sends when, with all traffic competing for links. Prints the closed form's step "
          "time "
          "beside it.",
          {"plan simulate --model bert-1.5b --nodes 1 --zero 1 --micro-batch 8",
           "plan simulate --model bert-1.5b --nodes 2 --zero 1 --micro-batch 8 --slow-gpu 3:1.5",
           "plan simulate --model bert-1.5b --nodes 1 --micro-batch 8 --trace step.json"}) {
  job.Declare(&set, false);
  layout.Declare(&set, "The layout (what is not given is 1, none or off)");
  set.Group("The simulation");
  set.Value(&network, "--network", "NAME",
            "fluid (default: own solver, fast) or simgrid (the library, where it was built in)",
            Words::kList, NamesOf<net::Backend>(kNetworkNames));
  set.Value(&jitter, "--jitter", "SHARE",
            "standard deviation of compute times, such as 2%; on every rank its own");
  set.Value(&seed, "--seed", "N", "other random numbers for --jitter (default 1)");
  set.Value(&slow_gpu, "--slow-gpu", "RANK:FACTOR,...",
            "this rank computes FACTOR times as long, such as 3:1.5");
  set.Switch(&all_ranks, "--all-ranks",
             "execute every rank, also replicas that do the same as another one");
  set.Group("The output");
  set.Value(&trace, "--trace", "FILE",
            "the step of every executed rank as a Chrome trace, for Perfetto", Words::kFile);
  set.Value(&json, "--json", "[FILE]",
            "as JSON, schema orrery.simulate/1, instead of text or into FILE", Words::kFile);
}

Description DescribeSimulate() { return SimulateFlags().set.Describe(); }

}  // namespace orrery::cli
