// SPDX-License-Identifier: Apache-2.0
// A shell's limits of memory, stack and file size end in an answer or a message, never in a signal.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kJob = "--model gpt2-xl --topology dgx-h100 --nodes 1 --quiet";

// A new thread's first call of the allocator crashed where its arena could not be made (34,000 and 35,000 KiB).
#ifndef __SANITIZE_ADDRESS__
TEST(MachineLimits, OfMemoryAreSaid) {
  std::set<int> sizes = {34000, 34500, 35000, 35500, 200000};
  for (int size = 24000; size < 80000; size += 4000) sizes.insert(size);
  const std::string study = ScratchFolder() + "/threads.yaml";
  WriteText(study,
            "job: {model: gpt2-xl, topology: dgx-h100, nodes: [1, 2], global_batch: 64..256}\n"
            "layout: {tp: [1, 2, 4, 8], pp: 1..4, micro_batch: [1, 2, 4]}\n");
  for (const int size : sizes) {
    for (const std::string& words :
         {std::string(kJob), fmt::format("sweep {} --threads 12 --out {}/rows-{}.csv", study,
                                         ScratchFolder(), size)}) {
      const Outcome outcome = RunShell(fmt::format("ulimit -v {}; exec \"$PLAN\" {}", size, words));
      EXPECT_TRUE(outcome.code == 0 || outcome.code == 1)
          << size << " " << words << ": " << outcome.code << outcome.err;
      if (outcome.code == 1) EXPECT_THAT(outcome.err, HasSubstr("not enough memory")) << size;
    }
  }
}
#endif

// Killed by SIGXFSZ, and half a file stayed.
TEST(MachineLimits, OfFileSizesAreSaid) {
  const std::string folder = ScratchFolder() + "/sizes";
  fs::create_directory(folder);
  WriteText(folder + "/study.yaml",
            "job: {model: gpt2-xl, topology: dgx-h100, nodes: [1, 2], global_batch: 64..256}\n"
            "layout: {tp: [1, 2, 4, 8], pp: 1..4, micro_batch: [1, 2, 4]}\n");
  const std::string run =
      "run --model gpt2-micro --ranks 1 --steps 1 --seq-len 16 --global-batch 1";
  const std::pair<int, std::string> kCases[] = {
      {10, std::string("simulate ") + kJob + " --trace t.json"},
      {10, std::string("simulate ") + kJob + " --trace t.json.gz"},
      {1, std::string("predict ") + kJob + " --dp 8 --json p.json"},
      {1, std::string("predict ") + kJob + " --dp 8 --html p.html"},
      {1, std::string("predict ") + kJob + " --dp 8 --bundle p.bundle"},
      {1, std::string("export --to megatron --out job ") + kJob},
      {1, "sweep study.yaml --out q.csv"},
      {4, run + " --save s1"},
      {1, run + " --trace r.json"},
  };
  for (const auto& [blocks, words] : kCases) {
    const Outcome outcome =
        RunShell(fmt::format("cd {}; ulimit -f {}; exec \"$PLAN\" {}", folder, blocks, words));
    EXPECT_TRUE(outcome.code == 1 || outcome.code == 2) << words << ": " << outcome.code;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write ")) << words;
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    EXPECT_EQ(entry.path().string().find(".part", entry.path().string().size() - 5),
              std::string::npos)
        << entry.path();
  // The rows that were written stay, and the same command goes on.
  EXPECT_EQ(RunShell("cd " + folder + "; exec \"$PLAN\" sweep study.yaml --out q.csv").code, 0);
}

TEST(MachineLimits, OfTheStackAreSaid) {
  for (const int size : {64, 100, 128, 256, 8192}) {
    const Outcome outcome = RunShell(fmt::format("ulimit -s {}; exec \"$PLAN\" {}", size, kJob));
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 1) << size << ": " << outcome.code;
  }
}

// `bench --calibrate link` wrote behind the link.
TEST(MachineLimits, LinksAreNotWrittenThrough) {
  const std::string folder = ScratchFolder() + "/links";
  fs::create_directories(folder + "/real");
  WriteText(folder + "/kept", "mine\n");
  fs::create_directory_symlink("real", folder + "/link");
  fs::create_symlink("kept", folder + "/file");
  for (const char* words : {"bench --calibrate link", "bench --calibrate link/",
                            "bench gemm --each 1 --total 1 --tokens 8 --output file",
                            "export --to megatron --model gpt2-xl --topology dgx-h100 --nodes 1 "
                            "--out link/"}) {
    const Outcome outcome = RunShell("cd " + folder + "; exec \"$PLAN\" " + words);
    EXPECT_EQ(outcome.code, 2) << words << outcome.err;
    EXPECT_THAT(Folded(outcome.err), HasSubstr("symbolic link, which is not followed")) << words;
  }
  EXPECT_TRUE(fs::is_empty(folder + "/real"));
  EXPECT_EQ(ReadText(folder + "/kept"), "mine\n");
}

// Aborted (134) where the error's words could not be printed.
TEST(MachineLimits, ClosedStreamsEndNothing) {
  const auto code = [](const std::string& words) { return RunShell("\"$PLAN\" " + words).code; };
  for (const char* where : {"2>&-", "2>/dev/full", "2>&- 0<&-"}) {
    EXPECT_EQ(code(std::string("--model nope ") + where), 2) << where;
    EXPECT_EQ(code(std::string("run --model nope ") + where), 2) << where;
    EXPECT_EQ(code(kJob + std::string(" ") + where), 0) << where;
  }
  for (const char* where : {">&-", ">/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full"})
    EXPECT_EQ(code(kJob + std::string(" ") + where), 1) << where;
}

TEST(MachineLimits, APipeThatNobodyReadsIsNamed) {
  const Outcome outcome =
      RunShell("cd " + ScratchFolder() +
               "; mkfifo pipe; (sleep 2; cat pipe > read) & \"$PLAN\" predict --dp 8 " + kJob +
               " --json pipe; wait; grep -c orrery.predict read");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("waiting for 'pipe': it is a pipe, and nobody reads"));
  EXPECT_THAT(outcome.out, HasSubstr("\n1\n"));
}

}  // namespace
}  // namespace orrery
