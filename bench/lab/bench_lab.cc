// SPDX-License-Identifier: Apache-2.0
// Ring all-reduce over a lab of 2 and of 4 nodes at 200 Mbit/s and 100 us against
// 2 (p - 1) alpha + 2 (p - 1) / p S / B, alpha by ping-pong, B the payload rate of TCP. Arguments are
// those of `plan lab up`, such as --fifo; or --steps: training steps beside their simulation.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/lab/ring_times.h"
#include "bench/lab/train_steps.h"
#include "runtime/lab/netns.h"
#include "runtime/lab/state.h"

extern char** environ;

namespace orrery::bench {
namespace {

constexpr char kLabName[] = "bench";

int Call(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  pid_t child = 0;
  int status = 1;
  // A session of its own: its ranks change the priority of their session.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const int error =
      posix_spawn(&child, arguments[0], nullptr, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int MeasureNodes(int nodes, const std::vector<std::string>& settings) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string plan_lab = self.parent_path().parent_path() / "bin" / "plan-lab";
  std::vector<std::string> up = {plan_lab, "up",      "--name",
                                 kLabName, "--nodes", std::to_string(nodes)};
  up.insert(up.end(), settings.begin(), settings.end());
  Call({plan_lab, "down", "--name", kLabName});
  int code = Call(up);
  if (code == 0) code = Call({plan_lab, "run", "--name", kLabName, "--", self.string(), "--rank"});
  Call({plan_lab, "status", "--name", kLabName});
  Call({plan_lab, "down", "--name", kLabName});
  return code;
}

int MeasureAll(const std::vector<std::string>& settings) {
  std::string hint;
  const std::string refusal = lab::WhyRefused(&hint);
  if (!refusal.empty()) {
    fmt::print(stderr, "bench_lab: {}\n  hint: {}\n", refusal, hint);
    return 1;
  }
  if (settings == std::vector<std::string>{"--steps"}) {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    return CompareSteps(self.parent_path().parent_path() / "bin", kLabName, Call);
  }
  for (const int nodes : {2, 4})
    if (const int code = MeasureNodes(nodes, settings); code != 0) return code;
  return 0;
}

}  // namespace
}  // namespace orrery::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words != std::vector<std::string>{"--rank"}) return orrery::bench::MeasureAll(words);
  const auto state = orrery::lab::ReadState(orrery::bench::kLabName);
  if (!state) return 1;
  orrery::bench::MeasureRings(state->settings);
  return 0;
}
