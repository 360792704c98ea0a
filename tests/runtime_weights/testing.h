// SPDX-License-Identifier: Apache-2.0
// Test support: safetensors files with any header.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/runtime_data/testing.h"

namespace orrery::weights {

inline std::string FileOf(const std::string& header, int64_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(static_cast<std::size_t>(data_bytes), '\0');
}

// Two tensors: 24 and 8 bytes.
inline const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b.w":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

}  // namespace orrery::weights
