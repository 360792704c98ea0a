// SPDX-License-Identifier: Apache-2.0
// Whole commands on damaged files and damaged command lines, in one process: an answer or a message, a documented exit
// code, and no crash. ORRERY_MUTATIONS sets the number of cases, ORRERY_MUTATION_SEED the seed, ORRERY_MUTATION_ONLY runs
// one of them and prints it. What once failed stands in corpus/ and runs first.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "calib/program/compare/compare_command.h"
#include "calib/program/validate/validate_command.h"
#include "calib/program/watch/watch_command.h"
#include "model/program/common/program.h"
#include "model/program/plan/commands.h"
#include "model/program/simulate/simulate_command.h"
#include "tests/from_environment.h"
#include "tests/mutated_text.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCases = 150;
constexpr time_t kLongest = 120;            // seconds of a case; more is a hang
constexpr std::size_t kMostBytes = 20'000;  // of a seed: larger ones show no more

std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The lines of a table that a fuzzed command can work through quickly.
std::string Head(const std::string& text, int lines) {
  std::size_t at = 0;
  for (int i = 0; i < lines && at != std::string::npos; ++i) at = text.find('\n', at + 1);
  return text.substr(0, at);
}

std::vector<std::string> Seeds(const std::string& folder, const std::string& ending) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(ORRERY_SOURCE_DIR) / folder)) {
    if (entry.path().string().ends_with(ending)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const fs::path& path : paths) {
    std::string text = ReadAll(path);
    if (text.size() < kMostBytes) seeds.push_back(std::move(text));
  }
  return seeds;
}

using Words = std::vector<std::string>;

struct Output {
  int code;
  std::string out, err;
};

// Ends the process after so many seconds of its own: others may keep the cores busy.
void SetAlarm(time_t seconds) {
  const itimerval timer{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

Output RunWords(const Words& words) {
  constexpr std::pair<const char*, Answer (*)(const CommandLine&)> kPrograms[] = {
      {"simulate", RunSimulate},
      {"compare", RunCompare},
      {"validate", RunValidate},
      {"watch", RunWatch}};
  Answer (*run)(const CommandLine&) = orrery::cli::Run;
  for (const auto& [name, program] : kPrograms) {
    if (words.size() > 1 && words[1] == name) run = program;
  }
  Output output{0, "", ""};
  SetAlarm(kLongest);
  output.code = Main(words, run, &output.out, &output.err);
  SetAlarm(0);
  return output;
}

void ExpectDocumented(const Output& output) {
  EXPECT_TRUE(output.code == 0 || output.code == 2 || output.code == 3 || output.code == 4)
      << output.code << " " << output.err;
  EXPECT_EQ(output.code == 2, output.err.find("error: ") != std::string::npos) << output.err;
  EXPECT_EQ(output.err.find("fault of this program"), std::string::npos) << output.err;
}

// A command that reads FILE, one of `seeds` damaged.
struct Kind {
  Words words;
  std::vector<std::string> seeds;
  const char* ending;
};

std::string PlanText() {
  return RunWords({"plan", "show", "--model", "gpt2-micro", "--topology", "aws-g5-1gpu", "--nodes",
                   "2", "--pp", "2", "--seq-len", "64", "--global-batch", "8", "--ir"})
      .out;
}

std::string Record() {
  return RunWords({"plan", "predict", "--model", "gpt2-micro", "--topology", "aws-g5-1gpu",
                   "--nodes", "1", "--seq-len", "64", "--global-batch", "4", "--json"})
      .out;
}

std::vector<Kind> Kinds() {
  const auto job = [](Words front, Words back) {
    for (const char* word : {"--topology", "aws-g5-1gpu", "--nodes", "1", "--global-batch", "4"})
      front.emplace_back(word);
    front.insert(front.end(), back.begin(), back.end());
    return front;
  };
  const std::vector<std::string> models = Seeds("scenarios/models", ".yaml"),
                                 hf = Seeds("tests/arch/data/hf", ".json"),
                                 topologies = Seeds("topologies", ".yaml"),
                                 runs = {Head(ReadAll(fs::path(ORRERY_SOURCE_DIR) /
                                                      "calib/data/published_runs.csv"),
                                              4)};
  const std::string record = Record();
  const fs::path record_file =
      fs::temp_directory_path() / ("fuzz-record-" + std::to_string(getpid()));
  std::ofstream(record_file, std::ios::binary) << record;
  return {
      {job({"plan", "--model", "FILE"}, {"--refine", "0"}), models, ".yaml"},
      {job({"plan", "show", "--model", "FILE"}, {}), hf, ".json"},
      {job({"plan", "predict", "--model", "FILE"}, {"--seq-len", "64"}), hf, ".json"},
      {{"plan", "topo", "FILE"}, topologies, ".yaml"},
      {{"plan", "predict", "--model", "gpt2-micro", "--topology", "FILE", "--seq-len", "64",
        "--global-batch", "64", "--nodes", "1"},
       topologies,
       ".yaml"},
      {{"plan", "predict", "FILE", "--topology", "aws-g5-1gpu"}, {PlanText()}, ".plan"},
      {{"plan", "simulate", "FILE", "--topology", "aws-g5-1gpu", "--json"}, {PlanText()}, ".plan"},
      {{"plan", "simulate", "--scenario", "FILE"}, Seeds("scenarios", ".yaml"), ".yaml"},
      {{"plan", "discover", "FILE"}, Seeds("tests/discover/data", ""), ""},
      {{"plan", "predict", "--from", "FILE", "--topology", "dgx-h100"},
       Seeds("tests/exchange/samples", ""),
       ".sh"},
      {{"plan", "validate", "FILE"}, runs, ".csv"},
      {{"plan", "compare", record_file.string(), "FILE"},
       Seeds("calib/import/samples", ""),
       ".log"},
      {{"plan", "watch", "FILE", "--against", record_file.string(), "--once", "--json"},
       Seeds("calib/import/samples", ""),
       ".log"},
      {{"plan", "watch", record_file.string(), "--against", "FILE", "--once"}, {record}, ".json"},
  };
}

// One word of the command line becomes another one, now and then.
void DamageWords(std::mt19937_64& random, Words* words) {
  static const Words kWords = {"0",    "-1",   "1e308",   "1e-308", "99999999999999999999",
                               "",     "--",   "--json",  "nan",    "1048576",
                               "\xff", "none", "--quiet", "=",      ","};
  if (RandomBelow(random, 4) != 0) return;
  (*words)[2 + RandomBelow(random, words->size() - 2)] = kWords[RandomBelow(random, kWords.size())];
  // A log that is followed may grow for ever.
  if ((*words)[1] == "watch" && std::ranges::find(*words, "--once") == words->end())
    words->insert(words->end(), {"--idle", "1ms"});
}

TEST(CommandFuzz, DamagedFilesAndWordsEndWithAnAnswerOrAMessage) {
  const std::vector<Kind> kinds = Kinds();
  for (const Kind& kind : kinds) ASSERT_FALSE(kind.seeds.empty()) << kind.words[1];
  const uint64_t cases = FromEnvironment("ORRERY_MUTATIONS", kCases);
  const uint64_t seed = FromEnvironment("ORRERY_MUTATION_SEED", 20261123);
  const uint64_t only = FromEnvironment("ORRERY_MUTATION_ONLY", cases);
  const fs::path folder = fs::temp_directory_path() / ("fuzz-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const fs::path before = fs::current_path();
  fs::current_path(folder);  // a damaged word may name a file to write: "--json 0"
  uint64_t answered = 0, refused = 0;
  for (uint64_t i = only < cases ? only : 0; i < cases; ++i) {
    std::mt19937_64 random(seed * 1000003 + i);
    const Kind& kind = kinds[i % kinds.size()];
    const std::string file = (folder / (std::string("input") + kind.ending)).string();
    const std::string text = RandomBelow(random, 8) == 0
                                 ? kind.seeds[RandomBelow(random, kind.seeds.size())]
                                 : MutatedText(random, kind.seeds, "[]{}:,-\"'#\n\t\\&*!|> 0.e");
    std::ofstream(file, std::ios::binary) << text;
    Words words = kind.words;
    std::replace(words.begin(), words.end(), std::string("FILE"), file);
    DamageWords(random, &words);
    std::string line;
    for (const std::string& word : words) line += Quoted(word) + " ";
    SCOPED_TRACE("case " + std::to_string(i) + ": " + line);
    if (only < cases) std::fprintf(stderr, "%s\n%s\n", line.c_str(), text.c_str());
    // After a crash the last line of standard error names the case.
    if (std::getenv("ORRERY_MUTATION_TRACE") != nullptr)
      std::fprintf(stderr, "case %llu: %s\n", static_cast<unsigned long long>(i), line.c_str());
    const Output output = RunWords(words);
    ExpectDocumented(output);
    answered += output.code == 0;
    refused += output.code == 2;
    if (only < cases) break;
  }
  fs::current_path(before);
  fs::remove_all(folder);
  if (only >= cases) {
    EXPECT_GT(answered, cases / 30);
    EXPECT_GT(refused, cases / 10);
  }
}

// A file of corpus/: the words, one a line; "FILE" is the file beside it, of the same name and ".input".
TEST(CommandFuzz, WhatOnceFailedDoesNot) {
  int ran = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(ORRERY_SOURCE_DIR) / "tests/fuzz/corpus")) {
    if (entry.path().extension() != ".words") continue;
    SCOPED_TRACE(entry.path().string());
    Words words;
    std::istringstream lines(ReadAll(entry.path()));
    for (std::string word; std::getline(lines, word);) words.push_back(word);
    fs::path input = entry.path();
    std::replace(words.begin(), words.end(), std::string("FILE"),
                 input.replace_extension(".input").string());
    ExpectDocumented(RunWords(words));
    ++ran;
  }
  EXPECT_GT(ran, 0);
}

TEST(CommandFuzz, ErrorsAreJsonWhereJsonIsWanted) {
  const Output output =
      RunWords({"plan", "--model", "gpt2-micro", "--topology", "nowhere", "--json"});
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.out.find("\"schema\": \"orrery.error/1\""), std::string::npos) << output.out;
  EXPECT_NE(output.err.find("error: "), std::string::npos);
}

TEST(CommandFuzz, QuietIsOneLine) {
  const Output output = RunWords({"plan", "--model", "gpt2-micro", "--topology", "aws-g5-1gpu",
                                  "--nodes", "1", "--global-batch", "4", "--quiet"});
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(std::count(output.out.begin(), output.out.end(), '\n'), 1) << output.out;
  EXPECT_NE(output.out.find("tokens/s"), std::string::npos) << output.out;
}

}  // namespace
}  // namespace orrery::cli
