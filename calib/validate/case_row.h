// SPDX-License-Identifier: Apache-2.0
// One row of a CSV of published runs, as a model, a workload and a strategy.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/base/csv.h"
#include "model/plan/lower/strategy.h"
#include "model/twin/step_predictor.h"

namespace orrery {

// Who printed a row's memory: the framework's allocator (peak of what it handed out), or the device
// (with the context, communication buffers and what the allocator keeps).
enum class MemoryKind { kNotSaid, kAllocator, kDevice };
std::span<const std::pair<const char*, MemoryKind>> MemoryPrinters();  // "allocator", "nvidia-smi"

inline constexpr const char* kNotPrinted =
    "not printed";  // of measured_step_s: predict, compare nothing

struct CaseRow {
  std::string name;    // "mosaic-139"
  std::string source;  // the name's first word: "mosaic"
  std::string place;   // "runs.csv:12"
  std::string topology;
  std::string gpu;        // "": the topology's
  std::string framework;  // by its name in calib/profiles/framework
  int64_t nodes = 0;
  int gpus_per_node = 0;
  ModelSpec model;
  Workload work;
  Strategy strategy;
  Window window = Window::kStep;
  double measured_step_s = 0;  // 0: the source prints none, and the cell says so (kNotPrinted)
  std::optional<double> measured_mem_gib;
  std::optional<double> measured_communication;  // share of the step that messages expose
  std::optional<double> measured_kernels;        // share of the step that kernels take
  MemoryKind memory_kind = MemoryKind::kNotSaid;
  bool flash_assumed =
      false;  // the source does not print the cell's attention: materialised, if it fits
  bool flash_open = false;  // the cell is empty: the default of the framework on the chip
  std::string
      published_base;         // of frozen weights in products of 8 bits, in runs of the same source
  bool fp32_printed = false;  // read as bf16 with fp32 gradients
  bool recompute_open = false;         // the cell is empty: as little as fits
  std::vector<std::string> notes;      // how the row was read where it does not say
  std::optional<std::string> refused;  // the row cannot be run, and why
};

// Columns that a file must have.
const std::vector<std::string>& CaseColumns();
// Columns of a model's shape, needed where a row names no model.
const std::vector<std::string>& ShapeColumns();
// Columns that it may have: what is absent, as what is empty, is assumed where a note can say what, and refuses the
// row where nothing can be said. `model`: a name or file as `--model` takes it, instead of a shape. `assumed`: what the source does not print; `memory_by`: allocator, nvidia-smi;
// `source`: where the row was published; `gpu`: instead of the topology's; `head_dim`: where heads x head_dim is not
// hidden.
const std::vector<std::string>& OptionalCaseColumns();

// Reads all rows. A cell that cannot be read refuses its row; names that are not this project's are mapped to what
// they mean, with a note (case_names.h).
std::vector<CaseRow> ReadCases(const CsvTable& table);

}  // namespace orrery
