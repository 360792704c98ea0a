// SPDX-License-Identifier: Apache-2.0
// What the log of a training program says of itself beside its measurements.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::measured {

// A line that a program prints where it begins.
struct LogStart {
  enum class Kind { kPlan, kWorld, kArguments, kEngine, kMesh, kTraining };
  int line = 0;
  Kind kind = Kind::kPlan;
  // Nodes, ranks or engines of one run may each print it.
  bool MayRepeat() const { return kind != Kind::kWorld && kind != Kind::kArguments; }
};

// Absent or empty: the log does not say.
struct LogFacts {
  // Megatron's dump between "--- arguments ---" and "--- end of arguments ---", and DeepSpeed's lines
  // "[config.py:N:print] key .... value": key to value as printed.
  std::map<std::string, std::string> arguments;
  std::map<std::string, int> lines;    // of the arguments
  bool has_dump = false;               // Megatron's, whole or in part
  std::vector<std::string> devices;    // "NVIDIA A100-SXM4-80GB", each once
  std::optional<double> device_bytes;  // "15.78 GiB total capacity", "16160MiB" of nvidia-smi
  std::optional<double> peak_flops;    // of a GPU, as the program takes it for its MFU
  // Fields of a layout with their lines: of Megatron's line of its world, torchtitan's of its mesh, the heading of `plan run`.
  std::map<std::string, std::pair<int64_t, int>> layout;
  std::optional<int64_t> world_size;
  int world_line = 0;                  // that says so
  std::optional<double> global_batch;  // where a line or an argument says one for the whole run
  double batch_error = 0;              // of that, where it is a ratio of rounded rates
  int batch_line = 0;
  std::string date;       // the first one, "2025-02-11"
  std::string driver;     // "550.54.15"
  std::string nccl;       // "2.20.5"
  std::string framework;  // "DeepSpeed 0.9.2"
  // Digests of plans that scripts of `plan export` printed, each once, with the first line that has it.
  std::vector<std::pair<std::string, int>> plans;
  std::vector<LogStart> starts;

  std::string Argument(std::string_view key) const;  // "": absent, or "None"
  std::optional<int64_t> Whole(std::string_view key) const;
  bool Flag(std::string_view key) const;  // True
};

// Any text; reads lines of programs and ignores all others.
LogFacts ReadLogFacts(const Source& source);

}  // namespace orrery::measured
