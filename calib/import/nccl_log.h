// SPDX-License-Identifier: Apache-2.0
// What a run of nccl-tests measured, read from its text output or its JSON report.
//
// Text: both column layouts (with "error" or "#wrong"; with redop, root, both or neither), further
// columns (per-iteration times, timestamps) skipped, lines with the prefixes of `srun -l` ("3: ")
// and `mpirun --tag-output` ("[1,0]<stdout>:"). A file may hold several tables among other output.
// A line that looks like a row of a table and is none is counted and named; a file without a single
// measurement is an InputError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::measured {

// Beyond these a number in a log can only be damage.
inline constexpr int kMostRanks = 1 << 20;
inline constexpr int kMostChannels = 4096;

struct Timing {
  double us = 0;     // microseconds of one call
  double algbw = 0;  // GB/s: size / time
  double busbw = 0;  // GB/s, as printed
  std::optional<double>
      wrong;  // wrong elements, or the largest error in older layouts; absent: N/A
};

struct Measurement {
  int64_t bytes = 0;
  int64_t count = 0;                             // elements
  std::string type;                              // "float"
  std::string redop;                             // "sum"; "" or "none": no reduction
  int root = -1;                                 // -1: no root
  std::optional<Timing> out_of_place, in_place;  // at least one of them
  int line = 0;                                  // in the source
};

struct MeasuredDevice {
  int rank = 0;
  std::string host;
  std::string name;  // "NVIDIA A10G"
};

// One table: one start of a test program.
struct NcclRun {
  std::string collective;  // "all_reduce" (see CollectiveOfProgram); "": the log does not say
  std::vector<MeasuredDevice> devices;  // by the "Using devices" lines; may be empty
  int ranks = 0;                        // 0: unknown
  bool ranks_implied = false;           // from bus over algorithm bandwidth, not from the devices
  std::optional<double> average_busbw;  // GB/s, as printed
  std::vector<Measurement> measurements;
  int line = 0;  // of its column titles, or of the results in JSON

  int hosts() const;  // different ones among the devices; 0: unknown
};

struct NcclLog {
  SourcePtr source;
  std::vector<NcclRun> runs;        // each with at least one measurement
  std::vector<Diagnostic> garbled;  // the first hundred of them
  int64_t garbled_lines = 0;
};

// Text or JSON, told apart by the first character. Throws InputError.
NcclLog ReadNcclLog(const SourcePtr& source);
NcclLog ReadNcclText(const SourcePtr& source);
NcclLog ReadNcclJson(const SourcePtr& source);

// "./build/all_reduce_perf" -> "all_reduce"; "alltoall_perf" -> "all_to_all"; "" for other words.
std::string CollectiveOfProgram(const std::string& word);

// The number of ranks for which busbw = factor(n) algbw, from the printed digits of the largest
// message of an all-reduce, all-gather, reduce-scatter or all-to-all; 0 when they leave a choice.
int ImpliedRanks(const std::string& collective, const std::vector<Measurement>& measurements);

// Shared by the readers.
void AddGarbled(int line, int column, const std::string& why, NcclLog* log);
void FinishLog(NcclLog* log);  // fills in ranks; throws InputError when nothing was measured

}  // namespace orrery::measured
