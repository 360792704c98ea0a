// SPDX-License-Identifier: Apache-2.0
// Jobs for torchrun by hand, mpirun, Slurm and PBS: shell scripts around train.sh.
#include <fmt/format.h>

#include "model/exchange/bundle.h"
#include "model/exchange/train_script.h"

namespace orrery::exchange {
namespace {

// Behind loops that start a program per node and keep its process in `pids`: the first failure is the exit status.
constexpr const char* kWaitForAll = R"sh(status=0
for pid in "${pids[@]}"; do
  wait "$pid" || status=$?
done
exit "$status"
)sh";

std::vector<File> With(const std::vector<File>& files, File more) {
  std::vector<File> all = files;
  all.push_back(std::move(more));
  return all;
}

std::string Head(const Bundle& bundle, const std::string& directives) {
  return "#!/usr/bin/env bash\n" + directives + Comments(bundle, "#");
}

// The reader of scripts knows the placement by this variable.
std::string PlacesLine(const NodePlaces& placed, const char* front) {
  return fmt::format("{}PLACES=\"{}\"  # the placement: NODE_RANK of each node\n", front,
                     ShellList(placed.places));
}

// Started by hand, each node knows its own name alone.
std::string OwnHostCheck(const Bundle& bundle) {
  const std::string check = HostsCheck(bundle, "launch-torchrun.sh", "  ");
  if (check.empty()) return "";
  return fmt::format(
             R"sh(  placed=({}) here_is="$(hostname)"
  export NODE_RANK="${{NODE_RANK:-${{PET_NODE_RANK:-0}}}}"
  # What the others are called is for them to say.
  hosts=({})
  hosts[${{placed[NODE_RANK]:-0}}]="$here_is"
)sh",
             ShellList(PlacesOf(bundle).nodes), ShellHosts(bundle.layout.hosts)) +
         check;
}

std::vector<File> TorchrunFiles(const Bundle& bundle, const std::vector<File>& files) {
  const int64_t nodes = bundle.layout.nodes;
  const NodePlaces placed = PlacesOf(bundle);
  std::string text = Head(bundle, "");
  text +=
      fmt::format(R"sh(#
# Starts this node; the same on each of the {0} node{1}:
#   NODE_RANK=0..{2} MASTER_ADDR=host-of-node-0 ./launch-torchrun.sh
# or once, on node 0, with a file of {0} host names that ssh reaches without a password, this folder
# shared among them:
#   HOSTFILE=hosts ./launch-torchrun.sh
{3}set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"

if [ -z "${{HOSTFILE:-}}" ]; then
{6}  exec "$here/train.sh" "$@"
fi

mapfile -t hosts < <(sed 's/#.*//; s/[[:space:]].*//; /^$/d' "$HOSTFILE")
if [ "${{#hosts[@]}}" -ne {0} ]; then
  echo "launch-torchrun.sh: $HOSTFILE names ${{#hosts[@]}} hosts, the layout is for {0}" >&2
  exit 2
fi
{7}{4}{5}variables="" arguments=""
for name in "${{passed[@]}}"; do variables+=" $name=$(printf %q "${{!name}}")"; done
for word in "$@"; do arguments+=" $(printf %q "$word")"; done
pids=()
for rank in "${{!hosts[@]}}"; do
  command="export NODE_RANK=$rank MASTER_ADDR=$(printf %q "${{hosts[0]}}")$variables
exec bash $(printf %q "$here/train.sh")$arguments"
  # The login shell of a host need not be bash: it starts one, which reads the command.
  ssh -o BatchMode=yes "${{hosts[$rank]}}" bash -s <<< "$command" &
  pids+=("$!")
done
)sh",
                  nodes, nodes == 1 ? "" : "s", nodes - 1,
                  placed.any() ? fmt::format("# The placement: NODE_RANK of node 0, 1, ... is {}; "
                                             "MASTER_ADDR is node {}.\n"
                                             "# Line k of HOSTFILE, from 0, is node k.\n",
                                             ShellList(placed.places), placed.first())
                               : "",
                  placed.any() ? PlacesLine(placed, "") + R"sh(read -r -a places <<< "$PLACES"
placed=()
for node in "${!places[@]}"; do placed[places[node]]="${hosts[$node]}"; done
hosts=("${placed[@]}")
)sh"
                               : "",
                  PassedVariables(bundle.target), OwnHostCheck(bundle),
                  HostsCheck(bundle, "launch-torchrun.sh")) +
      kWaitForAll;
  return With(files, {"launch-torchrun.sh", text, true});
}

constexpr char kMpirunAsListed[] =
    R"sh(  MASTER_ADDR="${{MASTER_ADDR:-$(sed 's/#.*//; /^[[:space:]]*$/d' "$HOSTFILE" | awk 'NR == 1 {{ print $1 }}')}}"
  export MASTER_ADDR MASTER_PORT="${{MASTER_PORT:-29500}}" NNODES={0} GPUS_PER_NODE={1}
  exec mpirun -np {2} --hostfile "$HOSTFILE" --map-by ppr:{3}:node --bind-to none \
    "${{shared[@]}}" "$here/launch-mpirun.sh" "$@"
)sh";
// mpirun numbers ranks by program, whatever order it takes hosts in: a placement is a program for each node.
constexpr char kMpirunInOrder[] =
    R"sh(  mapfile -t hosts < <(sed 's/#.*//' "$HOSTFILE" | awk 'NF {{ print $1 }}')
  if [ "${{#hosts[@]}}" -ne {0} ]; then
    echo "launch-mpirun.sh: $HOSTFILE names ${{#hosts[@]}} hosts, the layout is for {0}" >&2
    exit 2
  fi
{4}  read -r -a places <<< "$PLACES"
  order=()
  for node in "${{!places[@]}}"; do order[places[node]]="$node"; done
  export MASTER_ADDR="${{MASTER_ADDR:-${{hosts[${{order[0]}}]}}}}" MASTER_PORT="${{MASTER_PORT:-29500}}"
  export NNODES={0} GPUS_PER_NODE={1}
  programs=()
  for node in "${{order[@]}}"; do  # line k of HOSTFILE, from 0, is node k
    if [ "${{#programs[@]}}" -gt 0 ]; then programs+=(:); fi
    programs+=(-np {3} --host "${{hosts[$node]}}:{3}" "${{shared[@]}}" "$here/launch-mpirun.sh" "$@")
  done
  exec mpirun --bind-to none "${{programs[@]}}"
)sh";
constexpr char kMpirunShared[] =
    R"sh(  shared=(-x MASTER_ADDR -x MASTER_PORT -x NNODES -x GPUS_PER_NODE -x PATH)
  if [ -n "${LD_LIBRARY_PATH:-}" ]; then shared+=(-x LD_LIBRARY_PATH); fi
  for name in "${passed[@]}"; do shared+=(-x "$name"); done
)sh";

// `agent`: one process per node.
std::string StartMpirun(const Bundle& bundle, bool agent) {
  const Case& c = bundle.layout;
  const int64_t each = agent ? 1 : c.gpus_per_node;
  const std::string form =
      PlacesOf(bundle).any()
          ? fmt::format(kMpirunInOrder, c.nodes, c.gpus_per_node, c.nodes * each, each,
                        HostsCheck(bundle, "launch-mpirun.sh", "  "))
          : fmt::format(kMpirunAsListed, c.nodes, c.gpus_per_node, c.nodes * each, each);
  return PassedVariables(bundle.target, "  ") + kMpirunShared + form;
}

std::vector<File> MpirunFiles(const Bundle& bundle, const std::vector<File>& files) {
  const Case& c = bundle.layout;
  const bool agent = bundle.target == kAccelerate;  // starts the ranks of a node itself
  std::string text = Head(bundle, "");
  text += fmt::format(R"sh(#
# Open MPI starts {3}. HOSTFILE holds one line per node: NAME slots={1}
# This folder has to be shared among the nodes.
set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
{4}
if [ -z "${{OMPI_COMM_WORLD_RANK:-}}" ]; then
  HOSTFILE="${{HOSTFILE:?a file with a line \"NAME slots={1}\" for each of {0} nodes}}"
{2}fi

)sh",
                      c.nodes, c.gpus_per_node, StartMpirun(bundle, agent),
                      agent ? "accelerate once on each node" : "one process per GPU",
                      PlacesOf(bundle).any() ? PlacesLine(PlacesOf(bundle), "") : "");
  if (agent) {
    text += "export NODE_RANK=\"$OMPI_COMM_WORLD_RANK\"\n";
  } else {
    text += R"sh(# Inside mpirun: the names that PyTorch reads.
export RANK="$OMPI_COMM_WORLD_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE"
export LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK" LOCAL_WORLD_SIZE="$OMPI_COMM_WORLD_LOCAL_SIZE"
)sh";
  }
  text += "exec \"$here/train.sh\" \"$@\"\n";
  return With(files, {"launch-mpirun.sh", text, true});
}

// The order of the job's nodes is that of Slurm's list. srun told ALL passes on what the script exports, whatever sbatch
// was told.
std::string SlurmBody(const Bundle& bundle) {
  const NodePlaces placed = PlacesOf(bundle);
  std::string check = HostsCheck(bundle, "job.sbatch");
  if (!check.empty())
    check = "mapfile -t hosts < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n" + check;
  return fmt::format(
      R"sh(#
# Submit in the folder of this file:  sbatch job.sbatch
# Account, partition and a longer time: on sbatch's command line. Exported variables go along. One task per node starts
# the ranks of its GPUs.
set -euo pipefail
cd "${{SLURM_SUBMIT_DIR:?submit this file with sbatch}}"

{3}MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | {0})"
# Two jobs on one node must not meet at one port.
MASTER_PORT="${{MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}}"
export MASTER_ADDR MASTER_PORT NNODES="$SLURM_JOB_NUM_NODES"
{2}
# shellcheck disable=SC2016  # expanded by the shell of each task
srun --export=ALL --ntasks-per-node=1 --kill-on-bad-exit=1 --cpu-bind=none --label \
  bash -c '{1} exec ./train.sh "$@"' train "$@"
)sh",
      fmt::format("sed -n {}p", placed.first() + 1),  // reads all: a pipe that breaks ends the job
      placed.any() ? R"(read -r -a places <<< "$PLACES"; NODE_RANK="${places[$SLURM_NODEID]}")"
                   : R"(NODE_RANK="$SLURM_NODEID")",
      placed.any() ? PlacesLine(placed, "export ") : "", check);
}

std::vector<File> SlurmFiles(const Bundle& bundle, const std::vector<File>& files) {
  const Case& c = bundle.layout;
  std::string text = Head(bundle, fmt::format(R"sh(#SBATCH --job-name={}
#SBATCH --nodes={}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={}
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
)sh",
                                              bundle.name, c.nodes, c.gpus_per_node));
  text += SlurmBody(bundle);
  return With(files, {"job.sbatch", text, true});
}

std::vector<File> PbsFiles(const Bundle& bundle, const std::vector<File>& files) {
  const Case& c = bundle.layout;
  const NodePlaces placed = PlacesOf(bundle);
  // PBS takes names of at most 15 characters in its older releases.
  std::string text = Head(
      bundle, fmt::format(R"sh(#PBS -N {}
#PBS -l select={}:ncpus={}:ngpus={}:mpiprocs=1
#PBS -l place=scatter:excl
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -r y
#PBS -V
)sh",
                          bundle.name.substr(0, 15), c.nodes, c.gpus_per_node, c.gpus_per_node));
  text +=
      fmt::format(R"sh(#
# Submit in the folder of this file:  qsub job.pbs
# ncpus is one core per GPU, the least that PBS must give; the nodes are exclusive. Project and queue: on qsub's
# command line. Exported variables go along (-V). pbsdsh starts one process per node, which starts the ranks of its GPUs.
set -euo pipefail
cd "${{PBS_O_WORKDIR:?submit this file with qsub}}"

mapfile -t hosts < <({2} "${{PBS_NODEFILE:?}}")
if [ "${{#hosts[@]}}" -ne {0} ]; then
  echo "job.pbs: PBS gave ${{#hosts[@]}} nodes, the layout is for {0}" >&2
  exit 2
fi
{7}{3}
port="${{MASTER_PORT:-$((20000 + ${{PBS_JOBID%%[!0-9]*}} % 20000))}}"

{6}variables=""
for name in "${{passed[@]}}"; do variables+=" $name=$(printf %q "${{!name}}")"; done
pids=()
{4}
  # pbsdsh passes no environment on: a login shell sets PATH, the rest stands in the command.
  pbsdsh -n "{5}" -- bash -lc "cd $(printf %q "$PWD") && export NNODES={0} GPUS_PER_NODE={1} \
NODE_RANK=$rank MASTER_ADDR=$(printf %q "$master") MASTER_PORT=$port$variables && exec ./train.sh" &
  pids+=("$!")
done
)sh",
                  c.nodes, c.gpus_per_node, placed.any() ? "awk '!seen[$1]++'" : "sort -u",
                  placed.any()
                      ? PlacesLine(placed, "") + fmt::format(R"sh(read -r -a places <<< "$PLACES"
master="${{hosts[{}]}}")sh",
                                                             placed.first())
                      : "master=\"$(hostname)\"",
                  placed.any() ? fmt::format(R"sh(for ((node = 0; node < {}; ++node)); do
  rank="${{places[$node]}}")sh",
                                             c.nodes)
                               : fmt::format("for ((rank = 0; rank < {}; ++rank)); do", c.nodes),
                  placed.any() ? "$node" : "$rank", PassedVariables(bundle.target),
                  HostsCheck(bundle, "job.pbs")) +
      kWaitForAll;
  return With(files, {"job.pbs", text, true});
}

constexpr Launcher kLaunchers[] = {
    {"torchrun", "a script to run on each node, or once with a host file and ssh", TorchrunFiles},
    {"mpirun", "Open MPI with a host file, one process per GPU", MpirunFiles},
    {"slurm", "an sbatch file, one task per node", SlurmFiles},
    {"pbs", "a PBS file, one process per node by pbsdsh", PbsFiles},
    {"aws-batch", "the definition of a multi-node parallel job", AwsBatchFiles, true},
    {"kubernetes", "an Indexed Job with a headless Service; no operator is needed", KubernetesFiles,
     true},
};

}  // namespace

std::span<const Launcher> Launchers() { return kLaunchers; }

}  // namespace orrery::exchange
