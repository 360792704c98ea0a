// SPDX-License-Identifier: Apache-2.0
// Calibrates, brings a lab up, simulates, trains, compares.
#include "bench/lab/train_steps.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/lab/state.h"

namespace orrery::bench {
namespace {

struct Layout {
  const char* name;
  std::vector<std::string> flags;
};

// Wide enough for compute to count beside 200 Mbit/s, small enough for a dozen steps in half a minute.
std::string ModelText(int64_t hidden, int64_t layers) {
  return fmt::format(
      "name: gpt-{0}\nfamily: decoder\nlayers: {1}\nhidden: {0}\nffn: {2}\nheads: {3}\nvocab: "
      "2048\n"
      "max_positions: 128\nnorm: layer-norm\nactivation: gelu\npositions: "
      "learned\ntied_embeddings: true\n",
      hidden, layers, 4 * hidden, hidden / 64);
}

double StepSeconds(const std::string& file, bool simulated) {
  std::ifstream text(file);
  const auto json = nlohmann::json::parse(text);
  return simulated ? json.at("step_time_s").get<double>()
                   : json.at("step_time_s").at("median").get<double>();
}

class Steps {
 public:
  Steps(std::string programs, std::string lab, const Run& run)
      : programs_(std::move(programs)),
        lab_(std::move(lab)),
        run_(run),
        folder_(std::filesystem::temp_directory_path() / fmt::format("orrery-steps-{}", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Steps() {
    Call("plan-lab", {"down", "--name", lab_});
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  int Compare() {
    if (const int code = Call("plan-bench", {"--calibrate", File("machine")}, "/dev/stdout");
        code != 0)
      return code;
    for (const int nodes : {2, 4}) {
      if (const int code = Up(nodes); code != 0) return code;
      const std::string n = std::to_string(nodes);
      const std::vector<Layout> layouts = {{"data-parallel", {"--dp", n}},
                                           nodes == 2
                                               ? Layout{"tp 2", {"--tp", "2"}}
                                               : Layout{"tp 2 x pp 2", {"--tp", "2", "--pp", "2"}}};
      for (const auto& [hidden, layers] : {std::pair<int64_t, int64_t>{256, 4}, {512, 2}}) {
        for (const Layout& layout : layouts) {
          if (const int code = CompareOne(nodes, hidden, layers, layout); code != 0) return code;
        }
      }
      Call("plan-lab", {"down", "--name", lab_});
    }
    return 0;
  }

 private:
  std::string File(const std::string& name) const { return (folder_ / name).string(); }
  // Before other people's programs, where that is allowed: what is measured is the network.
  int Call(const std::string& program, const std::vector<std::string>& words,
           const std::string& output = "/dev/null") const {
    std::vector<std::string> all = {
        "/bin/sh",
        "-c",
        "{ echo -20 > /proc/self/autogroup; } 2> /dev/null; out=$1; shift; exec \"$@\" > \"$out\"",
        "sh",
        output,
        programs_ + "/" + program};
    all.insert(all.end(), words.begin(), words.end());
    return run_(all);
  }

  int Up(int nodes) const {
    if (const int code = Call("plan-lab", {"up", "--name", lab_, "--nodes", std::to_string(nodes),
                                           "--machine", File("machine/machine.yaml")});
        code != 0)
      return code;
    return Call("plan-lab", {"measure", "--name", lab_}, "/dev/stdout");
  }

  int CompareOne(int nodes, int64_t hidden, int64_t layers, const Layout& layout) const {
    std::ofstream(File("model.yaml")) << ModelText(hidden, layers);
    std::vector<std::string> job = {
        "--model",     File("model.yaml"), "--framework",    "orrery", "--precision",   "fp32",
        "--attention", "standard",         "--global-batch", "16",     "--micro-batch", "4"};
    job.insert(job.end(), layout.flags.begin(), layout.flags.end());
    std::vector<std::string> simulate = job, train = {"run", "--name", lab_, "--", "plan-run"};
    const std::string topology = lab::TopologyFile(lab::ReadState(lab_)->settings);
    simulate.insert(simulate.end(), {"--topology", topology, "--json", File("simulated.json")});
    train.insert(train.end(), job.begin(), job.end());
    train.insert(train.end(),
                 {"--steps", "9", "--log-every", "1000", "--json", File("measured.json")});
    if (const int code = Call("plan-simulate", simulate); code != 0) return code;
    if (const int code = Call("plan-lab", train); code != 0) return code;
    const double predicted = StepSeconds(File("simulated.json"), true),
                 measured = StepSeconds(File("measured.json"), false);
    fmt::print(
        "step of {} layers of {}, {}, {} nodes = {:.1f} ms measured; {:.1f} simulated: {:+.1f} %\n",
        layers, hidden, layout.name, nodes, 1e3 * measured, 1e3 * predicted,
        100 * (predicted / measured - 1));
    std::fflush(stdout);
    return 0;
  }

  std::string programs_, lab_;
  const Run& run_;
  std::filesystem::path folder_;
};

}  // namespace

int CompareSteps(const std::string& programs, const std::string& lab, const Run& run) {
  return Steps(programs, lab, run).Compare();
}

}  // namespace orrery::bench
