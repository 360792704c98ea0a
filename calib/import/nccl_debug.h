// SPDX-License-Identifier: Apache-2.0
// What NCCL says of itself: its log (NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING) and the
// dumps of its topology and its graphs (NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE).
//
// The lines of one rank count: rank 0 writes the choices. Lines of other programs between them are
// skipped; a line that begins as one of NCCL's and cannot be read is counted and named.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/collectives/nccl/tuning.h"

namespace orrery::measured {

// "AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..7}", from NCCL 2.24 on; before,
// "1048576 Bytes -> Algo 1 proto 1 time 12.3", which names no collective.
struct LoggedChoice {
  std::optional<nccl::Operation> operation;
  int64_t bytes = 0;  // of one rank's count: all-gather and reduce-scatter once per rank
  nccl::Algorithm algorithm = nccl::Algorithm::kRing;
  nccl::Protocol protocol = nccl::Protocol::kSimple;
  int channels = 0;  // 0: the line does not say
  int times = 1;     // how often it was written
  int line = 0;
};

// "Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1", or a graph
// of a dump.
struct LoggedGraph {
  nccl::Pattern pattern = nccl::Pattern::kRing;
  int channels = 0, cross_nic = 0;
  double inside = 0, across = 0;  // GB/s of a channel
  std::string path_inside, path_across;
  std::vector<std::vector<int>> order;  // GPUs by channel; empty: not written
  int line = 0;
};

// What a user or a plug-in prescribed: "NCCL_ALGO set by environment to Ring.", "Using tuner plugin AWS".
struct LoggedSetting {
  std::string text;  // as written
  int line = 0;
};

struct NcclDebug {
  SourcePtr source;
  std::string release;       // "2.28.9"; "": not written
  int ranks = 0, nodes = 0;  // 0: not written
  int channels = 0, nvls_channels = 0;
  std::vector<LoggedChoice> choices;    // each once
  std::vector<LoggedGraph> graphs;      // those of the first communicator with most ranks
  std::vector<std::vector<int>> rings;  // ranks by channel, "Channel 00/24 : 0 1 2"
  std::vector<LoggedSetting> settings;  // each once: with them the choices are not NCCL's own
  std::vector<Diagnostic> garbled;      // the first hundred
  int64_t garbled_lines = 0;
};

// Throws InputError: nothing of NCCL in it.
NcclDebug ReadNcclDebug(const SourcePtr& source);

// A graph dump, or the topology of one node; throws InputError.
std::vector<LoggedGraph> ReadNcclGraphs(const SourcePtr& source);
nccl::NodeDescription ReadNcclTopology(const SourcePtr& source);

enum class NcclFile { kLog, kGraphs, kTopology };
NcclFile KindOfNcclFile(const Source& source);

}  // namespace orrery::measured
