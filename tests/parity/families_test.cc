// SPDX-License-Identifier: Apache-2.0
// Samples of the legal grid for other model families, optimizers, layer counts, dropout and loss scaling.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>

#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

constexpr uint64_t kSeed = 1234;

// `count` plans on each number of ranks.
std::vector<Case> Plans(const Job& job, std::initializer_list<int> ranks, size_t count) {
  std::vector<Case> all;
  for (const int n : ranks) {
    const std::vector<Case> some = Sample(Grid(job, n, kSeed), count, kSeed);
    EXPECT_FALSE(some.empty()) << n << " ranks";
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void ExpectParity(const Job& job, const std::vector<Case>& cases) {
  const auto reference = Reference(job);
  EXPECT_NE(reference.front().loss, reference.back().loss);
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key);
  EXPECT_TRUE(summary.failures.empty());
}

TEST(Families, Llama) {
  const Job job = TinyLlama();
  ExpectParity(job, Plans(job, {1, 2, 4, 8}, 40));
}

TEST(Families, BlocksOfOtherDecoders) {
  for (const Job& job : {TinyGemma(), TinyOlmo(), TinyNeox(), TinyGptj(), TinyNemotron()}) {
    ExpectParity(job, Plans(job, {1, 2, 4, 8}, 15));
  }
}

// What a feature adds is executed: without it the loss is another.
TEST(Families, EachFeatureOfABlockCounts) {
  const double whole = Reference(TinyGemma()).back().loss;
  const auto without = [&](const char* what, auto change) {
    Job job = TinyGemma();
    job.key = std::string("gemma without ") + what;
    change(job.model);
    EXPECT_NE(Reference(job).back().loss, whole) << what;
  };
  without("output norms", [](ModelSpec& m) { m.output_norm = false; });
  without("query and key norms", [](ModelSpec& m) { m.qk_norm = QkNorm::kNone; });
  without("windows", [](ModelSpec& m) { m.windows.clear(); });
  without("score caps", [](ModelSpec& m) { m.attention_cap = 0; });
  without("logit caps", [](ModelSpec& m) { m.logit_cap = 0; });
  without("scale", [](ModelSpec& m) { m.attention_scale = 0; });
  without("base", [](ModelSpec& m) { m.rope_base = 10000; });
  without("gelu", [](ModelSpec& m) { m.activation = Activation::kRelu; });
}

TEST(Families, Bert) {
  const Job job = TinyBert();
  ExpectParity(job, Plans(job, {1, 2, 4, 8}, 40));
}

TEST(Families, BertPreNormOnAllPositionsWithoutPooler) {
  Job job = TinyBert();
  job.key = "bert pre-norm";
  job.model.post_norm = job.model.pooler = job.model.embedding_norm = false;
  job.model.token_types = 0;
  job.work.masked_positions = 0;
  ExpectParity(job, Plans(job, {2, 4}, 20));
}

TEST(Families, T5) {
  const Job job = TinyT5();
  ExpectParity(job, Plans(job, {1, 2, 4, 8}, 40));
}

TEST(Families, Mlp) {
  const Job job = TinyMlp();
  ExpectParity(job, Plans(job, {1, 2, 3, 4, 8}, 40));
}

TEST(Families, OneLinearLayer) {
  Job job = TinyMlp();
  job.key = "linear";
  job.model.layers = 1;
  job.model.in_features = 20;
  job.model.out_features = 1;
  ExpectParity(job, Plans(job, {1, 2, 3, 4, 8}, 20));
}

class Optimizers : public testing::TestWithParam<Optimizer> {};

TEST_P(Optimizers, EqualOneRank) {
  Job job = TinyGpt(true);
  job.key = "optimizer " + std::to_string(static_cast<int>(GetParam()));
  job.work.optimizer = GetParam();
  job.optimizer.lr = GetParam() == Optimizer::kSgd ? 0.3 : 3e-2;
  ExpectParity(job, Plans(job, {2, 3, 4, 8}, 25));
}
INSTANTIATE_TEST_SUITE_P(All, Optimizers,
                         testing::Values(Optimizer::kSgd, Optimizer::kAdam, Optimizer::kLamb));

TEST(Options, WithoutClipping) {
  Job job = TinyGpt(true);
  job.key = "no clipping";
  job.work.clip_norm = 0;
  ExpectParity(job, Plans(job, {2, 4, 8}, 20));
}

TEST(Options, Fp32WithoutMasterWeights) {
  Job job = TinyGpt(false);
  job.key = "fp32";
  job.work.precision = Precision::kFp32;
  ExpectParity(job, Plans(job, {2, 4, 8}, 25));
}

TEST(Options, LayersThatDoNotDivideByTheStages) {
  for (const int layers : {5, 7}) {
    Job job = TinyGpt(true);
    job.key = std::to_string(layers) + " layers";
    job.model.layers = layers;
    std::vector<Case> cases;
    for (Case c : Plans(job, {2, 4, 8}, 200)) {
      if (c.strategy.pp == 1 || cases.size() == 60) continue;
      c.strategy.count_embedding = cases.size() % 2 == 1;
      c.strategy.count_head = cases.size() % 4 >= 2;
      if (!CheckStrategy(job.model, job.work, c.strategy)) cases.push_back(c);
    }
    EXPECT_EQ(cases.size(), 60u);
    ExpectParity(job, cases);
  }
}

// Stages and chunks of any size; the first and the last may hold the embedding and the head alone.
TEST(Options, LayersOfEachChunkByChoice) {
  for (const bool tied : {true, false}) {
    Job job = TinyGpt(tied);
    job.key = tied ? "layouts tied" : "layouts";
    job.model.layers = 9;
    std::mt19937 random(tied ? 7 : 8);
    std::vector<Case> cases;
    int empty = 0;
    for (Case c : Plans(job, {2, 4, 8}, 400)) {
      const int chunks = c.strategy.pp * c.strategy.vpp;
      if (c.strategy.pp == 1 || cases.size() == 60) continue;
      std::vector<int> layout(static_cast<std::size_t>(chunks), 1);
      if (random() % 2 == 0) layout.front() = 0;
      if (random() % 2 == 0) layout.back() = 0;
      int left = 9 - std::accumulate(layout.begin(), layout.end(), 0);
      for (; left > 0; --left) {  // an end that is empty stays empty
        const std::size_t at = random() % layout.size();
        layout[layout[at] == 0 ? 1 % layout.size() : at] += 1;
      }
      c.strategy.layout = std::make_shared<const std::vector<int>>(layout);
      if (CheckStrategy(job.model, job.work, c.strategy)) continue;
      empty += layout.front() == 0 || layout.back() == 0;
      cases.push_back(c);
    }
    EXPECT_EQ(cases.size(), 60u);
    EXPECT_GT(empty, 10);
    ExpectParity(job, cases);
  }
}

// Chunks of a layout that hold nothing, beside each other too: what they get goes on as it is.
TEST(Options, ChunksWithoutALayer) {
  Job gpt = TinyGpt(true), llama = TinyLlama();
  gpt.model.layers = llama.model.layers = 4;
  gpt.key = "gpt empty chunks", llama.key = "llama empty chunks";
  std::mt19937 random(9);
  std::vector<Case> cases;
  int in_a_v = 0;
  for (const Job* job : {&gpt, &llama}) {
    std::vector<Case> of_job;
    for (Case c : Plans(*job, {2, 4, 8}, 400)) {
      if (c.strategy.pp == 1 || c.strategy.pp * c.strategy.vpp == 2 || of_job.size() == 40)
        continue;
      std::vector<int> layout(static_cast<std::size_t>(c.strategy.pp) * c.strategy.vpp, 0);
      const auto inner = layout.size() - 2;
      const std::size_t empty = 1 + random() % inner;
      for (int left = 4; left > 0;) {
        const std::size_t at = random() % layout.size();
        if (at != empty) ++layout[at], --left;
      }
      c.strategy.layout = std::make_shared<const std::vector<int>>(layout);
      if (CheckStrategy(job->model, job->work, c.strategy)) continue;
      in_a_v += c.strategy.schedule == PipelineSchedule::kZeroBubbleV;
      of_job.push_back(c);
    }
    EXPECT_EQ(of_job.size(), 40u);
    cases.insert(cases.end(), of_job.begin(), of_job.end());
  }
  EXPECT_GT(in_a_v, 5);
  ExpectParity(gpt, {cases.begin(), cases.begin() + 40});
  ExpectParity(llama, {cases.begin() + 40, cases.end()});
}

TEST(Options, DropoutDropsTheSameElementsInEveryLayout) {
  for (Job job : {TinyGpt(true), TinyLlama(), TinyBert(), TinyT5()}) {
    const auto plain = Reference(job);
    job.key += " dropout";
    job.work.dropout = 0.1;
    EXPECT_NE(Reference(job).front().loss, plain.front().loss);
    ExpectParity(job, Plans(job, {1, 2, 4, 8}, 15));
    job.key += " of sublayers";
    job.work.attention_dropout = 0;
    ExpectParity(job, Plans(job, {2, 4}, 6));
    job.key += ", of attention";
    job.work.attention_dropout = 0.2, job.work.dropout = 0;
    ExpectParity(job, Plans(job, {2, 4}, 6));
  }
}

// The squares of the scaled gradient overflow in the first steps: every layout must skip the same ones.
TEST(LossScaling, OverflowSkipsTheSameStepsInEveryLayout) {
  Job job = TinyGpt(true);
  job.key = "fp16";
  job.work.precision = Precision::kFp16;
  job.initial_loss_scale = std::ldexp(1.0, 513);
  const auto reference = Reference(job);
  int skipped = 0;
  for (const auto& step : reference) skipped += std::isfinite(step.gradient_norm) ? 0 : 1;
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, kSteps);
  ExpectParity(job, Plans(job, {1, 2, 4, 8}, 25));
}

}  // namespace
}  // namespace orrery::parity
