// SPDX-License-Identifier: Apache-2.0
// `plan run` and `plan bench` as processes that something else has started, by the variables that
// torchrun sets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/comm/tcp_socket.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kNoMpi = "unset OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK; ";

// Ranks in the background, their output in FOLDER/out.R, their exit codes as "code R C"; `meanwhile`
// runs when all are started, their process numbers being in the array p.
Outcome RunRanks(int ranks, const std::string& arguments, const std::string& meanwhile = "") {
  const int port = comm::PortOf(comm::Listen(0, true));
  return RunShell(fmt::format(
      "{}export WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={}; cd '{}'; "
      "for r in $(seq 0 {}); do RANK=$r LOCAL_RANK=$r \"$PLAN\" {} >out.$r 2>err.$r & p[$r]=$!; "
      "done; "
      "{}\nfor r in $(seq 0 {}); do wait ${{p[$r]}}; echo code $r $?; done",
      kNoMpi, ranks, port, ScratchFolder(), ranks - 1, arguments, meanwhile, ranks - 1));
}

std::vector<double> Losses(const std::string& record) {
  std::vector<double> losses;
  const json document = json::parse(record);
  for (const json& step : document["steps"]) losses.push_back(step["loss"]);
  return losses;
}

TEST(PlanRunOverTcp, LossesAreThoseOfThreads) {
  const std::string job = "run --model linear-20-1 --steps 20 --dp 3 --global-batch 24 --json";
  const Outcome threads = RunShell("\"$PLAN\" " + job + " --comm local");
  ASSERT_EQ(threads.code, 0);
  const Outcome processes = RunRanks(3, job);
  EXPECT_EQ(processes.out, "code 0 0\ncode 1 0\ncode 2 0\n") << Written("err.0");
  const std::string record = Written("out.0");
  EXPECT_EQ(Losses(record), Losses(threads.out));  // to the last bit
  EXPECT_EQ(json::parse(record)["comm"], "tcp");
  EXPECT_EQ(Written("out.1"), "");
}

TEST(PlanRunOverTcp, LayoutsOfAllKinds) {
  const std::string model = ScratchFolder() + "/tiny.yaml";
  WriteText(model,
            "name: tiny\nfamily: decoder\nlayers: 4\nhidden: 32\nffn: 128\nheads: 4\nvocab: 61\n"
            "max_positions: 32\nnorm: layer-norm\nactivation: gelu\npositions: learned\n"
            "tied_embeddings: true\n");
  const std::string job = "run --model '" + model +
                          "' --seq-len 16 --global-batch 8 --steps 2 --tp 2 --pp 2 --zero 0 --json";
  const Outcome threads = RunShell("\"$PLAN\" " + job + " --comm local");
  ASSERT_EQ(threads.code, 0);
  EXPECT_EQ(RunRanks(4, job).out, "code 0 0\ncode 1 0\ncode 2 0\ncode 3 0\n") << Written("err.0");
  EXPECT_EQ(Losses(Written("out.0")), Losses(threads.out));
}

TEST(PlanRunOverTcp, AKilledRankEndsTheOthers) {
  const Outcome outcome = RunRanks(
      3, "run --model linear-20-1 --steps 100000000 --dp 3 --global-batch 24 --timeout 20s",
      "until grep -q step out.0 || ! kill -0 ${p[0]}; do sleep 0.05; done; kill -9 ${p[1]}");
  EXPECT_EQ(outcome.out, "code 0 86\ncode 1 137\ncode 2 86\n");
  const std::string said = Written("err.0") + Written("err.2");
  EXPECT_THAT(said, HasSubstr("plan run: error: rank "));
  EXPECT_THAT(said, HasSubstr("rank 1 on "));
  EXPECT_THAT(said, HasSubstr("has ended, or its connection is lost"));
  EXPECT_EQ(said.find("error"), said.rfind("error")) << said;  // one of them says it
  EXPECT_THAT(said, HasSubstr(" ends because rank 1 on "));
}

// The third named the one that had found it out.
TEST(PlanRunOverTcp, AllRanksNameTheOneThatFellSilent) {
  const Outcome outcome = RunRanks(
      3, "run --model linear-20-1 --steps 100000000 --dp 3 --global-batch 24 --timeout 1s",
      "until grep -q step out.0 || ! kill -0 ${p[0]}; do sleep 0.05; done; kill -STOP ${p[1]}; "
      "wait ${p[0]} ${p[2]}; kill -9 ${p[1]}");
  EXPECT_THAT(outcome.out, HasSubstr("code 1 137\n"));
  const std::string said[] = {Written("err.0"), Written("err.2")};
  for (const std::string& one : said) EXPECT_THAT(one, HasSubstr("rank 1 on "));
  const bool first = said[0].find("error") != std::string::npos;
  EXPECT_THAT(said[first ? 0 : 1], HasSubstr("no answer from rank 1 on "));
  EXPECT_THAT(said[first ? 1 : 0], HasSubstr(" ends because rank 1 on "));
  EXPECT_THAT(outcome.out, HasSubstr(first ? "code 2 86\n" : "code 0 86\n"));
}

TEST(PlanRunOverTcp, AnAbsentRankIsAnErrorOfOneAndTheOthersReportIt) {
  const int port = comm::PortOf(comm::Listen(0, true));
  const Outcome outcome = RunShell(fmt::format(
      "{}export WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT={}; cd '{}'; "
      "for r in 0 2; do RANK=$r \"$PLAN\" run --model linear-20-1 --dp 3 --global-batch 24 "
      "--timeout 3s "
      ">out.$r 2>err.$r & p[$r]=$!; done; for r in 0 2; do wait ${{p[$r]}}; echo code $r $?; done",
      kNoMpi, port, ScratchFolder()));
  EXPECT_EQ(outcome.out, "code 0 1\ncode 2 86\n");
  EXPECT_THAT(Written("err.0"), HasSubstr("plan run: error: rank 0: not all ranks have come to "));
  EXPECT_THAT(Written("err.0"), HasSubstr("after 3 s: rank 1 is missing"));
  EXPECT_THAT(Written("err.2"), HasSubstr("plan run: rank 2 on "));
  EXPECT_THAT(Written("err.2"), HasSubstr("ends because rank 0 has failed: not all ranks have"));
  EXPECT_THAT(Written("err.2"), testing::Not(HasSubstr("error")));
}

TEST(PlanBenchOverTcp, TableAndRanks) {
  const Outcome outcome = RunRanks(2, "bench all_reduce -b 1K -e 64K -f 4 -n 3");
  EXPECT_EQ(outcome.out, "code 0 0\ncode 1 0\n") << Written("err.0");
  EXPECT_THAT(Written("out.0"), HasSubstr("[tcp] CPU"));
  EXPECT_THAT(Written("out.0"), HasSubstr("Out of bounds values : 0 OK"));
}

struct BadVariable {
  std::map<std::string, std::string> environment;
  const char* message;
};

TEST(PlanRunOverTcp, VariablesThatCannotBeAreSaid) {
  const std::map<std::string, std::string> good = {{"RANK", "0"},
                                                   {"WORLD_SIZE", "2"},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", "29500"},
                                                   {"ORRERY_SECRET", "0123456789abcdef"}};
  const BadVariable bad[] = {
      {{{"RANK", "first"}}, "RANK=first in the environment is not a number from 0 to 1"},
      {{{"RANK", "2"}}, "RANK=2 in the environment is not a number from 0 to 1"},
      {{{"RANK", "-1"}}, "RANK=-1 in the environment"},
      {{{"RANK", ""}}, "the environment has MASTER_ADDR and no RANK"},
      {{{"WORLD_SIZE", "0"}}, "WORLD_SIZE=0 in the environment"},
      {{{"WORLD_SIZE", "99999999999999999999"}}, "WORLD_SIZE=99999999999999999999"},
      {{{"MASTER_PORT", "65536"}},
       "MASTER_PORT=65536 in the environment is not a number from 1 to 65535"},
      {{{"MASTER_PORT", ""}}, "the environment has MASTER_ADDR and no MASTER_PORT"},
      {{{"LOCAL_RANK", "x"}}, "LOCAL_RANK=x"},
      {{{"LOCAL_WORLD_SIZE", "0"}}, "LOCAL_WORLD_SIZE=0"},
      {{{"MASTER_ADDR", "no such host"}}, "MASTER_ADDR: 'no such host' is no address"},
      {{{"MASTER_ADDR", "10.0.0.1"}, {"ORRERY_SECRET", ""}},
       "ranks that meet at 10.0.0.1 over TCP need a secret"},
      {{{"ORRERY_SECRET", "guess"}}, "the secret of the run has 5 characters"},
      {{{"ORRERY_SECRET", ""}, {"ORRERY_SECRET_FILE", "/no/such/file"}},
       "ORRERY_SECRET_FILE: '/no/such/file' cannot be read"},
      {{{"ORRERY_SECRET", ""}, {"ORRERY_SECRET_FILE", "/dev/zero"}},
       "ORRERY_SECRET_FILE: '/dev/zero' cannot be read: it is no regular file"},
      {{{"MASTER_ADDR", ""}}, "the environment has RANK=0 and WORLD_SIZE=2 and no MASTER_ADDR"},
      {{{"WORLD_SIZE", "5"}}, "2 GPUs, but the cluster has 5"},
  };
  for (const auto& [changed, message] : bad) {
    SCOPED_TRACE(message);
    auto environment = good;
    for (const auto& [name, value] : changed) environment[name] = value;
    const Outcome outcome = RunPlan({"run", "--model", "linear-20-1", "--dp", "2"}, environment);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

// Without PMIx each task of srun would be a run of its own, or wait for srun for ever.
TEST(PlanRunOverTcp, TasksOfSrunWithoutPmixAreRefusedOrMeet) {
  std::map<std::string, std::string> step = {
      {"SLURM_PROCID", "1"},  {"SLURM_STEP_NUM_TASKS", "4"},        {"SLURM_NTASKS", "4"},
      {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "localhost"}, {"SLURM_JOB_ID", "17"},
      {"SLURM_STEP_ID", "0"}};
  const std::vector<std::string> job = {"run", "--model", "linear-20-1", "--dp", "4"};
  const Outcome outcome = RunPlan(job, step);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("srun has started 4 tasks without PMIx"));
  EXPECT_THAT(outcome.err, HasSubstr("srun --mpi=pmix, or export ORRERY_SECRET="));
  const Outcome together = RunShell(fmt::format(
      "{} export SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 SLURM_STEP_NODELIST=localhost "
      "SLURM_JOB_ID={} SLURM_STEP_ID=0 ORRERY_SECRET=0123456789abcdef; "
      "for r in 0 1; do SLURM_PROCID=$r \"$PLAN\" run --model linear-20-1 --dp 2 --steps 2 "
      ">/dev/null & p[$r]=$!; done; for r in 0 1; do wait ${{p[$r]}}; echo code $r $?; done",
      kNoMpi, getpid()));
  EXPECT_EQ(together.out, "code 0 0\ncode 1 0\n");
}

// Three nodes with the variables that AWS Batch sets, the second of them the main one.
TEST(PlanRunOverTcp, NodesOfAwsBatchMeetAndAMissingOneIsNamed) {
  const auto rehearse = [](const std::string& nodes, const std::string& flags) {
    return RunShell(fmt::format(
        "{} export ORRERY_SECRET=0123456789abcdef AWS_BATCH_JOB_NUM_NODES=3 "
        "AWS_BATCH_JOB_MAIN_NODE_INDEX=1; cd '{}'; for n in {}; do "
        "if [ $n != 1 ]; then export AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=127.0.0.1; "
        "else unset AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS; fi; "
        "AWS_BATCH_JOB_ID=job-{}#$n AWS_BATCH_JOB_NODE_INDEX=$n \"$PLAN\" run --model linear-20-1 "
        "--dp 3 --global-batch 24 --steps 3 --json {} >out.$n 2>err.$n & p[$n]=$!; done; "
        "for n in {}; do wait ${{p[$n]}}; echo node $n $?; done",
        kNoMpi, ScratchFolder(), nodes, getpid(), flags, nodes));
  };
  EXPECT_EQ(rehearse("0 1 2", "").out, "node 0 0\nnode 1 0\nnode 2 0\n") << Written("err.1");
  EXPECT_EQ(Losses(Written("out.1")).size(), 3u);  // node 1 is rank 0
  EXPECT_EQ(rehearse("1 2", "--timeout 3s").out, "node 1 1\nnode 2 86\n");
  EXPECT_THAT(Written("err.1"), HasSubstr("after 3 s: rank 2 is missing"));
}

// A launcher whose processes MPI takes for worlds of their own.
TEST(PlanRunOverTcp, ALauncherThatMpiDoesNotKnowIsAnError) {
#ifdef ORRERY_HAS_MPI
  const Outcome outcome = RunPlan({"run", "--model", "linear-20-1", "--dp", "2"},
                                  {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("mpiexec has started 2 processes, and MPI counts 1"));
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

// Before and while ranks meet: bytes, silence, and a hello without a proof.
TEST(PlanRunOverTcp, StrangersDoNotChangeTheRun) {
  const std::string job = "run --model linear-20-1 --steps 20 --dp 3 --global-batch 24 --json";
  const Outcome threads = RunShell("\"$PLAN\" " + job + " --comm local");
  ASSERT_EQ(threads.code, 0);
  const Outcome processes =
      RunRanks(3, job,
               "for i in $(seq 200); do (exec 3<>/dev/tcp/127.0.0.1/$MASTER_PORT || exit 0; "
               "case $((i % 3)) in 0) head -c 700 /dev/urandom >&3;; 1) sleep 2;; "
               "2) echo orrery-rank/2 1 3 1 x 00 >&3; echo proof >&3;; esac) 2>/dev/null & "
               "sleep 0.01; done");
  EXPECT_EQ(processes.out, "code 0 0\ncode 1 0\ncode 2 0\n") << Written("err.0");
  EXPECT_EQ(Losses(Written("out.0")), Losses(threads.out));
}

TEST(PlanRunOverTcp, CommMustFitHowRanksWereStarted) {
  const std::map<std::string, std::string> here = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  const std::vector<std::string> job = {"run", "--model", "linear-20-1", "--dp", "2", "--comm"};
  const auto with = [&](const char* kind) {
    auto words = job;
    words.emplace_back(kind);
    return words;
  };
  EXPECT_EQ(RunPlan(with("local"), here).code, 2);
  EXPECT_EQ(RunPlan(with("mpi"), here).code, 2);
  const Outcome absent = RunPlan(with("tcp"));
  EXPECT_EQ(absent.code, 2);
  EXPECT_THAT(absent.err, HasSubstr("RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"));
}

}  // namespace
}  // namespace orrery
