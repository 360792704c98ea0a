// SPDX-License-Identifier: Apache-2.0
// Logs and traces of training programs: one sample of each, and what is wrong in the wild.
#include "calib/import/training_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>

#include "calib/import/kernel_names.h"
#include "calib/import/log_facts.h"

namespace orrery::measured {
namespace {

using testing::HasSubstr;

SourcePtr Told(const std::string& text) {
  return std::make_shared<Source>(Source{"train.log", text});
}

TrainingLog SampleLog(const std::string& name) {
  return ReadTrainingLog(
      ReadLogSource(std::string(ORRERY_SOURCE_DIR) + "/calib/import/samples/" + name));
}

std::string Refusal(const std::string& text) {
  try {
    ReadTrainingLog(Told(text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::map<std::string, double> TermsOf(const TrainingLog& log) {
  std::map<std::string, double> terms;
  for (const TermSample& term : log.terms) terms[term.name] = term.seconds;
  return terms;
}

TEST(RunText, ReadsWhatPlanRunPrints) {
  const TrainingLog log = SampleLog("plan-run.txt");
  EXPECT_EQ(log.format, LogFormat::kRunText);
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  ASSERT_EQ(log.steps.size(), 5u);
  EXPECT_EQ(log.steps[0].step, 1);
  EXPECT_DOUBLE_EQ(*log.steps[0].seconds, 4.75);
  EXPECT_DOUBLE_EQ(*log.steps[0].loss, 10.9777);
  EXPECT_DOUBLE_EQ(*log.steps[0].tokens_per_s, 108);
  EXPECT_DOUBLE_EQ(*log.steps[1].seconds, 0.85);
  EXPECT_DOUBLE_EQ(*log.steps[1].tokens_per_s, 94500);
  EXPECT_DOUBLE_EQ(*log.steps[2].seconds, 17.5 * 60);
  EXPECT_FALSE(log.steps[3].loss);  // nan
  EXPECT_DOUBLE_EQ(*log.steps[4].samples_per_s, 1.2e6);
  const LogFacts facts = ReadLogFacts(*log.source);
  ASSERT_EQ(facts.plans.size(), 1u);
  EXPECT_EQ(facts.plans[0].first, "93e4e0bdf2af8e5c27a337a5f9d4baa1");
}

// As `plan export --to fsdp` and `--to ddp` have it (model/exchange/torch_program.cc).
TEST(RunText, ReadsWhatExportedProgramsPrint) {
  const TrainingLog log = ReadTrainingLog(
      Told("Orrery plan 93e4e0bdf2af8e5c27a337a5f9d4baa1\n"
           "0: step 1 loss 8.1234 step_time 1.9000 s tokens/s 100000 peak 20.00 GiB\n"
           "0: step 2 loss nan step_time 0.3227 s tokens/s 800000 peak 20.50 GiB\n"
           "0: step 3 loss 8 step_time  s tokens/s 800000 peak 20.50 GiB\n"));
  EXPECT_EQ(log.format, LogFormat::kRunText);
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.garbled_lines, 1);
  EXPECT_DOUBLE_EQ(*log.steps[1].seconds, 0.3227);
  EXPECT_DOUBLE_EQ(*log.steps[1].tokens_per_s, 800000);
  EXPECT_DOUBLE_EQ(*log.steps[1].allocated.bytes, 20.5 * (1 << 30));
  EXPECT_FALSE(log.steps[1].loss);
}

TEST(Megatron, ReadsTheOlderLines) {
  const TrainingLog log = SampleLog("megatron-old.txt");
  EXPECT_EQ(log.format, LogFormat::kMegatron);
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  ASSERT_EQ(log.steps.size(), 3u);
  EXPECT_EQ(log.steps[0].step, 100);
  EXPECT_DOUBLE_EQ(*log.steps[0].seconds, 0.6402);
  EXPECT_DOUBLE_EQ(*log.steps[1].loss, 8.3001);
  EXPECT_FALSE(log.steps[2].loss);
  EXPECT_EQ(log.steps[2].line, 6);
  EXPECT_DOUBLE_EQ(TermsOf(log).at("backward-compute"), 0.4021);
  EXPECT_NEAR(*MedianStep(log), 0.63915, 1e-12);
}

TEST(Megatron, ReadsTheNewerLinesAndTimerRanges) {
  const TrainingLog log = SampleLog("megatron-new.txt");
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  ASSERT_EQ(log.steps.size(), 3u);
  EXPECT_EQ(*log.steps[1].samples, 512);
  EXPECT_DOUBLE_EQ(*log.steps[1].flops_per_gpu, 320.2e12);
  EXPECT_EQ(log.terms.size(), 3u);
  EXPECT_DOUBLE_EQ(TermsOf(log).at("all-grads-sync"), 12.07e-3);
}

TEST(Megatron, SecondsPerIterationAndSamplesPerSecond) {
  const TrainingLog log = ReadTrainingLog(
      Told(" iteration 7/ 9 | consumed samples: 7 | elapsed time per iteration (s): 73.47 | lm "
           "loss: 2.1 | samples per second: 27.876 | TFLOPs: 155.1 |\n"));
  EXPECT_DOUBLE_EQ(*log.steps[0].seconds, 73.47);
  EXPECT_DOUBLE_EQ(*log.steps[0].samples_per_s, 27.876);
  EXPECT_DOUBLE_EQ(*log.steps[0].flops_per_gpu, 155.1e12);
}

TEST(Megatron, MemoryIsOfTheRanksThatSayIt) {
  const std::string row =
      " iteration 10/ 99 | consumed samples: 80 | elapsed time per iteration (ms): 500.0 | lm "
      "loss: "
      "2.1 |\n";
  const TrainingLog log = ReadTrainingLog(
      Told(row +
           "[Rank 0] (after 10 iterations) memory (MB) | allocated: 9.0 | max allocated: 1000.0 "
           "| reserved: 2000.0 | max reserved: 2000.0\n[Rank 5] (after 10 iterations) memory "
           "(MB) | allocated: 9.0 | max allocated: 3000.0 | reserved: 4000.0\n"));
  ASSERT_EQ(log.steps.size(), 1u);
  const PeakMemory &allocated = log.steps[0].allocated, &reserved = log.steps[0].reserved;
  EXPECT_DOUBLE_EQ(*allocated.bytes, 3000.0 * 1048576);
  ASSERT_EQ(allocated.ranks.size(), 2u);
  EXPECT_EQ(allocated.ranks[1].rank, 5);
  EXPECT_DOUBLE_EQ(allocated.ranks[1].bytes, 3000.0 * 1048576);
  EXPECT_FALSE(allocated.ranks[1].local);
  EXPECT_DOUBLE_EQ(*reserved.bytes, 2000.0 * 1048576);
  EXPECT_EQ(reserved.ranks.size(), 1u);
  EXPECT_EQ(reserved.line, 2);
}

TEST(Csv, RowsOfRanksOnAStepAreOneSample) {
  const TrainingLog log = ReadStepCsv(
      Told("step,step_time_s,rank,memory [GiB]\n1,0.5,0,3\n1,0.75,2,5\n2,0.5,2,4\n2,0.25,0,4\n"));
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_DOUBLE_EQ(*log.steps[0].seconds, 0.75);
  EXPECT_DOUBLE_EQ(*log.steps[1].seconds, 0.5);
  ASSERT_EQ(log.steps[0].allocated.ranks.size(), 2u);
  EXPECT_EQ(log.steps[0].allocated.ranks[1].rank, 2);
  EXPECT_EQ(log.steps[0].allocated.line, 3);
  // Rows that are sorted by rank, of a job that restarted.
  const TrainingLog sorted = ReadStepCsv(
      Told("step,step_time_s,rank\n1,0.5,0\n2,0.5,0\n2,0.6,0\n3,0.5,0\n1,0.9,1\n2,0.8,1\n2,0.7,1\n"
           "3,0.6,1\n"));
  ASSERT_EQ(sorted.steps.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(*sorted.steps[i].seconds, (std::array{0.9, 0.8, 0.7, 0.6}[i])) << i;
  // A rank that begins anew, and rows that name none.
  EXPECT_EQ(ReadStepCsv(Told("step,step_time_s,rank\n1,0.5,0\n1,0.5,0\n")).steps.size(), 2u);
  EXPECT_EQ(ReadStepCsv(Told("step,step_time_s\n1,0.5\n1,0.5\n")).steps.size(), 2u);
}

TEST(Megatron, NamesGarbledLines) {
  const TrainingLog log = ReadTrainingLog(
      Told(" iteration 1/ 9 | elapsed time per iteration (ms): 10.5 | lm loss: 2 |\n"
           " iteration 2/ 9 | elapsed time per iteration (ms): 1o.5 | lm loss: 2 |\n"
           " iteration 3/ 9 | lm loss: 2 |\n"
           " iterat on 4/ 9 | elapsed time per iteration (ms): 10.5 |\n"
           "time (ms) | forward: | backward: 3\n"));
  EXPECT_EQ(log.steps.size(), 1u);
  ASSERT_EQ(log.garbled_lines, 4);
  EXPECT_THAT(Render(log.garbled, false), HasSubstr("train.log:2:19: error: 'elapsed time per"));
  EXPECT_EQ(log.garbled[3].where.line, 5);
}

TEST(DeepSpeed, ReadsOlderLinesAmongProgressBars) {
  const TrainingLog log = SampleLog("deepspeed-old.txt");
  EXPECT_EQ(log.format, LogFormat::kDeepSpeed);
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.steps[1].step, 20);
  EXPECT_DOUBLE_EQ(*log.steps[1].samples_per_s, 318.25);
  EXPECT_DOUBLE_EQ(*log.steps[1].allocated.bytes, 12.25 * 1073741824);
  EXPECT_FALSE(log.steps[1].seconds);
  EXPECT_EQ(log.terms.size(), 10u);
  EXPECT_DOUBLE_EQ(TermsOf(log).at("backward_allreduce_microstep"), 4.05e-3);
  EXPECT_EQ(log.terms[0].rank, 0);
}

TEST(DeepSpeed, ReadsNewerLinesAndThePipelineEngine) {
  const TrainingLog log = SampleLog("deepspeed-new.txt");
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  ASSERT_EQ(log.steps.size(), 3u);
  EXPECT_DOUBLE_EQ(*log.steps[0].samples_per_s, 17.64);  // of these steps, not of the whole run
  EXPECT_EQ(log.steps[1].step, 20);
  EXPECT_DOUBLE_EQ(*log.steps[2].seconds, 1.234);
  EXPECT_EQ(log.steps[2].step, 30);
  EXPECT_DOUBLE_EQ(TermsOf(log).at("fwd_microstep"), 0.1102);
}

TEST(DeepSpeed, TwoRecordsInOneLineAreTwo) {
  const std::string one = "[timer.py:191:stop] 0/10, SamplesPerSec=6.5, MaxMemAllocated=1GB";
  EXPECT_EQ(ReadDeepSpeed(Told(one + one)).steps.size(), 2u);
  const TrainingLog cut = ReadDeepSpeed(Told(one + "\n[timer.py:1:stop] 0/20, MemAllocated=1GB"));
  EXPECT_EQ(cut.garbled_lines, 1);
  EXPECT_EQ(cut.garbled[0].where.line, 2);
}

TEST(LlmC, ReadsItsThreePrograms) {
  const TrainingLog log = SampleLog("llmc.txt");
  EXPECT_EQ(log.format, LogFormat::kLlmC);
  ASSERT_EQ(log.steps.size(), 3u);
  EXPECT_DOUBLE_EQ(*log.steps[1].seconds, 1.7814);
  EXPECT_DOUBLE_EQ(*log.steps[1].mfu, 0.579);
  EXPECT_DOUBLE_EQ(*log.steps[1].tokens_per_s, 294310);
  EXPECT_DOUBLE_EQ(*log.steps[2].loss, 10.800112);
  const TrainingLog others = SampleLog("llmc-fp32.txt");
  ASSERT_EQ(others.steps.size(), 3u);
  EXPECT_DOUBLE_EQ(*others.steps[0].tokens_per_s, 50769);
  EXPECT_DOUBLE_EQ(*others.steps[2].seconds, 2.311302);
  EXPECT_EQ(log.garbled_lines + others.garbled_lines, 0);
}

TEST(Nanotron, ReadsTimesOfThreeDigits) {
  const TrainingLog log = SampleLog("nanotron.txt");
  EXPECT_EQ(log.format, LogFormat::kNanotron);
  ASSERT_EQ(log.steps.size(), 5u);
  EXPECT_EQ(log.garbled_lines, 0);
  EXPECT_EQ(log.steps[1].step, 40);
  EXPECT_DOUBLE_EQ(*log.steps[1].seconds, 2.96);
  EXPECT_DOUBLE_EQ(*log.steps[1].tokens_per_s, 354e3);
  EXPECT_DOUBLE_EQ(*log.steps[1].flops_per_gpu, 171e12);
  EXPECT_DOUBLE_EQ(*log.steps[0].loss, 7.31);
  // As releases of 2024 call it, below a second.
  const TrainingLog old = ReadTrainingLog(Told(
      "[INFO|DP=0|PP=0|TP=0|h]: iteration: 7 / 9 | consumed_tokens: 5.24M | "
      "elapsed_time_per_iteration_ms: 312 | tokens_per_sec: 1.68M | global_batch_size: 512 |\n"));
  EXPECT_EQ(old.format, LogFormat::kNanotron);
  EXPECT_DOUBLE_EQ(*old.steps.at(0).seconds, 0.312);
}

TEST(NanoGpt, ReadsIterationsAndLeavesEvaluationsOut) {
  const TrainingLog log = SampleLog("nanogpt.txt");
  EXPECT_EQ(log.format, LogFormat::kNanoGpt);
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  ASSERT_EQ(log.steps.size(), 4u);
  EXPECT_FALSE(log.steps[0].mfu);
  EXPECT_NEAR(*log.steps[2].seconds, 0.2453, 1e-12);
  EXPECT_NEAR(*MedianStep(log), 0.2457, 1e-12);
}

TEST(StepCsv, TakesUnitsFromItsHeader) {
  const TrainingLog log = SampleLog("steps.csv");
  EXPECT_EQ(log.format, LogFormat::kCsv);
  ASSERT_EQ(log.steps.size(), 3u);
  EXPECT_DOUBLE_EQ(*log.steps[1].seconds, 0.4017);
  EXPECT_DOUBLE_EQ(*log.steps[1].mfu, 0.39);
  EXPECT_DOUBLE_EQ(*log.steps[1].allocated.bytes, 31.5 * 1073741824);
  EXPECT_EQ(log.terms.size(), 6u);
  // As keys of JSON have it.
  const TrainingLog keys = ReadStepCsv(Told("step,step_time_s,forward_ms,tokens\n1,0.5,200,7\n"));
  EXPECT_DOUBLE_EQ(*keys.steps.at(0).seconds, 0.5);
  EXPECT_EQ(keys.terms.at(0).name, "forward");
  EXPECT_DOUBLE_EQ(keys.terms.at(0).seconds, 0.2);
  const TrainingLog garbled = ReadStepCsv(Told("step,time [s]\n1,2\n2,x\n3\n4,-1\n5,\n"));
  EXPECT_EQ(garbled.steps.size(), 1u);
  EXPECT_EQ(garbled.garbled_lines, 4);
  EXPECT_THAT(Refusal("step,step_time,loss\n1,2,3\n"), HasSubstr("has no unit of time"));
  EXPECT_THAT(Refusal("step,loss\n1,2\n"), HasSubstr("no column is a time"));
}

TEST(Traces, ReadsKernelsByClassAndProfilerSteps) {
  const TrainingLog log = SampleLog("kineto.json");
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  EXPECT_FALSE(log.own);
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.steps[0].step, 5);
  EXPECT_NEAR(*log.steps[0].seconds, 900.5e-6, 1e-15);
  ASSERT_EQ(log.spans.size(), 6u);
  const Work kinds[] = {Work::kProduct,    Work::kAttention, Work::kElementwise,
                        Work::kCollective, Work::kCopy,      Work::kOptimizer};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(log.spans[i].work, kinds[i]) << log.spans[i].name;
  EXPECT_EQ(log.spans[0].line, 10);
  EXPECT_EQ(log.spans[0].rank, 3);
  EXPECT_EQ(log.spans[3].stream, "20");
  EXPECT_NEAR(log.spans[0].seconds, 300e-6, 1e-15);
}

const std::string kOwn =
    R"({"schemaVersion": 1, "digest": "abc", "traceEvents": [
{"ph": "M", "name": "thread_name", "pid": 1, "tid": 0, "args": {"name": "stream 0 compute"}},
{"ph": "X", "cat": "kernel", "name": "mm", "pid": 1, "tid": 0, "ts": 10, "dur": 5, "args": {"phase": "forward"}},
{"ph": "X", "cat": "kernel", "name": "all_reduce", "pid": 1, "tid": 1, "ts": 20, "dur": 4.5, "args": {"phase": "grad_reduce"}})";

TEST(Traces, ReadsItsOwn) {
  const TrainingLog log = ReadTrainingLog(Told(kOwn + "]}"));
  EXPECT_TRUE(log.own);
  EXPECT_EQ(log.digest, "abc");
  ASSERT_EQ(log.spans.size(), 2u);
  EXPECT_EQ(log.spans[0].stream, "stream 0 compute");
  EXPECT_EQ(log.spans[0].phase, "forward");
  EXPECT_EQ(log.spans[1].work, Work::kCollective);
  EXPECT_NEAR(*MedianStep(log), 14.5e-6, 1e-15);
}

TEST(Traces, ABrokenEndAndBrokenEventsAreNamed) {
  const TrainingLog cut = ReadTrainingLog(Told(kOwn + ",\n{\"ph\": \"X\", \"na"));
  EXPECT_EQ(cut.spans.size(), 2u);
  EXPECT_EQ(cut.digest, "abc");
  ASSERT_EQ(cut.garbled_lines, 1);
  EXPECT_EQ(cut.garbled[0].where.line, 5);
  const TrainingLog odd = ReadTrainingLog(
      Told(kOwn + ",\n{\"name\": \"mm\"}, 7,\n{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": "
                  "\"mm\", \"ts\": \"x\", \"dur\": 1}]}"));
  EXPECT_EQ(odd.garbled_lines, 3);
  EXPECT_EQ(odd.spans.size(), 2u);
}

TEST(Records, AreReadByTheirSchema) {
  const TrainingLog run = ReadTrainingLog(Told(
      R"({"schema": "orrery.run/1", "digest": "d1", "samples_per_step": 8, "tokens_per_step": 64,
"per_rank": [{"rank": 0, "compute_s": 0.5}],
"steps": [{"step": 1, "seconds": 2.0, "loss": 3}, {"step": 2, "seconds": 1.0, "loss": null},
{"step": 3}]})"));
  EXPECT_EQ(run.digest, "d1");
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(*run.steps[1].tokens_per_s, 64);
  EXPECT_EQ(run.garbled_lines, 1);
  EXPECT_EQ(run.garbled[0].where.line, 4);
  EXPECT_EQ(TermsOf(run).at("compute"), 0.5);
  const TrainingLog predicted = ReadTrainingLog(Told(
      R"({"schema": "orrery.simulate/1", "prediction": {"step_time_s": 1.5, "global_batch": 8,
"breakdown": {"compute_s": 1.25, "bubble_s": 0.25}}})"));
  EXPECT_EQ(*MedianStep(predicted), 1.5);
  EXPECT_EQ(TermsOf(predicted).at("bubble"), 0.25);
  EXPECT_THAT(Refusal(R"({"schema": "orrery.search/1"})"), HasSubstr("orrery.search/1"));
}

TEST(Formats, EverySampleIsToldApartAndReadWhole) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) +
                                                               "/calib/import/samples")) {
    const SourcePtr source = ReadLogSource(entry.path().string());
    const LogFormat format = FormatOf(source);
    const bool nccl = entry.path().filename().string().starts_with("nccl");
    EXPECT_EQ(format == LogFormat::kNccl, nccl) << entry.path();
    if (nccl) {
      EXPECT_THROW(ReadTrainingLog(source), InputError);
      continue;
    }
    const TrainingLog log = ReadTrainingLog(source);
    EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
    EXPECT_FALSE(log.steps.empty()) << entry.path();
    ++read;
  }
  EXPECT_GE(read, 9);
}

TEST(Formats, WhatNobodyKnowsIsAnErrorWithAHint) {
  for (const char* text : {"", "\n \n", "hello\n", "a,b\n1,2\n", "{\"a\": 1}",
                           "<html>step 3</html>", "NCCL WARN out of memory\n"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("train.log")) << text;
  }
  EXPECT_THAT(Refusal("hello\n"), HasSubstr("known are the logs of Megatron-LM"));
  EXPECT_THAT(Refusal("{\"traceEvents\": []}"), HasSubstr("no measurement"));
  EXPECT_THAT(Refusal("iter 3: loss 2, time abc ms\n"), HasSubstr("1 line is garbled"));
}

TEST(KernelNames, OpsOfPlansAreKnown) {
  Work work = Work::kOther;
  EXPECT_TRUE(WorkOfOp("attn_bwd", &work));
  EXPECT_EQ(work, Work::kAttention);
  EXPECT_FALSE(WorkOfOp("attn_bwdx", &work));
  EXPECT_EQ(WorkOfKernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"), Work::kPointToPoint);
  EXPECT_EQ(WorkOfKernel("something new"), Work::kOther);
}

TEST(RealLogs, OfPublishedTutorials) {
  const std::string calib = std::string(ORRERY_SOURCE_DIR) + "/calib/";
  const TrainingLog habana =
      ReadTrainingLog(ReadLogSource(calib + "fit/samples/dl1/bert-tiny-1.txt"));
  EXPECT_EQ(habana.format, LogFormat::kDeepSpeed);
  EXPECT_EQ(habana.garbled_lines, 0) << Render(habana.garbled, false);
  EXPECT_EQ(habana.steps.size(), 23u);
  EXPECT_NEAR(*habana.steps[0].samples_per_s, 6195.98, 0.01);
  const TrainingLog megatron =
      ReadTrainingLog(ReadLogSource(calib + "data/logs/megatron_gpt_2node_4gpu.txt"));
  EXPECT_EQ(megatron.format, LogFormat::kMegatron);
  ASSERT_EQ(megatron.steps.size(), 1u);
  EXPECT_NEAR(*megatron.steps[0].seconds, 0.5373, 1e-12);
  EXPECT_EQ(*megatron.steps[0].samples, 8);
}

TrainingLog TakenOf(const std::string& text) { return ReadTrainingLog(Told(text)); }

// Bars of loading and of evaluation are not of the training; loss lines have no times.
TEST(TrainingLog, TrainersBarsAreItsSteps) {
  const TrainingLog log = SampleLog("hf-trainer.txt");
  EXPECT_EQ(log.format, LogFormat::kTrainer);
  ASSERT_EQ(log.steps.size(), 4U);
  EXPECT_EQ(log.steps[1].step, 10);
  EXPECT_DOUBLE_EQ(*log.steps[1].seconds, 3.14);
  EXPECT_NEAR(*MedianStep(log), 3.13, 1e-9);
  const TrainingLog fast = TakenOf("  2%|x  | 10/500 [00:31<25:40,  4.00it/s]\n{'loss': 1.0}\n");
  EXPECT_DOUBLE_EQ(*fast.steps.at(0).seconds, 0.25);
}

// Each node draws a bar, and the launcher says whose it is.
TEST(TrainingLog, TrainersBarsMayBeLabelled) {
  for (const char* label :
       {" 8: ", "[default0]:", "[rank0]: ", "[1,8]<stderr>:", "8: [default0]:"}) {
    std::string text;
    for (const char* bar : {"1/500 [00:09<1:14:51,  9.00s/it]", "10/500 [00:31<25:40,  3.14s/it]"})
      for (int node = 0; node < 2; ++node) text += std::string(label) + "  2%|#   | " + bar + "\n";
    const TrainingLog log = TakenOf(text);
    ASSERT_EQ(log.steps.size(), 2u) << label;
    EXPECT_EQ(log.steps[1].seconds, 3.14) << label;
  }
}

TEST(TrainingLog, WithoutABarTrainerHasTheRateOfItsRun) {
  const std::string loss =
      "{'loss': 2.1, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}\n";
  const TrainingLog log = TakenOf(
      loss +
      "{'train_runtime': 1565.2, 'train_samples_per_second': 20.44, 'train_steps_per_second': "
      "0.319, 'train_loss': 1.5}\n");
  ASSERT_EQ(log.steps.size(), 1U);
  EXPECT_NEAR(*log.steps[0].seconds, 1 / 0.319, 1e-9);
  // Three decimals of 0.005 say too little: samples do.
  const TrainingLog slow = TakenOf(
      "{'train_runtime': '15652', 'train_samples_per_second': '20.44', 'train_steps_per_second': "
      "'0.005'}\n");
  EXPECT_FALSE(slow.steps.at(0).seconds);
  EXPECT_NEAR(*SecondsOf(slow.steps[0], {4096, 0, 0}), 4096 / 20.44, 1e-9);
  for (const std::string& text : {loss, std::string("{\"log_history\": [{\"loss\": 1}]}")}) {
    try {
      (void)TakenOf(text);
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("HuggingFace's Trainer"));
    }
  }
}

}  // namespace
}  // namespace orrery::measured
