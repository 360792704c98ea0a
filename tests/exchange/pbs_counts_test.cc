// SPDX-License-Identifier: Apache-2.0
// Chunks and resources of PBS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

std::string PbsJob(const std::string& list, const std::string& command) {
  return "#!/bin/bash\n#PBS -N run\n#PBS " + list + "\n" + command +
         " train.py --per_device_train_batch_size 4 --bf16\n";
}
std::string PbsShape(const std::string& list, const std::string& command = "mpiexec python") {
  const Imported read = Read({{"job.sh", PbsJob(list, command)}});
  return Text(read, "nodes") + " x " + Text(read, "gpus_per_node");
}
std::string PbsError(const std::string& list, const std::string& command) {
  return Error({{"job.sh", PbsJob(list, command)}});
}
std::vector<std::string> PbsNotes(const std::string& list,
                                  const std::string& command = "mpiexec python") {
  return Read({{"job.sh", PbsJob(list, command)}}).notes;
}
const std::string kTwo = "mpiexec -ppn 1 torchrun --nnodes 2 --nproc-per-node ";

TEST(PbsCounts, EqualChunksAreNodes) {
  for (const char* list :
       {"-l select=4:ncpus=64:ngpus=8", "-lselect=4:ngpus=8", "-l select=2:ngpus=4:mem=1gb",
        "-l select=2:ngpus=8+2:ngpus=8:mem=2tb", "-l select=1:ngpus=8+3:ngpus=8",
        "-l select=4:ngpus=8,walltime=10:00:00",
        "-l walltime=10:00:00,select=4:ngpus=8,place=scatter", "-l select=ngpus=8+3:ngpus=8",
        "-l nodes=4:ppn=8:gpus=8", "-l nodes=a:gpus=8+3:gpus=8"})
    EXPECT_EQ(PbsShape(list),
              std::string(list).find(":ngpus=4") != std::string::npos ? "2 x 4" : "4 x 8")
        << list;
  EXPECT_EQ(PbsShape("-l select=2:ngpus=4+2:ngpus=4"), "4 x 4");
}

TEST(PbsCounts, UnlikeChunksAreRefused) {
  for (const char* list : {"-l select=1:ngpus=4+1:ngpus=8", "-l select=1:ncpus=8+1:ngpus=8"})
    EXPECT_THAT(PbsError(list, kTwo + "8"),
                AllOf(HasSubstr("job.sh:3:"), HasSubstr("GPUs here, and the command starts 8 ranks "
                                                        "on each of 2 nodes")))
        << list;
  EXPECT_EQ(PbsShape("-l select=1:ngpus=4+1:ngpus=8", kTwo + "4"), "2 x 4");
  EXPECT_THAT(PbsNotes("-l select=1:ngpus=4+1:ngpus=8", kTwo + "4"),
              Contains("job.sh:3: chunks of 4 and of 8 GPUs here: the command takes 4 of each"));
}

// PBS packs chunks unless it is told to scatter them.
TEST(PbsCounts, ChunksMayShareANode) {
  EXPECT_EQ(PbsShape("-l select=8:ngpus=1 -l place=pack"), "1 x 8");
  EXPECT_EQ(PbsShape("-l select=16:ngpus=1", kTwo + "8"), "2 x 8");
  EXPECT_THAT(PbsNotes("-l select=8:ngpus=1"),
              Contains(HasSubstr("job.sh:3: 8 chunks of one GPU are taken as 8 nodes")));
  EXPECT_THAT(PbsNotes("-l select=8:ngpus=1,place=scatter"),
              Not(Contains(HasSubstr("chunks of one GPU"))));
}

TEST(PbsCounts, ResourcesThatPbsDoesNotHaveAreNamed) {
  EXPECT_THAT(
      PbsNotes("-l nogpus=4"),
      Contains("job.sh:3: PBS has no resource nogpus, unless the site adds it: did you mean "
               "ngpus?"));
  EXPECT_THAT(PbsNotes("-l select=2:gpu=8"),
              Contains("job.sh:3: PBS has no resource gpu, unless the site adds it: did you mean "
                       "ngpus?"));
  EXPECT_THAT(
      PbsNotes("-l select=2:ngpus=8:system=polaris -l filesystems=home:eagle"),
      AllOf(Contains("job.sh:3: PBS has no resource system, unless the site adds it"),
            Contains("job.sh:3: PBS has no resource filesystems, unless the site adds it")));
  EXPECT_THAT(
      PbsNotes("-l select=2:ngpus=8:mpiprocs=8:ompthreads=4,walltime=1:00:00 -l place=free"),
      Not(Contains(HasSubstr("no resource"))));
  EXPECT_THAT(PbsError("-l select=2:ngpus=many", "mpiexec python"),
              AllOf(HasSubstr("job.sh:3:"), HasSubstr("ngpus: 'many' is no whole number")));
}

TEST(PbsCounts, OldListsNextToSelectAreRefused) {
  EXPECT_THAT(PbsError("-l select=2:ngpus=8\n#PBS -l ngpus=4", "mpiexec python"),
              AllOf(HasSubstr("job.sh:4:"), HasSubstr("-l ngpus=4 here, and select in job.sh:3")));
  EXPECT_THAT(PbsError("-l nodes=2:ppn=8\n#PBS -l select=2:ngpus=4", "mpiexec python"),
              HasSubstr("select here, and nodes in job.sh:3"));
  // Alone they are those of the job.
  const Values eight = {{"gpus_per_node", {"8", {SourceOf("command line", "8"), 1, 1}, ""}}};
  const auto alone = [&](const std::string& gpus) {
    return Read({{"job.sh", "#PBS -l ncpus=48\n#PBS -l ngpus=" + gpus + "\nmpiexec python " +
                                std::string(kGpt) + "\n"}},
                eight);
  };
  EXPECT_EQ(Text(alone("4"), "nodes") + " x " + Text(alone("4"), "gpus_per_node"), "1 x 4");
  EXPECT_EQ(Text(alone("16"), "nodes"), "2");
  EXPECT_THAT(PbsError("-l ngpus=8", kTwo + "8"),
              HasSubstr("8 GPUs here, and the command starts 16 ranks"));
}

TEST(PbsCounts, RanksOfMpirunFillTheSlotsOfChunks) {
  for (const char* list : {"-l select=4:ngpus=8:mpiprocs=8", "-l nodes=4:ppn=8:gpus=8"}) {
    EXPECT_EQ(PbsShape(list, "mpirun -np 16 python"), "2 x 8") << list;
    EXPECT_EQ(PbsShape(list, "mpirun -np 16 --hostfile $PBS_NODEFILE python"), "2 x 8") << list;
    EXPECT_EQ(PbsShape(list, "mpirun -np 16 --map-by node python"), "4 x 4") << list;
    EXPECT_EQ(PbsShape(list, "mpirun -np 32 python"), "4 x 8") << list;
  }
  EXPECT_EQ(PbsShape("-l select=4:ngpus=8", "mpirun -np 16 python"), "4 x 4");
  EXPECT_EQ(PbsShape("-l nodes=4:ppn=24:gpus=8", "mpirun -np 32 python"), "4 x 8");  // cores
}

TEST(PbsCounts, TwoListsOfChunksAreRefused) {
  EXPECT_THAT(
      PbsError("-l select=4:ngpus=8\n#PBS -l select=2:ngpus=8", "mpiexec python"),
      AllOf(HasSubstr("job.sh:4:"), HasSubstr("select=2:ngpus=8 here, and 4:ngpus=8 in job.sh:3")));
}

TEST(PbsCounts, UnlikeChunksForRanksAreRefused) {
  EXPECT_THAT(PbsError("-l select=2:ngpus=8+2:ngpus=4", "mpirun -n 24 python"),
              AllOf(HasSubstr("job.sh:3:"),
                    HasSubstr("chunks of 4 and of 8 GPUs here, and the command starts 24 ranks")));
}

}  // namespace
}  // namespace orrery::exchange::styles
