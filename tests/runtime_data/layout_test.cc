// SPDX-License-Identifier: Apache-2.0
// Training on a token file: every layout sees the same global batch, and learns.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/data/make_source.h"
#include "runtime/launch/local_ranks.h"
#include "tests/runtime/single.h"
#include "tests/runtime_data/testing.h"

namespace orrery::train {
namespace {

using runtime_test::LowerFor;

constexpr int64_t kSteps = 6;

// Waits a little at each load, as a slow disk would.
class SlowSource : public DataSource {
 public:
  void Load(const ir::Op& op, const LoadPlace& place, std::span<double> out) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    LoadSynthetic({1, 22, 2}, op, place, out);
  }
};

struct Losses : launch::StepHook {
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (executor->image().rank == 0) steps.push_back(record.result);
  }
  std::vector<exec::StepResult> steps;
};

using Maker = std::function<std::unique_ptr<DataSource>(const ir::Plan& plan)>;

std::vector<exec::StepResult> Train(const parity::Job& job, const Strategy& strategy,
                                    const Maker& make) {
  const ir::Plan plan = LowerFor(job, strategy);
  Losses losses;
  launch::TrainOptions options;
  options.steps = kSteps;
  const std::string failure =
      launch::RunLocalRanks(plan.mesh.ranks(), [&](comm::Endpoint* endpoint) {
        const auto source = make(plan);
        launch::TrainRank(plan, endpoint, source.get(), options, {&losses});
      });
  EXPECT_EQ(failure, "");
  return losses.steps;
}

void ExpectSameLossInEveryLayout(parity::Job job) {
  job = runtime_test::InPrecision(job, Precision::kFp32);
  const Folder folder;
  WriteBytes(folder / "a.u16", BytesOf(Counting<uint16_t>(2000, job.model.vocab)));
  const Maker make = [&](const ir::Plan& plan) {
    DataSpec spec;
    spec.vocab = job.model.vocab;
    return MakeSource(folder / "a.u16", spec, ShapeOf(plan), job.work.global_batch);
  };
  const auto one = Train(job, runtime_test::OneRank(job), make);
  ASSERT_EQ(one.size(), static_cast<std::size_t>(kSteps));
  Strategy data, tensor, pipeline, mixed;
  data.dp = 4, data.micro_batch = 2, data.zero = 2;
  tensor.tp = 4, tensor.sequence_parallel = true;
  pipeline.pp = 2, pipeline.dp = 2;
  mixed.tp = 2, mixed.pp = 2, mixed.dp = 2;
  for (const Strategy& strategy : {data, tensor, pipeline, mixed}) {
    if (strategy.pp > 1 && job.model.family == Family::kEncoderDecoder) continue;
    const auto other = Train(job, strategy, make);
    ASSERT_EQ(other.size(), one.size());
    for (std::size_t s = 0; s < one.size(); ++s)
      EXPECT_NEAR(other[s].loss, one[s].loss, 1e-5 * one[s].loss) << "step " << s + 1;
  }
}

TEST(TokenData, GptSeesTheSameBatchInEveryLayout) {
  ExpectSameLossInEveryLayout(parity::TinyGpt(true));
}
TEST(TokenData, BertSeesTheSameBatchInEveryLayout) {
  ExpectSameLossInEveryLayout(parity::TinyBert());
}
TEST(TokenData, T5SeesTheSameBatchInEveryLayout) { ExpectSameLossInEveryLayout(parity::TinyT5()); }

TEST(TokenData, CountingIsLearnt) {
  parity::Job job = runtime_test::InPrecision(parity::TinyGpt(true), Precision::kFp32);
  job.optimizer.lr = 1e-2;
  const Folder folder;
  WriteBytes(folder / "a.txt", BytesOf(Counting<uint8_t>(2000, job.model.vocab)));
  const auto steps = Train(job, runtime_test::OneRank(job), [&](const ir::Plan& plan) {
    DataSpec spec;
    spec.vocab = job.model.vocab;
    return MakeSource(folder / "a.txt", spec, ShapeOf(plan), job.work.global_batch);
  });
  EXPECT_LT(steps.back().loss, 0.97 * steps.front().loss);
}

TEST(TokenData, StepsThatWaitForInputSayHowLong) {
  const parity::Job job = runtime_test::InPrecision(parity::TinyGpt(true), Precision::kFp32);
  Strategy strategy;
  strategy.dp = 2;
  strategy.micro_batch = 12;
  const auto steps =
      Train(job, strategy, [](const ir::Plan&) { return std::make_unique<SlowSource>(); });
  for (const exec::StepResult& step : steps) {
    EXPECT_GE(step.load_s, 0.02);  // tokens and labels at least
    EXPECT_LE(step.load_s, step.compute_s);
  }
}

}  // namespace
}  // namespace orrery::train
