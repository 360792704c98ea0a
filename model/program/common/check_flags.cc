// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan check`.
#include "model/program/common/check_flags.h"

#include "model/program/common/answer.h"

namespace orrery::cli {

CheckFlags::CheckFlags()
    : set("check [flags]",
          "Measures the health of nodes and of pairs of nodes: matrix products, memory bandwidth, "
          "a "
          "disk write with fsync, the clock, and messages between all pairs of ranks, one pair of "
          "a "
          "rank at a time. A rank on each node, started by mpirun or srun; alone it checks this "
          "node. "
          "A node or pair is outside where it is slower than the median of all by more than the "
          "tolerance, or than a given bound, or than the topology's network. Ends with 4 when "
          "something is outside; bad nodes are named by host.",
          {"plan check", "mpirun -n 4 --hostfile hosts --map-by ppr:1:node plan check",
           "srun --mpi=pmix -N 4 plan check --topology ./cluster.yaml --disk /scratch --json"}) {
  set.Value(&topology, "--topology", "NAME",
            "whose network the pairs are compared with: at least half of its rate per rank",
            Words::kTopology);
  set.Value(&disk, "--disk", "DIR",
            "where 64 MiB are written and removed again (default: TMPDIR or /tmp)", Words::kFile);
  set.Value(&tolerance, "--tolerance", "SHARE",
            "below the median of all by so much is outside (default 0.3)");
  set.Value(&compute, "--compute", "RATE", "least rate of products, such as 50GFLOP/s");
  set.Value(&memory, "--memory", "RATE", "least memory bandwidth of a rank, such as 5GB/s");
  set.Value(&skew, "--skew", "TIME", "largest difference of clocks (default 10ms)");
  set.Value(&comm, "--comm", "KIND", "mpi or tcp, where it is not clear how the ranks were started",
            Words::kList, {"mpi", "tcp"});
  set.Value(&timeout, "--timeout", "TIME", "a rank that answers later is silent (default 120s)");
  DeclareJson(&json, &set, "check");
}

Description DescribeCheck() { return CheckFlags().set.Describe(); }

}  // namespace orrery::cli
