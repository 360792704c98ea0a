// SPDX-License-Identifier: Apache-2.0
// The samples of config.json files, as the reader takes them.
#pragma once

#include <filesystem>
#include <string>

#include "model/arch/readers.h"
#include "tests/arch/expect_error.h"

namespace orrery {

inline const std::filesystem::path kSamples =
    std::filesystem::path(ORRERY_SOURCE_DIR) / "tests" / "arch" / "data" / "hf";

inline std::string SampleText(const std::string& name) {
  return ReadSource((kSamples / (name + ".json")).string())->text;
}
inline LoadedModel Read(const std::string& text) {
  return ReadHfConfig(Text("config.json", text), "it");
}
inline std::string ReadError(const std::string& text) {
  return ErrorOf([&] { Read(text); });
}

}  // namespace orrery
