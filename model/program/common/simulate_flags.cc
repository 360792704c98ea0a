// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan simulate`.
#include "model/program/common/simulate_flags.h"

#include "model/program/common/answer.h"

namespace orrery::cli {

SimulateFlags::SimulateFlags()
    : set("simulate --model NAME|--scenario NAME [flags]",
          "Simulates one training step of one given layout op by op on its cluster: when each rank "
          "computes, waits and sends, with all traffic competing for links. Also prints the step "
          "time of the closed form.",
          {"plan simulate --model bert-1.5b --nodes 1 --zero 1 --micro-batch 8",
           "plan simulate --model bert-1.5b --nodes 2 --zero 1 --micro-batch 8 --slow-gpu 3:1.5",
           "plan simulate --scenario failed-nic",
           "plan simulate --model bert-1.5b --nodes 1 --micro-batch 8 --trace step.json"}) {
  job.Declare(&set, false);
  layout.Declare(&set, "The layout (defaults: 1, none, off)");
  DeclarePlan(&plan, &set);
  DeclareFrom(&job, &set);
  set.Group("The simulation");
  set.Value(&network, "--network", "NAME",
            "fluid (default: own solver, fast) or simgrid (the library, where it was built in)",
            Words::kList, NamesOf<net::Backend>(kNetworkNames));
  set.Value(
      &contention, "--contention", "on|off",
      "off: messages do not compete for links; each takes the time of the closed form (default on)",
      Words::kList, NamesOf<bool>(kContentionNames));
  set.Switch(&all_ranks, "--all-ranks", "simulate every rank, also identical replicas");
  set.Group("Perturbations (compared with the unperturbed step)");
  set.Value(&scenario, "--scenario", "NAME",
            "job, layout and perturbations from scenarios/NAME.yaml or your own YAML file; flags "
            "override it",
            Words::kScenario);
  set.Value(&jitter, "--jitter", "SHARE",
            "standard deviation of compute times, such as 2%; independent on each rank");
  set.Value(&seed, "--seed", "N", "random seed of --jitter (default 1)");
  set.Value(&slow_gpu, "--slow-gpu", "RANK:FACTOR",
            "this rank computes FACTOR times slower, such as 3:1.5 or 8..15:1.2; several with "
            "commas");
  set.Value(
      &degraded_link, "--degraded-link", "LINK:SHARE",
      "this link keeps SHARE of its rate, such as 'n0.nic0 -> leaf0:25%'; names as in the list "
      "of busiest links, * for anything, <-> for both directions; several with commas");
  set.Value(&failed_nic, "--failed-nic", "NODE:NIC",
            "this NIC has failed, such as 0:nic3; its GPUs use the nearest working one; several "
            "with commas");
  set.Group("The output");
  set.Output(&trace, "--trace", "FILE",
             "the step of every executed rank as a Chrome trace, for Perfetto; compressed as "
             "FILE.gz",
             kTraceHead);
  DeclareJson(&json, &set, "simulate");
  DeclareHtml(&html, &set);
  DeclareBundle(&bundle, &set);
}

Description DescribeSimulate() { return SimulateFlags().set.Describe(); }

}  // namespace orrery::cli
