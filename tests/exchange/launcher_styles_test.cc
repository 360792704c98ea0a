// SPDX-License-Identifier: Apache-2.0
// Launchers in the styles of public repositories: torchrun, mpirun, srun, modules.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

TEST(ImportLaunchers, OptionsOfTorchrunMayHoldTheirValues) {
  const Imported read =
      Read({{"x.sh", std::string("torchrun --standalone --nnodes=2 --nproc_per_node=8 ") + kGpt}});
  EXPECT_EQ(Text(read, "nodes"), "2");
  EXPECT_EQ(Text(read, "gpus_per_node"), "8");
  EXPECT_EQ(Text(read, "micro_batch"), "4");
}

TEST(ImportLaunchers, ProgramsAreModules) {
  const auto settings = [](const std::string& command) {
    const Imported read = Read({{"x.sh", "torchrun --nnodes 1 --nproc-per-node 8 " + command}});
    return Text(read, "micro_batch");
  };
  EXPECT_EQ(settings("-m recipes.finetune --per_device_train_batch_size 4"), "4");
  EXPECT_EQ(settings("train.py -m base --per_device_train_batch_size 4"), "4");
}

TEST(ImportLaunchers, MpirunCountsRanks) {
  const auto nodes = [](const std::string& front) {
    const Imported read = Read({{"x.sh", front + " python " + kGpt}});
    return Text(read, "nodes") + "x" + Text(read, "gpus_per_node");
  };
  EXPECT_EQ(nodes("mpirun -np 16 -N 8 -x PATH"), "2x8");
  EXPECT_EQ(nodes("mpirun -np 16 --map-by ppr:4:node --bind-to none"), "4x4");
  EXPECT_EQ(nodes("mpirun -H a:8,b:8 -np 16 --allow-run-as-root"), "2x8");
  // Slot by slot, as Open MPI fills them; -np was passed over.
  EXPECT_EQ(nodes("mpirun -np 8 -H a:8,b:8"), "1x8");
  EXPECT_EQ(nodes("mpirun -np 8 -H a:8,b:8 --map-by node"), "2x4");
  EXPECT_EQ(nodes("mpirun -np 2 -H a:1,b:1 torchrun --nnodes 2 --nproc-per-node 8"), "2x8");
  EXPECT_THAT(Error({{"x.sh", std::string("mpirun -np 12 -H a:8,b:8 python ") + kGpt}}),
              AllOf(HasSubstr("x.sh:1:"), HasSubstr("12 processes are not shared out evenly")));
  EXPECT_EQ(nodes("mpiexec -n 32 -ppn 8"), "4x8");
  const Imported all = Read({{"x.sh", std::string("mpirun -np 8 python ") + kGpt}});
  EXPECT_EQ(Text(all, "dp"), "8");
  EXPECT_THAT(all.notes, Contains(HasSubstr("how many GPUs a node has is not said")));
}

TEST(ImportLaunchers, SrunStartsAShellWithTheCommand) {
  for (const char* shell : {"bash -c", "sh -c", "/bin/bash -lc"}) {
    const Imported read = Read(
        {{"x.sbatch", fmt::format("#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\n"
                                  "MASTER=$(scontrol show hostnames | head -1)\n"
                                  "srun --label {} \"torchrun --nnodes $SLURM_NNODES --node-rank "
                                  "\\$SLURM_PROCID --master-addr $MASTER {}\"\n",
                                  shell, kGpt)}});
    EXPECT_EQ(Text(read, "nodes"), "4") << shell;
    EXPECT_EQ(Text(read, "gpus_per_node"), "8");
    EXPECT_EQ(Text(read, "global_batch"), "128");
  }
  const Imported tasks =
      Read({{"x.sh", std::string("srun -N2 --ntasks-per-node=8 python ") + kGpt}});
  EXPECT_EQ(Text(tasks, "nodes") + "x" + Text(tasks, "gpus_per_node"), "2x8");
}

TEST(ImportLaunchers, WhatABranchSetsIsNamed) {
  const std::string script = std::string(
                                 "if [ -n \"$FULL\" ]; then\n  EXTRA=\"--recompute-granularity "
                                 "full\"\nfi\ntorchrun --nnodes 1 --nproc-per-node 8 ") +
                             kGpt + "--bf16 $EXTRA $MORE\n";
  const Imported read = Read({{"x.sh", script}});
  EXPECT_EQ(Text(read, "precision"), "bf16");
  EXPECT_EQ(Text(read, "recompute"), "none");
  EXPECT_THAT(read.notes,
              AllOf(Contains(HasSubstr("EXTRA is set in a branch: what it holds is not read")),
                    Contains(HasSubstr("$MORE is not set in this file: taken as empty"))));
  const Imported nodes =
      Read({{"x.sh", std::string("case $1 in a) NNODES=4 ;; esac\npython ") + kGpt}});
  ASSERT_TRUE(nodes.no_nodes);
  EXPECT_EQ(nodes.no_nodes->unresolved, "NNODES is set in a branch");
}

// All GPUs of the cluster were taken, and the batch of the model file.
TEST(ImportLaunchers, WhatTheTrainerSeesWithoutALauncher) {
  const std::string hf = " train.py --per_device_train_batch_size 4 --bf16 ";
  const auto counts = [](const Imported& read) {
    return Text(read, "nodes") + "x" + Text(read, "gpus_per_node");
  };
  EXPECT_EQ(counts(Read({{"x.sh", "CUDA_VISIBLE_DEVICES=0 python" + hf}})), "1x1");
  EXPECT_EQ(counts(Read({{"x.sh", "export CUDA_VISIBLE_DEVICES=2,3\npython3 -u" + hf}})), "1x2");
  EXPECT_THAT(Error({{"x.sh", "N=$(nvidia-smi -L | wc -l)\ntorchrun --nproc_per_node 8" + hf +
                                  "--gradient_accumulation_steps $((64 / N))\n"}}),
              AllOf(HasSubstr("x.sh:2:"), HasSubstr("gradient_accumulation_steps")));
}

TEST(ImportLaunchers, AMissingFileOfDeepSpeedIsStillDeepSpeeds) {
  const Imported read = Read({{"x.sh",
                               "deepspeed --num_gpus 8 train.py --per_device_train_batch_size 4 "
                               "--gradient_accumulation_steps 1 --bf16 --deepspeed z2.json"}},
                             {{"zero", Value{"2", {}, ""}}});
  EXPECT_EQ(read.framework, "huggingface");
}

// The script's was taken without a word.
TEST(ImportLaunchers, AScriptAndTheLogOfAnotherJob) {
  const std::string dump =
      "------------------------ arguments ------------------------\n"
      "  fp8 ............................................. None\n"
      "  use_distributed_optimizer ....................... False\n"
      "-------------------- end of arguments ---------------------\n";
  const std::string script = std::string("torchrun --nproc-per-node 8 --nnodes 1 ") + kGpt;
  EXPECT_EQ(Text(Read({{"x.sh", script}, {"x.log", dump}}), "micro_batch"), "4");
  EXPECT_THAT(
      Error({{"x.sh", script + " --fp8-format hybrid"}, {"x.log", dump}}),
      AllOf(HasSubstr("x.sh:1:"), HasSubstr("fp8-format hybrid here, and None in x.log:2")));
  EXPECT_THAT(Error({{"x.log", dump}, {"x.sh", script + " --use-distributed-optimizer"}}),
              HasSubstr("use-distributed-optimizer here, and False in x.log:3"));
}

TEST(ImportLaunchers, ATextThatEndsLikeAScriptIsNone) {
  const Imported read =
      Read({{"x.sh", "#SBATCH --nodes=2 --gpus-per-node=8\necho \" First: sbatch prep.sh\"\n"}});
  EXPECT_THAT(read.notes, testing::Not(Contains(HasSubstr("starts"))));
}

TEST(ImportLaunchers, APlacementComesBackFromTheJob) {
  const Resolved placed =
      Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "4", "--tp", "8",
               "--placement", "tp-cp-dp-pp:2,0,1,3", "--framework", "megatron"});
  for (const char* name : {"torchrun", "mpirun", "slurm", "pbs"}) {
    Bundle bundle = MakeBundle(CaseOf(placed), kMegatron);
    bundle.name = "job";
    std::vector<std::string> words = {"--topology", "dgx-h100"};
    for (const Launcher& launcher : Launchers()) {
      if (launcher.name != std::string(name)) continue;
      for (const std::string& path : Write(launcher.files(bundle, TargetFiles(bundle))))
        words.insert(words.end(), {"--from", path});
    }
    const Resolved back = Resolve(words);
    ASSERT_TRUE(back.strategy.placement != nullptr) << name;
    EXPECT_EQ(back.strategy.placement->nodes, placed.strategy.placement->nodes) << name;
  }
}

}  // namespace
}  // namespace orrery::exchange::styles
