// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan launch`.
#include "model/program/common/launch_flags.h"

#include "model/program/common/answer.h"

namespace orrery::cli {

LaunchFlags::LaunchFlags()
    : set("launch [flags] [-- COMMAND]",
          "Started once on each node of a job: the nodes report to the main one, which waits for "
          "all of them until the deadline, tests them, finds an interface over which they reach "
          "each other, names those that are late, missing or bad by host, goes on without them if "
          "enough are good, writes the hostfile and starts COMMAND. Slurm, PBS, AWS Batch, "
          "Kubernetes, torchrun, mpirun and NODE_RANK, NNODES and MASTER_ADDR say which node this "
          "is; --hosts FILE --ssh starts all of them from here. Between machines all need the same "
          "ORRERY_SECRET. Ends with the exit code of COMMAND, or with 0 when there is none; 1 "
          "failure or the main node is gone, 2 wrong input, 3 too few nodes, or this one came too "
          "late, 4 this node is bad, 85 stopped by a signal before COMMAND began.",
          {"plan launch --slots 8 --out hosts -- mpirun --hostfile hosts plan run --model "
           "gpt2-small --dp 16",
           "srun --ntasks-per-node=1 plan launch --check --at-least 30 --start rank -- plan run "
           "--model gpt2-micro",
           "plan launch --hosts hosts.txt --ssh --start rank -- plan run --model gpt2-micro",
           "plan launch --hosts hosts.txt --test 'nvidia-smi -L' --out good.txt",
           "plan launch --show"}) {
  set.Group("Which nodes");
  set.Value(&nodes, "--nodes", "N", "how many belong to the job, where the launcher does not say");
  set.Value(&least, "--at-least", "N", "go on with so many good ones (default all)");
  set.Value(
      &deadline, "--deadline", "TIME",
      "when all is decided (default 5m); its last fifth, 10 s at most, is for probes: who has not "
      "come before that is missing");
  set.Value(
      &late, "--late", "TIME",
      "who comes later is named as late, and taken all the same (default half of the deadline)");
  set.Value(&main, "--main", "HOST", "name or address of the main node");
  set.Value(&port, "--port", "N",
            "where it listens (default MASTER_PORT, or made of the job's id)");
  set.Value(&index, "--index", "N", "this node's, from 0; 0 is the main one");
  set.Value(&hosts, "--hosts", "FILE",
            "the nodes as lines NAME slots=N: the first is the main one, this one is found by name "
            "or address",
            Words::kFile);
  set.Switch(&ssh, "--ssh",
             "run once, anywhere: starts itself on all --hosts over ssh (or the agent of "
             "OMPI_MCA_plm_rsh_agent, in this folder), with a secret of its own making, and names "
             "those that are not reached until the deadline");
  set.Value(&slots, "--slots", "N",
            "ranks of this node (default: what the launcher says, its GPUs, or 1)");
  set.Value(&interface, "--interface", "NAME",
            "of all nodes, such as hsn0 (default: the one that leads to the main node, or another "
            "over which all reach each other)");
  set.Switch(&show, "--show", "say what is understood of the environment, and nothing else");
  set.Group("Which are good");
  set.Switch(&check, "--check", "measure each node with `plan check`, and compare them");
  set.Value(&test, "--test", "COMMAND",
            "of a shell; a node where it fails, or does not end until the deadline, is bad");
  set.Value(&tolerance, "--tolerance", "SHARE",
            "--check: below the median of all by so much is bad (default 0.3)");
  set.Value(&compute, "--compute", "RATE", "--check: least rate of products, such as 50GFLOP/s");
  set.Value(&memory, "--memory", "RATE", "--check: least memory bandwidth, such as 5GB/s");
  set.Value(&disk, "--disk", "DIR", "--check: where 64 MiB are written (default: TMPDIR or /tmp)",
            Words::kFile);
  set.Group("What then");
  set.Output(&hostfile, "--out", "FILE",
             "the hostfile, on every node that is left: ADDRESS slots=N, whole or not at all",
             " slots=");
  set.Switch(&names, "--names", "names of hosts in it instead of addresses");
  set.Value(&start, "--start", "WHERE",
            "COMMAND on the main node (default), once on each node with NNODES and NODE_RANK, or "
            "once per rank with RANK, WORLD_SIZE and LOCAL_RANK; with MASTER_ADDR and MASTER_PORT",
            Words::kList, {"main", "node", "rank"});
  DeclareJson(&json, &set, "launch");
}

Description DescribeLaunch() { return LaunchFlags().set.Describe(); }

}  // namespace orrery::cli
