// SPDX-License-Identifier: Apache-2.0
// Numbers of nodes in scripts: taken, or named where nobody can read them, never the topology's in silence.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/exchange/exported.h"

namespace orrery::exchange::counts {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

constexpr const char* kGpt =
    "pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 512 --bf16 "
    "--tensor-model-parallel-size 8\n";

Resolved Predict(const std::string& script, std::vector<std::string> words = {}) {
  const std::string path = testing::TempDir() + "/counts.sh";
  std::ofstream(path) << script;
  words.insert(words.end(), {"--topology", "dgx-h100", "--from", path});
  return Resolve(words);
}
std::string Launch(const std::string& nodes) {
  return "torchrun --nproc_per_node 8 --nnodes " + nodes + " " + kGpt;
}
std::string Error(const std::string& script) {
  return ErrorOf([&] { Predict(script); });
}
int64_t Nodes(const std::string& script, const std::vector<std::string>& words = {}) {
  return Predict(script, words).job.cluster.nodes;
}

TEST(NodeCounts, OfArithmeticAndListsAreTaken) {
  EXPECT_EQ(Nodes("NNODES=${SLURM_JOB_NUM_NODES:-$((2**3))}\n" + Launch("$NNODES")), 8);
  EXPECT_EQ(Nodes(Launch("$((2**3))")), 8);
  EXPECT_EQ(Nodes("H=(a b c d)\n" + Launch("${#H[@]}")), 4);
  EXPECT_EQ(Nodes(Launch("4:4")), 4);
}

TEST(NodeCounts, OfHostfilesAreTaken) {
  const std::string folder = testing::TempDir() + "/";
  const auto hosts = [&](const char* slots) {
    std::ofstream file(folder + "counts-hosts");
    file << "# four of them\n\n";
    for (const char* name : {"a", "b", "n[3-4]"}) file << name << slots << "  # rack 1\n";
  };
  const auto counts = [&](const std::string& front) {
    const Resolved r = Predict(front + " " + kGpt);
    return fmt::format("{} x {}", r.job.cluster.nodes, r.job.cluster.ranks() / r.job.cluster.nodes);
  };
  hosts(" slots=8 max_slots=8");
  EXPECT_EQ(counts("mpirun --hostfile counts-hosts -np 32 python"), "4 x 8");
  EXPECT_EQ(counts("mpirun -np 16 -machinefile counts-hosts python"), "2 x 8");
  EXPECT_EQ(counts("mpirun -hostfile counts-hosts python"), "4 x 8");
  EXPECT_EQ(counts("mpirun -hostfile counts-hosts --map-by node -np 32 python"), "4 x 8");
  EXPECT_EQ(counts("deepspeed --hostfile=counts-hosts"), "4 x 8");
  EXPECT_EQ(counts("deepspeed -H counts-hosts --num_nodes 2"), "2 x 8");
  EXPECT_EQ(counts("mpirun --hostfile counts-hosts -N 8 python"), "4 x 8");
  hosts(":8");
  EXPECT_EQ(counts("mpiexec -f counts-hosts -n 16 python"), "2 x 8");
  hosts("");
  EXPECT_EQ(counts("mpirun --hostfile counts-hosts -np 32 python"), "4 x 8");
  hosts(" slots=8");
  EXPECT_THAT(Error("mpirun --hostfile counts-hosts -np 64 python " + std::string(kGpt)),
              AllOf(HasSubstr("counts.sh:1:"), HasSubstr("need 8 hosts"), HasSubstr("names 4")));
  EXPECT_THAT(Error("mpirun --hostfile counts-hosts -np 12 python " + std::string(kGpt)),
              HasSubstr("12 processes are not shared out evenly over 2 hosts"));
  std::ofstream(folder + "counts-hosts") << "a slots=8\nn[3 slots=8\n";
  EXPECT_THAT(Error("deepspeed --hostfile counts-hosts " + std::string(kGpt)),
              AllOf(HasSubstr("counts-hosts:2:1"), HasSubstr("the '[' of 'n[3' is never closed")));
}

std::string Counts(const std::string& front) {
  const Resolved r = Predict(front + " " + kGpt);
  return fmt::format("{} x {}", r.job.cluster.nodes, r.job.cluster.ranks() / r.job.cluster.nodes);
}

TEST(NodeCounts, OfHostsWithUnlikeSlotsAreRefused) {
  for (const char* front : {"mpirun -H gpu1:8,gpu2:4", "mpirun -np 12 -H gpu1:8,gpu2:4"})
    EXPECT_THAT(Error(std::string(front) + " python " + kGpt),
                AllOf(HasSubstr("counts.sh:1:"), HasSubstr("8 slots of gpu1 and 4 of gpu2")));
  EXPECT_EQ(Nodes(std::string("mpirun -np 8 -H gpu1:8,gpu2:4 python ") + kGpt), 1);
  EXPECT_EQ(Nodes(std::string("mpirun -np 16 -H a:8,b:8,c:4 python ") + kGpt), 2);
}

TEST(NodeCounts, OfDeepSpeedsFiltersAreTaken) {
  std::ofstream(testing::TempDir() + "/filter-hosts") << "w1 slots=8\nw2 slots=8\nw3 slots=8\n";
  // Of one machine, whose GPUs the topology counts.
  EXPECT_EQ(Counts("deepspeed --include localhost:0,1,2,3,4,5,6,7"), "1 x 8");
  EXPECT_EQ(Counts("deepspeed -i localhost"), "1 x 8");
  EXPECT_EQ(Counts("#SBATCH --nodes=4\ndeepspeed --include localhost:0,1,2,3,4,5,6,7"), "1 x 8");
  // Of a hostfile, which need not be there where the filter says all.
  const std::string eight = "0,1,2,3,4,5,6,7";
  EXPECT_EQ(Counts("deepspeed --hostfile filter-hosts --include w1@w3"), "2 x 8");
  EXPECT_EQ(Counts("deepspeed --hostfile filter-hosts --exclude=w2"), "2 x 8");
  EXPECT_EQ(Counts("deepspeed --hostfile no-hosts --include=\"w1:" + eight + "@w2:" + eight + "\""),
            "2 x 8");
}

TEST(NodeCounts, OfDeepSpeedsFiltersCountSlots) {
  std::ofstream(testing::TempDir() + "/filter-hosts") << "w1 slots=4\nw2 slots=4\n";
  std::string two(kGpt);
  two.replace(two.find("size 8"), 6, "size 2");
  const auto counts = [&](const std::string& front) {
    const Resolved r = Predict(front + " " + two);
    return fmt::format("{} x {}", r.job.cluster.nodes, r.job.cluster.ranks() / r.job.cluster.nodes);
  };
  EXPECT_EQ(counts("deepspeed --include localhost:0,1,2,3"), "1 x 4");
  EXPECT_EQ(counts("deepspeed --exclude localhost:0,1,2,3,4,5"), "1 x 2");  // of 8
  EXPECT_EQ(counts("deepspeed --hostfile filter-hosts --include=\"w1:0,1@w2:0,1\""), "2 x 2");
  EXPECT_EQ(counts("deepspeed --hostfile filter-hosts -e w1:0,1@w2:2,3"), "2 x 2");
  EXPECT_EQ(counts("deepspeed --hostfile filter-hosts -e w1:0,1,2,3"), "1 x 4");
  EXPECT_EQ(counts("deepspeed --hostfile filter-hosts -i w2:0@w2:3"), "1 x 2");
  EXPECT_EQ(counts("deepspeed --include= --num_gpus 4"), "1 x 4");
  const auto error = [&](const std::string& front) { return Error(front + " " + two); };
  EXPECT_THAT(error("deepspeed --hostfile filter-hosts -i w7:0"),
              AllOf(HasSubstr("counts.sh:1:"), HasSubstr("w7 is no host of filter-hosts")));
  EXPECT_THAT(error("deepspeed --hostfile filter-hosts -i w1:4"),
              HasSubstr("w1 has 4 slots, and no slot 4"));
  EXPECT_THAT(error("deepspeed --hostfile filter-hosts -i w1:0,1@w2"),
              HasSubstr("2 slots of w1 and 4 of w2"));
  EXPECT_THAT(error("deepspeed --hostfile filter-hosts -i w1:a"), HasSubstr("'w1:a' is no host"));
  EXPECT_THAT(error("deepspeed -i localhost:0 -e localhost:1"), HasSubstr("exclude each other"));
  EXPECT_THAT(error("deepspeed -i localhost:0,1 --num_gpus 2"),
              HasSubstr("--include here, and a number of GPUs in "));
}

TEST(NodeCounts, OfVisibleDevicesAreTaken) {
  std::string two(kGpt);
  two.replace(two.find("size 8"), 6, "size 2");
  const auto counts = [&](const std::string& front) {
    const Resolved r = Predict(front + " " + two);
    return fmt::format("{} x {}", r.job.cluster.nodes, r.job.cluster.ranks() / r.job.cluster.nodes);
  };
  EXPECT_EQ(counts("CUDA_VISIBLE_DEVICES=0,1 deepspeed"), "1 x 2");
  EXPECT_EQ(counts("export CUDA_VISIBLE_DEVICES=0,1,2,5\ndeepspeed"), "1 x 4");
  EXPECT_EQ(counts("env CUDA_VISIBLE_DEVICES=2,3 deepspeed"), "1 x 2");
  EXPECT_EQ(counts("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node gpu"), "1 x 2");
  // Flags of DeepSpeed win, and torchrun starts as many as it is told.
  EXPECT_EQ(counts("CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 4"), "1 x 4");
  EXPECT_EQ(counts("CUDA_VISIBLE_DEVICES=0,1 deepspeed --include localhost:0,1,2,3"), "1 x 4");
  EXPECT_EQ(counts("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 4"), "1 x 4");
  // Of another command.
  EXPECT_EQ(counts("CUDA_VISIBLE_DEVICES=0,1 python prepare.py\ndeepspeed --num_gpus 8"), "1 x 8");
}

TEST(NodeCounts, OfAStepOnPartOfTheJobAreTaken) {
  std::string two(kGpt);
  two.replace(two.find("size 8"), 6, "size 2");
  const auto read = [&](const std::string& front) { return Predict(front + " " + two); };
  const auto counts = [&](const Resolved& r) {
    return fmt::format("{} x {}", r.job.cluster.nodes, r.job.cluster.ranks() / r.job.cluster.nodes);
  };
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n";
  const Resolved part = read(job + "srun -N 2 torchrun --nnodes 2 --nproc_per_node 4");
  EXPECT_EQ(counts(part), "2 x 4");
  EXPECT_THAT(part.job.notes, Contains(HasSubstr("counts.sh:4: the command takes 2 of 4 nodes")));
  EXPECT_THAT(part.job.notes,
              Contains(HasSubstr("counts.sh:4: the command takes 4 of 8 GPUs of a node")));
  EXPECT_EQ(counts(read(job + "srun torchrun --nnodes 4 --nproc_per_node 2")), "4 x 2");
  // Without it, torchrun waits for nodes that never come, and more than there are is a mistake.
  EXPECT_THAT(Error(job + "srun torchrun --nnodes 2 --nproc_per_node 8 " + two),
              HasSubstr("NNODES is '4' here and '2' in "));
  EXPECT_THAT(Error(job + "srun -N 8 torchrun --nnodes 8 --nproc_per_node 8 " + two),
              HasSubstr("NNODES is '4' here and '8' in "));
  EXPECT_THAT(Error("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n#SBATCH --gres=gpu:8\n" +
                    std::string("srun torchrun --nnodes 2 ") + two),
              HasSubstr("GPUS_PER_NODE is '8' here and '4' in "));
}

TEST(NodeCounts, OfHostfilesThatAreNotThereAreNamed) {
  EXPECT_THAT(Error("deepspeed --hostfile no-hosts " + std::string(kGpt)),
              AllOf(HasSubstr("counts.sh:1:"),
                    HasSubstr("the hosts stand in no-hosts, which is not found")));
  const Resolved r = Predict("mpirun --hostfile no-hosts -np 16 python " + std::string(kGpt));
  EXPECT_EQ(r.job.cluster.nodes, 2);  // of the cluster's GPUs
  EXPECT_THAT(r.job.notes, Contains(HasSubstr("no-hosts, which is not found")));
  EXPECT_EQ(Nodes("deepspeed --hostfile no-hosts " + std::string(kGpt), {"--nodes", "4"}), 4);
}

TEST(NodeCounts, OfDirectivesStandInFrontOfCommands) {
  const Resolved r = Predict(
      "#!/bin/bash\n#SBATCH --nodes=4\n\nmodule load cuda\n"
      "#SBATCH --gpus-per-node=4\nsrun --ntasks-per-node=8 python " +
      std::string(kGpt));
  EXPECT_EQ(r.job.cluster.nodes, 4);
  EXPECT_EQ(r.job.cluster.ranks(), 32);
  EXPECT_THAT(r.job.notes, Contains(AllOf(HasSubstr("counts.sh:5: #SBATCH --gpus-per-node=4"),
                                          HasSubstr("Slurm does not read it"))));
}

TEST(NodeCounts, OfOtherSchedulersAreToBeGiven) {
  const std::string run = "mpirun python " + std::string(kGpt);
  for (const char* directive : {"#BSUB -n 16", "#flux: -N16", "#$ -pe mpi 128"}) {
    const Resolved r = Predict(std::string("#!/bin/bash\n") + directive + "\n" + run);
    EXPECT_THAT(r.job.notes, Contains(AllOf(HasSubstr("counts.sh:2: "), HasSubstr("not read"))))
        << directive;
  }
  EXPECT_EQ(Nodes("#!/bin/bash\n#BSUB -nnodes 16\n" + run), 16);
  EXPECT_EQ(Nodes("#!/bin/bash\n#SBATCH\t-N4\t--gpus-per-node=8\n" + run), 4);
}

TEST(NodeCounts, OfGpusAreThoseOfSlurmsLists) {
  const auto gpus = [](const std::string& directives) {
    const Resolved r =
        Predict("#!/bin/bash\n#SBATCH -N 2\n" + directives + "\nsrun python " + kGpt);
    return r.job.cluster.ranks() / r.job.cluster.nodes;
  };
  for (const char* eight :
       {"#SBATCH --gres=gpu:8", "#SBATCH --gres=gpu:a100:8,nvme:1", "#SBATCH --gres=nvme:1,gpu:8",
        "#SBATCH --gres=gpu:h100:8(S:0-1),nic:4", "#SBATCH --gpus-per-node=h100:8",
        "#SBATCH -n 16 --gpus-per-task=1", "#SBATCH --ntasks-per-node=1 --gpus-per-task=8"})
    EXPECT_EQ(gpus(std::string(eight) + "\n#SBATCH --mem=0"), 8) << eight;
  const std::string srun = std::string("python ") + kGpt;
  const auto of_srun = [&](const std::string& options) {
    const Resolved r = Predict("srun -N 2 " + options + " " + srun);
    return r.job.cluster.ranks() / r.job.cluster.nodes;
  };
  EXPECT_EQ(of_srun("--gres=gpu:8,nvme:1"), 8);
  EXPECT_THAT(Error("#SBATCH -N 1\n#SBATCH hetjob\n#SBATCH -N 4 --gpus-per-node=8\nsrun " + srun),
              AllOf(HasSubstr("counts.sh:2"), HasSubstr("a job of several components")));
}

TEST(NodeCounts, OfDeepSpeedsBatchesAreThoseOfTheirRanks) {
  const auto with = [](int all, int micro, int steps) {
    const std::string path = testing::TempDir() + "/counts.json";
    std::ofstream(path) << fmt::format(
        R"({{"train_batch_size": {}, "train_micro_batch_size_per_gpu": {},
 "gradient_accumulation_steps": {}, "zero_optimization": {{"stage": 1}}, "bf16": {{"enabled": true}}}})",
        all, micro, steps);
    return Resolve({"--from", path, "--model", "gpt2-xl", "--topology", "dgx-h100"});
  };
  EXPECT_EQ(with(64, 4, 2).job.cluster.ranks(), 8);
  EXPECT_EQ(with(512, 4, 4).job.cluster.ranks(), 32);
  EXPECT_THAT(
      ErrorOf([&] { with(128, 3, 4); }),
      AllOf(HasSubstr("counts.json:1:"), HasSubstr("train_batch_size 128 is no multiple of")));
}

TEST(NodeCounts, ThatNobodyCanReadAreRefused) {
  const std::string hint = "--nodes N, or write the number out";
  const std::pair<std::string, std::string> cases[] = {
      {Launch("$(scontrol show hostnames | wc -l)"), "a command prints it"},
      {"H=($(scontrol show hostnames))\n" + Launch("${#H[@]}"), "a command prints it"},
      {Launch("1:4"), "'1:4' is a range of nodes"},
      {Launch("$((N*2))"), "$((N*2)) needs a shell"},
      {"#SBATCH -N 2-4\nsrun --ntasks-per-node=8 python " + std::string(kGpt),
       "'2-4' is a range of nodes"},
      {"#SBATCH --nodes=${NN}\nsrun --ntasks-per-node=8 python " + std::string(kGpt),
       "'${NN}' is expanded by nobody here"},
      {"torchrun --nproc_per_node=8 --nnodes=$(wc -l hosts) " + std::string(kGpt),
       "a command prints it"},
      {"mpirun -np $(wc -l hosts) python " + std::string(kGpt), "a command prints it"},
      {"#PBS -l select=2:ngpus=8+1:ngpus=4\nmpirun python " + std::string(kGpt),
       "is no number of nodes"}};
  for (const auto& [script, why] : cases) {
    EXPECT_THAT(Error(script), AllOf(HasSubstr("the number of nodes is not known: "),
                                     HasSubstr(why), HasSubstr(hint), HasSubstr("counts.sh:")))
        << script;
    const Resolved given = Predict(script, {"--nodes", "4"});
    EXPECT_EQ(given.job.cluster.nodes, 4);
    EXPECT_THAT(given.job.notes, Contains(AllOf(HasSubstr(why), HasSubstr("--nodes 4 is taken"))));
  }
}

TEST(NodeCounts, OfTheEnvironmentAreNamed) {
  const Resolved unset = Predict(Launch("$NNODES"));
  EXPECT_EQ(unset.job.cluster.nodes, 2);
  EXPECT_THAT(
      unset.job.notes,
      Contains(HasSubstr("counts.sh:1: $NNODES is not set in this file: the number of nodes "
                         "is that of the topology; --nodes N for another")));
  // Another line says it.
  EXPECT_EQ(Nodes("#SBATCH --nodes=4\n" + Launch("$(scontrol show hostnames | wc -l)")), 4);
}

TEST(NodeCounts, FollowFromSlurmsTasks) {
  const std::string run = std::string("srun python ") + kGpt;
  EXPECT_EQ(Nodes("#SBATCH -n 64\n#SBATCH --gres=gpu:8\n" + run), 8);
  EXPECT_EQ(Nodes("#SBATCH --ntasks=32\n#SBATCH --ntasks-per-node=8\n" + run), 4);
  EXPECT_EQ(Nodes("#SBATCH -n 32\n#SBATCH -N 2-4\n#SBATCH --gres=gpu:8\n" + run), 4);
  EXPECT_THAT(Error("#SBATCH -n 64\n#SBATCH -N 2-4\n#SBATCH --gres=gpu:8\n" + run),
              AllOf(HasSubstr("counts.sh:2"),
                    HasSubstr("2 to 4 nodes here, and 64 tasks with 8 on each node are 8 nodes"),
                    HasSubstr("counts.sh:1")));
}

// The value behind "=" is lost, the option is not.
TEST(NodeCounts, OptionsWithAnUnknownValueKeepTheirNames) {
  EXPECT_THAT(Error("torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 24 "
                    "--pipeline-model-parallel-size=$(cat pp)\n"),
              HasSubstr("pipeline-model-parallel-size: a command prints it"));
}

// All were taken for two nodes, in silence.
TEST(NodeCounts, FollowFromListsOfHostsAndAllGpus) {
  const std::string run = std::string("srun python ") + kGpt;
  for (const char* line :
       {"#SBATCH --gpus=32", "#SBATCH -G h100:32", "#SBATCH -w gpu[01-03,07]",
        "#SBATCH --nodelist=a1,b[2-4]", "#PBS -l nodes=4:ppn=8", "#PBS -l nodes=4:ppn=8:gpus=8"})
    EXPECT_EQ(Nodes(line + ("\n" + run)), 4) << line;
  EXPECT_EQ(Nodes("#SBATCH -w gpu[01-04]\n#SBATCH -N 2\n" + run), 2);
  for (const char* line : {"#SBATCH -w gpu[0x]", "#SBATCH -w gpu[4-1]", "#SBATCH -w gpu[1-2",
                           "#SBATCH -w gpu[1-9999999]"})
    EXPECT_THAT(Error(line + ("\n" + run)), HasSubstr("counts.sh:1")) << line;
}

// Sets of cores and GPUs, each with so many tasks.
TEST(NodeCounts, OfJsrunAreThoseOfItsResourceSets) {
  const auto counts = [](const std::string& front) {
    const std::string text = front +
                             " python pretrain_gpt.py --num-layers 12 --hidden-size 768 "
                             "--num-attention-heads 12 --seq-length 1024 --micro-batch-size 1 "
                             "--global-batch-size 96\n";
    const Imported read = Import({SourceOf("x.lsf", text)}, std::nullopt);
    std::string all;
    for (const char* field : {"nodes", "gpus_per_node"}) {
      const auto at = read.values.find(field);
      all += (at == read.values.end() ? "-" : at->second.text) + " ";
    }
    return all;
  };
  EXPECT_EQ(counts("jsrun -n 8 -r 2 -a 3 -g 3 -c 21"), "4 6 ");
  EXPECT_EQ(counts("jsrun --nrs=4 --tasks_per_rs=6 --rs_per_host=1 --gpu_per_rs=6"), "4 6 ");
  EXPECT_EQ(counts("jsrun -n12 -r6 -a1 -g1 -bpacked:7"), "2 6 ");
  EXPECT_EQ(counts("#BSUB -nnodes 4\n#BSUB -W 60\njsrun -r 6 -a 1 -g 1"), "4 6 ");
  EXPECT_EQ(counts("#BSUB -nnodes 4\njsrun -r 1 -a 1 torchrun --nnodes 4 --nproc-per-node 6"),
            "4 6 ");
  // The word behind an option with its number is a launcher.
  EXPECT_EQ(counts("jsrun -n4 -r1 -a1 -g6 torchrun --nproc_per_node 6 --nnodes 4"), "4 6 ");
  EXPECT_EQ(counts("jsrun -n4 -r1 -a1 -g6 torchrun --nproc_per_node gpu --nnodes 4"), "4 6 ");
  EXPECT_EQ(counts("jsrun -n ALL_HOSTS -a 6 -g 6"), "- 6 ");
  EXPECT_EQ(counts("#BSUB -nnodes 4\njsrun -n ALL_HOSTS -a 1 -g 6 torchrun --nnodes 4 "
                   "--nproc-per-node=auto"),
            "4 6 ");
}

// A script may use some GPUs of the cluster's nodes: its batches are those of the ranks that it starts.
TEST(NodeCounts, BatchesAreOfTheGpusOfTheScript) {
  const auto gpt = [](int tp, int micro, int batch) {
    return fmt::format(
        "pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length "
        "2048 --max-position-embeddings 2048 --tensor-model-parallel-size {} --micro-batch-size "
        "{} --global-batch-size {}\n",
        tp, micro, batch);
  };
  const auto ranks = [](const std::string& script) {
    const Resolved r = Predict(script);
    return fmt::format("{} x {}", r.job.cluster.nodes, r.job.cluster.ranks() / r.job.cluster.nodes);
  };
  EXPECT_EQ(ranks("torchrun --nnodes 1 --nproc-per-node 4 " + gpt(1, 1, 4)), "1 x 4");
  EXPECT_EQ(ranks("#SBATCH -N 2\n#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=4\nsrun " +
                  gpt(1, 1, 8)),
            "2 x 4");
  EXPECT_EQ(ranks("jsrun -n 24 -r 6 -a 1 -g 1 python " + gpt(2, 4, 96)), "4 x 6");
  EXPECT_EQ(ranks("#SBATCH --gpus-per-node=4\nmpirun -np 8 python " + gpt(1, 1, 8)), "2 x 4");
  EXPECT_THAT(Error("torchrun --nnodes 1 --nproc-per-node 4 " + gpt(1, 1, 6)),
              HasSubstr("micro-batch 1 x 4 data-parallel ranks"));
  // A flag goes before both.
  const std::string six = "torchrun --nnodes 1 --nproc-per-node 4 " + gpt(1, 1, 6);
  EXPECT_EQ(Predict(six, {"--gpus-per-node", "6"}).job.cluster.ranks(), 6);

  const std::string config = testing::TempDir() + "/counts-some.json";
  std::ofstream(config) << R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 3,
 "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})";
  const Resolved r =
      Predict("deepspeed --num_gpus 4 --num_nodes 1 train.py --deepspeed_config counts-some.json\n",
              {"--model", "gpt2-small"});
  EXPECT_EQ(r.job.cluster.ranks(), 4);
  EXPECT_EQ(r.strategy.micro_batch, 3);
}

// Two ranks on nodes of four GPUs were predicted as four.
TEST(NodeCounts, TasksThatSrunStartsAreRanks) {
  const std::string head =
      "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-node=4\n";
  std::string gpt = kGpt;
  gpt.replace(gpt.size() - 2, 1, "2");  // tp
  const auto read = [&](const std::string& command) { return Predict(head + command + gpt).job; };
  const auto tasks = Contains(HasSubstr("2 tasks on a node of 4 GPUs"));
  EXPECT_EQ(read("srun python ").cluster.ranks(), 4);
  EXPECT_THAT(read("srun python ").notes, tasks);
  // srun takes -n from the job, and ignores --ntasks-per-node next to it.
  EXPECT_EQ(read("srun --ntasks-per-node=4 python ").cluster.ranks(), 4);
  EXPECT_THAT(read("srun --ntasks-per-node=4 python ").notes,
              Contains(HasSubstr("counts.sh:4: srun ignores --ntasks-per-node 4 next to the tasks "
                                 "of the job (")));
  EXPECT_EQ(read("srun -n 8 python ").cluster.ranks(), 8);
  EXPECT_EQ(read("srun -N 2 --ntasks-per-node=4 python ").cluster.ranks(), 8);
  EXPECT_EQ(read("srun -n 2 torchrun --nnodes 2 --nproc_per_node 4 ").cluster.ranks(), 8);
  EXPECT_EQ(read("python ").cluster.ranks(), 8);  // nobody starts it so often
  EXPECT_THAT(read("python ").notes, testing::Not(tasks));
}

}  // namespace
}  // namespace orrery::exchange::counts
