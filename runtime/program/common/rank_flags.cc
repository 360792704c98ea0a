// SPDX-License-Identifier: Apache-2.0
// Reads --comm and --timeout; connects processes.
#include "runtime/program/common/rank_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "model/base/text.h"
#include "model/program/common/wait_flags.h"
#include "runtime/comm/secret.h"
#include "runtime/comm/tcp.h"
#include "runtime/launch/mpirun.h"
#ifdef ORRERY_HAS_MPI
#include "runtime/comm/mpi.h"
#endif

namespace orrery::cli {

double ReadTimeout(const Flag& flag, Diagnostics* diagnostics) {
  return std::max(ReadWait(flag, diagnostics).value_or(120), 0.01);
}

namespace {

#ifdef ORRERY_HAS_MPI
constexpr bool kHasMpi = true;
#else
constexpr bool kHasMpi = false;
#endif

constexpr Comm kComms[] = {Comm::kMpi, Comm::kLocal, Comm::kTcp};

Comm Usual(const launch::Place& place, int64_t ranks) {
  if (place.launcher == launch::Launcher::kTcp) return Comm::kTcp;
  if (!kHasMpi) return Comm::kLocal;
  const bool processes =
      place.launcher == launch::Launcher::kMpi || (ranks > 1 && !launch::FindMpirun().empty());
  return processes ? Comm::kMpi : Comm::kLocal;
}

// Why not; "": it can be.
std::pair<std::string, std::string> Refusal(Comm comm, const launch::Place& place) {
  using launch::Launcher;
  if (comm == Comm::kLocal && place.size > 1) {
    return {place.launcher == Launcher::kMpi
                ? "mpirun has started processes, and local is one process"
                : "RANK and WORLD_SIZE name one of several processes, and local is one process",
            place.launcher == Launcher::kMpi ? "omit --comm, or run without mpirun"
                                             : "omit --comm, or unset MASTER_ADDR"};
  }
  if (comm == Comm::kTcp && place.launcher != Launcher::kTcp) {
    return {"tcp needs environment variables that are not set",
            "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun does"};
  }
  if (comm != Comm::kMpi) return {};
  if (!kHasMpi)
    return {"this build has no MPI", "install libopenmpi-dev and build again, or --comm local"};
  if (place.launcher == Launcher::kTcp)
    return {"another launcher has started the ranks", "--comm tcp, or unset MASTER_ADDR"};
  if (place.size == 0 && launch::FindMpirun().empty())
    return {"there is no mpirun on PATH", "install openmpi-bin, or --comm local"};
  return {};
}

std::unique_ptr<comm::Endpoint> Connect(Comm comm, const launch::Place& place, double deadline_s,
                                        const std::string& speaker, const comm::NodeOrder& nodes) {
  if (comm == Comm::kTcp)
    return comm::ConnectTcp(
        {place.rank, place.size, place.address, place.port, place.secret, place.listen}, deadline_s,
        speaker, nodes);
#ifdef ORRERY_HAS_MPI
  return comm::ConnectMpi(deadline_s, speaker, nodes);
#else
  throw comm::CommError("this build has no MPI");
#endif
}

}  // namespace

const char* CommName(Comm comm) {
  return comm == Comm::kMpi ? "mpi" : comm == Comm::kTcp ? "tcp" : "local";
}

Comm ReadComm(const Flag& flag, const launch::Place& place, int64_t ranks,
              Diagnostics* diagnostics) {
  const auto asked = ReadName(flag, {"mpi", "local", "tcp"}, diagnostics);
  const Comm comm = asked ? kComms[*asked] : Usual(place, ranks);
  const auto [why, hint] = Refusal(comm, place);
  if (!why.empty()) diagnostics->Error(flag.where, why, hint);
  return comm;
}

std::unique_ptr<comm::Endpoint> ConnectProcess(Comm comm, const launch::Place& place,
                                               double deadline_s, const std::string& speaker,
                                               const comm::NodeOrder& nodes, bool* peer_failed) {
  try {
    auto endpoint = Connect(comm, place, deadline_s, speaker, nodes);
    if (endpoint->size() == place.size) return endpoint;
    // Each process would train for itself, and write the same files.
    if (place.rank == 0) {
      fmt::print(
          stderr,
          "{}: error: {} has started {} processes, and MPI counts {}\n"
          "  hint: start them with the mpirun of the MPI that this program is built with, or "
          "with srun --mpi=pmix\n",
          speaker, place.launched_by, place.size, endpoint->size());
    }
    return nullptr;
  } catch (const comm::CommError& error) {
    if (!error.peer_failed) {
      fmt::print(stderr, "{}: error: rank {}: {}\n", speaker, place.rank, error.what());
    } else if (comm == Comm::kTcp) {  // mpirun ends its ranks, and the run has one message
      fmt::print(stderr, "{}: rank {} on {} ends because {}\n", speaker, place.rank,
                 comm::OwnHost(), error.what());
      if (peer_failed != nullptr) *peer_failed = true;
    }
    return nullptr;
  }
}

}  // namespace orrery::cli
