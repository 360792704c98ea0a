// SPDX-License-Identifier: Apache-2.0
// Reads the variables of launchers.
#include "runtime/launch/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "model/base/diagnostics.h"

namespace orrery::launch {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 20, kHighestPort = 65535;

std::string Text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

int64_t Number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoll(text);
}

Place FindMpi() {
  for (const auto& [rank, size] :
       {std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        std::pair("PMI_RANK", "PMI_SIZE"), std::pair("PMIX_RANK", "SLURM_NTASKS")}) {
    if (Number(rank) < 0 || Number(size) <= 0) continue;
    Place place;
    place.launcher = Launcher::kMpi;
    place.rank = Number(rank);
    place.size = Number(size);
    const int64_t here = std::max(Number("OMPI_COMM_WORLD_LOCAL_SIZE"), Number("MPI_LOCALNRANKS"));
    place.on_host = std::max<int64_t>(here, 1);
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
      if (place.local_rank < 0) place.local_rank = Number(name);
    }
    return place;
  }
  return {};
}

// A variable that has to be a number in a range; `absent` where it may be left out.
int64_t Checked(const char* name, int64_t least, int64_t most, int64_t absent,
                Diagnostics* diagnostics) {
  const std::string text = Text(name);
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

// torchrun's agent has the port for itself where it says so.
int64_t MasterPort(Diagnostics* diagnostics) {
  if (!Text("ORRERY_MASTER_PORT").empty())
    return Checked("ORRERY_MASTER_PORT", 1, kHighestPort, -1, diagnostics);
  const int64_t port = Checked("MASTER_PORT", 1, kHighestPort, -1, diagnostics);
  if (Text("TORCHELASTIC_USE_AGENT_STORE") != "True") return port;
  return port == kHighestPort ? port - 1 : port + 1;
}

Place FindTcp() {
  Place place;
  place.address = Text("MASTER_ADDR");
  if (place.address.empty() || (Text("RANK").empty() && Text("WORLD_SIZE").empty())) return {};
  Diagnostics diagnostics;
  place.launcher = Launcher::kTcp;
  place.size = Checked("WORLD_SIZE", 1, kMostRanks, -1, &diagnostics);
  place.rank = Checked("RANK", 0, std::max<int64_t>(place.size, 1) - 1, -1, &diagnostics);
  place.port = static_cast<int>(MasterPort(&diagnostics));
  place.on_host = Checked("LOCAL_WORLD_SIZE", 1, kMostRanks, 1, &diagnostics);
  if (!Text("LOCAL_RANK").empty())
    place.local_rank = Checked("LOCAL_RANK", 0, kMostRanks, -1, &diagnostics);
  diagnostics.ThrowIfAny();
  return place;
}

}  // namespace

Place FindPlace() {
  const Place place = FindMpi();
  return place.launcher == Launcher::kMpi ? place : FindTcp();
}

}  // namespace orrery::launch
