// SPDX-License-Identifier: Apache-2.0
// What ranks that share sequences cannot do, by reason and hint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "model/plan/lower/lower.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

using testing::HasSubstr;

Strategy Shared(int cp, CpMethod method, int inner = 1) {
  Strategy s;
  s.cp = cp;
  s.context = ContextOf(method, inner);
  return s;
}

void ExpectRefused(Job job, Strategy s, const std::string& reason, const std::string& hint) {
  SCOPED_TRACE(reason);
  job.work.global_batch = s.data_parallel() * s.micro_batch;
  const std::optional<Refusal> refusal = CheckStrategy(job.model, job.work, s);
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->reason, HasSubstr(reason));
  EXPECT_THAT(refusal->hint, HasSubstr(hint));
}

TEST(ContextLegality, IsRefusedByReasonAndHint) {
  ExpectRefused(TinyGpt(true), Shared(3, CpMethod::kRing),
                "sequence length 8 does not divide by 2 x cp 3 (zigzag)",
                "cp must divide seq_len / 2");
  ExpectRefused(TinyGpt(true), Shared(8, CpMethod::kRing), "2 x cp 8 (zigzag)", "seq_len / 2");
  Strategy tensor = Shared(4, CpMethod::kUlysses);
  tensor.tp = 2;
  ExpectRefused(TinyLlama(), tensor, "4 key-value heads do not divide by tp 2 x cp 4 (ulysses)",
                "use ring or allgather, or cp 2");
  ExpectRefused(TinyLlama(), Shared(4, CpMethod::kA2aRing, 3), "cp_inner 3 does not divide cp 4",
                "");
  ExpectRefused(TinyLlama(), Shared(4, CpMethod::kRing, 2), "cp_inner 2 with ring", "a2a_ring");
  ExpectRefused(TinyGemma(), Shared(2, CpMethod::kRing), "a ring over cp has no sliding window",
                "use allgather or ulysses");
  ExpectRefused(TinyBert(), Shared(2, CpMethod::kAllGather), "for decoders alone", "cp 1");
  ExpectRefused(TinyT5(), Shared(2, CpMethod::kAllGather), "for decoders alone", "cp 1");
  Strategy kept = Shared(2, CpMethod::kRing);
  kept.flash_attention = false;
  ExpectRefused(TinyGpt(true), kept, "without flash attention", "--attention flash");
  Job dropout = TinyGpt(true);
  dropout.work.dropout = 0.1;
  ExpectRefused(dropout, Shared(4, CpMethod::kA2aRing, 2), "dropout with a2a_ring", "ring");
  Strategy sequence = Shared(4, CpMethod::kRing);
  sequence.tp = 4;
  sequence.sequence_parallel = true;
  ExpectRefused(TinyGpt(true), sequence, "positions (seq_len / cp) do not divide by tp 4", "tp");
}

TEST(PipelineLegality, MoreChunksThanLayersNeedALayout) {
  Job job = TinyLlama();
  job.work.global_batch = 2;
  Strategy s;
  s.pp = 2, s.vpp = 9, s.schedule = PipelineSchedule::kInterleaved;
  const std::optional<Refusal> refusal = CheckStrategy(job.model, job.work, s);
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->reason, HasSubstr("do not fill pp 2 x vpp 9"));
  EXPECT_THAT(refusal->hint, HasSubstr("--layout"));
  std::vector<int> held(18, 0);
  held[4] = static_cast<int>(job.model.layers);
  s.layout = std::make_shared<const std::vector<int>>(held);
  EXPECT_FALSE(CheckStrategy(job.model, job.work, s));
}

}  // namespace
}  // namespace orrery::parity
