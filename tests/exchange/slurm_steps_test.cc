// SPDX-License-Identifier: Apache-2.0
// What srun starts in a job: tasks that it takes from the directives, agents, and the GPUs of its step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

constexpr const char* kTrain = "train.py --per_device_train_batch_size 4 --bf16\n";

std::string JobOf(const std::string& directives, const std::string& command) {
  std::string text = "#!/bin/bash\n";
  for (std::size_t begin = 0; begin < directives.size();) {
    const std::size_t end = std::min(directives.find(' ', begin), directives.size());
    text += "#SBATCH " + directives.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return text + command + " " + kTrain;
}
std::string Shape(const std::string& directives, const std::string& command) {
  const Imported read = Read({{"job.sh", JobOf(directives, command)}});
  return Text(read, "nodes") + " x " + Text(read, "gpus_per_node");
}
std::string Refusal(const std::string& directives, const std::string& command) {
  return Error({{"job.sh", JobOf(directives, command)}});
}
std::vector<std::string> Notes(const std::string& directives, const std::string& command) {
  return Read({{"job.sh", JobOf(directives, command)}}).notes;
}

// 8 agents on each node, each of which starts 8 ranks.
TEST(SlurmSteps, SeveralAgentsOnANodeAreRefused) {
  const std::string torchrun = "torchrun --nnodes 2 --nproc-per-node 8";
  const auto crowd = HasSubstr("8 tasks on a node, and each starts the ranks of the node");
  const std::string each = "--nodes=2 --gpus-per-node=8 --ntasks-per-node=8";
  EXPECT_THAT(Refusal(each, "srun " + torchrun), AllOf(crowd, HasSubstr("job.sh:4:")));
  EXPECT_THAT(Refusal(each, "srun torchrun --nproc-per-node=8"), crowd);
  EXPECT_THAT(Refusal("--nodes=2 --gpus-per-node=8 -n16", "srun " + torchrun),
              AllOf(crowd, HasSubstr("job.sh:4:")));
  EXPECT_THAT(Refusal("--nodes=2 --gpus-per-node=8", "srun -N 2 -n 16 " + torchrun), crowd);
  EXPECT_THAT(Refusal(each, "srun accelerate launch --num_machines 2 --num_processes 16"), crowd);
  // Neither of these undoes the tasks of the job.
  EXPECT_THAT(Refusal(each, "srun -N 2 " + torchrun), crowd);
  EXPECT_THAT(Refusal(each, "srun --ntasks-per-node=1 " + torchrun),
              AllOf(crowd, HasSubstr("srun ignores --ntasks-per-node (job.sh:5)")));
  for (const char* undoes :
       {"srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 ", "srun -n 2 ", "srun -N 2 -n 2 ",
        "srun --nodes=2 --ntasks-per-node=1 ", "srun -n2 -N2 "})
    EXPECT_EQ(Shape(each, undoes + torchrun), "2 x 8") << undoes;
  EXPECT_EQ(Shape("--nodes=2 --gpus-per-node=8 --ntasks-per-node=1", "srun " + torchrun), "2 x 8");
  EXPECT_EQ(Shape(each, torchrun), "2 x 8");  // nobody starts it so often
  const std::string gpu = "--nodes=2 --gpus-per-node=8 --ntasks-per-gpu=1";
  EXPECT_THAT(Refusal(gpu, "srun " + torchrun), AllOf(crowd, HasSubstr("job.sh:4:")));
  EXPECT_EQ(Shape(gpu, "srun python"), "2 x 8");
  // As sbatch spells it, too.
  EXPECT_THAT(Refusal("--nodes=2 --gpus-per-node=8 --tasks-per-node=8", "srun " + torchrun), crowd);
}

TEST(SlurmSteps, AgentsThatShareANodeAreNodesOfTorchrun) {
  const std::string job = "--nodes=2 --ntasks-per-node=2 --gpus-per-node=8";
  EXPECT_EQ(Shape(job, "srun torchrun --nnodes 4 --nproc-per-node 4"), "2 x 8");
  EXPECT_THAT(Notes(job, "srun torchrun --nnodes 4 --nproc-per-node 4"),
              Contains("job.sh:3: 2 tasks on a node, each of which starts 4 ranks, are 8 ranks on "
                       "a node"));
  EXPECT_THAT(Refusal(job, "srun torchrun --nnodes 4 --nproc-per-node 8"),
              HasSubstr("GPUS_PER_NODE is '8' here and '16' in"));
  EXPECT_THAT(Refusal("--nodes=4 --gpus-per-node=8",
                      "srun -n 4 torchrun --nnodes 2 "
                      "--nproc-per-node 8"),
              HasSubstr("4 tasks here, and --nnodes 2 (job.sh:4)"));
}

TEST(SlurmSteps, GpusOfTheStepAreComparedWithItsRanks) {
  const std::string job = "--nodes=2 --gpus-per-node=8";
  const std::string ranks = "srun --ntasks-per-node=8 ";
  // More ranks than GPUs.
  for (const char* gpus :
       {"--gpus-per-node=4", "--gres=gpu:4", "--gpus=8", "-G 8", "-G8", "--gpus h100:8"})
    EXPECT_THAT(Refusal(job, ranks + gpus + " python"),
                AllOf(HasSubstr("job.sh:4"), HasSubstr("4 GPUs on a node here, and 8 ranks in ")))
        << gpus;
  EXPECT_THAT(Refusal(job, "srun --gpus-per-task=1 torchrun --nnodes 2 --nproc-per-node 8"),
              HasSubstr("1 GPU on a node here, and 8 ranks in job.sh:4"));
  // More GPUs than the job has.
  EXPECT_THAT(Refusal(job, ranks + "--gpus-per-task=2 python"),
              HasSubstr("--gpus-per-task 2 are 16 GPUs on a node, and the job has 8 (job.sh:3)"));
  EXPECT_THAT(Refusal(job, "srun --gpus=32 python"),
              HasSubstr("--gpus 32 are 16 GPUs on a node, and the job has 8 (job.sh:3)"));
  EXPECT_THAT(Refusal(job, "srun -G 9 python"),
              HasSubstr("9 GPUs here are not shared out evenly over 2 nodes"));
  EXPECT_THAT(Refusal(job, "srun -n 9 python"),
              HasSubstr("9 tasks here are not shared out evenly over 2 nodes"));
  // What goes together.
  for (const char* gpus :
       {"--gpus-per-node=8", "--gres=gpu:8", "--gpus=16", "-G 16", "--gpus-per-task=1"})
    EXPECT_EQ(Shape(job, ranks + gpus + std::string(" python")), "2 x 8") << gpus;
  // Of fewer ranks the other GPUs are idle.
  EXPECT_EQ(Shape("--nodes=2", "srun --ntasks-per-node=4 --gpus-per-node=8 python"), "2 x 4");
  EXPECT_THAT(Notes("--nodes=2", "srun --ntasks-per-node=4 --gpus-per-node=8 python"),
              Contains(HasSubstr("4 tasks on a node of 8 GPUs (job.sh:3) are 4 ranks")));
  // A step that starts a task on each node: what it finds, it uses.
  EXPECT_EQ(Shape(job, "srun --gpus=8 torchrun --nnodes 2 --nproc-per-node gpu"), "2 x 4");
  EXPECT_EQ(Shape(job, "srun --gpus-per-task=4 torchrun --nnodes 2 --nproc-per-node gpu"), "2 x 4");
  EXPECT_EQ(Shape(job, "srun --gpus-per-task=8 torchrun --nnodes 2 --nproc-per-node 8"), "2 x 8");
}

TEST(SlurmSteps, OptionsWithoutAValueSwallowNoLauncher) {
  const std::string torchrun = " torchrun --nnodes 2 --nproc-per-node 4";
  for (const char* front :
       {"srun -Z", "srun --no-allocate", "srun --mystery", "srun -y 4", "srun -y", "srun --pty",
        "srun -K -l -u", "srun --kill-on-bad-exit", "srun -vv", "srun --container-writable",
        "srun --label --unbuffered", "srun --export ALL -W 0 --mpi pmix", "srun --propagate"})
    EXPECT_EQ(Shape("--nodes=2 --gpus-per-node=8", front + torchrun), "2 x 4") << front;
  EXPECT_EQ(Shape("--nodes=2", "srun -K1 --ntasks-per-node=4 -u python"), "2 x 4");
  EXPECT_EQ(Shape("--nodes=2", "srun --wait 60 --ntasks-per-node=4 python"), "2 x 4");
  const auto notes = [&](const std::string& front) {
    return Notes("--nodes=2 --gpus-per-node=8", front + torchrun);
  };
  EXPECT_THAT(notes("srun -y 4"),
              Contains("job.sh:4: Slurm has no option -y: whether '4' behind it is its value is "
                       "not known"));
  EXPECT_THAT(notes("srun -y"), Contains("job.sh:4: Slurm has no option -y"));
  for (const char* known : {"srun -Z", "srun --pty", "srun -vv", "srun --tasks-per-node=1"})
    EXPECT_THAT(notes(known), Not(Contains(HasSubstr("has no option")))) << known;
  // A variable may hold some.
  EXPECT_THAT(notes("srun $SRUN_EXTRA"),
              Contains("job.sh:4: $SRUN_EXTRA is not set in this file: taken as empty"));
  EXPECT_THAT(notes("srun -w $HOST"), Not(Contains(HasSubstr("taken as empty"))));
  // Options of what it starts are none of srun's.
  EXPECT_EQ(Shape("--nodes=2 --ntasks-per-node=4",
                  "srun --mpi=pmix singularity exec --nv -B /a:/b -n 3 image.sif python"),
            "2 x 4");
}

// A loop over hosts starts torchrun on each.
TEST(SlurmSteps, AStepOfOneTaskIsOneOfSeveral) {
  const std::string job = "--nodes=3 --gpus-per-node=8";
  const std::string torchrun = " torchrun --nnodes=3 --nproc-per-node=8 --node-rank=$i";
  for (const char* step : {"srun --nodes=1 --ntasks=1 -w ${nodes[$i]}", "srun -N1 -n1 -w $host",
                           "srun -n 1 --nodelist=a1", "srun -N 1 -w $host"}) {
    EXPECT_EQ(Shape(job, step + torchrun), "3 x 8") << step;
    EXPECT_THAT(Notes(job, step + torchrun),
                Contains("job.sh:4: a step of one task is taken as one of 3"));
  }
  EXPECT_EQ(Shape("--nodes=1 --gpus-per-node=8", "srun -n 1 torchrun --nproc-per-node=8"), "1 x 8");
}

// What they ask for was lost, and the topology's number of nodes taken.
TEST(SlurmSteps, OptionsOfSallocAndSbatchAreThoseOfTheJob) {
  const auto shape = [](const std::string& text) {
    const Imported read = Read({{"job.sh", text}});
    return Text(read, "nodes") + " x " + Text(read, "gpus_per_node");
  };
  const std::string train = kTrain;
  EXPECT_EQ(shape("salloc -N 4 --gpus-per-node=4 --ntasks-per-node=4 srun python " + train),
            "4 x 4");
  EXPECT_EQ(
      shape("salloc --nodes=4 --exclusive srun torchrun --nnodes 4 --nproc-per-node 2 " + train),
      "4 x 2");
  const std::string file =
      "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun "
      "--ntasks-per-node=8 python " +
      train;
  EXPECT_EQ(shape("sbatch -N 4 <<EOF\n#!/bin/bash\n" + file + "EOF\n"), "4 x 8");
  EXPECT_EQ(shape("sbatch <<EOF\n#!/bin/bash\n" + file + "EOF\n"), "2 x 8");
  const std::string wrapped = train.substr(0, train.size() - 1) + "\"\n";
  EXPECT_EQ(shape("sbatch -N 4 --gpus-per-node=8 --wrap=\"srun torchrun --nnodes 4 "
                  "--nproc-per-node 8 " +
                  wrapped),
            "4 x 8");
  EXPECT_EQ(shape("sbatch -N 4 --ntasks-per-node=8 --wrap \"srun python " + wrapped), "4 x 8");
  EXPECT_THAT(Error({{"job.sh",
                      "sbatch -N 4 --ntasks-per-node=8 --wrap=\"srun torchrun --nnodes 4 "
                      "--nproc-per-node 8 " +
                          wrapped}}),
              HasSubstr("8 tasks on a node, and each starts the ranks of the node"));
}

// 4 A100 and 4 H100 on a node were taken as 4.
TEST(SlurmSteps, KindsOfGpusAreComparedWithTheTopology) {
  for (const char* kinds :
       {"--gres=gpu:a100:4,gpu:h100:4", "--gpus-per-node=a100:4,h100:4", "--gpus=a100:8,h100:8"}) {
    EXPECT_THAT(Refusal("--nodes=2 " + std::string(kinds), "srun python"),
                AllOf(HasSubstr("job.sh:3:"), HasSubstr("GPUs of two kinds: a100 and h100")));
    EXPECT_THAT(Refusal("--nodes=2", "srun " + std::string(kinds) + " python"),
                HasSubstr("GPUs of two kinds: a100 and h100"));
  }
  EXPECT_EQ(Shape("--nodes=2 --gres=gpu:a100:4,nvme:1", "srun --ntasks-per-node=4 python"),
            "2 x 4");
  const auto notes = [](const std::string& gpus, const std::string& topology) {
    const std::string text =
        "#SBATCH --nodes=2\n#SBATCH " + gpus + "\nsrun --ntasks-per-node=8 python " + kGpt + "\n";
    return Predict({{"kinds.sh", text}}, {"--topology", topology}).job.notes;
  };
  const auto other = Contains(
      HasSubstr("kinds.sh:2 requests h100 GPUs; the prediction is of a100-sxm4-40gb (aws-p4d)"));
  EXPECT_THAT(notes("--gres=gpu:h100:8", "aws-p4d"), other);
  EXPECT_THAT(notes("--gpus-per-node=h100:8", "aws-p4d"), other);
  EXPECT_THAT(notes("--constraint=h100", "aws-p4d"), other);
  EXPECT_THAT(notes("-C gpu&a100|rack1", "aws-p4d"),
              Not(Contains(HasSubstr("; the prediction is of"))));
  EXPECT_THAT(notes("--gres=gpu:a100_80gb:8", "aws-p4d"),
              Contains(HasSubstr("requests a100_80gb GPUs; the prediction is of a100-sxm4-40gb")));
  const auto match = AllOf(Contains(HasSubstr("kinds.sh:2 requests")),
                           Not(Contains(HasSubstr("; the prediction is of"))));
  EXPECT_THAT(notes("--gres=gpu:a100:8", "aws-p4d"), match);
  EXPECT_THAT(notes("--gres=gpu:nvidia_a100-sxm4-40gb:8", "aws-p4d"), match);
  EXPECT_THAT(notes("--gres=gpu:big:8", "aws-p4d"), match);
  EXPECT_THAT(notes("--gres=gpu:h100:8", "dgx-h100"), match);
}

// Each task of srun would be a job of its own, and without srun one node trains.
TEST(SlurmSteps, TorchrunOfOneNodeInAJobOfSeveralIsRefused) {
  const std::string job = "--nodes=4 --gpus-per-node=8";
  const auto one =
      AllOf(HasSubstr("job.sh:4:"),
            HasSubstr("torchrun starts one node without --nnodes, and the job has 4 (job.sh:2)"),
            HasSubstr("--nnodes $SLURM_NNODES and a rendezvous"));
  for (const char* front :
       {"srun torchrun", "torchrun", "srun python -m torch.distributed.launch",
        "python -m torch.distributed.run", "srun --ntasks-per-node=1 torchrun --rdzv-backend c10d"})
    EXPECT_THAT(Refusal(job, std::string(front) + " --nproc_per_node 8"), one) << front;
  EXPECT_THAT(Refusal(job, "srun torchrun --standalone --nnodes 4 --nproc-per-node 8"),
              HasSubstr("torchrun starts one node with --standalone, and the job has 4"));
  EXPECT_THAT(Error({{"job.pbs", std::string("#PBS -l select=2:ngpus=8\nmpiexec -ppn 1 torchrun "
                                             "--nproc-per-node 8 ") +
                                     kTrain}}),
              AllOf(HasSubstr("the job has 2"), HasSubstr("--nnodes 2 and a rendezvous")));
  // A step of one node, and counts that come from elsewhere.
  EXPECT_EQ(Shape(job, "srun -N 1 torchrun --nproc-per-node 8"), "1 x 8");
  EXPECT_EQ(Shape("--nodes=1 --gpus-per-node=8", "srun torchrun --nproc-per-node 8"), "1 x 8");
  for (const char* front :
       {"srun torchrun --nnodes $N", "srun torchrun $ARGS", "export PET_NNODES=4\nsrun torchrun",
        "PET_NNODES=4 srun torchrun", "srun env PET_NNODES=4 torchrun"})
    EXPECT_EQ(Shape(job, std::string(front) + " --nproc-per-node 8"), "4 x 8") << front;
}

// Open MPI 4 with SLURM_TASKS_PER_NODE=8(x4) puts 16 ranks on two nodes.
TEST(SlurmSteps, RanksOfMpirunFillTheSlotsOfNodes) {
  for (const char* slots : {"--ntasks-per-node=8", "--ntasks=32"}) {
    const std::string job = std::string("--nodes=4 ") + slots;
    EXPECT_EQ(Shape(job, "mpirun -np 16 python"), "2 x 8");
    EXPECT_EQ(Shape(job, "mpirun -np 4 python"), "1 x 4");
    EXPECT_EQ(Shape(job, "mpirun -np 32 python"), "4 x 8");
    EXPECT_EQ(Shape(job, "mpirun -np 16 --map-by slot python"), "2 x 8");
    EXPECT_THAT(Notes(job, "mpirun -np 16 python"),
                Contains(HasSubstr("16 ranks fill the slots of 2 of 4 nodes, 8 on each")));
    for (const char* by : {"node", "node:PE=4", "ppr:4:node", "ppr:4:node:PE=4"})
      EXPECT_EQ(Shape(job, std::string("mpirun -np 16 --map-by ") + by + " python"), "4 x 4") << by;
    EXPECT_THAT(Refusal(job, "mpirun -np 12 python"),
                HasSubstr("12 ranks fill the 8 slots of a node (job.sh:3) before the next"));
  }
  // How many slots a node has is not known.
  EXPECT_EQ(Shape("--nodes=4 --gpus-per-node=8", "mpirun -np 16 python"), "4 x 4");
}

TEST(SlurmSteps, AWorldSizeOfOtherRanksIsRefused) {
  const std::string job = "--nodes=4 --ntasks-per-node=8";
  for (const char* start : {"srun python", "mpirun -np 32 python"}) {
    for (const char* set : {"export WORLD_SIZE=64\n", "WORLD_SIZE=64 "})
      EXPECT_THAT(
          Refusal(job, std::string(set) + start),
          AllOf(HasSubstr("job.sh:4:"), HasSubstr("WORLD_SIZE 64 here, and 32 ranks are started")))
          << set << start;
    for (const char* set : {"export WORLD_SIZE=32\n", "export WORLD_SIZE=$((SLURM_NNODES*8))\n"})
      EXPECT_EQ(Shape(job, std::string(set) + start), "4 x 8") << set << start;
  }
  // torchrun sets it itself.
  EXPECT_EQ(Shape("--nodes=4 --gpus-per-node=8",
                  "export WORLD_SIZE=4\nsrun torchrun --nnodes 4 --nproc-per-node 8"),
            "4 x 8");
}

}  // namespace
}  // namespace orrery::exchange::styles
