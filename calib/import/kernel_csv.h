// SPDX-License-Identifier: Apache-2.0
// Reads timed operations of a device: the CSV that calib/measure and `plan bench gemm` write.
//
// RFC 4180, columns by name (calib/measure/README.md). Required: kind, op, dtype, seconds. A row
// that is malformed is an error with its line; columns that are unknown are skipped.
// Tables with the columns op, shape and tflops are read as they are: what SimuMax prints of a chip (shape_csv.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/csv.h"

namespace orrery::measured {

// kGrouped: `batch` products of one shape, each with operands of its own, as experts ask for them.
enum class KernelKind : uint8_t { kGemm, kGrouped, kAttention, kMemory, kOptimizer, kLaunch };
const char* Name(KernelKind kind);  // "gemm", as in the file

struct KernelSample {
  KernelKind kind = KernelKind::kGemm;
  std::string op;     // "nt", "forward", "layer_norm"
  std::string dtype;  // "bf16", "fp16", "tf32", "fp32"
  // "none", "accumulate" (adds to the output in its own type), "accumulate_fp32", ...; "" where it does not apply.
  std::string epilogue;
  std::string algorithm;                   // "flash"; "" not said
  int64_t m = 0, n = 0, k = 0, batch = 1;  // 0: does not apply
  int64_t heads = 0, kv_heads = 0, seq_q = 0, seq_kv = 0;
  int64_t head_dim = 0;  // of queries and values, in the mean
  bool causal = false;
  double bytes = 0, flops = 0;   // 0: not said
  double seconds = 0;            // median of one call
  double low_s = 0, high_s = 0;  // 10th and 90th percentile; 0: not said
  int64_t calls = 0;
  std::string device, driver, library, date;
  double sm_mhz = 0;
  Location where;
};

// Throws InputError with all that is wrong: a gemm without m, n, k, a time that is none.
std::vector<KernelSample> ReadKernelCsv(const SourcePtr& source);

// Whether the header of a CSV is one of those that ReadKernelCsv knows.
bool IsKernelHeader(std::string_view header);
std::vector<KernelSample> ReadShapeCsv(const SourcePtr& source);

// A file of these rows, which ReadKernelCsv reads back. `script` names what measured.
std::string KernelCsv(const std::vector<KernelSample>& samples, const std::string& script);

// The columns in the order in which this project writes them.
const std::vector<std::string>& KernelColumns();

}  // namespace orrery::measured
