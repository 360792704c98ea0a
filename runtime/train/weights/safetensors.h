// SPDX-License-Identifier: Apache-2.0
// Files of tensors in the safetensors format (github.com/huggingface/safetensors, README, "Format").
//
//   8 bytes   n, the length of the header, little-endian
//   n bytes   JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
//   the rest  the tensors, row-major and little-endian; offsets count from here, without holes and overlaps
//
// A file may come from anywhere: whatever does not hold is refused with the file and the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/plan/ir/plan.h"
#include "runtime/data/mapped_file.h"

namespace orrery::weights {

// A checkpoint that cannot be read or written: says which file, which tensor, and why.
struct WeightsError : std::runtime_error {
  WeightsError(const std::string& what, std::string the_hint = "")
      : std::runtime_error(what), hint(std::move(the_hint)) {}
  std::string hint;
};

inline constexpr int64_t kMostHeaderBytes = 100'000'000;  // as the reference implementation has it

struct Tensor {
  std::string
      dtype;  // "F32", "F16", "BF16", or one of those that are only counted ("I64", "BOOL", ...)
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes behind the header

  int64_t elements() const;
};
using Tensors = std::map<std::string, Tensor>;

// Of a header's text, for `data_bytes` behind it. Throws WeightsError without the file's name.
Tensors ParseHeader(std::string_view text, int64_t data_bytes);
// The other way round, padded with spaces to a multiple of 8 bytes.
std::string HeaderText(const Tensors& tensors);

// Bytes of an element; 0: the type is unknown.
int64_t BytesOfType(const std::string& dtype);
// Types that weights may have. Throws std::out_of_range for others.
bool IsWeightType(const std::string& dtype);
std::string TypeName(ir::Dtype dtype);  // of kF32, kTf32, kF16, kBf16

// A file, mapped into memory. Throws WeightsError.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return path_; }
  const Tensors& tensors() const { return tensors_; }
  const std::byte* Data(const Tensor& tensor) const {
    return file_->bytes() + data_ + tensor.begin;
  }
  // Behind a read; throws WeightsError where the file has become shorter.
  void CheckWhole() const;
  bool torn() const { return file_->torn(); }  // CheckWhole() will throw

 private:
  void Read();
  [[noreturn]] void Fail(const std::string& what, const std::string& hint = "") const;

  std::string path_;
  std::unique_ptr<const MappedFile> file_;
  int64_t data_ = 0;  // where they begin
  Tensors tensors_;
};

}  // namespace orrery::weights
