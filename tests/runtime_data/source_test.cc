// SPDX-License-Identifier: Apache-2.0
// Order of samples, masking and reading ahead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>

#include "runtime/data/shuffle.h"
#include "runtime/data/token_source.h"
#include "tests/runtime_data/testing.h"

namespace orrery::train {
namespace {

TEST(Shuffle, IsAPermutationThatItsKeyChanges) {
  for (const int64_t count : {1, 2, 3, 4, 5, 17, 64, 1000}) {
    std::set<int64_t> seen;
    int64_t same = 0, in_place = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = Shuffled(7, i, count);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, count);
      seen.insert(at);
      same += at == Shuffled(8, i, count) ? 1 : 0;
      in_place += at == i ? 1 : 0;
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
    if (count < 64) continue;
    EXPECT_LT(same, count / 8);  // about one is expected
    EXPECT_LT(in_place, count / 8);
  }
}

class Source : public testing::Test {
 protected:
  Source() {
    WriteBytes(folder_ / "a.u16", BytesOf(Counting<uint16_t>(8 * 50 + 1, 401)));
    spec_.vocab = 500;
  }
  TokenSource Open(const DataShape& shape) const {
    return TokenSource(folder_ / "a.u16", spec_, shape, 4);
  }

  const Folder folder_;
  DataSpec spec_;
};

TEST_F(Source, EachEpochVisitsEveryWindowOnceInAnotherOrder) {
  const TokenSource source = Open({8, 0, 0});
  ASSERT_EQ(source.windows(), 50);
  std::vector<uint32_t> order[2];
  for (int64_t i = 0; i < 100; ++i) {
    const TokenSample sample = source.Make(i);
    ASSERT_EQ(sample.tokens.size(), 9u);
    for (std::size_t p = 1; p < 9; ++p) EXPECT_EQ(sample.tokens[p], sample.tokens[0] + p);
    order[i / 50].push_back(sample.tokens[0]);
  }
  EXPECT_NE(order[0], order[1]);
  for (auto& epoch : order) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(std::unique(epoch.begin(), epoch.end()), epoch.end());
  }
}

TEST_F(Source, AFileShorterThanASampleIsNamed) {
  EXPECT_NO_THROW(Open({400, 0, 0}));
  try {
    Open({401, 0, 0});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("a.u16: ends at byte 802 after 401 tokens, and one sample takes "
                                   "402"));
  }
  EXPECT_THROW(Open({0, 0, 0}), DataError);  // features
}

TEST_F(Source, MasksExactlyAsManyPositionsIn80To10To10) {
  spec_.mask_token = 499;
  const TokenSource source = Open({40, 0, 6});
  int64_t masked = 0, random = 0, kept = 0;
  std::vector<int64_t> hits(40);
  for (int64_t number = 0; number < 2000; ++number) {
    const TokenSample sample = source.Make(number);
    ASSERT_EQ(sample.masked.size(), 6u);
    ASSERT_TRUE(std::is_sorted(sample.masked.begin(), sample.masked.end()));
    std::set<int32_t> chosen(sample.masked.begin(), sample.masked.end());
    ASSERT_EQ(chosen.size(), 6u);
    for (int32_t p = 0; p < 40; ++p) {
      const auto at = static_cast<std::size_t>(p);
      if (chosen.count(p) == 0) {
        ASSERT_EQ(sample.input[at], sample.tokens[at]);
        continue;
      }
      ++hits[at];
      (sample.input[at] == 499 ? masked : sample.input[at] == sample.tokens[at] ? kept : random)++;
    }
  }
  EXPECT_NEAR(static_cast<double>(masked) / 12000, 0.8, 0.02);
  EXPECT_NEAR(static_cast<double>(random) / 12000, 0.1, 0.02);
  EXPECT_NEAR(static_cast<double>(kept) / 12000, 0.1, 0.02);
  for (const int64_t h : hits) EXPECT_NEAR(static_cast<double>(h), 300, 100);
  EXPECT_EQ(source.Make(3).input, source.Make(3).input);
  EXPECT_NE(source.Make(3).input, source.Make(3 + source.windows()).input);
}

TEST_F(Source, EveryPositionMayBeMasked) {
  EXPECT_EQ(Open({40, 0, 40}).Make(1).masked.size(), 40u);
}

TEST_F(Source, GoesOnWhereAnotherBatchHasStopped) {
  TokenSource whole(folder_ / "a.u16", spec_, {8, 0, 0}, 4);
  TokenSource rest(folder_ / "a.u16", spec_, {8, 0, 0}, 6);
  rest.Resume(3, 12);  // three steps of four samples
  ir::Op op;
  op.kind = ir::OpKind::kLoad;
  op.attrs = {{ir::Attr::kWhat, 0}, {ir::Attr::kBatch, 1}, {ir::Attr::kSeq, 8}};
  std::vector<double> a(8), b(8);
  for (int64_t i = 0; i < 6; ++i) {
    whole.Load(op, {4 + i / 4, i % 4, 0}, a);
    rest.Load(op, {4, i, 0}, b);
    EXPECT_EQ(a, b);
  }
}

TEST_F(Source, ReadsTheNextStepAheadOnceItKnowsItsSamples) {
  TokenSource source(folder_ / "a.u16", spec_, {8, 0, 0}, 4);
  ir::Op op;
  op.kind = ir::OpKind::kLoad;
  op.attrs = {{ir::Attr::kWhat, 0}, {ir::Attr::kBatch, 2}, {ir::Attr::kSeq, 8}};
  std::vector<double> values(16);
  for (int64_t step = 1; step <= 20; ++step) {
    source.Prefetch(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // computing
    source.Load(op, {step, 2, 0}, values);
    source.Load(op, {step, 2, 0}, values);  // again, in the backward pass
  }
  EXPECT_LE(source.read_ahead().made_late(), 8);  // 2 at first; a busy machine may add some of 40
}

TEST(ReadAhead, ErrorsReachTheOneWhoAsks) {
  std::atomic<int> calls = 0;
  ReadAhead ahead([&](int64_t index) -> TokenSample {
    ++calls;
    if (index == 5) throw DataError("sample 5");
    return {};
  });
  ahead.Want({4, 5, 6});
  EXPECT_NO_THROW(ahead.Get(4));
  EXPECT_THROW(ahead.Get(5), DataError);
  EXPECT_NO_THROW(ahead.Get(6));
  EXPECT_GE(calls, 3);
}

}  // namespace
}  // namespace orrery::train
