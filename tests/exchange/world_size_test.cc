// SPDX-License-Identifier: Apache-2.0
// The number of all ranks that a log or a launcher says, against degrees and nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/exchange/import_steps.h"
#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// The line in front of the dump, in the words of several releases, one of which lacks a comma.
TEST(WorldSize, TheFirstLineOfALogCounts) {
  const auto log = [](const std::string& first, const std::string& world) {
    return "0: using " + first + "\n" +
           "0: ------------------------ arguments ------------------------\n"
           "0:   hidden_size ..................................... 1024\n"
           "0:   micro_batch_size ................................ 4\n"
           "0:   num_attention_heads ............................. 16\n"
           "0:   num_layers ...................................... 24\n"
           "0:   tensor_model_parallel_size ...................... 2\n" +
           world + "0: -------------------- end of arguments ---------------------\n";
  };
  const std::string dump = "0:   world_size ...................................... 16\n";
  const Values cluster = {{"gpus_per_node", {"8", {SourceOf("command line", "8"), 1, 1}, ""}}};
  for (const char* first :
       {"world size: 16, data-parallel size: 4, context-parallel size: 1, hierarchical "
        "context-parallel sizes: Nonetensor-model-parallel size: 2, pipeline-model-parallel size: "
        "2",
        "world size: 16, data-parallel-size: 4, tensor-model-parallel size: 2, "
        "pipeline-model-parallel size: 2"}) {
    for (const std::string& world : {std::string(), dump}) {
      const Imported read = Read({{"m.log", log(first, world)}}, cluster);
      EXPECT_EQ(Text(read, "nodes") + " " + Text(read, "dp") + " " + Text(read, "pp"), "2 4 2")
          << first << world;
    }
  }
  EXPECT_THAT(Error({{"m.log", log("world size: 32, data-parallel size: 16", dump)}}),
              AllOf(HasSubstr("m.log:8"), HasSubstr("'16' here and '32' in m.log:1")));
  EXPECT_THAT(
      Error({{"m.log", log("world size: 16, data-parallel size: 2, context-parallel size: 1, "
                           "hierarchical context-parallel sizes: [2, 4], "
                           "tensor-model-parallel size: 8",
                           dump)}}),
      AllOf(HasSubstr("m.log:7"),
            HasSubstr("tensor-model-parallel-size is '2' here and '8' in m.log:1")));
  EXPECT_THAT(Error({{"m.log", log("world size: 16, data-parallel size: 4", dump)}}),
              AllOf(HasSubstr("m.log:1"), HasSubstr("not world_size 16")));
}

// mpirun -np next to a number of nodes, or a log next to the script: nodes of the cluster may have idle GPUs.
TEST(WorldSize, NextToNodesSaysHowManyRanksEachHas) {
  const auto job = [](const std::string& front, const std::string& command) {
    return "#!/bin/bash\n#SBATCH --nodes=4\n" + front + command + " " + kGpt + "\n";
  };
  const Values eight = {{"gpus_per_node", {"8", {SourceOf("command line", "8"), 1, 1}, ""}}};
  const Imported half = Read({{"job.sh", job("", "mpirun -np 16 python")}}, eight);
  EXPECT_EQ(Text(half, "nodes") + " x " + Text(half, "gpus_per_node"), "4 x 4");
  EXPECT_THAT(half.notes, Contains("job.sh:3: 16 ranks are 4 on each of 4 nodes"));
  const Imported idle =
      Read({{"job.sh", job("#SBATCH --gpus-per-node=8\n", "mpirun -np 16 python")}}, eight);
  EXPECT_EQ(Text(idle, "gpus_per_node"), "4");
  const Imported whole = Read({{"job.sh", job("", "mpirun -np 32 python")}}, eight);
  EXPECT_EQ(Text(whole, "nodes") + " x " + Text(whole, "gpus_per_node"), "4 x ");  // the cluster's
  for (const char* ranks : {"64", "18"})
    EXPECT_THAT(Error({{"job.sh", job("", std::string("mpirun -np ") + ranks + " python")}}, eight),
                AllOf(HasSubstr("job.sh:3"), HasSubstr("and 4 nodes of 8 GPUs in job.sh:2")));
  // A flag is an answer to what if.
  const Imported asked = Read({{"job.sh", "mpirun -np 16 python " + std::string(kGpt) + "\n"}},
                              Flags({{"nodes", "4"}, {"gpus_per_node", "8"}}));
  EXPECT_THAT(asked.notes,
              Contains("job.sh:1: 16 ranks there; the prediction is of 4 nodes of 8 GPUs"));
}

// Tasks of Slurm are ranks, wherever they are counted.
TEST(WorldSize, OfSlurmsTasksIsThatOfTheJob) {
  const auto job = [](const std::string& lines, const std::string& command = "srun python ") {
    return "#!/bin/bash\n#SBATCH --nodes=2\n" + lines + command + kGpt + "\n";
  };
  const Imported part = Read({{"job.sh", job("#SBATCH --gpus-per-node=8\n#SBATCH --ntasks=4\n")}});
  EXPECT_EQ(Text(part, "nodes") + " x " + Text(part, "gpus_per_node"), "2 x 2");
  const Imported whole =
      Read({{"job.sh", job("#SBATCH --gpus-per-node=8\n#SBATCH --ntasks=16\n")}});
  EXPECT_EQ(Text(whole, "gpus_per_node"), "8");
  const Imported all = Read({{"job.sh", job("#SBATCH --gpus=h100:8\n", "mpirun python ")}});
  EXPECT_EQ(Text(all, "nodes") + " x " + Text(all, "gpus_per_node"), "2 x 4");
  EXPECT_THAT(Error({{"job.sh", job("#SBATCH --gpus=8\n#SBATCH --ntasks=16\n")}}),
              HasSubstr("16 ranks here, and 2 nodes of 4 GPUs"));
  const Imported agents = Read({{"job.sh", job("#SBATCH --gpus-per-node=8\n#SBATCH --ntasks=2\n",
                                               "srun torchrun --nproc-per-node 8 --nnodes 2 ")}});
  EXPECT_EQ(Text(agents, "gpus_per_node"), "8");
  EXPECT_THAT(Error({{"job.sh", job("#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=8\n"
                                    "#SBATCH --ntasks=24\n")}}),
              AllOf(HasSubstr("job.sh:5"), HasSubstr("24 tasks here, and 8 on each of 2 nodes "
                                                     "(job.sh:4, job.sh:2)")));
  EXPECT_THAT(Error({{"job.sh", job("#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=8\n")}}),
              AllOf(HasSubstr("job.sh:4"), HasSubstr("8 tasks on a node here, and 4 GPUs in "
                                                     "job.sh:3")));
}

// What the scheduler gives against what is started on it.
TEST(WorldSize, MoreRanksThanGpusAreRefused) {
  const std::string train = "train.py --per_device_train_batch_size 4 --bf16\n";
  const auto job = [&](const std::string& directives, const std::string& command) {
    return Error({{"job.sh", "#!/bin/bash\n" + directives + command + train}});
  };
  const std::string eight = "srun torchrun --nnodes 2 --nproc-per-node 8 ";
  for (const char* gpus : {"--gpus-per-node=4", "--gres=gpu:4", "--gpus=8",
                           "--ntasks-per-node=1\n#SBATCH --gpus-per-task=4"})
    EXPECT_THAT(job("#SBATCH --nodes=2\n#SBATCH " + std::string(gpus) + "\n", eight),
                AllOf(HasSubstr("job.sh:"), HasSubstr("keep one of them")))
        << gpus;
  EXPECT_THAT(job("#PBS -l select=2:ngpus=4\n",
                  "mpiexec -ppn 1 torchrun --nnodes 2 "
                  "--nproc-per-node 8 "),
              HasSubstr("GPUS_PER_NODE is '4' here and '8' in job.sh:3"));
  EXPECT_THAT(job("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n",
                  "srun accelerate launch --num_machines 2 --num_processes 16 "),
              HasSubstr("16 processes here, and 2 nodes of 4 GPUs"));
  EXPECT_THAT(
      job("#SBATCH --nodes=4\n#SBATCH --gpus=16\n#SBATCH --gpus-per-node=8\n", "srun python "),
      HasSubstr("16 GPUs here, and 4 nodes of 8 (job.sh:2, job.sh:4)"));
  EXPECT_THAT(job("#SBATCH --nodes=2\n#SBATCH --gpus-per-task=2\n#SBATCH --ntasks-per-node=8\n"
                  "#SBATCH --gpus-per-node=8\n",
                  "srun python "),
              HasSubstr("32 GPUs here, and 2 nodes of 8"));
  EXPECT_THAT(job("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n",
                  "srun --ntasks-per-node=8 torchrun --nnodes 2 --nproc-per-node 8 "),
              HasSubstr("8 tasks on a node, and each starts the ranks of the node"));
  EXPECT_THAT(job("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n#SBATCH --gpus=16\n",
                  "srun torchrun --nnodes 2 --nproc-per-node 4 "),
              HasSubstr("16 GPUs here, and 2 nodes of 4 (job.sh:2, job.sh:3)"));
  // All GPUs of the job and those of a node say the number of nodes.
  const Imported divided = Read({{"job.sh",
                                  "#!/bin/bash\n#SBATCH --gpus=16\n#SBATCH --gpus-per-node=8\nsrun "
                                  "--ntasks-per-node=8 python " +
                                      train}});
  EXPECT_EQ(Text(divided, "nodes") + " x " + Text(divided, "gpus_per_node"), "2 x 8");
  // A step on part of the job's nodes contradicts nothing.
  const Imported step =
      Read({{"job.sh",
             "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --ntasks-per-node=8\n#SBATCH --ntasks=32\n"
             "#SBATCH --gpus-per-node=8\n#SBATCH --gpus=32\nsrun -N 2 --ntasks=16 python " +
                 train}});
  EXPECT_EQ(Text(step, "nodes") + " x " + Text(step, "gpus_per_node"), "2 x 8");
  // Tasks that are agents are no ranks.
  for (const char* tasks : {"srun --ntasks=2 ", "srun -n 2 ", "mpirun -np 2 "}) {
    const Imported agents = Read(
        {{"job.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n" +
                        std::string(tasks) + "torchrun --nnodes 2 --nproc-per-node 8 " + train}});
    EXPECT_EQ(Text(agents, "nodes") + " x " + Text(agents, "gpus_per_node"), "2 x 8") << tasks;
  }
  // A command may leave some idle.
  const Imported fewer = Read({{"job.sh",
                                "#SBATCH --nodes=2\n#SBATCH --gpus=16\nsrun torchrun "
                                "--nnodes 2 --nproc-per-node 4 " +
                                    train}});
  EXPECT_EQ(Text(fewer, "gpus_per_node"), "4");
}

TEST(WorldSize, OptionsThatSlurmAndPbsDoNotHaveAreNamed) {
  const auto notes = [](const std::string& job) {
    return Read({{"job.sh", "#!/bin/bash\n" + job +
                                " torchrun --nnodes 2 --nproc-per-node 8 train.py "
                                "--per_device_train_batch_size 4 --bf16\n"}})
        .notes;
  };
  const std::vector<std::string> slurm = notes(
      "#SBATCH --nodes=2 --mystery=3 -p gpu --gpu-per-node=8\n"
      "srun --mpi=pmix -l --wibble=3 --container-image=a.sqsh");
  EXPECT_THAT(slurm, Contains("job.sh:2: Slurm has no option --mystery, unless a plugin of the "
                              "site adds it"));
  EXPECT_THAT(slurm, Contains(HasSubstr("--gpu-per-node, unless a plugin of the site adds it: did "
                                        "you mean --gpus-per-node?")));
  EXPECT_THAT(slurm, Contains(HasSubstr("job.sh:3: Slurm has no option --wibble")));
  for (const char* known : {"container-image", "no option -p", "mpi", "no option -l"})
    EXPECT_THAT(slurm, Not(Contains(HasSubstr(known))));
  EXPECT_THAT(notes("#PBS -l select=2:ngpus=8 -Z hello -q gpu\nmpiexec -ppn 1"),
              Contains("job.sh:2: PBS has no option -Z"));
  // A letter is no long option that begins with it.
  const std::vector<std::string> letters =
      notes("#SBATCH -n 2 --nodes=2 --gpus-per-node=8 -t 1:00 --time-min=5\nsrun");
  EXPECT_THAT(letters, Not(Contains(HasSubstr("has no option"))));
  // As getopt_long takes them.
  const Imported begun = Read({{"job.sh",
                                "#SBATCH --nodes=3\n#SBATCH --gpus-per-n=4\nsrun python "
                                "train.py --per_device_train_batch_size 4 --bf16\n"}});
  EXPECT_EQ(Text(begun, "nodes") + " x " + Text(begun, "gpus_per_node"), "3 x 4");
}

// A record next to a file whose shards need the number of GPUs.
TEST(WorldSize, OfARecordIsThatOfTheFilesNextToIt) {
  const Named record = {"plan.json",
                        R"({"schema": "orrery.predict/1", "topology": {"gpus_per_node": 8},
 "prediction": {"nodes": 2, "global_batch": 64, "strategy": {"tp": 1, "pp": 1, "zero": 3}}})"};
  const Named shards = {"ds.json",
                        R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1,
 "zero_optimization": {"stage": 3, "mics_shard_size": 8}})"};
  const Imported read = Read({record, shards});
  EXPECT_EQ(Text(read, "dp_outer") + " " + Text(read, "nodes"), "2 2");
  EXPECT_THAT(Error({record,
                     {"job.sh",
                      "deepspeed --num_nodes 4 --num_gpus 8 train.py "
                      "--deepspeed --deepspeed_config ds.json\n"},
                     shards}),
              HasSubstr("nodes is 2 here and 4 in job.sh:1"));
}

// plan.json has a list without runs, train.sh with them.
TEST(WorldSize, ListsOfLayersAreComparedSpelledOut) {
  EXPECT_TRUE(SameValue("5,6x4,3", "5,4,4,4,4,4,4,3"));
  EXPECT_TRUE(SameValue("2x8,2x4", "8,8,4,4"));
  EXPECT_FALSE(SameValue("5,5x4,3", "5,4,4,4,4,4,4,3"));
  EXPECT_TRUE(SameValue("1", "1.0"));
}

TEST(WorldSize, OfALogAgainstItsScript) {
  const std::string log =
      "using world size: 32, data-parallel size: 32, tensor-model-parallel size: 1\n"
      "------------------------ arguments ------------------------\n"
      "  hidden_size ..................................... 768\n"
      "-------------------- end of arguments ---------------------\n";
  const std::string script = "torchrun --nnodes 2 --nproc-per-node 8 " + std::string(kGpt) + "\n";
  EXPECT_THAT(Error({{"job.sh", script}, {"run.log", log}}),
              AllOf(HasSubstr("run.log:1"), HasSubstr("32 ranks here, and 2 nodes of 8 GPUs in "
                                                      "job.sh:1")));
  EXPECT_THAT(Read({{"run.log", log + log}}).notes,
              Contains("run.log:6: the arguments of a later run; those of the first are taken"));
}

}  // namespace
}  // namespace orrery::exchange::styles
