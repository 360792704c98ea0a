// SPDX-License-Identifier: Apache-2.0
// The flags of `plan bench`, those of nccl-tests where they say the same, and the sweep they name.
//
// Known to `plan` for help and completion; used by the program plan-bench, whatever it does with
// the sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/collectives/algorithm.h"
#include "model/program/common/flags.h"

namespace orrery::cli {

struct BenchFlags {
  BenchFlags();

  Flag from, collective, simulate, begin, end, factor, step, type;
  Flag iterations, warmup, check, operation, ranks, comm, device, timeout, predict,
      calibrate;  // of measuring
  Flag topology, nodes, gpus_per_node, gpu, collectives, network, algorithm, log, nccl,
      nccl_release, json;
  FlagSet set;
};

struct ElementType {
  const char* name;
  int bytes;
};

// What to measure, on however many ranks.
struct Sweep {
  Collective collective = Collective::kAllReduce;
  ElementType type = {"float", 4};
  std::vector<int64_t> bytes;  // as asked for; FitSize() says what is run
};

// Flags that the user left out, from the section `bench` of --from's scenario; where ranks here are measured, those of its
// section `run` go before. An algorithm that is spelled as NCCL_ALGO spells it gets its name here. Throws InputError.
void TakeBenchScenario(BenchFlags* flags);

// Throws InputError with all that is wrong.
Sweep ReadSweep(const BenchFlags& flags);

// "8", "64K", "1G", "1GiB": bytes, powers of 1024 as nccl-tests takes them. False: neither.
bool ParseSize(const std::string& text, int64_t* bytes);

// nccl-tests rounds a size down to whole elements, and for collectives in which every rank owns a
// part to whole 16 bytes of each. `count` is what it prints: elements of the buffer, or of a part.
struct FittedSize {
  int64_t bytes = 0;
  int64_t count = 0;
};
FittedSize FitSize(Collective collective, int64_t bytes, int ranks, const ElementType& type);

// The program of nccl-tests: "all_reduce_perf", "alltoall_perf".
std::string NcclProgram(Collective collective);

// "sum" or "none", and the root, as nccl-tests prints them.
const char* ReductionOf(Collective collective);
int RootOf(Collective collective);

Description DescribeBench();

}  // namespace orrery::cli
