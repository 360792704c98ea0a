// SPDX-License-Identifier: Apache-2.0
// Writes the weights of a snapshot as transformers' from_pretrained() reads them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/arch/hf_tensors.h"
#include "runtime/train/snapshot/snapshot.h"
#include "runtime/train/train_rank.h"
#include "runtime/train/weights/safetensors.h"

namespace orrery::weights {

struct ExportOptions {
  std::string folder;  // that takes the files; made
  HfTensors table;     // of the family
  ModelSpec model;
  std::string config;                  // text of its config.json; empty: none is written
  int64_t most_bytes = 5'000'000'000;  // of tensors in a file, as save_pretrained has it
};

// Refuses what cannot be written, before training: adapters, parameters that the family has no tensor for, a folder
// that holds a model. Throws InputError.
void CheckExport(const ExportOptions& options, const ir::Plan& plan);

// model.safetensors, or several files with their index; config.json. Types as in the snapshot: master weights where there
// are such. Files appear whole, the index last. Returns the bytes of all tensors. Throws WeightsError, SnapshotError.
int64_t ExportSnapshot(const std::string& step_folder, const ExportOptions& options);

// What a config.json says that runs compute otherwise, in words.
std::vector<std::string> DifferencesOf(const std::string& config, const HfTensors& table);

// Exports behind the last step: from the snapshot in `saved`, or from one of its own that it removes again.
class ExportHook : public launch::StepHook {
 public:
  ExportHook(ExportOptions options, std::string saved, int64_t steps, uint64_t seed,
             comm::Endpoint* endpoint, double deadline_s,
             std::function<void(const std::string&)> progress)
      : options_(std::move(options)),
        saved_(std::move(saved)),
        steps_(steps),
        seed_(seed),
        endpoint_(endpoint),
        deadline_s_(deadline_s),
        progress_(std::move(progress)) {}
  // A run that ended early exports nothing.
  void AfterTraining(exec::Executor* executor) override;

 private:
  ExportOptions options_;
  std::string saved_;
  int64_t steps_;
  uint64_t seed_;
  comm::Endpoint* endpoint_;
  double deadline_s_;
  std::function<void(const std::string&)> progress_;
};

}  // namespace orrery::weights
