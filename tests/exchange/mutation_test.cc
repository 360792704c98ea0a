// SPDX-License-Identifier: Apache-2.0
// Damaged files: a diagnostic with the file's name or an answer, never a crash or a hang.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/exchange/exported.h"
#include "tests/from_environment.h"

namespace orrery::exchange {
namespace {

constexpr int kMutations = 400;  // of each sample

std::string Mutated(std::string text, std::mt19937_64* random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : (*random)() % n; };
  static constexpr std::string_view kOdd = "\"'${}()[]|=*,:\\\n#-\0019e+";
  const int changes = 1 + static_cast<int>(below(4));
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = below(text.size());
    switch (below(5)) {
      case 0:
        text[at] = kOdd[below(kOdd.size())];
        break;
      case 1:
        text.erase(at, 1 + below(20));
        break;
      case 2:
        text.insert(at, 1 + below(3), kOdd[below(kOdd.size())]);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(80)));
        break;
      default:
        text.insert(at, std::to_string((*random)()));
        break;
    }
  }
  return text;
}

class Mutation : public testing::TestWithParam<std::string> {};

TEST_P(Mutation, IsReadOrRefused) {
  if (GetParam().ends_with(".toml") && !WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  std::mt19937_64 random(FromEnvironment("ORRERY_MUTATION_SEED", 7));
  const int mutations = static_cast<int>(FromEnvironment("ORRERY_MUTATIONS", kMutations));
  const std::string text = ReadAll(GetParam());
  int refused = 0;
  for (int i = 0; i < mutations; ++i) {
    const SourcePtr source = SourceOf("sample", Mutated(text, &random));
    refused += ErrorOf([&] { Import({source}, std::nullopt); }).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, mutations);
}

std::vector<std::string> Samples() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) +
                                                               "/tests/exchange/samples"))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Samples, Mutation, testing::ValuesIn(Samples()), [](const auto& test) {
  std::string name = std::filesystem::path(test.param).filename().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
});

}  // namespace
}  // namespace orrery::exchange
