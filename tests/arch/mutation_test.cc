// SPDX-License-Identifier: Apache-2.0
// Damaged model files never crash or hang: they load, or end in an InputError.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "model/arch/parameters.h"
#include "model/arch/readers.h"
#include "tests/arch/expect_error.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr int kMutantsPerFile = 60;

// Overwrites, inserts, removes or doubles a few bytes.
std::string Mutate(std::string text, std::mt19937* random) {
  const std::string kAlphabet = "0129-.:{}[]\",\n\t #&*!%|>aehlnx\xff";
  const auto below = [&](std::size_t n) { return (*random)() % n; };
  for (std::size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = below(text.size());
    const char byte = kAlphabet[below(kAlphabet.size())];
    switch (below(4)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1 + below(3), byte);
        break;
      case 2:
        text.erase(at, 1 + below(20));
        break;
      default:
        text.insert(at, text.substr(at, 1 + below(30)));
        break;
    }
  }
  return text;
}

// What loads must be sound: positive counts, no overflow.
template <class Read>
void Try(const std::string& text, Read read, int* loaded) {
  try {
    const LoadedModel model = read(Text("damaged", text));
    const ParameterCount count = CountParameters(model.spec);
    EXPECT_GT(count.total, 0) << text;
    EXPECT_GT(ModelFlopsPerSequence(model.spec, 128, 0).value, 0) << text;
    ++*loaded;
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()), "") << text;
  }
}

template <class Read>
void MutateFiles(const fs::path& folder, const std::string& extension, Read read) {
  std::mt19937 random(7);
  int loaded = 0, tried = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != extension) continue;
    const std::string text = ReadSource(entry.path().string())->text;
    for (int i = 0; i < kMutantsPerFile; ++i, ++tried) Try(Mutate(text, &random), read, &loaded);
  }
  EXPECT_GT(tried, 500);
  EXPECT_GT(loaded, 0);      // some mutants touch comments only
  EXPECT_LT(loaded, tried);  // and some are damaged
}

TEST(Mutation, OfModelFilesNeverCrashes) {
  MutateFiles(fs::path(ORRERY_SOURCE_DIR) / "scenarios" / "models", ".yaml",
              [](SourcePtr source) { return ReadModelYaml(std::move(source)); });
}

TEST(Mutation, OfHuggingFaceFilesNeverCrashes) {
  MutateFiles(fs::path(ORRERY_SOURCE_DIR) / "tests" / "arch" / "data" / "hf", ".json",
              [](SourcePtr source) { return ReadHfConfig(std::move(source), "damaged"); });
}

// The largest model that the bounds allow still counts without overflow (the sanitizer watches).
TEST(Bounds, LargestModelDoesNotOverflow) {
  ModelSpec spec;
  spec.family = Family::kEncoderDecoder;
  spec.layers = spec.decoder_layers = kMaxLayers;
  spec.hidden = kMaxWidth;
  spec.ffn = kMaxFfn;
  spec.heads = spec.kv_heads = kMaxHeads;
  spec.head_dim = kMaxHeadDim;
  spec.vocab = kMaxVocab;
  spec.max_positions = kMaxPositions;
  spec.gated = true;
  spec.tied_embeddings = false;
  EXPECT_GT(CountParameters(spec).total, int64_t{1} << 60);
}

}  // namespace
}  // namespace orrery
