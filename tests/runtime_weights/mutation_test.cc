// SPDX-License-Identifier: Apache-2.0
// Damaged safetensors files: refused in words, or read with every tensor inside of its file. ORRERY_MUTATIONS sets how
// many (500), ORRERY_MUTATION_SEED the seed.
#include <gtest/gtest.h>

#include <random>

#include "runtime/train/weights/checkpoint.h"
#include "tests/from_environment.h"
#include "tests/mutated_text.h"
#include "tests/runtime_weights/testing.h"

namespace orrery::weights {
namespace {

using train::Folder;

const std::vector<std::string> kHeaders = {
    kHeader,
    R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"F16","shape":[2,2],"data_offsets":[24,32]}})",
    R"({"x":{"dtype":"I64","shape":[4],"data_offsets":[0,32]},"y":{"dtype":"BOOL","shape":[0,9],"data_offsets":[32,32]}})",
};

// Every byte of every tensor can be read.
uint64_t Touch(const Checkpoint& checkpoint) {
  uint64_t sum = 0;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    EXPECT_FALSE(name.empty() && entry.tensor->shape.size() > 16);
    for (int64_t i = entry.tensor->begin; i < entry.tensor->end; ++i)
      sum += static_cast<uint64_t>(entry.file->Data(*entry.tensor)[i - entry.tensor->begin]);
  }
  return sum;
}

TEST(WeightsMutation, HeadersAreRefusedOrRead) {
  const auto mutations = static_cast<int>(FromEnvironment("ORRERY_MUTATIONS", 500));
  std::mt19937_64 random(FromEnvironment("ORRERY_MUTATION_SEED", 1));
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  int read = 0;
  for (int i = 0; i < mutations; ++i) {
    std::string bytes = FileOf(MutatedText(random, kHeaders, "{}[]\",:0\\\x01\xff"), 32);
    if (RandomBelow(random, 4) == 0)  // the length, or any other byte
      bytes[RandomBelow(random, RandomBelow(random, 2) == 0 ? 8 : bytes.size())] ^=
          static_cast<char>(1u << RandomBelow(random, 8));
    if (RandomBelow(random, 8) == 0) bytes.resize(RandomBelow(random, bytes.size()));
    train::WriteBytes(path, bytes);
    try {
      const Checkpoint checkpoint(path);
      Touch(checkpoint);
      ++read;
    } catch (const WeightsError& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
  if (mutations >= 500) {
    EXPECT_GT(read, 0) << "no mutation is harmless: the test tries nothing but refusals";
    EXPECT_LT(read, mutations);
  }
}

TEST(WeightsMutation, IndexesAreRefusedOrRead) {
  const auto mutations = static_cast<int>(FromEnvironment("ORRERY_MUTATIONS", 500)) / 5;
  std::mt19937_64 random(FromEnvironment("ORRERY_MUTATION_SEED", 1));
  const Folder folder;
  train::WriteBytes(folder / "1.safetensors", FileOf(kHeader, 32));
  const std::vector<std::string> seeds = {
      R"({"metadata": {"total_size": 32}, "weight_map": {"a": "1.safetensors", "b.w": "1.safetensors"}})"};
  for (int i = 0; i < mutations; ++i) {
    train::WriteBytes(folder / kIndexName, MutatedText(random, seeds, "{}[]\",:0./\\\xff"));
    try {
      Touch(Checkpoint(folder / "."));
    } catch (const WeightsError& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
}

}  // namespace
}  // namespace orrery::weights
