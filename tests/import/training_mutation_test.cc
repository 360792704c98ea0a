// SPDX-License-Identifier: Apache-2.0
// Property: whatever a training log holds, reading it ends with measurements or with an InputError,
// every figure that comes out is one, and no row disappears.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "calib/import/training_log.h"
#include "tests/from_environment.h"
#include "tests/mutated_text.h"

namespace orrery::measured {
namespace {

std::vector<std::string> SeedLogs() {
  std::vector<std::string> texts = {
      R"({"schema": "orrery.run/1", "digest": "d", "tokens_per_step": 64, "per_rank": [{"rank": 0, "wait_s": 0.5}],
"steps": [{"step": 1, "seconds": 2.0, "loss": 3}, {"step": 2, "seconds": 1.0}]})",
      R"({"schema": "orrery.simulate/1", "prediction": {"step_time_s": 1.5, "breakdown": {"bubble_s": 1e-3}}})",
      R"([{"ph": "X", "cat": "kernel", "name": "mm", "pid": 1, "tid": 0, "ts": 1, "dur": 5, "args": {"phase": "forward"}}])"};
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) +
                                                               "/calib/import/samples")) {
    if (!entry.path().filename().string().starts_with("nccl"))
      texts.push_back(ReadSource(entry.path().string())->text);
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

void ExpectSane(const TrainingLog& log) {
  ASSERT_FALSE(log.steps.empty() && log.terms.empty() && log.spans.empty());
  ASSERT_GE(log.garbled_lines, static_cast<int64_t>(log.garbled.size()));
  for (const StepSample& step : log.steps) {
    ASSERT_TRUE(step.seconds || step.samples_per_s || step.tokens_per_s ||
                step.tokens_per_s_of_gpu);
    const double seconds = step.seconds.value_or(1);
    ASSERT_TRUE(seconds > 0 && std::isfinite(seconds));
    ASSERT_GE(step.line, 1);
  }
  for (const TermSample& term : log.terms)
    ASSERT_TRUE(term.seconds >= 0 && std::isfinite(term.seconds));
  for (const SpanSample& span : log.spans)
    ASSERT_TRUE(span.seconds >= 0 && std::isfinite(span.seconds) && std::isfinite(span.begin));
}

TEST(TrainingMutations, ReadersNeverCrash) {
  const std::vector<std::string> seeds = SeedLogs();
  const std::size_t cases = FromEnvironment("ORRERY_MUTATIONS", 6000);
  const uint64_t seed = FromEnvironment("ORRERY_MUTATION_SEED", 20250117);
  std::size_t read = 0, refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    std::mt19937_64 dice(seed * 1000003 + i);
    const auto source =
        std::make_shared<Source>(Source{"mutated", MutatedText(dice, seeds, "9e-. #:[{\"|\n\r,")});
    SCOPED_TRACE(i);
    try {
      ExpectSane(ReadTrainingLog(source));
      ++read;
    } catch (const InputError& error) {
      ++refused;
      ASSERT_NE(std::string(error.what()).find("error:"), std::string::npos);
    }
  }
  EXPECT_GT(read, cases / 4);
  EXPECT_GT(refused, cases / 200);
}

// One character of one row of a text sample becomes another one: still a measurement, or counted.
TEST(TrainingMutations, NoRowDisappears) {
  std::mt19937_64 dice(11);
  for (const char* name :
       {"megatron-old.txt", "megatron-new.txt", "deepspeed-old.txt", "deepspeed-new.txt",
        "llmc.txt", "nanogpt.txt", "nanotron.txt", "plan-run.txt", "steps.csv"}) {
    const std::string text =
        ReadSource(std::string(ORRERY_SOURCE_DIR) + "/calib/import/samples/" + name)->text;
    const TrainingLog whole = ReadTrainingLog(std::make_shared<Source>(Source{"whole", text}));
    std::vector<std::size_t> starts = {0};
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts.push_back(i + 1);
    }
    const auto reader = [&](const SourcePtr& source) {
      switch (whole.format) {
        case LogFormat::kMegatron:
          return ReadMegatron(source);
        case LogFormat::kDeepSpeed:
          return ReadDeepSpeed(source);
        case LogFormat::kLlmC:
          return ReadLlmC(source);
        case LogFormat::kNanoGpt:
          return ReadNanoGpt(source);
        case LogFormat::kTorchtitan:
          return ReadTorchtitan(source);
        case LogFormat::kNanotron:
          return ReadNanotron(source);
        case LogFormat::kRunText:
          return ReadRunText(source);
        case LogFormat::kTrainer:
          return ReadTrainer(source);
        default:
          return ReadStepCsv(source);
      }
    };
    for (int n = 0; n < 400; ++n) {
      const auto line =
          static_cast<std::size_t>(whole.steps[RandomBelow(dice, whole.steps.size())].line);
      const std::size_t begin = starts[line - 1], end = starts[line] - 1;
      std::string changed = text;
      changed[begin + RandomBelow(dice, end - begin)] = "0123456789.-xe+#"[RandomBelow(dice, 16)];
      const TrainingLog log = reader(std::make_shared<Source>(Source{"changed", changed}));
      if (changed[begin] == '#') continue;  // a comment now
      EXPECT_GE(log.steps.size() + static_cast<std::size_t>(log.garbled_lines), whole.steps.size())
          << changed.substr(begin, end - begin);
    }
  }
}

}  // namespace
}  // namespace orrery::measured
