// SPDX-License-Identifier: Apache-2.0
// Timed operations of a device read from CSV, and what is refused.
#include "calib/import/kernel_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::measured {
namespace {

using testing::HasSubstr;

SourcePtr Text(std::string text) {
  return std::make_shared<const Source>(Source{"k.csv", std::move(text)});
}
std::string ErrorOf(const std::string& text) {
  try {
    ReadKernelCsv(Text(text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(KernelCsv, ReadsTheSample) {
  const auto rows =
      ReadKernelCsv(ReadSource(ORRERY_SOURCE_DIR "/calib/measure/samples/kernels.csv"));
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].kind, KernelKind::kGemm);
  EXPECT_EQ(rows[0].op, "nt");
  EXPECT_EQ(rows[0].n, 2304);
  EXPECT_EQ(rows[0].batch, 1);
  EXPECT_EQ(rows[0].epilogue, "bias");
  EXPECT_EQ(rows[0].flops, 2.0 * 4096 * 2304 * 768);
  EXPECT_EQ(rows[0].device, "Made-up GPU");
  EXPECT_EQ(rows[0].where.line, 2);
  EXPECT_EQ(rows[1].kind, KernelKind::kAttention);
  EXPECT_TRUE(rows[1].causal);
  EXPECT_EQ(rows[1].heads, 12);
  EXPECT_EQ(rows[1].seq_kv, 1024);
  EXPECT_EQ(rows[2].bytes, 12582912);
  EXPECT_EQ(rows[3].n, 124439808);
  EXPECT_EQ(rows[4].dtype, "");
  EXPECT_EQ(rows[4].calls, 2000);
}

TEST(KernelCsv, ColumnsInAnyOrderAndKvHeadsFollowHeads) {
  const auto rows =
      ReadKernelCsv(Text("seconds,dtype,op,kind,heads,batch,seq_q,head_dim\n0.001,fp32,forward,"
                         "attention,8,2,64,32\n"));
  EXPECT_EQ(rows[0].kv_heads, 8);
  EXPECT_EQ(rows[0].seq_kv, 64);
  EXPECT_FALSE(rows[0].causal);
}

TEST(KernelCsv, SaysWhatIsWrongWithItsLine) {
  const std::string head = "kind,op,dtype,seconds,m,n,k\n";
  EXPECT_THAT(ErrorOf(head + "gemm,nt,bf16,0.1,1,2,0\n"), HasSubstr("k.csv:2"));
  EXPECT_THAT(ErrorOf(head + "gemm,nt,bf16,0.1,1,2,0\n"), HasSubstr("gemm without k"));
  EXPECT_THAT(ErrorOf(head + "gemn,nt,bf16,0.1,1,2,3\n"), HasSubstr("'gemm'"));
  EXPECT_THAT(ErrorOf(head + "gemm,nt,bf61,0.1,1,2,3\n"), HasSubstr("'bf16'"));
  EXPECT_THAT(ErrorOf(head + "gemm,nt,bf16,,1,2,3\n"), HasSubstr("without a time"));
  EXPECT_THAT(ErrorOf(head + "gemm,nt,bf16,-1,1,2,3\n"), HasSubstr("seconds"));
  EXPECT_THAT(ErrorOf(head + "memory,copy,bf16,0.1,,,\n"), HasSubstr("without bytes"));
  EXPECT_THAT(ErrorOf(head), HasSubstr("no timed operation"));
  EXPECT_THAT(ErrorOf("kind,op,dtype,m\n"), HasSubstr("seconds"));
}

TEST(KernelCsv, ReadsBackWhatItWrites) {
  auto rows = ReadKernelCsv(ReadSource(ORRERY_SOURCE_DIR "/calib/measure/samples/kernels.csv"));
  rows[0].device = "GPU, \"made\" up";
  const auto again = ReadKernelCsv(Text(KernelCsv(rows, "plan bench")));
  ASSERT_EQ(again.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(again[i].kind, rows[i].kind);
    EXPECT_EQ(again[i].device, rows[i].device);
    EXPECT_EQ(again[i].n, rows[i].n);
    EXPECT_EQ(again[i].head_dim, rows[i].head_dim);
    EXPECT_EQ(again[i].causal, rows[i].causal);
    EXPECT_EQ(again[i].seconds, rows[i].seconds);
    EXPECT_EQ(again[i].bytes, rows[i].bytes);
  }
}

TEST(KernelCsv, WritesTheColumnsThatItReads) {
  std::string head;
  for (const std::string& column : KernelColumns()) head += (head.empty() ? "" : ",") + column;
  const SourcePtr sample = ReadSource(ORRERY_SOURCE_DIR "/calib/measure/samples/kernels.csv");
  EXPECT_EQ(sample->text.substr(0, sample->text.find('\n')), head);
}

}  // namespace
}  // namespace orrery::measured
