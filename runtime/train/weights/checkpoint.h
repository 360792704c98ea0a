// SPDX-License-Identifier: Apache-2.0
// A checkpoint of one or several safetensors files, and the parameters of a plan in it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/hf_tensors.h"
#include "model/base/diagnostics.h"
#include "runtime/exec/initial.h"
#include "runtime/train/weights/safetensors.h"

namespace orrery::weights {

inline constexpr char kSingleName[] = "model.safetensors";
inline constexpr char kIndexName[] = "model.safetensors.index.json";

// Tensors by name, whatever file they are in.
class Checkpoint {
 public:
  struct Entry {
    const SafetensorsFile* file;
    const Tensor* tensor;
  };

  // A .safetensors file, an index (.json), or a folder with model.safetensors or its index. Files that an index names lie
  // next to it. Throws WeightsError.
  explicit Checkpoint(const std::string& path);

  const std::string& path() const { return path_; }  // of the file or the index
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  void CheckWhole()
      const;  // throws WeightsError where a file has become shorter since it was opened

 private:
  void ReadIndex(const std::string& path);
  void Add(const SafetensorsFile& file);

  std::string path_;
  std::deque<SafetensorsFile> files_;
  std::map<std::string, Entry> tensors_;
};

// The parameters of a plan as a checkpoint has them.
class HfWeights : public train::GivenWeights {
 public:
  // All that is wrong at once: tensors that are missing, of another shape or type, of no parameter (at most four of
  // each). `family`: whose names it has; "": the one that fits most of them. Adapters of LoRA begin as without a
  // checkpoint. Throws InputError.
  HfWeights(const std::string& path, const std::string& family, const ModelSpec& model,
            const ir::Plan& plan);
  ~HfWeights() override;

  const train::GivenTensor* Find(const std::string& param) const override;
  void CheckWhole() const override;
  uint64_t id() const override { return id_; }

  const HfTensors& table() const { return table_; }
  int64_t tensors() const { return used_; }
  int64_t elements() const { return elements_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  class Given;
  class Matcher;

  Checkpoint checkpoint_;
  HfTensors table_;
  std::map<std::string, std::unique_ptr<Given>> given_;
  std::vector<std::string> notes_;
  int64_t used_ = 0, elements_ = 0;
  uint64_t id_;
};

// A parameter that a checkpoint holds: packed ones as the tensor that they pack, without padding; adapters left out.
struct StoredParam {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<StoredParam> StoredParams(const ir::Plan& plan);
bool HasAdapters(const ir::Plan& plan);

}  // namespace orrery::weights
