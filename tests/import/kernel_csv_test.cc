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

// A product of each pass, a grouped one and an attention, as SimuMax's configs/system hold them.
TEST(KernelCsv, TablesWithTheShapeInOneCellAreReadAsTheyAre) {
  const auto rows =
      ReadKernelCsv(Text("source,op,shape,peak_tflops,efficiency,tflops\r\n"
                         "x,matmul,\"b=1, m=4096, k=8192, n=1024, layout=TN, accumulate=False, "
                         "out_dtype=bf16\",2250,0.5,1125\r\n"
                         "x,matmul,\"b=1, m=1024, k=4096, n=8192, layout=NT, accumulate=True, "
                         "out_dtype=fp32\",2250,0.5,1125\r\n"
                         "x,group_matmul,\"ng=8, M=256, N=3072, K=512, main_grad_dtype=fp32, "
                         "stage=bwd_grad_w, accumulate=True\",2250,0.4,900\r\n"
                         "x,sdp_bwd,\"batch=2, seq_len=1024, head_num=16, kv_head_num=4, "
                         "qk_head_dim=192, v_head_dim=128\",2250,0.4,900\r\n"));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].op, "nt");
  EXPECT_EQ(rows[0].n, 1024);
  EXPECT_NEAR(rows[0].seconds, 2.0 * 4096 * 8192 * 1024 / 1125e12, 1e-12);
  EXPECT_EQ(rows[0].epilogue, "none");
  EXPECT_EQ(rows[1].epilogue, "accumulate_fp32");
  EXPECT_EQ(rows[2].kind, KernelKind::kGrouped);
  EXPECT_EQ(rows[2].batch, 8);
  EXPECT_EQ(rows[2].m, 3072);  // the gradient of the weight: N x K over M tokens
  EXPECT_EQ(rows[2].k, 256);
  EXPECT_EQ(rows[3].head_dim, 160);
  EXPECT_TRUE(rows[3].causal);
  EXPECT_NEAR(rows[3].seconds, 5.0 * 2 * 16 * 1024 * 1024 * 320 / 900e12, 1e-12);
  const std::string wrong = "op,shape,tflops\nmatmul,\"b=1, m=4096, k=8192\",100\n";
  EXPECT_THROW(ReadKernelCsv(Text(wrong)), InputError);
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
