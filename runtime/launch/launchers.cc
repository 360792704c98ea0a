// SPDX-License-Identifier: Apache-2.0
// Sources: OpenMPI 4.1 mpirun(1), MPICH's PMI, PyTorch's torchrun, Slurm 22.05 srun(1), PBS Pro's
// reference guide, AWS Batch "Job environment variables", Kubernetes "Indexed Job".
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
    {"mpirun", Counts::kRanks, true, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", Counts::kRanks, true, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun --mpi=pmix", Counts::kRanks, true, "PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"torchrun", Counts::kRanks, false, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "MASTER_ADDR", "MASTER_PORT"},
    // Only within a step: the batch script itself has SLURM_PROCID too.
    {"srun", Counts::kRanks, false, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     nullptr, nullptr, "SLURM_STEP_NODELIST"},
    {"AWS Batch", Counts::kNodes, false, "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES",
     nullptr, nullptr, "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"},
    {"Kubernetes", Counts::kNodes, false, "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr,
     "MASTER_ADDR", "MASTER_PORT"},
    {"srun", Counts::kNodes, false, "SLURM_NODEID", "SLURM_STEP_NUM_NODES", nullptr, nullptr, nullptr,
     nullptr, "SLURM_STEP_NODELIST"},
    {"PBS", Counts::kNodes, false, "PBS_NODENUM", nullptr, nullptr, nullptr, nullptr, nullptr,
     nullptr, "PBS_NODEFILE"},
    {"torchrun", Counts::kNodes, false, "GROUP_RANK", "GROUP_WORLD_SIZE", nullptr, nullptr,
     "MASTER_ADDR", "MASTER_PORT"},
    {"ssh", Counts::kNodes, false, "ORRERY_NODE_INDEX", "ORRERY_NODES", nullptr, nullptr,
     "MASTER_ADDR", "MASTER_PORT", nullptr, "ORRERY_HOSTFILE"},
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

bool Applies(const LauncherRow& row) {
  const int64_t index = NumberOf(row.index);
  if (index < 0) return false;
  if (row.host_file != nullptr && row.size == nullptr) return !Variable(row.host_file).empty();
  return NumberOf(row.size) > 1;
}

}  // namespace

std::span<const LauncherRow> Launchers() { return kRows; }

const LauncherRow* FindLauncher(Counts counts) {
  for (const LauncherRow& row : kRows) {
    if (row.counts == counts && Applies(row)) return &row;
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
