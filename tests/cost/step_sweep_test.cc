// SPDX-License-Identifier: Apache-2.0
// Many layouts one after the other against each of them alone.
#include "model/engine/closed/step_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/twin/step_predictor.h"
#include "model/twin/time_bound.h"

namespace orrery {
namespace {

struct Shards {
  int zero, dp, dp_outer;
};
struct Pipeline {
  PipelineSchedule schedule;
  int vpp;
  std::vector<int> layout;  // empty: by the rule
};

class StepSweepTest : public testing::Test {
 protected:
  StepSweepTest() {
    work_.seq_len = 2048;
    work_.global_batch = 256;
    work_.precision = Precision::kBf16;
  }

  // All shardings of all pipelines of one (tp, pp) in a row, as a search looks at them.
  void Compare(const char* framework_name, int tp, int pp, const std::vector<Pipeline>& pipelines) {
    const FrameworkProfile framework = LoadFrameworkProfile(framework_name);
    StepPredictor predictor({model_, work_, {&gpu_, &fabric_, &framework, &cluster_}});
    const int data = static_cast<int>(cluster_.ranks()) / tp / pp;
    StepSweep sweep(predictor.closed_form());
    sweep.Start(*predictor.Stages(pp, tp * data, tp));
    StepSweep walks(predictor.closed_form());
    walks.Start(*predictor.Stages(pp, tp * data, tp));
    StepSweep limited(predictor.closed_form());
    limited.Start(*predictor.Stages(pp, tp * data, tp));
    std::vector<Shards> shards;
    for (const int zero : {0, 1, 2, 3}) {
      shards.push_back({zero, data, 1});
      for (const int outer : {2, 4}) {
        if (zero > 0) shards.push_back({zero, data / outer, outer});
      }
    }
    const Recompute first{kRecomputeLayer, 3}, every_second{kRecomputeLayer, 0, 2};
    for (const Recompute& recompute : {Recompute::kNone, Recompute::kFull, first, every_second}) {
      for (const Pipeline& pipeline : pipelines) {
        PlanOutline outline;
        sweep.NextPipeline();
        const LayerTable* walked =
            nullptr;  // what was walked last, where that serves other shardings
        for (const Shards& shard : shards) {
          Strategy s;
          s.tp = tp, s.pp = pp, s.dp = shard.dp, s.dp_outer = shard.dp_outer, s.zero = shard.zero;
          s.schedule = pipeline.schedule, s.vpp = pipeline.vpp, s.recompute = recompute;
          if (!pipeline.layout.empty())
            s.layout = std::make_shared<const std::vector<int>>(pipeline.layout);
          outline = OutlineOf(model_, work_, s, LayersOf(model_, s));
          const auto table = predictor.Table(KeyOf(model_, s));
          const LayerTable& layers = *std::get<const LayerTable*>(table);
          const DataMessages& messages = *predictor.DataOf(s);
          const double alone = predictor.closed_form().StepSeconds(layers, outline, messages,
                                                                   *predictor.StagesOf(s));
          double least = 0;
          const auto seconds = sweep.ByFormula(layers, outline, messages, &least);
          if (seconds) {
            ++by_formula_;
            EXPECT_EQ(*seconds, alone) << pp << " stages, ZeRO " << shard.zero;
          } else {
            ++walked_;
            EXPECT_LE(least, alone) << pp << " stages, ZeRO " << shard.zero;
            EXPECT_GT(least, formula_share_ * alone);
          }
          const bool plain = !outline.gathers_weights && !outline.scatters_gradients;
          const bool again = plain && walked == &layers;
          EXPECT_EQ(again ? walks.SecondsAgain(outline, messages)
                          : walks.Seconds(layers, outline, messages),
                    alone)
              << pp << " stages, ZeRO " << shard.zero;
          walked = plain ? &layers : nullptr;
          CompareLimited(layers, outline, messages, !seconds, alone, &limited);
          if (StepSweep::SurelyWalks(outline)) {
            EXPECT_FALSE(seconds);
            CompareBound(s, layers, outline, messages, *predictor.StagesOf(s), sweep, alone);
          }
        }
      }
    }
  }

  // A walk ends early where the step takes longer than it may, and nowhere else.
  void CompareLimited(const LayerTable& layers, const PlanOutline& outline,
                      const DataMessages& data, bool walks, double alone, StepSweep* sweep) {
    const double too_few = alone * (1 - 1e-6);
    const auto found = sweep->Seconds(layers, outline, data, too_few);
    EXPECT_TRUE(found || walks);
    if (found) {  // what follows the passes is bounded alone
      EXPECT_EQ(*found, alone);
    } else {
      ++stopped_;
      EXPECT_NEAR(sweep->SecondsAgain(outline, data), too_few, 1e-9 * alone);
    }
    const auto seconds = sweep->Seconds(layers, outline, data, alone * (1 + 1e-9));
    ASSERT_TRUE(seconds) << outline.stages << " stages, " << outline.micro_batches;
    EXPECT_EQ(*seconds, alone);
  }

  // Linear forms of layers and shards bound the step without its prices.
  void CompareBound(const Strategy& s, const LayerTable& layers, const PlanOutline& outline,
                    const DataMessages& data, const StageMessages& stages, const StepSweep& sweep,
                    double alone) {
    ++bounded_;
    double gather = 0, scatter = 0;
    if (outline.gathers_weights && data.dp > 1)
      gather = data.layer_gather.Time(layers.layer_parameters * outline.weight_bytes);
    if (outline.scatters_gradients && data.dp > 1)
      scatter = data.layer_scatter.Time(layers.layer_parameters * outline.gradient_bytes);
    const double forward = std::max(0.0, gather - layers.layer.forward.busy());
    const double backward = std::max(0.0, gather + scatter - layers.layer.backward.busy());
    const PipelineLayers pipeline = LayersOf(model_, s);
    const double ends = EndsOfChunk(layers.layer, gather, scatter, outline.gather_slots > 1,
                                    s.schedule == PipelineSchedule::kZeroBubbleV);
    const double passes =
        std::max(TimeBound(layers, s, pipeline, outline.micro_batches),
                 BoundsOf(layers, s, pipeline, outline.micro_batches).At(forward, backward, ends));
    const double journey =
        JourneyBound(layers, s, pipeline, outline.micro_batches, stages) * (1 - 1e-9);
    longer_journeys_ += journey > passes;
    const double least = std::max(passes, journey) + sweep.LeastOnce(layers, outline, data);
    EXPECT_LE(least, alone * (1 + 1e-9)) << s.pp << " stages, ZeRO " << s.zero;
    EXPECT_GT(least, bound_share_ * alone) << s.pp << " stages, ZeRO " << s.zero;
  }

  ModelSpec model_ = LoadModel("llama2-7b").spec;  // 32 layers
  Workload work_;
  GpuProfile gpu_ = LoadGpuProfile("a100-sxm4-80gb");
  FabricProfile fabric_ = LoadFabricProfile("infiniband");
  ClusterSummary cluster_ = Summarise(LoadTopology("selene"), 8);
  int by_formula_ = 0, walked_ = 0, stopped_ = 0, bounded_ = 0, longer_journeys_ = 0;
  double formula_share_ = 0.5;  // of the step, that bounds by formula reach
  double bound_share_ = 0.5;    // that bounds by layers alone do
};

TEST_F(StepSweepTest, EachLayoutTakesWhatItTakesAlone) {
  const std::vector<Pipeline> pipelines = {
      {PipelineSchedule::k1F1B, 1, {}},
      {PipelineSchedule::k1F1B, 1, {7, 9, 9, 7}},
      {PipelineSchedule::kInterleaved, 2, {}},
      {PipelineSchedule::kInterleaved, 4, {}},
      {PipelineSchedule::kZeroBubble, 1, {}},
      {PipelineSchedule::kGpipe, 1, {}},
      {PipelineSchedule::kZeroBubbleV, 2, {}},
      {PipelineSchedule::kInterleaved, 2, {3, 4, 5, 4, 5, 4, 4, 3}},
      {PipelineSchedule::kZeroBubbleV, 2, {3, 5, 4, 4, 5, 4, 4, 3}},
  };
  for (const char* framework : {"orrery", "megatron"}) {
    Compare(framework, 1, 1, {{PipelineSchedule::k1F1B, 1, {}}});
    Compare(framework, 2, 1, {{PipelineSchedule::k1F1B, 1, {}}});
    Compare(framework, 1, 4, pipelines);
  }
  EXPECT_GT(by_formula_, 50);
  EXPECT_GT(walked_, 50);
  EXPECT_GT(stopped_, 0.5 * walked_);
  EXPECT_GT(bounded_, 50);
}

// Few micro-batches and many: the way through all chunks is longest where stages are far apart and idle.
TEST_F(StepSweepTest, BoundsHoldForAnyNumberOfMicroBatches) {
  const std::vector<Pipeline> pipelines = {
      {PipelineSchedule::kInterleaved, 2, {4, 4, 4, 4, 4, 5, 4, 3}},
      {PipelineSchedule::kInterleaved, 3, {2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0}},
      {PipelineSchedule::kInterleaved, 8, {}},
      {PipelineSchedule::kZeroBubble, 1, {}},
      {PipelineSchedule::kZeroBubbleV, 2, {}},
  };
  formula_share_ = 0.4;  // a V without enough micro-batches to be full
  for (const int tp : {1, 4}) {
    const int data = static_cast<int>(cluster_.ranks()) / tp / 4;
    for (const int micro_batches : {4, 8, 12, 16, 20, 64}) {
      work_.global_batch = int64_t{1} * data * micro_batches;
      Compare("orrery", tp, 4, pipelines);
    }
    for (const int micro_batches : {1, 2, 3, 5}) {
      work_.global_batch = int64_t{1} * data * micro_batches;
      Compare("orrery", tp, 4, {{PipelineSchedule::kZeroBubbleV, 2, {}}});
    }
  }
  EXPECT_GT(bounded_, 1000);
  EXPECT_GT(longer_journeys_, 100);
}

// Short sequences, whose messages no layer hides.
TEST_F(StepSweepTest, ChunksWithoutALayerGatherNothing) {
  model_.layers = 6;
  work_.seq_len = 512;
  formula_share_ = bound_share_ = 0.3;
  for (const int micro_batches : {2, 4, 16}) {
    work_.global_batch = int64_t{16} * micro_batches;
    Compare("orrery", 2, 2,
            {{PipelineSchedule::kInterleaved, 4, {1, 1, 0, 1, 1, 1, 1, 0}},
             {PipelineSchedule::kInterleaved, 4, {0, 1, 1, 1, 0, 1, 2, 0}},
             {PipelineSchedule::kInterleaved, 3, {1, 1, 0, 2, 2, 0}},
             {PipelineSchedule::kZeroBubbleV, 2, {1, 4, 0, 1}}});
  }
  EXPECT_GT(bounded_, 50);
}

}  // namespace
}  // namespace orrery
