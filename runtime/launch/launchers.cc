// SPDX-License-Identifier: Apache-2.0
// Sources: OpenMPI 4.1 mpirun(1), MPICH's PMI, PyTorch's torchrun, Slurm 22.05 srun(1), AWS Batch "Job environment variables", Kubernetes "Indexed Job".
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
    {"mpirun", Meets::kMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", Meets::kMpi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun --mpi=pmix", Meets::kMpi, "PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID"},
    // Whatever sets these four: PBS with pbsdsh, ssh, a script of one's own.
    {"torchrun", Meets::kTcp, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr,
     "MASTER_ADDR", "MASTER_PORT"},
    // Only within a step: the batch script itself has SLURM_PROCID too.
    {"srun", Meets::kTcp, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, nullptr,
     nullptr, nullptr, "SLURM_STEP_NODELIST", "SLURM_JOB_ID"},
    {"AWS Batch", Meets::kTcpSecret, "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", nullptr,
     nullptr, "AWS_BATCH_JOB_MAIN_NODE_INDEX", "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", nullptr,
     nullptr, "AWS_BATCH_JOB_ID"},
    {"Kubernetes", Meets::kTcpSecret, "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr, nullptr,
     "MASTER_ADDR", "MASTER_PORT"},
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
    if (row.meets != Meets::kMpi && NumberOf(row.index) >= 0 && NumberOf(row.size) > 1) return &row;
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
