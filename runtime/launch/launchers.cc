// SPDX-License-Identifier: Apache-2.0
// Sources: OpenMPI 4.1 mpirun(1), MPICH's PMI, PyTorch's torchrun, Slurm 22.05 srun(1), AWS Batch "Job environment variables", Kubernetes "Indexed Job",
// OpenPBS pbsdsh(1B) and qsub(1B) "Environment variables".
#include "runtime/launch/launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

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
    // Whatever sets these four: PBS with pbsdsh, ssh, a script of one's own.
    {.name = "torchrun", .meets = Meets::kTcp, .index = "RANK", .size = "WORLD_SIZE",
     .local_index = "LOCAL_RANK", .local_size = "LOCAL_WORLD_SIZE", .address = "MASTER_ADDR", .port = "MASTER_PORT",
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
     .address = "MASTER_ADDR", .port = "MASTER_PORT"},
    // The names of exported jobs. No rank is started by them alone.
    {.name = "Kubernetes", .meets = Meets::kNode, .address = "MASTER_ADDR", .port = "MASTER_PORT",
     .node_index = "JOB_COMPLETION_INDEX", .nodes = "NNODES"},
    {.name = "a script", .meets = Meets::kNode, .address = "MASTER_ADDR", .port = "MASTER_PORT",
     .node_index = "NODE_RANK", .nodes = "NNODES", .slots = "GPUS_PER_NODE"},
    // pbsdsh numbers the machines of a job; the list may be on the first one alone.
    {.name = "PBS", .meets = Meets::kNode, .job = "PBS_JOBID", .node_index = "PBS_NODENUM", .nodes = "NNODES",
     .hosts_file = "PBS_NODEFILE"},
};
// clang-format on

// The numbers of "08-10,12", with the zeros of each range's first; empty: it is none.
std::vector<std::string> ExpandRange(const std::string& text, std::size_t most) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const std::size_t dash = part.find('-');
    const std::string first = part.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : part.substr(dash + 1);
    int64_t from = 0, to = 0;
    if (ParseInteger(first, &from) != NumberFault::kNone ||
        ParseInteger(last, &to) != NumberFault::kNone || from < 0 || to < from)
      return {};
    for (int64_t n = from; n <= to && all.size() < most; ++n)
      all.push_back(fmt::format("{:0{}}", n, first.size()));
    at = comma + 1;
  }
  return all;
}

// One name, whose first bracket is expanded and the rest likewise.
bool ExpandName(const std::string& name, std::size_t most, std::vector<std::string>* all) {
  const std::size_t open = name.find('['), close = name.find(']');
  if (open == std::string::npos) {
    if (name.empty() || close != std::string::npos) return false;
    if (all->size() < most) all->push_back(name);
    return true;
  }
  if (close == std::string::npos || close < open) return false;
  const auto numbers = ExpandRange(name.substr(open + 1, close - open - 1), most);
  return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [&](const auto& number) {
    return ExpandName(name.substr(0, open) + number + name.substr(close + 1), most, all);
  });
}

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

std::vector<std::string> ExpandHosts(const std::string& text, std::size_t most) {
  std::vector<std::string> all;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth < 0 || depth > 1) return {};
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    if (!ExpandName(text.substr(begin, i - begin), most, &all)) return {};
    begin = i + 1;
  }
  return all;
}

int PortOfJob(const std::string& job) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return 20000 + static_cast<int>(hash % 20000u);
}

}  // namespace orrery::launch
