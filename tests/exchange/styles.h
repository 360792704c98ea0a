// SPDX-License-Identifier: Apache-2.0
// Reads files that are written in a test, as an import and as the job that it predicts.
#pragma once

#include <gmock/gmock.h>

#include <fstream>

#include "model/exchange/import.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::styles {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

struct Named {
  const char* name;
  std::string text;
};
inline Imported Read(const std::vector<Named>& files, const Values& given = {}) {
  std::vector<SourcePtr> sources;
  for (const Named& file : files) sources.push_back(SourceOf(file.name, file.text));
  return Import(sources, std::nullopt, given);
}
inline std::string Text(const Imported& imported, const char* field) {
  const auto at = imported.values.find(field);
  return at == imported.values.end() ? "" : at->second.text;
}
inline std::string Error(const std::vector<Named>& files, const Values& given = {}) {
  return ErrorOf([&] { Read(files, given); });
}
inline Resolved Predict(const std::vector<Named>& files, std::vector<std::string> words) {
  for (const Named& file : files) {
    const std::string path = testing::TempDir() + "/" + file.name;
    std::ofstream(path) << file.text;
    words.insert(words.end(), {"--from", path});
  }
  return Resolve(words);
}
inline Values Flags(const std::vector<std::pair<const char*, const char*>>& flags) {
  Values values;
  for (const auto& [field, text] : flags)
    values.emplace(field, Value{text, {SourceOf("command line", text), 1, 1}, field});
  return values;
}

inline constexpr const char* kGpt =
    "pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 128 ";

}  // namespace orrery::exchange::styles
