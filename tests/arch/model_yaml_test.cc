// SPDX-License-Identifier: Apache-2.0
// What a model file may say, and what is refused with its place.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "model/arch/enum_names.h"
#include "model/arch/parameters.h"
#include "model/arch/readers.h"
#include "tests/arch/expect_error.h"

namespace orrery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char kSmall[] =
    "name: small\nfamily: decoder\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 100\nmax_positions: "
    "32\n";

LoadedModel Read(const std::string& text) { return ReadModelYaml(Text("small.yaml", text)); }
std::string ReadError(const std::string& text) {
  return ErrorOf([&] { Read(text); });
}
// The small model with one line replaced.
std::string With(const std::string& line, const std::string& replacement) {
  std::string text = kSmall;
  const auto at = text.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  return text.replace(at, line.size(), replacement);
}

TEST(ModelYaml, FillsWhatFollows) {
  const ModelSpec spec = Read(kSmall).spec;
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.ffn, 256);
  EXPECT_TRUE(spec.tied_embeddings && spec.linear_bias && spec.qkv_bias);
  EXPECT_STREQ(Name(spec.family), "decoder");
}

TEST(ModelYaml, GatesSwiglu) {
  EXPECT_TRUE(Read(std::string(kSmall) + "activation: swiglu\n").spec.gated);
  EXPECT_THAT(ReadError(std::string(kSmall) + "activation: swiglu\ngated: false\n"),
              HasSubstr("three matrices"));
}

// What `plan list models --template` prints is a model file, and every key of it that is commented out is one, too.
TEST(ModelYaml, ReadsTheTemplate) {
  const std::string path = std::string(ORRERY_SOURCE_DIR) + "/scenarios/models/template.txt";
  const std::string text = ReadSource(path)->text;
  EXPECT_EQ(CountParameters(Read(text).spec).total, 8'030'261'248);
  const std::string all = std::regex_replace(text, std::regex("\n# ([a-z_]+: )"), "\n$1");
  const ModelSpec spec = Read(all).spec;
  EXPECT_EQ(spec.windows, std::vector<int64_t>({4096, 0}));
  EXPECT_EQ(spec.attention_cap, 50);
  EXPECT_EQ(spec.rope_scaling, (RopeScaling{RopeScaling::Kind::kLlama3, 8, 1, 4, 8192, 1, true}));
  EXPECT_TRUE(spec.untrained.empty());
}

TEST(ModelYaml, RefusesBlocksThatContradictThemselves) {
  const std::string small = kSmall;
  EXPECT_THAT(ReadError(small + "post_norm: true\noutput_norm: true\n"), HasSubstr("post_norm"));
  EXPECT_THAT(ReadError(small + "input_norm: false\n"), HasSubstr("without norms"));
  EXPECT_THAT(ReadError(small + "shared_norm: true\n"), HasSubstr("parallel"));
  EXPECT_THAT(ReadError(small + "parallel: true\nlinear_bias: false\noutput_norm: true\n"),
              HasSubstr("parallel blocks"));
  EXPECT_THAT(ReadError(small + "output_norm: true\n"), HasSubstr("linear_bias"));
  EXPECT_THAT(ReadError(small + "head_bias: true\n"), HasSubstr("tied_embeddings"));
  EXPECT_THAT(ReadError(small + "positions: rotary\nrotary_width: 64\n"), HasSubstr("16 wide"));
  EXPECT_THAT(ReadError(small + "window: 8\nlayer_types: [sliding_attention]\n"),
              HasSubstr("1 entries for 2 layers"));
  EXPECT_THAT(ReadError(small + "layer_types: [sliding_attention, full_attention]\n"),
              HasSubstr("no size"));
}

TEST(ModelYaml, RefusesZeroLayersAtTheirPlace) {
  EXPECT_THAT(ReadError(With("layers: 2", "layers: 0")),
              AllOf(HasSubstr("small.yaml:3:9"), HasSubstr("'layers'")));
}

TEST(ModelYaml, RefusesHeadsThatDoNotDivideHidden) {
  EXPECT_THAT(ReadError(With("heads: 4", "heads: 5")),
              AllOf(HasSubstr("small.yaml:5:8"), HasSubstr("5 heads"), HasSubstr("64")));
  EXPECT_EQ(Read(With("heads: 4", "heads: 5\nhead_dim: 16")).spec.head_dim, 16);
}

TEST(ModelYaml, RefusesKeyValueHeadsThatDoNotDivideHeads) {
  EXPECT_THAT(ReadError(std::string(kSmall) + "kv_heads: 3\n"), HasSubstr("3 key-value heads"));
  EXPECT_THAT(ReadError(std::string(kSmall) + "kv_heads: 8\n"), HasSubstr("8 key-value heads"));
}

TEST(ModelYaml, RefusesOddRotaryHeads) {
  EXPECT_THAT(ReadError(With("heads: 4", "heads: 64") + "positions: rotary\n"),
              HasSubstr("even head width"));
}

TEST(ModelYaml, SuggestsUnknownKeys) {
  EXPECT_THAT(ReadError(std::string(kSmall) + "hiden: 64\n"),
              AllOf(HasSubstr("small.yaml:8:1"), HasSubstr("hiden"), HasSubstr("hidden")));
  EXPECT_THAT(ReadError(std::string(kSmall) + "training: {sorce: me, source: me}\n"),
              HasSubstr("sorce"));
}

TEST(ModelYaml, RefusesKeysOfAnotherFamily) {
  EXPECT_THAT(ReadError(std::string(kSmall) + "pooler: true\n"), HasSubstr("pooler"));
  EXPECT_THAT(ReadError(std::string(kSmall) + "decoder_layers: 2\n"), HasSubstr("decoder_layers"));
}

TEST(ModelYaml, RefusesUnknownChoices) {
  EXPECT_THAT(ReadError(With("family: decoder", "family: decodr")), HasSubstr("decoder"));
  EXPECT_THAT(ReadError(std::string(kSmall) + "training: {source: me, precision: bf61}\n"),
              HasSubstr("bf16"));
}

TEST(ModelYaml, ReportsSeveralMistakesAtOnce) {
  EXPECT_THAT(ReadError(With("layers: 2\nhidden: 64", "layers: 0\nhidden: wide") + "norm: none\n"),
              AllOf(HasSubstr("'layers'"), HasSubstr("wide"), HasSubstr("rms-norm")));
}

TEST(ModelYaml, RefusesMissingKeys) {
  EXPECT_THAT(ReadError("name: x\nfamily: decoder\nlayers: 1\n"),
              AllOf(HasSubstr("hidden"), HasSubstr("heads"), HasSubstr("vocab")));
  EXPECT_THAT(ReadError("family: mlp\nlayers: 1\nname: x\n"), HasSubstr("in_features"));
}

TEST(ModelYaml, RefusesAbsurdSizes) {
  for (const char* line : {"layers: 1000000000", "layers: 99999999999999999999", "layers: -1",
                           "layers: 2.5", "layers: nan", "layers: [2]"}) {
    EXPECT_THAT(ReadError(With("layers: 2", line)), HasSubstr("layers")) << line;
  }
}

TEST(ModelYaml, RefusesTextThatIsNoMap) {
  for (const char* text : {"", "[]", "7", "name: [", "name: x\n  layers: 2\n", "- a\n- b\n"}) {
    EXPECT_THAT(ReadError(text), HasSubstr("small.yaml")) << text;
  }
}

TEST(ModelYaml, ReadsPublishedCounts) {
  const auto published = [](const std::string& count) {
    return *Read(kSmall + fmt::format("parameters: {{published: {}, source: me}}\n", count))
                .published;
  };
  EXPECT_EQ(published("124439808").tolerance, 0);
  EXPECT_NEAR(published("1.7B").value, 1.7e9, 1);
  EXPECT_NEAR(published("1.7B").tolerance, 0.05e9, 1);
  EXPECT_NEAR(published("340M").tolerance, 0.5e6, 1);
  for (const char* wrong : {"many", "-1", "1.5", "0", "1.5G", "nan", "1e300", "inf"}) {
    EXPECT_THAT(ErrorOf([&] { published(wrong); }), HasSubstr("parameter count")) << wrong;
  }
}

TEST(ModelYaml, ReadsMaskedPositionsOfAnEncoder) {
  const std::string encoder = With("family: decoder", "family: encoder");
  const std::string training = "training:\n  source: me\n  seq_len: 128\n  masked_positions: 20\n";
  const LoadedModel model = Read(encoder + training + "  masked_positions_at: {512: 80}\n");
  EXPECT_EQ(MaskedPositions(model.spec, model.defaults, 512), 80);
  EXPECT_THAT(ReadError(encoder + training + "  masked_positions_at: {long: 80}\n"),
              HasSubstr("'long' is not a sequence length"));
  EXPECT_THAT(ReadError(kSmall + training), HasSubstr("masked_positions"));
}

}  // namespace
}  // namespace orrery
