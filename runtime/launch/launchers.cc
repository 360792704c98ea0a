// SPDX-License-Identifier: Apache-2.0
// Sources: OpenMPI 4.1 mpirun(1), MPICH's PMI, PyTorch's torchrun, Slurm 22.05 srun(1), AWS Batch "Job environment variables", Kubernetes "Indexed Job",
// OpenPBS pbsdsh(1B) and qsub(1B) "Environment variables".
#include "runtime/launch/launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "model/base/diagnostics.h"
#include "model/base/plain_text.h"

namespace orrery::launch {
namespace {

// clang-format off
constexpr LauncherRow kRows[] = {
    // Of `plan launch --ssh`, which sends them to each machine.
    {.name = "ssh", .meets = Meets::kNode, .address = "ORRERY_LAUNCH_MAIN", .port = "ORRERY_LAUNCH_PORT",
     .hosts = "ORRERY_LAUNCH_HOSTS", .node_index = "ORRERY_LAUNCH_INDEX", .nodes = "ORRERY_LAUNCH_NODES",
     .slots = "ORRERY_LAUNCH_SLOTS", .node_name = "ORRERY_LAUNCH_NAME"},
    {.name = "mpirun", .meets = Meets::kMpi, .index = "OMPI_COMM_WORLD_RANK", .size = "OMPI_COMM_WORLD_SIZE",
     .local_index = "OMPI_COMM_WORLD_LOCAL_RANK", .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {.name = "mpiexec", .meets = Meets::kMpi, .index = "PMI_RANK", .size = "PMI_SIZE",
     .local_index = "MPI_LOCALRANKID", .local_size = "MPI_LOCALNRANKS"},
    {.name = "srun --mpi=pmix", .meets = Meets::kMpi, .index = "PMIX_RANK", .size = "SLURM_NTASKS",
     .local_index = "SLURM_LOCALID", .hosts = "SLURM_STEP_NODELIST", .job = "SLURM_JOB_ID",
     .node_index = "SLURM_NODEID", .nodes = "SLURM_STEP_NUM_NODES", .slots = "SLURM_GPUS_ON_NODE",
     .node_name = "SLURMD_NODENAME"},
    // Of a PyTorchJob (kubeflow/trainer, pkg/controller.v1/pytorch/envvar.go): RANK there is the pod's, and WORLD_SIZE counts the
    // ranks that torchrun is to start in all pods.
    {.name = "PyTorchJob", .meets = Meets::kNode, .address = "MASTER_ADDR", .node_index = "PET_NODE_RANK",
     .nodes = "PET_NNODES", .slots = "PET_NPROC_PER_NODE"},
    // Whatever sets these four: PBS with pbsdsh, ssh, a script of one's own.
    {.name = "torchrun", .meets = Meets::kTcp, .index = "RANK", .size = "WORLD_SIZE",
     .local_index = "LOCAL_RANK", .local_size = "LOCAL_WORLD_SIZE", .address = "MASTER_ADDR",
     .job = "TORCHELASTIC_RUN_ID", .node_index = "GROUP_RANK", .nodes = "GROUP_WORLD_SIZE"},
    // Only within a step: the batch script itself has SLURM_PROCID too.
    {.name = "srun", .meets = Meets::kTcp, .index = "SLURM_PROCID", .size = "SLURM_STEP_NUM_TASKS",
     .local_index = "SLURM_LOCALID", .hosts = "SLURM_STEP_NODELIST", .job = "SLURM_JOB_ID",
     .node_index = "SLURM_NODEID", .nodes = "SLURM_STEP_NUM_NODES", .slots = "SLURM_GPUS_ON_NODE",
     .node_name = "SLURMD_NODENAME"},
    {.name = "AWS Batch", .meets = Meets::kTcpSecret, .index = "AWS_BATCH_JOB_NODE_INDEX",
     .size = "AWS_BATCH_JOB_NUM_NODES", .first = "AWS_BATCH_JOB_MAIN_NODE_INDEX",
     .address = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", .job = "AWS_BATCH_JOB_ID"},
    {.name = "Kubernetes", .meets = Meets::kTcpSecret, .index = "JOB_COMPLETION_INDEX", .size = "WORLD_SIZE",
     .address = "MASTER_ADDR"},
    // The names of exported jobs. No rank is started by them alone.
    {.name = "Kubernetes", .meets = Meets::kNode, .address = "MASTER_ADDR",
     .node_index = "JOB_COMPLETION_INDEX", .nodes = "NNODES"},
    {.name = "a script", .meets = Meets::kNode, .address = "MASTER_ADDR",
     .node_index = "NODE_RANK", .nodes = "NNODES", .slots = "GPUS_PER_NODE"},
    // pbsdsh numbers the machines of a job; the list may be on the first one alone.
    {.name = "PBS", .meets = Meets::kNode, .job = "PBS_JOBID", .node_index = "PBS_NODENUM", .nodes = "NNODES",
     .hosts_file = "PBS_NODEFILE"},
};
// clang-format on

}  // namespace

std::span<const LauncherRow> Launchers() { return kRows; }

const LauncherRow* FindTcpLauncher() {
  for (const LauncherRow& row : kRows) {
    if (row.meets != Meets::kMpi && row.meets != Meets::kNode && NumberOf(row.index) >= 0 &&
        NumberOf(row.size) > 1)
      return &row;
  }
  return nullptr;
}

std::string Variable(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  return text == nullptr ? "" : text;
}

int64_t NumberOf(const char* name) {
  int64_t number = 0;
  return ParseInteger(Variable(name), &number) == NumberFault::kNone ? number : -1;
}

std::string UnreadPlace() {
  for (const LauncherRow& row : kRows) {
    for (const char* name : {row.index, row.size, row.node_index, row.nodes}) {
      const std::string text = Variable(name);
      if (!text.empty() && NumberOf(name) < 0) return fmt::format("{} is '{}'", name, text);
    }
  }
  return "";
}

std::string CountsApart(const LauncherRow& row, const std::vector<std::string>& hosts) {
  const int64_t nodes = NumberOf(row.nodes);
  if (nodes <= 0 || hosts.empty() || nodes == static_cast<int64_t>(hosts.size())) return "";
  const char* list = row.hosts != nullptr ? row.hosts : row.hosts_file;
  return fmt::format("{} is {}, and {} names {}: {}", row.nodes, nodes, list, hosts.size(),
                     NamedHosts(hosts));
}

std::string NamedHosts(const std::vector<std::string>& hosts) {
  constexpr std::size_t kMost = 8;
  const auto shown = std::span(hosts).first(std::min(hosts.size(), kMost));
  const std::size_t more = hosts.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::optional<int> PortIn(const char* name) {
  constexpr int64_t kHighest = 65535;
  const std::string text = Variable(name);
  if (text.empty()) return std::nullopt;
  const int64_t port = NumberOf(name);
  if (port < 1 || port > kHighest)
    throw InputError(
        fmt::format("{}={} in the environment is not a number from 1 to {}", name, text, kHighest));
  if (Variable("TORCHELASTIC_USE_AGENT_STORE") != "True") return static_cast<int>(port);
  return static_cast<int>(port == kHighest ? port - 1 : port + 1);
}

int PortOfJob(const std::string& job) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return 20000 + static_cast<int>(hash % 20000u);
}

}  // namespace orrery::launch
