// SPDX-License-Identifier: Apache-2.0
// A framework, a GPU and a topology that nobody has heard of: one YAML each, and every command knows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/json_of.h"
#include "tests/framework/data_root.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Additions : public testing::Test {
 protected:
  Outcome Run(std::vector<std::string> arguments) const {
    return RunPlan(arguments, root_.environment());
  }
  json JsonOf(const std::vector<std::string>& arguments) const {
    return orrery::JsonOf(arguments, 0, root_.environment());
  }
  static std::vector<std::string> Job(const char* command, const std::vector<std::string>& more) {
    std::vector<std::string> words = With({command, "--model", "gpt2-medium"}, more);
    if (words.front().empty()) words.erase(words.begin());
    return words;
  }

  const TestRoot root_{ScratchFolder() + "/root"};
};

// Tensor parallelism without pipelines or ZeRO; half a second around every step.
constexpr const char* kFramework = R"(# A framework of this test.
title: "Quokka 1"
description: "Quokka: tensor parallelism on top of replicas"
inherits: common
offers:
  tensor: {value: true, source: "a test"}
defaults:
  dropout: {value: 0.25, source: "a test"}
  fp32_grads: {value: bf16, source: "a test"}
aliases:
  - {name: "quokka-lm", why: "its recipes run Quokka"}
constants:
  step_fixed: {value: 500ms, source: "a test"}
)";

TEST_F(Additions, AFrameworkIsOneFile) {
  const std::vector<std::string> at = {"--topology", "dgx-h100", "--nodes", "2"};
  std::vector<std::string> job = Job("predict", at);
  job.insert(job.end(), {"--tp", "2", "--framework", "quokka"});
  EXPECT_THAT(Run(job).err, HasSubstr("unknown framework 'quokka'"));
  root_.Add("calib/profiles/framework/quokka.yaml", kFramework);

  // By name, by alias and in the lists.
  const json predicted = JsonOf(job);
  EXPECT_EQ(predicted["workload"]["framework"], "quokka");
  EXPECT_EQ(predicted["workload"]["dropout"], 0.25);
  EXPECT_EQ(predicted["profiles"]["framework"], "quokka");
  job.back() = "Quokka_LM";
  const Outcome alias = Run(job);
  EXPECT_THAT(alias.out, HasSubstr("framework quokka-lm is read as quokka: its recipes run"));
  EXPECT_EQ(JsonOf(job)["prediction"], predicted["prediction"]);
  EXPECT_THAT(Run({"list", "frameworks"}).out,
              AllOf(HasSubstr("tensor parallelism on top of replicas"), HasSubstr("quokka-lm")));
  EXPECT_THAT(Run({"list", "frameworks", "--names"}).out, HasSubstr("quokka\n"));
  job.back() = "quoka";
  EXPECT_THAT(Run(job).err, HasSubstr("did you mean 'quokka'"));

  // Its constants price the step, and what it does not offer is refused.
  EXPECT_GT(predicted["prediction"]["step_time_s"], 0.5);
  job.back() = "quokka";
  job.insert(job.end(), {"--pp", "2"});
  EXPECT_THAT(Run(job).err, HasSubstr("quokka has no pipeline parallelism"));

  // A search turns the axes that it offers, and no others.
  std::vector<std::string> search = Job("", at);
  search.insert(search.end(), {"--framework", "quokka", "--top", "20"});
  const json found = JsonOf(search);
  ASSERT_FALSE(found["ranked"].empty());
  bool tensor = false;
  for (const json& plan : found["ranked"]) {
    EXPECT_EQ(plan["strategy"]["pp"], 1);
    EXPECT_EQ(plan["strategy"]["zero"], 0);
    tensor = tensor || plan["strategy"]["tp"] > 1;
  }
  EXPECT_TRUE(tensor);

  // The simulator and the runtime take it, too.
  std::vector<std::string> simulate = Job("simulate", at);
  simulate.insert(simulate.end(), {"--framework", "quokka", "--tp", "2"});
  const double step = JsonOf(simulate)["step_time_s"],
               closed = predicted["prediction"]["step_time_s"];
  EXPECT_GT(step, 0.5);
  EXPECT_NEAR(step / closed, 1, 0.2);
  EXPECT_THAT(Run({"show", "--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "2",
                   "--framework", "quokka", "--tp", "2"})
                  .out,
              HasSubstr("tp 2"));
}

TEST_F(Additions, EveryFrameworkWorksInEveryCommand) {
  const json frameworks = JsonOf({"list", "frameworks"})["frameworks"];
  EXPECT_GE(frameworks.size(), 7u);
  for (const json& framework : frameworks) {
    const std::string name = framework["name"];
    for (const char* command : {"predict", "simulate", "show"}) {
      std::vector<std::string> job =
          Job(command, {"--topology", "dgx-h100", "--nodes", "1", "--framework", name});
      const Outcome outcome = Run(job);
      EXPECT_EQ(outcome.code, 0) << command << " " << name << ": " << outcome.err;
    }
    EXPECT_EQ(Run(Job("", {"--topology", "dgx-h100", "--nodes", "1", "--framework", name})).code, 0)
        << name;
    if (!framework["aliases"].empty()) {  // all of them are checked in preset_file_test.cc
      const json& alias = framework["aliases"].back();
      const std::string text = alias["name"];
      const json answer =
          JsonOf(Job("predict", {"--topology", "dgx-h100", "--nodes", "1", "--framework", text}));
      EXPECT_EQ(answer["workload"]["framework"], name);
      ASSERT_EQ(answer["notes"].size(), 1u);
      EXPECT_THAT(answer["notes"][0].get<std::string>(),
                  HasSubstr(alias["why"].get<std::string>()));
    }
  }
}

TEST_F(Additions, ARealRunTakesAnyFramework) {
  for (const char* name : {"nemo", "tensorflow", "jax"}) {
    const Outcome outcome = Run({"run", "--model", "bert-tiny", "--framework", name, "--ranks", "2",
                                 "--comm", "local", "--steps", "1", "--global-batch", "4"});
    EXPECT_EQ(outcome.code, 0) << name << ": " << outcome.err;
  }
}

// Twice the arithmetic of an H100, two thirds of its memory, and a slow way to its neighbours.
constexpr const char* kGpu = R"(title: "Quokka X"
inherits: family-hopper
constants:
  peak_fp32: {value: 134TFLOP/s, source: "a test"}
  peak_tf32: {value: 989TFLOP/s, source: "a test"}
  peak_fp16: {value: 1979TFLOP/s, source: "a test"}
  peak_bf16: {value: 1979TFLOP/s, source: "a test"}
  memory: {value: 56GiB, source: "a test"}
  memory_bandwidth: {value: 6700GB/s, source: "a test"}
  multiprocessors: {value: 264, unit: "units that hold one tile", source: "a test"}
  l2_cache: {value: 50MB, source: "a test"}
  ring_efficiency: {value: 0.2, unit: "of the scale-up rate", source: "a test"}
  nvls_efficiency: {value: 0.2, unit: "of the scale-up rate", source: "a test"}
)";

TEST_F(Additions, AGpuIsOneFile) {
  const std::string id = "quokka-x";
  const auto of = [](const char* command, const std::string& gpu) {
    return Job(command, {"--topology", "dgx-h100", "--nodes", "1", "--framework", "ddp", "--gpu",
                         gpu, "--micro-batch", "8"});
  };
  EXPECT_EQ(Run(of("predict", id)).code, 2);
  root_.Add("calib/profiles/gpu/quokka-x.yaml", kGpu);
  EXPECT_THAT(Run({"list", "gpus"}).out, HasSubstr("Quokka X"));
  const json mine = JsonOf(of("predict", id)), theirs = JsonOf(of("predict", "h100-sxm5-80gb"));
  const auto compute = [](const json& answer) {
    return answer["prediction"]["breakdown"]["compute_s"].get<double>();
  };
  EXPECT_LT(compute(mine), 0.75 * compute(theirs));
  const Outcome bench = Run(
      {"bench", "--simulate", "all_reduce", "--topology", "dgx-h100", "--nodes", "1", "--gpu", id});
  EXPECT_THAT(bench.out, HasSubstr("dgx-h100: 1 node x 8 quokka-x")) << bench.err;
  const json step = JsonOf(of("simulate", id));
  EXPECT_EQ(step["profiles"]["gpu"], id);
  EXPECT_LT(step["step_time_s"], JsonOf(of("simulate", "h100-sxm5-80gb"))["step_time_s"]);
  ASSERT_FALSE(step["links"].empty());
}

// Four nodes of two GPUs behind one switch with little bandwidth.
constexpr const char* kTopology = R"(name: quokka-4
description: "four boxes of two GPUs behind one switch"
source: "a test"
evidence: C
gpu: a10g
fabric_profile: tcp
nodes: 4
max_nodes: 8
node:
  gpus: 2
  scale_up: {kind: pcie}
  nics: {count: 1, rate: 10Gbps}
  pcie:
    rate: 12GB/s
    tree:
      - {host: cpu0, switch: pcie0, devices: [gpu0, gpu1, nic0]}
fabric: {kind: single-switch}
)";

TEST_F(Additions, ATopologyIsOneFile) {
  EXPECT_EQ(Run({"topo", "quokka-4"}).code, 2);
  root_.Add("topologies/quokka-4.yaml", kTopology);
  EXPECT_THAT(Run({"list", "topologies", "--names"}).out, HasSubstr("quokka-4\n"));
  EXPECT_THAT(Run({"topo", "quokka-4"}).out,
              HasSubstr("n0.gpu0 > n0.pcie0 > n0.nic0 > switch > n1.nic0 > n1.pcie0 > n1.gpu0"));
  const Outcome bench = Run({"bench", "--simulate", "all_reduce", "--topology", "quokka-4"});
  EXPECT_EQ(bench.code, 0) << bench.err;
  const std::vector<std::string> at = {"--topology", "quokka-4", "--framework", "ddp"};
  const json predicted = JsonOf(Job("predict", at)), step = JsonOf(Job("simulate", at));
  EXPECT_EQ(step["plan_ranks"], 8);
  // 0.35 G gradients in bf16 leave and enter each node through one 10 Gbps NIC.
  const double wire = 2 * 0.355e9 * 2 * 3.0 / 4 / 1.25e9;
  for (const json& seconds : {predicted["prediction"]["step_time_s"], step["step_time_s"]})
    EXPECT_GT(seconds.get<double>(), 0.5 * wire);
  EXPECT_THAT(step["links"].dump(), HasSubstr("n0.nic0"));
}

// One search opens each file of a profile once, whoever asks for it.
TEST_F(Additions, ASearchOpensEachProfileOnce) {
  const int events = inotify_init1(IN_NONBLOCK);
  if (events < 0) GTEST_SKIP() << "no inotify here";
  std::map<int, std::string> folders;
  for (const char* folder : {"framework", "gpu", "fabric", "layer"}) {
    const std::string path = root_.path() + "/calib/profiles/" + folder;
    folders[inotify_add_watch(events, path.c_str(), IN_OPEN)] = folder;
  }
  const Outcome outcome = Run(Job("", {"--topology", "vtrain-a100", "--nodes", "2", "--top", "3"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("framework megatron"));
  std::map<std::string, int> opened;
  alignas(inotify_event) char buffer[1 << 16];
  for (ssize_t size; (size = read(events, buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      if (event->len > 0 && (event->mask & IN_ISDIR) == 0)
        ++opened[folders[event->wd] + "/" + event->name];
    }
  }
  close(events);
  EXPECT_TRUE(opened.contains("framework/megatron-deepspeed@vtrain-a100.yaml"));
  EXPECT_TRUE(opened.contains("framework/common.yaml"));
  for (const auto& [file, times] : opened) EXPECT_EQ(times, 1) << file;
}

}  // namespace
}  // namespace orrery
