// SPDX-License-Identifier: Apache-2.0
// `plan run` as a user meets it: records, plan texts, wrong counts, and ranks that die or stall.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "runtime/launch/mpirun.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}
Outcome Plan(const std::string& text) { return RunPlan(Words(text)); }

bool HasMpi() {
#ifdef ORRERY_HAS_MPI
  return !launch::FindMpirun().empty();
#else
  return false;
#endif
}

std::vector<double> Losses(const std::string& record) {
  std::vector<double> losses;
  const json document = json::parse(record);
  for (const json& step : document["steps"]) losses.push_back(step["loss"]);
  return losses;
}

const char* const kTiny = "run --model linear-20-1 --steps 20 --json";

TEST(PlanRun, RecordHoldsStepsRanksAndFigures) {
  const Outcome outcome = Plan(std::string(kTiny) + " --comm local --ranks 2 --dp 2 --seed 7");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json record = json::parse(outcome.out);
  EXPECT_EQ(record["schema"], "orrery.run/1");
  EXPECT_EQ(record["comm"], "local");
  EXPECT_EQ(record["seed"], 7);
  EXPECT_EQ(record["data"], "random-set");
  EXPECT_EQ(record["samples_per_step"], 32);
  EXPECT_EQ(record["per_rank"].size(), 2u);
  ASSERT_EQ(record["steps"].size(), 20u);
  EXPECT_LT(record["steps"][19]["loss"], record["steps"][0]["loss"]);
  EXPECT_GT(record["steps"][0]["gradient_norm"], 0);
  EXPECT_GT(record["step_time_s"]["median"], 0);
  EXPECT_LE(record["step_time_s"]["min"], record["step_time_s"]["median"]);
}

// Prediction and measurement name the same terms, and both add up to their step.
TEST(PlanRun, ItsBreakdownHasTheRowsOfThePrediction) {
  const std::string job =
      " --model bert-tiny --seq-len 32 --global-batch 8 --micro-batch 2 --dp 2 --precision fp32";
  const std::string folder = ScratchFolder();
  const Outcome run =
      Plan("run --comm local --ranks 2 --steps 4" + job + " --json " + folder + "/run.json");
  ASSERT_EQ(run.code, 0) << run.err;
  const Outcome twin = Plan(
      "simulate --topology localhost --framework orrery "
      "--nodes 1 --gpus-per-node 2" +
      job + " --json " + folder + "/twin.json");
  ASSERT_EQ(twin.code, 0) << twin.err;
  const json measured = json::parse(ReadText(folder + "/run.json"));
  const json predicted = json::parse(ReadText(folder + "/twin.json"))["prediction"];
  std::set<std::string> rows, predicted_rows;
  double sum = 0;
  for (const auto& [key, seconds] : measured["breakdown"].items()) {
    rows.insert(key);
    EXPECT_GE(seconds.get<double>(), 0) << key;
    if (key != "hidden_s") sum += seconds.get<double>();
  }
  for (const auto& [key, seconds] : predicted["breakdown"].items()) predicted_rows.insert(key);
  EXPECT_EQ(rows, predicted_rows);
  EXPECT_GT(measured["breakdown"]["compute_s"], 0);
  EXPECT_GT(measured["breakdown"]["optimizer_s"], 0);
  EXPECT_EQ(measured["breakdown"]["tensor_exposed_s"], 0);
  EXPECT_GT(measured["breakdown"]["data_exposed_s"].get<double>() +
                measured["breakdown"]["hidden_s"].get<double>(),
            0);
  EXPECT_NEAR(measured["breakdown_step_s"].get<double>(), sum, 1e-6 + 1e-3 * sum);
  double mean = 0;  // of a rank's steps without the first
  for (std::size_t s = 1; s < 4; ++s) mean += measured["steps"][s]["seconds"].get<double>() / 3;
  EXPECT_LE(sum, mean * (1 + 1e-9));
  EXPECT_GT(sum, 0.5 * mean);
  const Outcome compared = Plan("compare " + folder + "/twin.json " + folder + "/run.json");
  ASSERT_EQ(compared.code, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("term of the step"));
  EXPECT_THAT(compared.out, HasSubstr("data-parallel communication"));
  EXPECT_EQ(compared.out.find("hidden"), std::string::npos);
}

TEST(PlanRun, ItsTraceHasTheTermsOfTheSimulatedOne) {
  const std::string job =
      " --model bert-tiny --seq-len 32 --global-batch 8 --micro-batch 2 --dp 2 --precision fp32";
  const std::string folder = ScratchFolder();
  const Outcome run =
      Plan("run --comm local --ranks 2 --steps 3" + job + " --trace " + folder + "/run_trace.json");
  ASSERT_EQ(run.code, 0) << run.err;
  const Outcome twin = Plan(
      "simulate --topology localhost --framework orrery --nodes 1 "
      "--gpus-per-node 2" +
      job + " --trace " + folder + "/twin_trace.json");
  ASSERT_EQ(twin.code, 0) << twin.err;
  const Outcome compared =
      Plan("compare " + folder + "/twin_trace.json " + folder + "/run_trace.json --json");
  ASSERT_EQ(compared.code, 0) << compared.err;
  const json comparison = json::parse(compared.out);
  double predicted = 0, measured = 0;
  std::set<std::string> terms;
  for (const json& term : comparison["by_part"]) {
    predicted += term["predicted_s"].get<double>();
    measured += term["measured_s"].get<double>();
    terms.insert(term["work"]);
    const bool waiting = term["work"] == "waiting for the host or other ranks";
    if (!waiting) {
      EXPECT_GT(term["measured_s"], 0) << term;
    }
  }
  EXPECT_TRUE(terms.contains("compute"));
  EXPECT_TRUE(terms.contains("optimizer"));
  EXPECT_TRUE(terms.contains("data-parallel communication"));
  EXPECT_NEAR(predicted, comparison["predicted_step_s"].get<double>(), 1e-3 * predicted);
  EXPECT_NEAR(measured, comparison["measured_step_s"].get<double>(), 1e-3 * measured);
}

TEST(PlanRun, MpiAndThreadsGiveTheSameLosses) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  for (const char* layout : {"--ranks 4 --dp 2 --pp 2", "--ranks 8 --dp 8 --zero 2",
                             "--ranks 3 --dp 3 --global-batch 24"}) {
    SCOPED_TRACE(layout);
    const Outcome threads = Plan(std::string(kTiny) + " --comm local " + layout);
    const Outcome processes = Plan(std::string(kTiny) + " --comm mpi " + layout);
    if (threads.code == 2) {  // a model of one layer has no two stages
      EXPECT_EQ(processes.code, 2);
      continue;
    }
    ASSERT_EQ(threads.code, 0) << threads.err;
    ASSERT_EQ(processes.code, 0) << processes.err;
    EXPECT_EQ(Losses(threads.out), Losses(processes.out));  // to the last bit
  }
}

// A script whose commands read one input loses no line of it to a run.
TEST(PlanRun, RanksLeaveTheInputOfTheirCaller) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const std::string out = ScratchFolder() + "/left";
  const std::string command = "(echo one; echo two) | (" + ProgramPath("plan") + " " + kTiny +
                              " --comm mpi --ranks 2 --dp 2 >/dev/null 2>&1; cat >" + out + ")";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(ReadText(out), "one\ntwo\n");
}

// A GPT that needs no time.
std::string TinyGpt(int layers = 4) {
  const std::string file = ScratchFolder() + "/tiny.yaml";
  WriteText(file, "name: tiny\nfamily: decoder\nlayers: " + std::to_string(layers) +
                      "\nhidden: 32\nffn: 128\nheads: 4\nvocab: 61\n"
                      "max_positions: 32\nnorm: layer-norm\nactivation: gelu\npositions: learned\n"
                      "tied_embeddings: true\n");
  return "run --model " + file + " --seq-len 16 --global-batch 8 ";
}

// Twenty steps in single precision, two and four ranks to a sequence.
TEST(PlanRun, RanksThatShareSequencesTrainLikeOneRank) {
  const std::string job =
      TinyGpt(1) + "--steps 20 --micro-batch 4 --precision fp32 --attention flash --json ";
  const Outcome alone = Plan(job);
  ASSERT_EQ(alone.code, 0) << alone.err;
  const std::vector<double> expected = Losses(alone.out);
  for (const char* layout :
       {"--ranks 2 --cp 2 --cp-method allgather", "--ranks 2 --cp 2 --cp-method ring --zigzag off",
        "--ranks 2 --cp 2 --cp-method ulysses", "--ranks 4 --cp 4 --cp-method allgather --zero 3",
        "--ranks 4 --cp 4 --cp-method ring --zero 1", "--ranks 4 --cp 4 --cp-method ulysses",
        "--ranks 4 --cp 4 --cp-method a2a_ring --cp-inner 2"}) {
    SCOPED_TRACE(layout);
    const Outcome shared = Plan(job + layout + " --comm local");
    ASSERT_EQ(shared.code, 0) << shared.err;
    const std::vector<double> losses = Losses(shared.out);
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i] / expected[i], 1, 1e-5) << "step " << i;
  }
}

TEST(PlanRun, TransformerOverMpiEqualsThreads) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  for (const char* layout :
       {"--ranks 8 --tp 2 --pp 2 --dp 2 --zero 1", "--ranks 4 --tp 4", "--ranks 4 --dp 4 --zero 3",
        "--ranks 2 --pp 2 --vpp 2", "--ranks 2 --dp 2 --precision bf16",
        "--ranks 2 --cp 2 --cp-method ring --attention flash"}) {
    SCOPED_TRACE(layout);
    const std::string job = TinyGpt() + "--steps 3 --json " + layout;
    const Outcome threads = Plan(job + " --comm local"), processes = Plan(job + " --comm mpi");
    ASSERT_EQ(threads.code, 0) << threads.err;
    ASSERT_EQ(processes.code, 0) << processes.err;
    EXPECT_EQ(Losses(threads.out), Losses(processes.out));  // to the last bit
  }
}

TEST(PlanRun, RunsWhatPlanShowPrinted) {
  const Outcome text =
      Plan("show --model linear-20-1 --topology localhost --dp 8 --precision fp32 --ir");
  ASSERT_EQ(text.code, 0) << text.err;
  const std::string file = ScratchFolder() + "/plan.txt";
  WriteText(file, text.out);
  const Outcome outcome = Plan("run " + file + " -n 8 --steps 2 --comm local --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["ranks"], 8);
  const Outcome wrong = Plan("run " + file + " -n 4 --comm local");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("the plan is for 8 ranks, not 4"));
  std::string many = text.out;
  for (std::size_t at; (at = many.find("dp=8")) != std::string::npos;)
    many.replace(at, 4, "dp=4104");
  WriteText(file, many);
  const Outcome absurd = Plan("run " + file + " --steps 1");
  EXPECT_EQ(absurd.code, 2);
  EXPECT_THAT(absurd.err, HasSubstr("the plan is for 4104 ranks, and a run has at most 4096"));
}

// Where losses are compared.
TEST(PlanRun, SaysWhereLowPrecisionRoundsOtherwise) {
  const std::string job = TinyGpt(2) + "--comm local --ranks 2 --steps 1 --fp8 ";
  EXPECT_THAT(Plan(job + "current --tp 2").out,
              HasSubstr("fp8 current (scales of each rank: losses are not those of one rank)"));
  EXPECT_THAT(Plan(job + "delayed --dp 2").out,
              AllOf(HasSubstr("fp8 delayed"), Not(HasSubstr("of each rank"))));
}

// mpirun gives every rank a terminal of its own; who reads here is a file.
TEST(PlanRun, RanksOverMpiLookAsTheirCommandDoes) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const std::string job = "run --model linear-20-1 --ranks 2 --dp 2 --steps 2";
  const Outcome plain = Plan(job), painted = Plan(job + " --color=always"),
                quiet = Plan(job + " --quiet");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_THAT(plain.out, AllOf(HasSubstr("median step"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(painted.out, HasSubstr("\x1b[1mmedian step"));
  EXPECT_EQ(std::ranges::count(quiet.out, '\n'), 1) << quiet.out;
}

TEST(PlanRun, RefusesWhatItCannotRun) {
  EXPECT_EQ(Plan("run").code, 2);
  EXPECT_EQ(Plan("run /nonexistent/plan.txt").code, 2);
  EXPECT_EQ(Plan("run --model linear-20-1 --ranks 3 --dp 2").code, 2);
  EXPECT_EQ(Plan("run --model linear-20-1 --steps 0").code, 2);
  EXPECT_EQ(Plan("run --model linear-20-1 --lr fast").code, 2);
  const Outcome foreign = Plan("run --model linear-20-1 --data synthetics");
  EXPECT_EQ(foreign.code, 2);
  EXPECT_THAT(foreign.err, HasSubstr("synthetic"));
}

TEST(PlanRun, RefusesArenasBeyondThisMachine) {
  const Outcome outcome =
      Plan("run --model llama2-70b --ranks 8 --tp 8 --seq-len 16 --global-batch 8 --comm local");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("8 ranks on this machine need "));
}

TEST(PlanRun, WritesATraceOfTheLastStep) {
  const std::string file = ScratchFolder() + "/trace.json";
  const Outcome outcome =
      Plan(TinyGpt() + "--steps 2 --ranks 2 --pp 2 --comm local --trace " + file);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json trace = json::parse(ReadText(file));
  int ops = 0, sends = 0, receives = 0;
  for (const json& event : trace["traceEvents"]) {
    ops += event["ph"] == "X" ? 1 : 0;
    sends += event["ph"] == "s" ? 1 : 0;
    receives += event["ph"] == "f" ? 1 : 0;
    if (event["ph"] == "X") {
      EXPECT_GE(event["dur"], 0);
    }
  }
  EXPECT_GT(ops, 100);
  EXPECT_EQ(sends, receives);
  EXPECT_GT(sends, 0);
}

TEST(PlanRun, TracesAsManyStepsAsAsked) {
  const std::string file = ScratchFolder() + "/steps.json";
  const Outcome outcome =
      Plan(TinyGpt() + "--steps 5 --ranks 2 --pp 2 --comm local --trace-steps 3 --trace " + file);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::map<std::string, std::pair<double, double>> steps;
  std::set<std::pair<std::string, int64_t>> arrows;
  const json trace = json::parse(ReadText(file));
  for (const json& event : trace["traceEvents"]) {
    const std::string name = event["name"];
    if (name.starts_with("ProfilerStep#")) steps[name] = {event["ts"], event["dur"]};
    if (event["ph"] == "s") {
      EXPECT_TRUE(arrows.insert({"s", event["id"]}).second);
    }
  }
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps.begin()->first, "ProfilerStep#3");
  double end = 0;
  for (const auto& [name, span] : steps) {
    EXPECT_GE(span.first, end);
    end = span.first + span.second;
  }
  EXPECT_EQ(Plan(TinyGpt() + "--steps 1 --trace-steps 3").code, 2);
}

TEST(PlanRun, ALossThatIsNoNumberEndsIt) {
  for (const std::string comm : {"local", "mpi"}) {
    if (comm == "mpi" && !HasMpi()) continue;
    const Outcome outcome = Plan(
        "run --model linear-20-1 --ranks 2 --dp 2 --clip-norm 0 --lr 1e38 "
        "--steps 50 --comm " +
        comm);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, testing::MatchesRegex(
                                 "plan run: error: rank 0 on [^\n]*: the loss of step [^\n]*\n"));
  }
}

// Processes named plan-run below `parent`, found in /proc.
std::vector<pid_t> RanksBelow(pid_t parent) {
  std::map<pid_t, std::vector<pid_t>> children;
  std::map<pid_t, std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string pid, comm, state;
    pid_t of = 0;
    stat >> pid >> comm >> state >> of;
    children[of].push_back(std::atoi(name.c_str()));
    names[std::atoi(name.c_str())] = comm;
  }
  std::vector<pid_t> below = children[parent], ranks;
  for (std::size_t i = 0; i < below.size(); ++i) {
    if (names[below[i]] == "(plan-run)") ranks.push_back(below[i]);
    const std::vector<pid_t>& more = children[below[i]];
    below.insert(below.end(), more.begin(), more.end());
  }
  return ranks;
}

// Neither gone nor waiting for init to take note of it.
bool Alive(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string pid, comm, state;
  return stat >> pid >> comm >> state && state != "Z" && state != "X";
}

// Their mpirun.
pid_t ParentOf(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string pid, comm, state;
  pid_t parent = 0;
  stat >> pid >> comm >> state >> parent;
  return parent;
}

// Starts an endless run on four ranks, does something to one of them or to what started them, and waits for the end.
Outcome Disturb(int signal, bool launcher = false) {
  const std::string err = ScratchFolder() + "/disturbed", out = ScratchFolder() + "/progress";
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(err.c_str(), "w", stderr) == nullptr ||
        std::freopen(out.c_str(), "w", stdout) == nullptr)
      _exit(127);
    alarm(100);
    const std::string program = ProgramPath("plan-run");
    execl(program.c_str(), program.c_str(), "--model", "linear-20-1", "--ranks", "4", "--dp", "4",
          "--comm", "mpi", "--timeout", "4s", "--steps", "1000000000", "--log-every", "100",
          nullptr);
    _exit(127);
  }
  std::vector<pid_t> ranks;
  for (int tenths = 0; tenths < 600 && Alive(child); ++tenths) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ranks = RanksBelow(child);
    if (ranks.size() == 4 && ReadText(out).find("step  100/") != std::string::npos) break;
  }
  if (ranks.size() == 4) kill(launcher ? ParentOf(ranks[2]) : ranks[2], signal);
  int status = 0;
  waitpid(child, &status, 0);
  for (const pid_t rank : ranks) {
    for (int tenths = 0; tenths < 50 && Alive(rank); ++tenths)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(Alive(rank)) << "a rank is left behind";
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, "", ReadText(err)};
}

TEST(PlanRun, AKilledRankEndsItWithOneMessage) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const Outcome outcome = Disturb(SIGKILL);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(
      outcome.err,
      testing::MatchesRegex("plan run: error: rank [0-3] on [^\n]*: ended by signal 9 [^\n]*\n"));
}

TEST(PlanRun, AKilledLauncherEndsItWithOneMessage) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const Outcome outcome = Disturb(SIGKILL, true);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              testing::MatchesRegex("plan run: error: mpirun was ended by signal 9 [^\n]*\n"));
}

TEST(PlanRun, AStalledRankEndsItWithOneMessage) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const Outcome outcome = Disturb(SIGSTOP);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(
      outcome.err,
      testing::MatchesRegex(
          "plan run: error: rank [0-3] on [^\n]*: (step [0-9]+: )?waited 4 s for [^\n]*; no "
          "answer from rank [0-3] on [^\n]*\n"));
}

}  // namespace
}  // namespace orrery
