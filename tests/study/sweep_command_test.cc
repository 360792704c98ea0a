// SPDX-License-Identifier: Apache-2.0
// `plan sweep`: rows are those of `plan predict`; killed, resumed and under mpirun none is lost or doubled.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kStudy = R"(description: a small one
job:
  model: gpt2-xl
  topology: aws-p4d
  nodes: [1, 2]
  global_batch: 64..256
layout:
  tp: [1, 5]
  pp: 1..4
  micro_batch: [1, 2, 3]
  recompute: [none, full]
)";
constexpr int kRows = 2 * 3 * 2 * 3 * 3 * 2;

std::string NewFolder() {
  static int number = 0;
  const std::string folder = fmt::format("{}/sweep-{}", ScratchFolder(), ++number);
  fs::create_directories(folder);
  WriteText(folder + "/study.yaml", kStudy);
  return folder;
}

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(ReadText(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

Outcome Sweep(const std::string& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"sweep", folder + "/study.yaml", "--out", folder + "/rows.csv"};
  words.insert(words.end(), more.begin(), more.end());
  return RunPlan(words);
}

// The rows of one undisturbed sweep.
const std::string& Expected() {
  static const std::string rows = [] {
    const std::string folder = NewFolder();
    const Outcome outcome = Sweep(folder, {"--threads", "2"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ReadText(folder + "/rows.csv");
  }();
  return rows;
}

TEST(Sweep, QuietSaysTheFastestRowInOneLine) {
  const std::string folder = NewFolder();
  const std::string out = Sweep(folder, {"--quiet"}).out;
  EXPECT_EQ(std::ranges::count(out, '\n'), 1) << out;
  EXPECT_THAT(out, AllOf(HasSubstr(fmt::format("{} rows: ", kRows)), HasSubstr("fastest row "),
                         HasSubstr("tokens/s, ")));
}

// The caret stood at the key.
TEST(Sweep, AWrongValueOfAListIsShownWhereItStands) {
  const std::string folder = NewFolder();
  std::string study = kStudy;
  const std::string list = "topology: aws-p4d";
  WriteText(folder + "/study.yaml",
            study.replace(study.find(list), list.size(), "topology: [aws-p4d, aws-p44]"));
  const Outcome in_file = Sweep(folder);
  EXPECT_EQ(in_file.code, 2);
  EXPECT_THAT(in_file.err, HasSubstr("study.yaml:4:23: error: "));
  const Outcome in_flag = RunPlan({"predict", "--model", "gpt2-xl", "--topology", "aws-p4d,aws-p44",
                                   "--nodes", "1", "--dp", "8"});
  EXPECT_EQ(in_flag.code, 2);
  EXPECT_THAT(in_flag.err, HasSubstr("command line:1:49: error: "));
}

TEST(Sweep, HasEachRowOnceInOrder) {
  const std::string folder = NewFolder();
  const Outcome outcome = Sweep(folder, {"--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("{} rows: ", kRows)));
  EXPECT_THAT(outcome.out, HasSubstr("Frontier: "));
  EXPECT_THAT(outcome.out, HasSubstr("What each flag changes"));
  const std::vector<std::string> lines = Lines(folder + "/rows.csv");
  ASSERT_EQ(lines.size(), kRows + 1u);
  for (int row = 0; row < kRows; ++row)
    EXPECT_TRUE(lines[static_cast<std::size_t>(row) + 1].starts_with(fmt::format("{},", row)));
  EXPECT_EQ(ReadText(folder + "/rows.csv"), Expected());  // with any number of threads
  // What is refused takes hardly any time: the rate is of the predicted ones.
  const auto refused = std::ranges::count_if(
      lines, [](const std::string& line) { return line.find(",refused,") != std::string::npos; });
  ASSERT_GT(refused, 0);
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format(": {} predicted, ", kRows - refused)));
  // Again: nothing to do.
  EXPECT_THAT(Sweep(folder).out, HasSubstr(fmt::format("all {} rows were there", kRows)));
}

TEST(Sweep, RowsAreThoseOfPredict) {
  const std::string folder = NewFolder();
  WriteText(folder + "/rows.csv", Expected());
  const std::vector<std::string> lines = Lines(folder + "/rows.csv");
  int compared = 0;
  for (const int row : {0, 57, 111, 180, 215}) {
    std::vector<std::string> cells;
    bool quoted = false;
    cells.emplace_back();
    for (const char c : lines[static_cast<std::size_t>(row) + 1]) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) {
        cells.emplace_back();
      } else if (c != '"') {
        cells.back() += c;
      }
    }
    const Outcome one =
        RunPlan({"predict",     "--model", "gpt2-xl",        "--topology",    "aws-p4d",
                 "--nodes",     cells[1],  "--global-batch", cells[2],        "--tp",
                 cells[3],      "--pp",    cells[4],         "--micro-batch", cells[5],
                 "--recompute", cells[6],  "--engine",       "closed",        "--json"});
    if (cells[7] == "refused") {
      EXPECT_EQ(one.code, 2);
      EXPECT_THAT(one.err, HasSubstr(cells.back())) << row;
      continue;
    }
    ++compared;
    EXPECT_EQ(one.code, cells[7] == "ok" ? 0 : 3) << row;
    const json prediction = json::parse(one.out)["prediction"];
    EXPECT_EQ(cells[9], prediction["layout"]);
    EXPECT_EQ(std::stod(cells[10]), prediction["step_time_s"].get<double>()) << row;
    EXPECT_NEAR(std::stod(cells[11]), prediction["step_time_interval_s"][0].get<double>(), 1e-12);
    EXPECT_EQ(std::stod(cells[13]), prediction["tokens_per_s"].get<double>());
    EXPECT_EQ(std::stod(cells[15]), prediction["memory"]["total_bytes"].get<double>());
    EXPECT_EQ(std::stod(cells[18]), prediction["breakdown"]["compute_s"].get<double>());
    EXPECT_EQ(cells[cells.size() - 3], prediction["engine"]);
    const std::string& notes = cells[cells.size() - 2];
    for (const json& what : prediction["outside_calibration"])
      EXPECT_THAT(notes, HasSubstr(what.get<std::string>()));
    if (prediction["not_counted"].is_string()) {
      EXPECT_THAT(notes, HasSubstr(prediction["not_counted"].get<std::string>()));
    }
  }
  EXPECT_GE(compared, 2);
}

// As a disk is left when a process is killed in the middle of a line.
TEST(Sweep, GoesOnAfterAnyCut) {
  const std::string expected = Expected();
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, expected.size() / 3,
                                expected.size() / 2 + 7, expected.size() - 1}) {
    const std::string folder = NewFolder();
    const Outcome first = Sweep(folder);
    ASSERT_EQ(first.code, 0) << first.err;
    fs::remove(folder + "/rows.csv");
    const std::string rows = expected.substr(expected.find('\n') + 1);
    WriteText(folder + "/rows.csv.parts/rows-0.csv", rows.substr(0, std::min(cut, rows.size())));
    // Of a run with more processes; its first row is there twice.
    WriteText(folder + "/rows.csv.parts/rows-5.csv", rows.substr(0, 2000));
    const Outcome second = Sweep(folder);
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_EQ(ReadText(folder + "/rows.csv"), expected) << cut;
  }
}

TEST(Sweep, KilledAgainAndAgainItEndsWithTheSameRows) {
  const std::string folder = NewFolder();
  const std::string command = fmt::format(
      "for t in 0.05 0.1 0.15 0.2 0.3; do timeout -s KILL $t $PLAN sweep {0}/study.yaml --out "
      "{0}/rows.csv --threads 2 >/dev/null 2>&1; done; $PLAN sweep {0}/study.yaml --out "
      "{0}/rows.csv",
      folder);
  EXPECT_EQ(RunShell(command).code, 0);
  EXPECT_EQ(ReadText(folder + "/rows.csv"), Expected());
}

TEST(Sweep, ProcessesOfALauncherShareTheRows) {
  const std::string folder = NewFolder();
  // What mpirun sets; the processes know each other through the folder alone.
  const std::string command = fmt::format(
      "for r in 1 2 3 0; do OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 "
      "OMPI_COMM_WORLD_RANK=$r "
      "$PLAN sweep {0}/study.yaml --out {0}/rows.csv >{0}/said-$r & done; wait",
      folder);
  EXPECT_EQ(RunShell(command).code, 0);
  EXPECT_EQ(ReadText(folder + "/rows.csv"), Expected());
  // What others had done before it began is not its own.
  EXPECT_THAT(ReadText(folder + "/said-0"),
              testing::ContainsRegex("rows (in .*: [0-9]+ predicted|predicted or refused in|were "
                                     "there)"));
  for (const char* quiet : {"1", "2", "3"}) EXPECT_EQ(ReadText(folder + "/said-" + quiet), "");
}

// More rows than anybody waits for.
std::string EndlessFolder() {
  const std::string folder = NewFolder();
  std::string endless = kStudy;
  endless.replace(endless.find("64..256"), 7, "1..10000 by 1");
  WriteText(folder + "/study.yaml", endless);
  return folder;
}

// Nobody looks at a terminal there: rank 0 writes lines, which count the rows of all.
TEST(Sweep, SaysUnderALauncherHowFarAllProcessesAre) {
  const std::string folder = EndlessFolder();
  // Until a line names more rows than rank 0 has written; it had fewer when it counted.
  RunShell(fmt::format(
      "cd {0}; for r in 1 2 0; do OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_SIZE=3 "
      "OMPI_COMM_WORLD_RANK=$r $PLAN sweep study.yaml --out rows.csv --threads 1 2>said-$r & "
      "all=\"$all $!\"; done; for i in $(seq 900); do sleep 0.1; "
      "said=$(tail -n 1 said-0 | sed 's/[^0-9]*\\([0-9]*\\).*/\\1/'); "
      "[ \"${{said:-0}}\" -gt \"$(wc -l < rows.csv.parts/rows-0.csv)\" ] && touch counted && "
      "break; "
      "done; kill -KILL $all; wait",
      folder));
  EXPECT_TRUE(fs::exists(folder + "/counted")) << ReadText(folder + "/said-0");
  EXPECT_EQ(ReadText(folder + "/said-1") + ReadText(folder + "/said-2"), "");
  EXPECT_THAT(
      Lines(folder + "/said-0").back(),
      testing::ContainsRegex("^plan sweep: [0-9]+ of 720000 rows, [0-9]+ rows/s, .* left$"));
}

TEST(Sweep, SaysNothingWhereItIsToBeQuiet) {
  const std::string folder = EndlessFolder();
  RunShell(fmt::format(
      "cd {0}; $PLAN sweep study.yaml --out rows.csv --threads 1 --quiet 2>said & pid=$!; "
      "for i in $(seq 900); do sleep 0.1; [ -s rows.csv.parts/rows-0.csv ] && break; done; "
      "sleep 4; kill -KILL $pid; wait",
      folder));
  EXPECT_GT(Lines(folder + "/rows.csv.parts/rows-0.csv").size(), 0u);
  EXPECT_EQ(ReadText(folder + "/said"), "");
}

// Every study of the tree: its values are right, and most of what it asks for can be predicted.
TEST(Sweep, PredictsTheStudiesOfTheTree) {
  int studies = 0;
  for (const auto& entry :
       fs::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/scenarios/studies")) {
    ASSERT_EQ(entry.path().extension(), ".yaml") << entry.path();
    ++studies;
    const std::string folder = NewFolder();
    const Outcome outcome =
        RunPlan({"sweep", entry.path().string(), "--out", folder + "/rows.csv", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json answer = json::parse(outcome.out);
    EXPECT_EQ(Lines(folder + "/rows.csv").size(), answer["rows"].get<std::size_t>() + 1);
    EXPECT_GT(answer["front"].size(), 1u) << entry.path();
    std::size_t refused = 0;
    for (const json& reason : answer["refused"]) refused += reason["rows"].get<std::size_t>();
    EXPECT_LT(refused, answer["rows"].get<std::size_t>() / 2) << entry.path();
  }
  EXPECT_GE(studies, 1);
}

// The README's study, and what --template prints, are one file; its command stands in the README as it is.
TEST(Sweep, PrintsAStudyToStartFrom) {
  const std::string path = "scenarios/studies/layouts.yaml",
                    readme = ReadText(std::string(ORRERY_SOURCE_DIR) + "/README.md");
  const Outcome outcome = RunPlan({"sweep", "--template"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, ReadText(std::string(ORRERY_SOURCE_DIR) + "/" + path));
  EXPECT_THAT(readme, HasSubstr("`./plan sweep " + path + "`"));
  EXPECT_THAT(RunPlan({"sweep"}).err, HasSubstr("plan sweep --template"));
}

// As a container of a training job leaves them.
TEST(Sweep, ARankByCommonNamesSaysWhereItsRowsAre) {
  const std::string folder = NewFolder();
  const std::string command = fmt::format(
      "for r in 1 0; do WORLD_SIZE=2 RANK=$r $PLAN sweep {0}/study.yaml --out {0}/rows.csv "
      ">{0}/said-$r || exit 1; done",
      folder);
  EXPECT_EQ(RunShell(command).code, 0);
  EXPECT_THAT(ReadText(folder + "/said-1"),
              HasSubstr("rank 1 of 2 (RANK, WORLD_SIZE): its rows are in"));
  EXPECT_THAT(ReadText(folder + "/said-0"), HasSubstr("216 rows"));
  EXPECT_EQ(ReadText(folder + "/rows.csv"), Expected());
}

TEST(Sweep, RunsUnderMpirun) {
  if (RunShell("command -v mpirun").code != 0) GTEST_SKIP() << "needs mpirun";
  const std::string folder = NewFolder();
  const Outcome outcome =
      RunShell(fmt::format("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
                           "--oversubscribe -n 4 $PLAN sweep "
                           "{0}/study.yaml --out {0}/rows.csv 2>&1",
                           folder));
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(ReadText(folder + "/rows.csv"), Expected());
}

TEST(Sweep, RefusesWhatItWouldSpoil) {
  const std::string folder = NewFolder();
  ASSERT_EQ(Sweep(folder).code, 0);
  std::string other = kStudy;
  other.replace(other.find("[1, 5]"), 6, "[1, 2]");
  WriteText(folder + "/study.yaml", other);
  const Outcome changed = Sweep(folder);
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.err, HasSubstr("rows of another study"));
  WriteText(folder + "/mine.csv", "precious");
  const Outcome foreign = RunPlan({"sweep", folder + "/study.yaml", "--out", folder + "/mine.csv"});
  EXPECT_EQ(foreign.code, 2);
  EXPECT_EQ(ReadText(folder + "/mine.csv"), "precious");
  EXPECT_EQ(RunPlan({"sweep", folder + "/study.yaml", "--out", "/no/such/folder/x.csv"}).code, 2);
  const Outcome twice = Sweep(folder, {"--front", "mfu,gpus,mfu"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("mfu stands there twice"));
}

// A row that is there twice, cut, of another study, or whose columns are others: nothing is told from such a file.
TEST(Sweep, RefusesRowsThatWereChanged) {
  const std::string folder = NewFolder(), path = folder + "/rows.csv";
  ASSERT_EQ(Sweep(folder).code, 0);
  const std::string& whole = Expected();
  const std::size_t second = whole.find('\n') + 1, third = whole.find('\n', second) + 1,
                    fourth = whole.find('\n', third) + 1;
  const std::string row = whole.substr(second, third - second);
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {whole.substr(0, third) + row + whole.substr(fourth),
            "has row 0 twice, again in line 3"},
           {whole + row, "has row 0 twice"},
           {whole.substr(0, second) + "0,???\n" + whole.substr(third),
            "has no whole row of this study in line 2"},
           {whole.substr(0, second + 40) + "\n" + whole.substr(third), "in line 2"},
           {whole.substr(0, third), "lacks 215 of 216 rows"},
           {whole.substr(second), "does not begin with the columns of this study"},
           {"my notes\n", "does not begin with the columns"}}) {
    WriteText(path, text);
    const Outcome outcome = Sweep(folder);
    EXPECT_EQ(outcome.code, 2) << said;
    EXPECT_THAT(outcome.err, HasSubstr(said));
    EXPECT_EQ(ReadText(path), text) << "nobody's file is overwritten";
  }
  WriteText(path, whole);
  std::vector<std::string> lines = Lines(path);
  std::reverse(lines.begin() + 1, lines.end());
  std::string turned;
  for (const std::string& line : lines) turned += line + "\n";
  WriteText(path, turned);  // as sorted by somebody
  EXPECT_THAT(Sweep(folder).out, HasSubstr(fmt::format("all {} rows were there", kRows)));
}

TEST(Sweep, PredictsDamagedRowsOfItsPartsAgain) {
  const std::string folder = NewFolder();
  ASSERT_EQ(Sweep(folder).code, 0);
  fs::remove(folder + "/rows.csv");
  const std::string rows = Expected().substr(Expected().find('\n') + 1);
  std::string damaged = rows.substr(0, rows.find('\n', 3000) + 1);
  damaged.replace(damaged.find("\n7,") + 3, 10,
                  std::string(10, '\0'));  // as a crash leaves a block
  WriteText(folder + "/rows.csv.parts/rows-3.csv", damaged + "9,garbage\n12,1,64\n");
  const Outcome outcome = Sweep(folder);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(ReadText(folder + "/rows.csv"), Expected());
}

TEST(Sweep, DoesNotFollowLinks) {
  const std::string folder = NewFolder();
  WriteText(folder + "/precious.csv", "");
  fs::create_symlink(folder + "/precious.csv", folder + "/rows.csv");
  const Outcome outcome = Sweep(folder);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("symbolic link"));
  EXPECT_TRUE(fs::is_symlink(folder + "/rows.csv"));
}

TEST(Sweep, DoesNotWriteIntoAFolderBehindALink) {
  const std::string folder = NewFolder();
  fs::create_directory(folder + "/elsewhere");
  fs::create_directory_symlink(folder + "/elsewhere", folder + "/rows.csv.parts");
  const Outcome outcome = Sweep(folder);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("symbolic link"));
  EXPECT_TRUE(fs::is_empty(folder + "/elsewhere"));
}

// Killed, mpirun tells its processes nothing. This one stands for it; its orphans are ours.
TEST(Sweep, EndsWhenItsLauncherIsKilled) {
  const std::string folder = NewFolder(), err = folder + "/err";
  std::string endless = kStudy;
  endless.replace(endless.find("64..256"), 7, "1..100000 by 1");
  WriteText(folder + "/study.yaml", endless);
  const std::string program = ProgramPath("plan"), out = folder + "/rows.csv",
                    study = folder + "/study.yaml";
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    const pid_t rank = fork();
    if (rank == 0) {
      setenv("OMPI_COMM_WORLD_RANK", "0", 1);
      setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
      if (std::freopen(err.c_str(), "w", stderr) == nullptr) _exit(127);
      alarm(100);
      execl(program.c_str(), program.c_str(), "sweep", study.c_str(), "--out", out.c_str(),
            "--threads", "1", nullptr);
      _exit(127);
    }
    if (write(ends[1], &rank, sizeof rank) != sizeof rank) _exit(1);
    pause();
    _exit(0);
  }
  pid_t rank = 0;
  ASSERT_EQ(read(ends[0], &rank, sizeof rank), static_cast<ssize_t>(sizeof rank));
  const auto rows = [&] {
    std::error_code error;
    for (const auto& file : fs::recursive_directory_iterator(out + ".parts", error)) {
      if (file.is_regular_file() && file.file_size() > 2000) return true;
    }
    return false;
  };
  for (int tenths = 0; tenths < 300 && !rows(); ++tenths) usleep(100'000);
  EXPECT_TRUE(rows());
  EXPECT_EQ(waitpid(rank, nullptr, WNOHANG), -1) << "a child of ours before its launcher ended";
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  EXPECT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(ReadText(err), HasSubstr("plan sweep: error: what started rank 0 (process " +
                                       std::to_string(launcher) + ") has ended"));
}

}  // namespace
}  // namespace orrery
