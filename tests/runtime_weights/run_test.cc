// SPDX-License-Identifier: Apache-2.0
// HuggingFace's checkpoints in and out of `plan run`, as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/train/snapshot/files.h"
#include "runtime/train/weights/checkpoint.h"
#include "tests/cli/run_plan.h"
#include "tests/runtime_weights/testing.h"

namespace orrery::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using train::Folder;

Outcome Plan(const std::string& text) {
  std::istringstream in(text);
  return RunPlan({std::istream_iterator<std::string>(in), {}});
}

std::vector<double> Losses(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<double> losses;
  if (outcome.code != 0) return losses;
  const json record = json::parse(outcome.out);
  for (const json& step : record["steps"]) losses.push_back(step["loss"]);
  return losses;
}

double Worst(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || a.size() != b.size()) return 1e300;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

constexpr char kJob[] = "run --seq-len 8 --global-batch 1 --dropout 0 --comm local ";

// One sample, so that every step and every run sees the same one.
std::string OneSample(const Folder& folder) {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < 9; ++i) tokens.push_back(static_cast<uint16_t>(i * 7 % 48));
  train::WriteBytes(folder / "one.u16", train::BytesOf(tokens));
  return kJob + ("--data " + (folder / "one.u16")) + " ";
}

std::string TinyGpt(const Folder& folder) {
  WriteText(folder / "tiny.yaml",
            "name: tiny\nfamily: decoder\nlayers: 4\nhidden: 16\nffn: 64\nheads: 4\nvocab: 50\n"
            "max_positions: 32\nnorm: layer-norm\nactivation: gelu\npositions: learned\n"
            "tied_embeddings: true\n");
  return "--model " + (folder / "tiny.yaml") + " ";
}

bool HasPython() { return RunShell("python3 -c 'import json'").code == 0; }

// The independent program's loss, and its checkpoint in the folder.
double Reference(const std::string& family, const std::string& type, const Folder& folder) {
  const Outcome outcome = RunShell(std::string("python3 -B ") + ORRERY_REFERENCE + " " + family +
                                   " " + type + " " + (folder / "."));
  EXPECT_EQ(outcome.code, 0);
  return std::atof(outcome.out.c_str());
}

class HuggingFace : public testing::TestWithParam<const char*> {};

// Names, transposes, the order of packed rows, rotary positions: one wrong row moves the loss by far more.
TEST_P(HuggingFace, ModelHasTransformersLossInEveryLayout) {
  if (!HasPython()) GTEST_SKIP() << "no python3, which writes the checkpoint";
  const std::string family = GetParam();
  for (const char* type : {"F32", "BF16", "F16"}) {
    if (std::string(type) != "F32" && family != "gpt2" && family != "llama") continue;
    SCOPED_TRACE(type);
    const Folder folder;
    const double loss = Reference(family, type, folder);
    const std::string job = kJob + ("--data " + (folder / "tokens.u16 ")) + "--init-from " +
                            (folder / ". ") + "--steps 3 --json ";
    const std::vector<double> one = Losses(Plan(job));
    ASSERT_EQ(one.size(), 3u);
    EXPECT_NEAR(one.front(), loss, 2e-6 * loss);
    EXPECT_LT(one.back(), one.front()) << "it learns";
    for (const std::string layout : {"--tp 2", "--pp 2", "--tp 2 --pp 2 --sequence-parallel"}) {
      // Norms over all heads are not lowered for tensor ranks, and one key head has no two parts.
      if ((family == "olmo2" || family == "gpt_bigcode" || family == "falcon") &&
          layout != "--pp 2")
        continue;
      EXPECT_LT(Worst(Losses(Plan(job + layout)), one), 1e-5) << layout;
    }
  }
}

// Linear biases depend on the heads and the positions of the whole model, wherever these are.
TEST(HuggingFaceShared, LinearBiasesAreThoseOfAllHeadsAndPositions) {
  if (!HasPython()) GTEST_SKIP() << "no python3, which writes the checkpoint";
  const Folder folder;
  const double loss = Reference("bloom", "F32", folder);
  const std::string job = kJob + ("--data " + (folder / "tokens.u16 ")) + "--init-from " +
                          (folder / ". ") + "--steps 3 --json --attention flash ";
  const std::vector<double> one = Losses(Plan(job));
  EXPECT_NEAR(one.at(0), loss, 2e-6 * loss);
  for (const char* layout : {"--cp 2 --cp-method ring", "--cp 2 --cp-method allgather",
                             "--cp 2 --cp-method ulysses", "--tp 2 --cp 2 --cp-method ulysses"})
    EXPECT_LT(Worst(Losses(Plan(job + layout)), one), 1e-5) << layout;
}
const auto kNameOf = [](const auto& one) { return std::string(one.param); };
// Each way to pack, transpose and turn rows.
INSTANTIATE_TEST_SUITE_P(Families, HuggingFace,
                         testing::Values("gpt2", "llama", "qwen3", "phi3", "gpt_neox", "gemma2",
                                         "bloom", "falcon_of_groups"),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(FamiliesSlow, HuggingFace,
                         testing::Values("qwen2", "olmo2", "gptj", "opt", "mistral", "phi",
                                         "starcoder2", "gpt_bigcode", "gemma", "gemma3_text",
                                         "granite", "nemotron", "falcon", "falcon_serial",
                                         "llama_of_llama3", "llama_of_yarn", "gemma3_of_linear"),
                         kNameOf);

TEST(ExportHf, IsReadBackInAnotherLayoutWithTheSameLosses) {
  const Folder folder;
  const std::string job = OneSample(folder), model = TinyGpt(folder);
  const auto whole = Losses(Plan(job + model + "--steps 5 --json"));
  ASSERT_EQ(whole.size(), 5u);
  // Uneven stages of two tensor ranks, for which the vocabulary of 50 is padded.
  const Outcome written =
      Plan(job + model + "--steps 2 --pp 2 --layout 3,1 --tp 2 --export-hf " + (folder / "out"));
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("of weights into " + (folder / "out")));
  EXPECT_TRUE(fs::exists(folder / "out/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "out/config.json"));
  EXPECT_FALSE(fs::exists(folder / "out/.snapshot"));
  // The model is that of config.json now.
  const std::string init = "--steps 1 --json --init-from " + (folder / "out ");
  EXPECT_LT(std::abs(Losses(Plan(job + init)).at(0) / whole[2] - 1), 1e-6);
  for (const char* layout : {"--tp 2", "--pp 4", "--pp 2 --layout 1,3 --tp 2"})
    EXPECT_LT(std::abs(Losses(Plan(job + init + layout)).at(0) / whole[2] - 1), 1e-6) << layout;
  const std::string more =
      "run --seq-len 8 --global-batch 2 --dropout 0 --comm local --steps 2 --json --init-from " +
      (folder / "out ");
  const auto two = Losses(Plan(more));
  for (const char* layout : {"--dp 2 --zero 1", "--dp 2 --zero 2", "--dp 2 --zero 3"})
    EXPECT_LT(Worst(Losses(Plan(more + layout)), two), 1e-6) << layout;
  ASSERT_EQ(Plan(more + "--dp 2 --zero 3 --lr 0 --export-hf " + (folder / "sharded")).code, 0);
  EXPECT_EQ(ReadText(folder / "sharded/model.safetensors"),
            ReadText(folder / "out/model.safetensors"));
}

TEST(ExportHf, TakesASnapshotWithoutTraining) {
  const Folder folder;
  const std::string job = OneSample(folder) + TinyGpt(folder);
  ASSERT_EQ(
      Plan(job + "--steps 2 --dp 1 --export-hf " + (folder / "a") + " --save " + (folder / "s"))
          .code,
      0);
  const Outcome outcome =
      Plan(job + "--tp 2 --steps 0 --resume " + (folder / "s") + " --export-hf " + (folder / "b"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(ReadText(folder / "a/model.safetensors"), ReadText(folder / "b/model.safetensors"));
  EXPECT_EQ(snapshot::StepsIn(folder / "s"), std::vector<int64_t>{2});
  ASSERT_EQ(
      Plan(job + "--dp 1 --steps 3 --resume " + (folder / "s") + " --export-hf " + (folder / "c"))
          .code,
      0);
  EXPECT_THAT(snapshot::StepsIn(folder / "s"), testing::Contains(3));
  const Outcome again = Plan(job + "--steps 1 --export-hf " + (folder / "b"));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("holds model.safetensors already"));
  const Outcome nothing = Plan(job + "--steps 0 --export-hf " + (folder / "d"));
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("--steps 0 trains nothing, and no snapshot is named"));
  // A config.json of something else is somebody's.
  fs::create_directories(folder / "e");
  WriteText(folder / "e/config.json", "{\"model_type\": \"other\"}\n");
  const Outcome other = Plan(job + "--steps 1 --export-hf " + (folder / "e"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("holds another config.json already"));
}

TEST(ExportHf, ImportedFilesComeOutAsTheyWere) {
  if (!HasPython()) GTEST_SKIP() << "no python3, which writes the checkpoint";
  for (const std::string family :
       {"gpt2", "llama", "gptj", "phi3", "opt", "gpt_neox", "falcon_of_groups", "llama_of_yarn"}) {
    SCOPED_TRACE(family);
    const Folder folder;
    Reference(family, "F32", folder);
    const Outcome outcome = Plan(kJob + ("--init-from " + (folder / ". ")) +
                                 "--lr 0 --steps 1 --tp 2 --export-hf " + (folder / "out"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Checkpoint before(folder / "."), after(folder / "out");
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const auto& [name, a] : before.tensors()) {
      ASSERT_TRUE(after.tensors().contains(name)) << name;
      const Checkpoint::Entry& b = after.tensors().at(name);
      ASSERT_EQ(a.tensor->shape, b.tensor->shape) << name;
      EXPECT_EQ(std::memcmp(a.file->Data(*a.tensor), b.file->Data(*b.tensor),
                            static_cast<std::size_t>(a.tensor->end - a.tensor->begin)),
                0)
          << name;
    }
    EXPECT_EQ(json::parse(ReadText(folder / "out/config.json"))["model_type"],
              family.substr(0, family.find("_of_")));
  }
}

// The number that is trained with is the one in the file, wherever it comes from.
TEST(ExportHf, TheEpsilonOfNormsIsThatOfTheModel) {
  if (!HasPython()) GTEST_SKIP() << "no python3, which writes the checkpoint";
  const Folder folder;
  Reference("gpt2", "F32", folder);  // with 1e-3
  const std::string model =
      "name: same\nfamily: decoder\nlayers: 2\nhidden: 32\nffn: 128\nheads: 4\nvocab: 48\n"
      "max_positions: 16\nactivation: gelu\ntied_embeddings: true\n";
  WriteText(folder / "plain.yaml", model);
  WriteText(folder / "same.yaml", model + "norm_epsilon: 1e-3\n");
  const auto run = [&](const std::string& name, const std::string& more) {
    return Plan(kJob + ("--data " + (folder / "tokens.u16 ")) + "--model " + (folder / name) +
                " --init-from " + (folder / ". ") + "--lr 0 --steps 1 --json " + more);
  };
  const Outcome same = run("same.yaml", ""), plain = run("plain.yaml", "");
  EXPECT_THAT(same.err, Not(HasSubstr("epsilon")));
  EXPECT_THAT(plain.err, HasSubstr("config.json has norms with epsilon 0.001, and the model that "
                                   "is trained with 1e-05"));
  EXPECT_THAT(plain.err, Not(HasSubstr("another model")));
  EXPECT_GT(Worst(Losses(same), Losses(plain)), 1e-6);
  const Outcome made = Plan(OneSample(folder) + "--model " + (folder / "same.yaml") +
                            " --steps 1 --export-hf " + (folder / "out"));
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(json::parse(ReadText(folder / "out/config.json"))["layer_norm_epsilon"], 1e-3);
}

// Gains less one are rounded once, at the size of the gains.
TEST(ExportHf, GainsThatAreStoredLessOneComeOutLessOne) {
  if (!HasPython()) GTEST_SKIP() << "no python3, which writes the checkpoint";
  const Folder folder;
  Reference("nemotron", "F32", folder);
  const Outcome outcome = Plan(kJob + ("--init-from " + (folder / ". ")) +
                               "--lr 0 --steps 1 --export-hf " + (folder / "out"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Checkpoint before(folder / "."), after(folder / "out");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, a] : before.tensors()) {
    const Checkpoint::Entry& b = after.tensors().at(name);
    ASSERT_EQ(a.tensor->shape, b.tensor->shape) << name;
    for (int64_t i = 0; i < a.tensor->elements(); ++i) {
      float then = 0, now = 0;
      std::memcpy(&then, a.file->Data(*a.tensor) + i * 4, sizeof then);
      std::memcpy(&now, b.file->Data(*b.tensor) + i * 4, sizeof now);
      ASSERT_NEAR(then, now, name.find("norm") == std::string::npos ? 0 : 2e-7) << name;
    }
  }
}

TEST(InitFrom, NamesWhatIsMissingTooMuchAndOfAnotherShape) {
  const Folder folder;
  const std::string job = OneSample(folder) + TinyGpt(folder);
  ASSERT_EQ(Plan(job + "--steps 1 --export-hf " + (folder / "out")).code, 0);
  std::string file = ReadText(folder / "out/model.safetensors");
  const auto renamed = [&](const std::string& from, const std::string& to) {
    std::string text = file;
    text.replace(text.find(from), from.size(), to);
    train::WriteBytes(folder / "bad.safetensors", text);
    return Plan(job + "--steps 1 --init-from " + (folder / "bad.safetensors"));
  };
  Outcome outcome = renamed("h.2.ln_2.bias", "h.2.ln_2.bean");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("lacks tensor transformer.h.2.ln_2.bias"),
                                 HasSubstr("no parameter for tensor transformer.h.2.ln_2.bean"),
                                 HasSubstr("bad.safetensors")));
  outcome = renamed("\"shape\":[16,48]", "\"shape\":[48,16]");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("is [48, 16], and the model's is [16, 48]"));
  train::WriteBytes(folder / "cut.safetensors", file.substr(0, file.size() - 4));
  outcome = Plan(job + "--steps 1 --init-from " + (folder / "cut.safetensors"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("its data end at byte"));
  // Not a number, in the last tensor.
  file.replace(file.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
  train::WriteBytes(folder / "nan.safetensors", file);
  outcome = Plan(job + "--steps 1 --init-from " + (folder / "nan.safetensors"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("of tensor transformer.wte.weight is nan"));
  outcome = Plan(kJob + std::string("--model linear-20-1 --init-from ") + (folder / "out"));
  EXPECT_EQ(outcome.code, 2);
  outcome = Plan(kJob + std::string("--init-from ") + (folder / "none"));
  EXPECT_EQ(outcome.code, 2);
}

TEST(InitFrom, BareModelsAndTiedCopiesAreKnown) {
  const Folder folder;
  const std::string job = OneSample(folder) + TinyGpt(folder) + "--steps 1 ";
  ASSERT_EQ(Plan(job + "--export-hf " + (folder / "out")).code, 0);
  const double due = Losses(Plan(job + "--json --init-from " + (folder / "out"))).at(0);
  // As the first GPT-2 files on the hub: without the prefix, with the masks, and with the head's copy of the table.
  const SafetensorsFile from(folder / "out/model.safetensors");
  std::string data;
  Tensors tensors;
  const auto add = [&](const std::string& name, const std::string& bytes, Tensor tensor) {
    tensor.begin = static_cast<int64_t>(data.size());
    data += bytes;
    tensor.end = static_cast<int64_t>(data.size());
    tensors.emplace(name, tensor);
  };
  const auto bytes_of = [&](const Tensor& t) {
    return std::string(reinterpret_cast<const char*>(from.Data(t)),
                       static_cast<std::size_t>(t.end - t.begin));
  };
  for (const auto& [name, tensor] : from.tensors()) add(name.substr(12), bytes_of(tensor), tensor);
  const Tensor& table = from.tensors().at("transformer.wte.weight");
  add("h.0.attn.bias", std::string(64, '\1'), {"U8", {1, 1, 8, 8}});
  add("lm_head.weight", bytes_of(table), table);
  const auto write = [&] {
    const std::string header = HeaderText(tensors);
    train::WriteBytes(folder / "bare.safetensors", FileOf(header, 0) + data);
    return Plan(job + "--json --init-from " + (folder / "bare.safetensors"));
  };
  EXPECT_EQ(Losses(write()).at(0), due);
  data.back() = static_cast<char>(data.back() ^ 1);  // of the head
  const Outcome other = write();
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("lm_head.weight differs from wte.weight, and the model ties them"));
}

TEST(InitFrom, FrozenAndPackedWeightsBeginWithTheCheckpoint) {
  const Folder folder;
  const std::string job = OneSample(folder) + TinyGpt(folder) + "--steps 1 --json ";
  // Far from where the seed begins, so that no matrix may begin there.
  ASSERT_EQ(Plan(OneSample(folder) + TinyGpt(folder) + "--steps 30 --lr 1e-2 --export-hf " +
                 (folder / "out"))
                .code,
            0);
  const std::string init = "--init-from " + (folder / "out ");
  const double due = Losses(Plan(job + init)).at(0);
  EXPECT_LT(due, 1);
  // B of an adapter begins with zeros: the model is that of the checkpoint.
  const Outcome lora = Plan(job + init + "--lora-rank 2");
  EXPECT_NEAR(Losses(lora).at(0), due, 1e-6 * due);
  EXPECT_THAT(lora.err, HasSubstr("adapters are not in the checkpoint"));
  const double packed = Losses(Plan(job + init + "--lora-rank 2 --lora-base int8")).at(0);
  EXPECT_NEAR(packed, due, 5e-2 * due);
  EXPECT_NE(packed, due) << "8 bits round";
}

}  // namespace
}  // namespace orrery::weights
