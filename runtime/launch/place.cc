// SPDX-License-Identifier: Apache-2.0
// Reads the variables of launchers.
#include "runtime/launch/place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include "model/base/diagnostics.h"
#include "model/base/host_list.h"
#include "model/base/read_file.h"
#include "runtime/comm/secret.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/launch/launchers.h"

namespace orrery::launch {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 20, kHighestPort = 65535;

Place FindMpi() {
  Place place;
  for (const LauncherRow& row : Launchers()) {
    const bool found = place.launcher == Launcher::kMpi;
    if (row.meets == Meets::kMpi && place.local_rank < 0)
      place.local_rank = NumberOf(row.local_index);
    if (found || row.meets != Meets::kMpi || NumberOf(row.index) < 0 || NumberOf(row.size) <= 0)
      continue;
    place.launcher = Launcher::kMpi;
    place.launched_by = row.name;
    place.rank = NumberOf(row.index);
    place.size = NumberOf(row.size);
    place.on_host = std::max<int64_t>(NumberOf(row.local_size), 1);
  }
  return place.launcher == Launcher::kMpi ? place : Place{};
}

// A variable that has to be a number in a range; `absent` where it may be left out.
int64_t Checked(const char* name, int64_t least, int64_t most, int64_t absent,
                Diagnostics* diagnostics) {
  const std::string text = Variable(name);
  if (text.empty() && absent >= 0) return absent;
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number >= least && number <= most) return number;
  const std::string range = fmt::format("a number from {} to {}", least, most);
  if (text.empty()) {
    diagnostics->Error({}, fmt::format("the environment has MASTER_ADDR and no {}", name),
                       fmt::format("{}, or unset MASTER_ADDR to start ranks here", range));
  } else {
    diagnostics->Error({}, fmt::format("{}={} in the environment is not {}", name, text, range));
  }
  return least;
}

int64_t MasterPort(Diagnostics* diagnostics) {
  if (!Variable("ORRERY_MASTER_PORT").empty())
    return Checked("ORRERY_MASTER_PORT", 1, kHighestPort, -1, diagnostics);
  const int64_t port = Checked("MASTER_PORT", 1, kHighestPort, -1, diagnostics);
  return diagnostics->ok() ? PortIn("MASTER_PORT").value_or(port) : port;
}

constexpr const char* kMakeSecret =
    "export ORRERY_SECRET=$(openssl rand -hex 16) where all ranks are started from; the same for "
    "all";

void NeedSecret(const Place& place, Diagnostics* diagnostics) {
  if (!place.secret.empty() || place.size < 2 || comm::IsLoopback(place.address)) return;
  diagnostics->Error(
      {},
      fmt::format("ranks that meet at {} over TCP need a secret: whoever reaches the "
                  "port could be one of them",
                  place.address),
      kMakeSecret);
}

// RANK and WORLD_SIZE alone start as many runs as there are processes.
void RefuseHalf() {
  if (NumberOf("RANK") < 0 || NumberOf("WORLD_SIZE") < 2) return;
  throw InputError(fmt::format("the environment has RANK={} and WORLD_SIZE={} and no MASTER_ADDR",
                               Variable("RANK"), Variable("WORLD_SIZE")),
                   "set MASTER_ADDR and MASTER_PORT, or unset RANK to start ranks here");
}

// A PyTorchJob counts ranks, and starts pods.
void RefusePods() {
  const int64_t pods = NumberOf("PET_NNODES"), each = NumberOf("PET_NPROC_PER_NODE");
  if (pods < 1 || each < 2 || !Variable("LOCAL_RANK").empty() || NumberOf("RANK") < 0) return;
  throw InputError(
      fmt::format("a PyTorchJob starts {} pods for {} ranks each, and this is a pod", pods, each),
      "plan launch -- plan run ..., or torchrun with plan run, starts the ranks of each");
}

Place FindTcp() {
  Place place;
  place.address = Variable("MASTER_ADDR");
  if (place.address.empty()) RefuseHalf();
  RefusePods();
  if (place.address.empty() || (Variable("RANK").empty() && Variable("WORLD_SIZE").empty()))
    return {};
  Diagnostics diagnostics;
  place.launcher = Launcher::kTcp;
  place.launched_by = "torchrun";
  place.size = Checked("WORLD_SIZE", 1, kMostRanks, -1, &diagnostics);
  place.rank = Checked("RANK", 0, std::max<int64_t>(place.size, 1) - 1, -1, &diagnostics);
  place.port = static_cast<int>(MasterPort(&diagnostics));
  place.on_host = Checked("LOCAL_WORLD_SIZE", 1, kMostRanks, 1, &diagnostics);
  if (!Variable("LOCAL_RANK").empty())
    place.local_rank = Checked("LOCAL_RANK", 0, kMostRanks, -1, &diagnostics);
  place.secret = FindSecret();
  place.listen = Variable("ORRERY_LISTEN");
  NeedSecret(place, &diagnostics);
  diagnostics.ThrowIfAny();
  return place;
}

// Where rank 0 is, as far as the launcher says: its name, or that of the first of the hosts. Rank 0
// itself needs none.
std::string AddressOfFirst(const LauncherRow& row) {
  const std::string address = Variable(row.address);
  const std::vector<std::string> hosts = ExpandHosts(Variable(row.hosts));
  return address.empty() && !hosts.empty() ? hosts.front() : address;
}

// Processes of which OpenMPI would take each for a world of its own: tasks of srun without PMIx, nodes
// of a job. With a secret they meet over TCP.
Place FindOthers() {
  const LauncherRow* row = FindTcpLauncher();
  if (row == nullptr) return {};
  const std::string secret = FindSecret();
  if (secret.empty() && row->meets == Meets::kTcpSecret) return {};
  Place place;
  place.launcher = Launcher::kTcp;
  place.launched_by = row->name;
  place.size = NumberOf(row->size);
  const int64_t first = std::max<int64_t>(NumberOf(row->first), 0);
  place.rank = (NumberOf(row->index) - first % place.size + place.size) % place.size;
  place.local_rank = NumberOf(row->local_index);
  place.secret = secret;
  place.listen = Variable("ORRERY_LISTEN");
  place.address = AddressOfFirst(*row);
  const std::vector<std::string> hosts = ExpandHosts(Variable(row->hosts));
  if (const std::string apart = CountsApart(*row, hosts); !apart.empty()) throw InputError(apart);
  if (!hosts.empty())
    place.on_host = std::max<int64_t>(1, place.size / static_cast<int64_t>(hosts.size()));
  // Nodes of one job of AWS Batch are JOB#0, JOB#1, ...
  const std::string job = Variable(row->job);
  const auto port = PortIn(row->port);
  place.port =
      port ? *port : PortOfJob(job.substr(0, job.find('#')) + "." + Variable("SLURM_STEP_ID"));
  if (NumberOf(row->index) >= place.size) {
    throw InputError(fmt::format("{}={} in the environment is not below {}={}", row->index,
                                 Variable(row->index), row->size, place.size));
  }
  if (secret.empty()) {
    throw InputError(
        fmt::format("{} has started {} tasks without PMIx, which do not find each other", row->name,
                    place.size),
        fmt::format("srun --mpi=pmix, or {}: they then meet over TCP", kMakeSecret));
  }
  if (place.address.empty() && place.rank > 0) {
    throw InputError(fmt::format("{} does not say where rank 0 is", row->name),
                     "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT instead");
  }
  if (place.address.empty() && place.listen.empty()) place.listen = "0.0.0.0";
  if (place.address.empty()) place.address = place.listen;
  return place;
}

// Its first word. Links are followed: Kubernetes mounts secrets as such.
std::string SecretIn(const std::string& path) {
  constexpr std::size_t kMost = 4096;
  try {
    const RegularFile file(path, Links::kFollow);
    if ((file.mode() & (S_IRWXG | S_IRWXO)) != 0)
      throw InputError(fmt::format("ORRERY_SECRET_FILE: others may read '{}'", path),
                       fmt::format("chmod 600 {}", path));
    std::istringstream text(file.Text(kMost));
    std::string secret;
    text >> secret;
    return secret;
  } catch (const FileError& error) {
    throw InputError(fmt::format("ORRERY_SECRET_FILE: '{}' cannot be read: {}", path, error.what()),
                     "a file with the run's secret, the same on all nodes");
  }
}

}  // namespace

std::string FindSecret() {
  std::string secret = Variable("ORRERY_SECRET");
  if (const std::string path = Variable("ORRERY_SECRET_FILE"); secret.empty() && !path.empty()) {
    secret = SecretIn(path);
  } else if (secret.empty()) {
    return "";
  }
  if (secret.size() < comm::kShortestSecret) {
    throw InputError(fmt::format("the secret of the run has {} characters", secret.size()),
                     fmt::format("at least {}: {}", comm::kShortestSecret, kMakeSecret));
  }
  return secret;
}

namespace {

// A container may be given a part of the variables alone. One of several processes that took itself for the only one would run
// as often as there are processes. A batch script is task 0 of no step.
void RefusePart() {
  constexpr int64_t kMostSteps = int64_t{1} << 31;  // above are batch scripts and interactive steps
  for (const LauncherRow& row : Launchers()) {
    if (row.meets != Meets::kMpi && row.meets != Meets::kTcp) continue;
    const int64_t index = NumberOf(row.index), size = NumberOf(row.size);
    const int64_t step = NumberOf("SLURM_STEP_ID");
    const bool first = index == 0 && std::string_view(row.name) == "srun" &&
                       Variable(row.size).empty() && step >= 0 && step < kMostSteps;
    if (!first && (index < 1 || size > index)) continue;
    throw InputError(
        size < 0 ? fmt::format("the environment has {}={} and no {}: how many such processes there "
                               "are is not known",
                               row.index, index, row.size)
                 : fmt::format("{}={} in the environment is not below {}={}", row.index, index,
                               row.size, size),
        fmt::format("pass {} on, too, with the other variables of {}; or unset {} to start ranks "
                    "here",
                    row.size, row.name, row.index));
  }
}

}  // namespace

Place FindPlace() {
  Place place = FindMpi();
  if (place.launcher == Launcher::kNone) place = FindTcp();
  if (place.launcher == Launcher::kNone) place = FindOthers();
  if (place.launcher == Launcher::kNone) RefusePart();
  return place;
}

}  // namespace orrery::launch
