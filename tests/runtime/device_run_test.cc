// SPDX-License-Identifier: Apache-2.0
// What `--device cuda` says where there is no GPU, and what goes to ranks on other machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/launch/mpirun.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using testing::HasSubstr;

TEST(DeviceCuda, WithoutAGpuIsAWrongInput) {
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "there is a GPU here";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "--model", "linear-20-1"},
        {"run", "--model", "linear-20-1", "--dp", "2", "--comm", "local"},
        {"bench", "all_reduce"},
        {"bench", "gemm"}}) {
    auto all = words;
    all.insert(all.end(), {"--device", "cuda"});
    const Outcome outcome = RunPlan(all);
    EXPECT_EQ(outcome.code, 2) << words[0];
    EXPECT_THAT(outcome.err, HasSubstr("--device cuda: "));
    EXPECT_THAT(outcome.err, testing::AnyOf(HasSubstr("there is no NVIDIA driver here"),
                                            HasSubstr("this build has no CUDA")));
    EXPECT_THAT(outcome.err, HasSubstr("hint: "));
    all.back() = "tpu";
    EXPECT_EQ(RunPlan(all).code, 2);
  }
}

TEST(CudaGraphs, NeedAGpuAndOnOrOff) {
  const std::vector<std::string> words = {"run", "--model", "linear-20-1", "--steps",
                                          "1",   "--comm",  "local"};
  const auto with = [&](const char* value) {
    auto all = words;
    all.insert(all.end(), {"--cuda-graphs", value});
    return RunPlan(all);
  };
  EXPECT_EQ(with("on").code, 2);
  EXPECT_THAT(with("on").err, HasSubstr("add --device cuda"));
  EXPECT_EQ(with("maybe").code, 2);
  EXPECT_THAT(with("maybe").err, HasSubstr("neither on nor off"));
  EXPECT_EQ(with("off").code, 0) << with("off").err;
}

TEST(Mpirun, VariablesOfNcclGoWithTheRanks) {
  setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
  setenv("ORRERY_NCCL_LIBRARY", "/opt/nccl.so", 1);
  setenv("SOMETHING_ELSE", "x", 1);
  const std::vector<std::string> words = launch::MpirunWords("/bin/mpirun", 3, {"prog", "arg"});
  unsetenv("NCCL_SOCKET_IFNAME");
  unsetenv("ORRERY_NCCL_LIBRARY");
  std::string line;
  for (const std::string& word : words) line += word + ' ';
  EXPECT_THAT(line, testing::StartsWith("/bin/mpirun "));
  EXPECT_THAT(line, HasSubstr("-np 3 -x OMP_NUM_THREADS "));
  EXPECT_THAT(line, HasSubstr("-x NCCL_SOCKET_IFNAME "));
  EXPECT_THAT(line, HasSubstr("-x ORRERY_NCCL_LIBRARY "));
  EXPECT_THAT(line, testing::EndsWith(" prog arg "));
  EXPECT_EQ(line.find("SOMETHING_ELSE"), std::string::npos);
  EXPECT_EQ(line.find("eth7"), std::string::npos);  // names alone
}

}  // namespace
}  // namespace orrery
