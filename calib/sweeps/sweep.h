// SPDX-License-Identifier: Apache-2.0
// Sweeps of collective times over message sizes: what nccl-tests and its like measured.
//
// Logs of nccl-tests (text or JSON), or CSV with one row per size: table, hardware, nodes, gpus,
// network, collective, bytes, time_us_out_of_place, time_us_in_place, source; optional: machine,
// algorithm. Rows of one table are one sweep. A point's time is the smaller of out of place and in
// place (single spikes of tens of microseconds are common). Sizes are those that nccl-tests prints:
// for all-gather and reduce-scatter the gathered buffer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {

struct SweepPoint {
  double bytes = 0;
  double seconds = 0;
};

struct MeasuredRuns {        // points of one collective on one group
  std::string name;          // of the table
  std::string machine;       // two sweeps with the same text ran on the same machine
  std::string collective;    // "all_reduce", ..., also "reduce"
  std::string algorithm;     // "" = as the library chose
  int ranks = 0, nodes = 0;  // 0: unknown
  std::string source;
  std::vector<SweepPoint> points;    // ascending sizes above zero
  std::vector<std::string> devices;  // as a log names them, each once; empty: it does not

  int ranks_per_node() const { return nodes > 0 ? ranks / nodes : 0; }
};

struct SweepFiles {
  std::vector<MeasuredRuns> sweeps;  // each with a point
  std::vector<Diagnostic> garbled;   // rows and lines that could not be read, the first of them
  int64_t garbled_rows = 0;
  int64_t empty_rows = 0;  // zero bytes, or no time

  void Append(SweepFiles from);
};

// Whether the file holds collective times: nccl-tests output, or the columns above.
bool IsSweepFile(const std::string& path);

// Throws InputError: unreadable files, missing columns, no measurement at all.
SweepFiles ReadSweeps(const std::vector<std::string>& paths);
SweepFiles ReadSweepSource(const SourcePtr& source);

// "8x A100-SXM4-40GB" and "A100 x2 single node" without their counts.
std::string MachineOf(const std::string& hardware);

}  // namespace orrery
