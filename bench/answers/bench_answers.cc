// SPDX-License-Identifier: Apache-2.0
// What a user waits for: CPU time and peak memory of whole commands. Arguments: the folder of the programs, then the
// root of the tree.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

struct Answer {
  const char* name;
  const char* program;
  std::vector<const char*> flags;
  int rounds;
};

const std::vector<const char*> kLargeJob = {"--model",     "gpt3-175b", "--topology",    "dgx-h100",
                                            "--framework", "megatron",  "--tp",          "8",
                                            "--pp",        "8",         "--micro-batch", "1"};

std::vector<const char*> Large(std::vector<const char*> more) {
  more.insert(more.begin(), kLargeJob.begin(), kLargeJob.end());
  return more;
}

std::vector<Answer> Answers() {
  const std::vector<const char*> gpus_4096 = {"--nodes",        "512", "--dp", "64",
                                              "--global-batch", "4096"};
  const std::vector<const char*> gpus_32768 = {"--nodes", "4096", "--dp", "512"};
  const std::vector<const char*> whole_machine = {"--model",
                                                  "llama3-405b",
                                                  "--topology",
                                                  "dgx-h100",
                                                  "--nodes",
                                                  "16384",
                                                  "--seq-len",
                                                  "8192",
                                                  "--global-batch",
                                                  "16384",
                                                  "--zero",
                                                  "1",
                                                  "--sequence-parallel",
                                                  "--tp",
                                                  "8",
                                                  "--pp",
                                                  "16",
                                                  "--dp",
                                                  "1024"};
  const auto with = [](std::vector<const char*> flags, std::initializer_list<const char*> more) {
    flags.insert(flags.end(), more);
    return Large(flags);
  };
  return {
      {"help", "plan", {"--help"}, 20},
      {"list", "plan", {"list"}, 20},
      {"completion_of_a_name", "plan", {"completion", "words", "--model", "b"}, 20},
      {"predict",
       "plan",
       {"predict", "--model", "bert-1.5b", "--nodes", "1", "--zero", "1", "--micro-batch", "8"},
       20},
      {"plan_32_nodes", "plan", {"--nodes", "32", "--model", "bert-1.5b"}, 10},
      {"simulate_4_nodes",
       "plan-simulate",
       {"--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "4"},
       10},
      {"4096_gpus_64_micro_batches", "plan-simulate", Large(gpus_4096), 3},
      {"4096_gpus_64_micro_batches_one_slow_gpu", "plan-simulate",
       with(gpus_4096, {"--slow-gpu", "3:1.2"}), 3},
      {"4096_gpus_64_micro_batches_jitter", "plan-simulate", with(gpus_4096, {"--jitter", "2%"}),
       2},
      {"32768_gpus_64_micro_batches_one_slow_gpu", "plan-simulate",
       with(gpus_32768, {"--global-batch", "32768", "--slow-gpu", "3:1.2"}), 2},
      {"32768_gpus_8_micro_batches_jitter", "plan-simulate",
       with(gpus_32768, {"--global-batch", "4096", "--jitter", "2%"}), 1},
      {"131072_gpus_16_micro_batches", "plan-simulate", whole_machine, 3},
      {"64_gpus_512_micro_batches", "plan-simulate",
       Large({"--nodes", "8", "--dp", "1", "--global-batch", "512"}), 3},
      {"64_gpus_65536_micro_batches", "plan-simulate",
       Large({"--nodes", "8", "--dp", "1", "--global-batch", "65536"}), 3},
      {"published_runs_simulated",
       "plan-validate",
       {"calib/data/published_runs.csv", "--engine", "event"},
       1},
  };
}

struct Use {
  double cpu = 0;   // seconds, user and system
  double peak = 0;  // MiB
};

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Runs a command; false: it failed.
bool Run(const std::string& program, const std::vector<const char*>& flags, Use* use) {
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const char* flag : flags) words.push_back(const_cast<char*>(flag));
  words.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", 1, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &quiet, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  int status = 0;
  rusage of_child{};
  if (failed != 0 || wait4(child, &status, 0, &of_child) != child) return false;
  use->cpu = SecondsOf(of_child.ru_utime) + SecondsOf(of_child.ru_stime);
  use->peak = static_cast<double>(of_child.ru_maxrss) / 1024.0;
  constexpr int kDoesNotFit = 3;  // a layout that needs more memory than there is: an answer, too
  return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kDoesNotFit);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "build/bin";
  if (argc > 2 && chdir(argv[2]) != 0) {
    fmt::print(stderr, "no folder {}\n", argv[2]);
    return 1;
  }
  for (const Answer& answer : Answers()) {
    Use least;
    for (int round = 0; round < answer.rounds; ++round) {
      Use use;
      if (!Run(folder + "/" + answer.program, answer.flags, &use)) {
        fmt::print(stderr, "{} failed: {}\n", answer.name, answer.program);
        return 1;
      }
      if (round == 0 || use.cpu < least.cpu) least.cpu = use.cpu;
      least.peak = std::max(least.peak, use.peak);
    }
    fmt::print("{}_cpu = {:.3g} s\n{}_peak_memory = {:.4g} MiB\n", answer.name, least.cpu,
               answer.name, least.peak);
    std::fflush(stdout);
  }
  return 0;
}
