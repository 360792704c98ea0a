// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan lab`.
#include "model/program/common/lab_flags.h"

#include "model/program/common/answer.h"

namespace orrery::cli {

std::vector<std::string> LabActions() {
  return {"up", "run", "measure", "status", "down", "enter"};
}

LabFlags::LabFlags()
    : set("lab up|run|measure|status|down|enter [flags] [-- COMMAND]",
          "A cluster in a box: network namespaces of this machine as nodes, with real TCP between "
          "them over links of a given rate and latency. `run` starts ranks on all nodes with "
          "mpirun, `measure` writes the latency and the rate that messages really get into the "
          "lab's "
          "topology file, `enter` starts a program on one node, `down` leaves nothing behind. "
          "Linux, as root.",
          {"plan lab up --nodes 4 --rate 200Mbps --latency 100us",
           "plan lab run -- plan run --model gpt2-micro --dp 4 --steps 5",
           "plan lab enter 0 -- ping -c 3 10.10.0.2", "plan lab status", "plan lab down"}) {
  set.Positional(&action, "ACTION", "up, run, measure, status, down or enter", Words::kList,
                 LabActions());
  set.Positional(&node, "NODE", "enter: its number or host name, or head (default)");
  set.Value(&name, "--name", "NAME", "of the lab, for several at a time (default lab)");
  DeclareJson(&json, &set, "lab");
  set.Group("up");
  set.Value(&nodes, "--nodes", "N", "nodes (default 4)");
  set.Value(&rate, "--rate", "RATE", "of each node's link, per direction (default 200Mbps)");
  set.Value(&latency, "--latency", "TIME", "one way, from node to node (default 100us)");
  set.Value(&racks, "--racks", "N",
            "racks of equally many nodes, each behind one trunk (default 1)");
  set.Value(&oversubscription, "--oversubscription", "RATIO",
            "rates of a rack's nodes over the rate of its trunk (default 1)");
  set.Value(&queue, "--queue", "SIZE",
            "bytes that wait for a trunk or a receiver at most; more are dropped (default 4MiB)");
  set.Switch(&fifo, "--fifo", "acknowledgements queue behind bulk data, as in plain switches");
  set.Value(
      &machine, "--machine", "FILE",
      "DIR/machine.yaml of `plan bench --calibrate DIR`: the lab's topology file names the cores "
      "measured there",
      Words::kFile);
  set.Group("run");
  set.Value(&ranks, "--ranks", "N", "ranks, also -n N, in blocks on the nodes (default one each)");
}

Description DescribeLab() { return LabFlags().set.Describe(); }

}  // namespace orrery::cli
