// SPDX-License-Identifier: Apache-2.0
// Compression of schedules: exact for any list, and small for the published pipeline schedules.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "model/plan/ir/plan.h"
#include "model/plan/lower/schedules.h"

namespace orrery::ir {
namespace {

// Blocks P, F<c>, B<c>, W<c>, E of a stage with `chunks` model chunks.
struct Blocks {
  int chunks;
  int P() const { return 0; }
  int F(int c) const { return 1 + c; }
  int B(int c) const { return 1 + chunks + c; }
  int W(int c) const { return 1 + 2 * chunks + c; }
  int E() const { return 1 + 3 * chunks; }
};

std::vector<Call> Framed(const Blocks& blocks, std::vector<Call> calls) {
  calls.insert(calls.begin(), {blocks.P(), 0, 0});
  calls.push_back({blocks.E(), 0, 0});
  return calls;
}

// One forward, one backward in the steady state (Narayanan et al. 2021, figure 4).
std::vector<Call> OneForwardOneBackward(int stages, int stage, int micro_batches) {
  const Blocks b{1};
  const int warm_up = std::min(stages - stage - 1, micro_batches);
  std::vector<Call> calls;
  for (int m = 0; m < warm_up; ++m) calls.push_back({b.F(0), m, 0});
  for (int m = 0; m < micro_batches; ++m) {
    if (m + warm_up < micro_batches) calls.push_back({b.F(0), m + warm_up, 0});
    calls.push_back({b.B(0), m, uint8_t(m + 1 == micro_batches ? kWhenLast : 0)});
  }
  return Framed(b, calls);
}

// Interleaved virtual stages (Narayanan et al. 2021, section 2.2).
std::vector<Call> Interleaved(int stages, int chunks, int stage, int micro_batches) {
  const Blocks b{chunks};
  const int group = stages * chunks;
  const int total = micro_batches * chunks;
  auto micro_batch = [&](int k) { return k / group * stages + k % stages; };
  auto chunk = [&](int k) { return k % group / stages; };
  const int warm_up = std::min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages);
  std::vector<Call> calls;
  int next = 0;
  for (; next < warm_up; ++next) calls.push_back({b.F(chunk(next)), micro_batch(next), 0});
  for (int k = 0; k < total; ++k) {
    if (next < total) calls.push_back({b.F(chunk(next)), micro_batch(next), 0});
    ++next;
    const int c = chunks - 1 - chunk(k);
    const bool last = micro_batch(k) + 1 == micro_batches;
    calls.push_back({b.B(c), micro_batch(k), uint8_t(last ? kWhenLast : 0)});
  }
  return Framed(b, calls);
}

// Zero-bubble H1 (Qi et al. 2024): the weight gradient of m follows the backward of m + stage.
std::vector<Call> ZeroBubble(int stages, int stage, int micro_batches) {
  const Blocks b{1};
  std::vector<Call> calls;
  for (const Call& call : OneForwardOneBackward(stages, stage, micro_batches)) {
    if (call.block == b.P() || call.block == b.E()) continue;
    calls.push_back(call);
    if (call.block == b.B(0) && call.micro_batch >= stage) {
      calls.push_back({b.W(0), call.micro_batch - stage, 0});
    }
  }
  for (int m = std::max(0, micro_batches - stage); m < micro_batches; ++m) {
    calls.push_back({b.W(0), m, 0});
  }
  return Framed(b, calls);
}

int64_t Items(const std::vector<Item>& schedule) {
  int64_t items = 0;
  for (const Item& item : schedule) items += 1 + Items(item.body);
  return items;
}

// Items of the compressed list, which must unfold to the list.
int64_t CompressedItems(const std::vector<Call>& calls) {
  const std::vector<Item> schedule = Compress(calls);
  EXPECT_EQ(Expand(schedule), calls);
  return Items(schedule);
}

TEST(Compress, OneForwardOneBackwardHasAFewItems) {
  for (const int stages : {1, 2, 4, 16, 64}) {
    for (const int micro_batches : {64, 192, 1000}) {
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_LE(CompressedItems(OneForwardOneBackward(stages, stage, micro_batches)), 10)
            << stages << " stages, stage " << stage << ", " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(Compress, SizeDoesNotDependOnMicroBatches) {
  const auto size = [](int micro_batches) {
    return CompressedItems(OneForwardOneBackward(8, 3, micro_batches));
  };
  EXPECT_EQ(size(100), size(10000));
  const auto interleaved = [](int micro_batches) {
    return CompressedItems(Interleaved(8, 3, 2, micro_batches));
  };
  EXPECT_EQ(interleaved(64), interleaved(1024));
}

TEST(Compress, InterleavedGrowsWithTheChunks) {
  for (const int chunks : {2, 3, 6, 12}) {
    for (int stage = 0; stage < 16; ++stage) {
      EXPECT_LE(CompressedItems(Interleaved(16, chunks, stage, 192)), 16 * chunks + 16)
          << chunks << " chunks, stage " << stage;
    }
  }
}

TEST(Compress, ZeroBubbleHasAFewItems) {
  for (const int stages : {2, 4, 8, 16}) {
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_LE(CompressedItems(ZeroBubble(stages, stage, 192)), 18) << stages << " " << stage;
    }
  }
}

TEST(Compress, FindsALongPeriodWithoutInnerLoops) {
  std::mt19937 random(5);
  std::vector<Call> body;
  for (int i = 0; i < 150; ++i) body.push_back({int(random() % 7), int(random() % 40), 0});
  std::vector<Call> calls;
  for (int i = 0; i < 15; ++i) {
    for (const Call& call : body) calls.push_back({call.block, call.micro_batch + 40 * i, 0});
  }
  EXPECT_LE(CompressedItems(calls), 160);
}

TEST(Compress, NeverMakesAListLonger) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const int blocks = 1 + int(random() % 4), spread = 1 + int(random() % 5);
    std::vector<Call> calls(random() % 80);
    for (Call& call : calls) {
      call = {int(random() % blocks), int(random() % spread), uint8_t(random() % 8 == 0)};
    }
    EXPECT_LE(CompressedItems(calls), int64_t(calls.size()));
  }
}

// Random nested loops: the shape that a searched schedule may take.
std::vector<Item> RandomLoops(std::mt19937& random, int depth) {
  std::vector<Item> items(1 + random() % 4);
  for (Item& item : items) {
    if (depth > 0 && random() % 2 == 0) {
      item.count = 1 + int(random() % 5);
      item.stride = int(random() % 7) - 3;
      item.body = RandomLoops(random, depth - 1);
    } else {
      item = {int(random() % 3), int(random() % 10), uint8_t(random() % 2), 0, 0, {}};
    }
  }
  return items;
}

TEST(Compress, RandomLoopsComeBackExactly) {
  std::mt19937 random(17);
  for (int round = 0; round < 300; ++round) {
    const std::vector<Call> calls = Expand(RandomLoops(random, 4));
    EXPECT_LE(CompressedItems(calls), int64_t(calls.size()));
  }
}

TEST(Compress, TakesTheWholeRangeOfMicroBatches) {
  const int32_t low = std::numeric_limits<int32_t>::min();
  const int32_t high = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(CompressedItems({{0, low, 0}, {0, high, 0}, {0, low, 0}, {0, high, 0}}), 3);
  EXPECT_EQ(CompressedItems({}), 0);
}

TEST(Compress, HandlesTheLargestScheduleQuickly) {
  const std::vector<Call> calls = Interleaved(16, 6, 0, 192);
  ASSERT_EQ(calls.size(), 2306u);
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Item> schedule = Compress(calls);
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count());
    ASSERT_FALSE(schedule.empty());
  }
  RecordProperty("compress_us", int(best * 1000));
  std::printf("compress of %zu calls: %.3f ms\n", calls.size(), best);
  EXPECT_LT(best, 200) << "far above any slow machine or sanitizer: the search is no longer linear";
}

// What is not listed call by call is what the list compresses to.
TEST(Compress, LongSchedulesGoOnAsShortOnesDo) {
  int lengthened = 0;
  for (const PipelineSchedule kind :
       {PipelineSchedule::k1F1B, PipelineSchedule::kGpipe, PipelineSchedule::kInterleaved,
        PipelineSchedule::kZeroBubble}) {
    for (const int pp : {1, 2, 3, 4, 8}) {
      const bool interleaved = kind == PipelineSchedule::kInterleaved;
      if (pp == 1 && (interleaved || kind == PipelineSchedule::kZeroBubble)) continue;
      Strategy strategy;
      strategy.pp = pp;
      strategy.schedule = kind;
      for (const int vpp : interleaved ? std::vector<int>{2, 3} : std::vector<int>{1}) {
        strategy.vpp = vpp;
        for (const int batches : {40 * pp + 160, 40 * pp + 163, 48 * pp + 512}) {
          if (interleaved && batches % pp != 0) continue;
          for (int stage = 0; stage < pp; stage += std::max(1, pp - 1)) {
            const std::vector<Call> calls = StageCalls(strategy, stage, batches);
            const std::vector<Item> items = StageSchedule(strategy, stage, batches, false);
            EXPECT_EQ(Expand(items), calls);
            EXPECT_EQ(items, Compress(calls)) << pp << " " << vpp << " " << batches;
            ++lengthened;
          }
        }
      }
    }
  }
  EXPECT_GT(lengthened, 50);
}

}  // namespace
}  // namespace orrery::ir
