// SPDX-License-Identifier: Apache-2.0
// What contention costs a step is one term, whoever waits: all others are those of the step without contention.
#include <gtest/gtest.h>

#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/twin/search.h"

namespace orrery {
namespace {

struct Steps {
  double on = 0, off = 0;  // seconds
  Breakdown with, without;
  std::vector<sim::SharedLink> shared;
};

Steps BothWays(const SearchRequest& request, const Profiles& profiles, const Candidate& candidate) {
  const Cluster cluster = BuildCluster(request.topology, candidate.nodes, request.gpus_per_node);
  const Job job = JobOf(request, profiles, candidate.nodes, candidate.global_batch);
  const ir::Plan plan = LowerLegal(job, candidate.strategy);
  Steps steps;
  sim::SimulationOptions options;
  options.keep_links = true;
  sim::Simulation contended(plan, cluster, job.prices(), options);
  steps.on = contended.Run();
  steps.with = contended.breakdown();
  steps.shared = contended.SharedLinks();
  options.contention = false;
  sim::Simulation free(plan, cluster, job.prices(), options);
  steps.off = free.Run();
  steps.without = free.breakdown();
  return steps;
}

struct Case {
  const char* model;
  const char* topology;
  const char* framework;
  int nodes;
};

class ContentionTest : public testing::TestWithParam<Case> {};

TEST_P(ContentionTest, IsTheDifferenceThatItMakes) {
  SearchRequest request;
  request.model = LoadModel(GetParam().model).spec;
  request.topology = LoadTopology(GetParam().topology);
  request.framework = GetParam().framework;
  request.nodes = {GetParam().nodes};
  request.work.seq_len = 512;
  request.work.global_batch = 64;
  request.work.precision = Precision::kFp16;
  request.top = 3;
  const Profiles profiles = LoadProfiles(request);
  for (const int stages : {1, 2, 4}) {
    request.fixed.pp = stages;
    for (const Candidate& candidate : Search(request, profiles).ranked) {
      SCOPED_TRACE(DescribeLayout(candidate.strategy));
      const Steps steps = BothWays(request, profiles, candidate);
      const double step = steps.on;
      EXPECT_NEAR(steps.with.Total(), steps.on, 1e-9 * step);
      EXPECT_NEAR(steps.without.Total(), steps.off, 1e-9 * step);
      EXPECT_EQ(steps.without.contention, 0);
      EXPECT_NEAR(steps.with.contention, std::max(0.0, steps.on - steps.off), 1e-6 * step);
      if (steps.with.contention == 0) continue;
      for (const BreakdownTerm& term : BreakdownTerms()) {
        if (term.seconds == &Breakdown::contention) continue;
        EXPECT_NEAR(steps.with.*term.seconds, steps.without.*term.seconds, 1e-6 * step)
            << term.name;
      }
      double on_links = 0;
      for (const sim::SharedLink& link : steps.shared) {
        on_links += link.seconds;
        EXPECT_FALSE(link.link.empty());
      }
      EXPECT_NEAR(on_links, steps.with.contention, 1e-9 * step);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalogue, ContentionTest,
                         testing::Values(Case{"gpt2-xl", "dli-slurm-v100", "megatron", 4},
                                         Case{"gpt2-medium", "aws-g5-1gpu", "orrery", 4},
                                         Case{"gpt2-xl", "aws-p4d", "deepspeed", 2},
                                         Case{"gpt2-xl", "dgx-a100-80", "megatron", 2},
                                         Case{"gpt2-xl", "jean-zay-v100", "megatron", 4}));

// The term is worth a test: where stages send over one slow NIC it is a large part of the step, and none of it is left
// in the bubble.
TEST(Contention, WaitingForAnotherStagesMessageIsContention) {
  SearchRequest request;
  request.model = LoadModel("gpt2-xl").spec;
  request.topology = LoadTopology("aws-p3-16xl");
  request.framework = "megatron";
  request.nodes = {4};
  request.work.seq_len = 1024;
  request.work.global_batch = 64;
  request.work.precision = Precision::kFp16;
  request.fixed.pp = 8;
  request.fixed.schedule = PipelineSchedule::kInterleaved;
  request.fixed.vpp = 6;
  request.fixed.layout = std::make_shared<const std::vector<int>>(48, 1);  // stages send often
  request.top = 1;
  const Profiles profiles = LoadProfiles(request);
  const Steps steps = BothWays(request, profiles, Search(request, profiles).ranked.front());
  EXPECT_GT(steps.with.contention, 0.1 * steps.on);
  EXPECT_NEAR(steps.with.bubble, steps.without.bubble, 1e-6 * steps.on);
  ASSERT_FALSE(steps.shared.empty());
  EXPECT_EQ(steps.shared.front().axis, CommAxis::kPipeline);
}

}  // namespace
}  // namespace orrery
