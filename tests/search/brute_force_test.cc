// SPDX-License-Identifier: Apache-2.0
// The search against plain enumeration: every strategy predicted, lowered and laid out, nothing pruned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/memory/software_memory.h"
#include "model/plan/ir/verify.h"
#include "model/twin/explain.h"
#include "model/twin/time_bound.h"

namespace orrery {
namespace {

struct Job {
  const char* name;
  const char* model;
  int64_t layers;  // 0: as in the catalogue
  const char* topology;
  int64_t nodes;
  int gpus_per_node;
  int64_t seq_len, global_batch;
  Precision precision;
  Optimizer optimizer;
  const char* framework;
  double memory_quantile;  // the limit, among the exact memories of all strategies
  Lora lora = {};
  Fp8 fp8 = Fp8::kOff;
  SkippedLayers fp8_skip = {};
};

constexpr Job kJobs[] = {
    {"gpt_tight", "gpt2-small", 4, "selene", 1, 8, 256, 16, Precision::kBf16, Optimizer::kAdam,
     "orrery", 0.02},
    {"llama_megatron", "llama2-7b", 8, "jean-zay-v100", 2, 4, 512, 32, Precision::kFp16,
     Optimizer::kAdamW, "megatron", 0.4},
    {"gpt_deepspeed", "gpt2-medium", 6, "dgx1-v100", 1, 8, 512, 48, Precision::kFp16,
     Optimizer::kAdam, "deepspeed", 0.3},
    {"gpt_fsdp", "gpt2-small", 3, "mosaic-a100-40", 2, 8, 256, 64, Precision::kBf16,
     Optimizer::kAdamW, "fsdp", 0.3},
    {"t5_orrery", "t5-small", 0, "aws-g5-48xl", 1, 8, 128, 16, Precision::kFp32, Optimizer::kAdam,
     "orrery", 0.4},
    {"llama_long", "llama3-8b", 2, "dgx-h100", 1, 8, 32768, 4, Precision::kBf16, Optimizer::kAdamW,
     "megatron", 0.4},
    {"mlp_ddp", "linear-20-1", 0, "olivia-gh200", 2, 4, 1, 32, Precision::kFp32, Optimizer::kSgd,
     "ddp", 0.9},
    {"llama_titan", "llama2-7b", 6, "dgx-h100", 1, 8, 512, 16, Precision::kBf16, Optimizer::kAdamW,
     "torchtitan", 0.3},
};
// Of the largest spaces.
constexpr Job kSlowJobs[] = {
    {"gpt_orrery", "gpt2-small", 4, "selene", 1, 8, 256, 16, Precision::kBf16, Optimizer::kAdam,
     "orrery", 0.3},
    {"bert_two_nodes", "bert-base", 6, "aws-dl1", 2, 4, 128, 24, Precision::kBf16, Optimizer::kLamb,
     "orrery", 0.2},
    {"llama_adapters",
     "llama2-7b",
     6,
     "selene",
     1,
     8,
     512,
     16,
     Precision::kBf16,
     Optimizer::kAdamW,
     "orrery",
     0.3,
     {8, 16}},
    {"gpt_titan_adapters",
     "gpt2-small",
     6,
     "dgx-a100-80",
     1,
     8,
     512,
     16,
     Precision::kFp16,
     Optimizer::kAdamW,
     "torchtitan",
     0.3,
     {16, 32}},
    {"llama_skipped",
     "llama2-7b",
     6,
     "dgx-h100",
     1,
     4,
     512,
     16,
     Precision::kBf16,
     Optimizer::kAdamW,
     "orrery",
     0.3,
     {},
     Fp8::kCurrent,
     {1, 2}},
};

SearchRequest RequestOf(const Job& job) {
  SearchRequest request;
  request.model = LoadModel(job.model).spec;
  if (job.layers > 0) request.model.layers = job.layers;
  request.topology = LoadTopology(job.topology);
  request.nodes = {job.nodes};
  request.gpus_per_node = job.gpus_per_node;
  request.work.seq_len = job.seq_len;
  request.work.global_batch = job.global_batch;
  request.work.precision = job.precision;
  request.work.optimizer = job.optimizer;
  request.work.fp8 = job.fp8;
  request.work.fp8_skip = job.fp8_skip;
  request.work.lora = job.lora;
  request.framework = job.framework;
  request.top = 1'000'000;  // everything that fits
  request.variants = true;
  request.shares = false;  // the space alone; moved layers have a test of their own
  return request;
}

struct Exact {
  Strategy strategy;
  double seconds, memory;
};

class BruteForce {
 public:
  BruteForce(const SearchRequest& request, const Profiles& profiles)
      : request_(request),
        preset_(FindFramework(request.framework)),
        limits_(LimitsOf(profiles.gpu, profiles.framework)),
        cluster_(Summarise(request.topology, request.nodes[0], request.gpus_per_node)),
        framework_(profiles.framework),
        predictor_(JobOf(request, profiles)) {}

  std::vector<Exact> All() {
    const int ranks = static_cast<int>(cluster_.ranks());
    for (int tp = 1; tp <= ranks; ++tp) {
      for (int pp = 1; pp * tp <= ranks; ++pp) {
        for (int outer = 1; outer * pp * tp <= ranks; ++outer) {
          if (ranks % (tp * pp * outer) != 0) continue;
          for (int cp = 1; cp * outer * pp * tp <= ranks; ++cp) {
            if (ranks % (tp * pp * outer * cp) != 0) continue;
            Strategy s;
            s.tp = tp;
            s.pp = pp;
            s.cp = cp;
            s.dp_outer = outer;
            s.dp = ranks / (tp * pp * outer * cp);
            Contexts(s);
          }
        }
      }
    }
    return std::move(all_);
  }
  const std::vector<Exact>& dominated() const { return dominated_; }

 private:
  // Short sequences are not shared, and two levels are those of the network.
  void Contexts(Strategy s) {
    if (s.cp == 1) return Choices(s);
    if (request_.work.seq_len < 32768 || preset_.context.empty()) return;
    for (const CpMethod method : preset_.context) {
      s.context = ContextOf(method);
      const int local = std::max(1, cluster_.domain_gpus() / s.tp);
      if (method == CpMethod::kA2aRing) s.context.inner = local;
      if (method != CpMethod::kA2aRing || (local > 1 && local < s.cp && s.cp % local == 0))
        Choices(s);
    }
  }

  void Choices(Strategy s) {
    const bool sharded = s.shards() > 1;
    for (s.zero = 0; s.zero <= (sharded ? 3 : 0); ++s.zero) {
      if (s.dp_outer > 1 && s.zero == 0) continue;
      for (const Recompute& recompute : preset_.recompute) {
        s.recompute = recompute;
        for (int sequence = 0; sequence < 2; ++sequence) {
          s.sequence_parallel = sequence != 0;
          for (int schedule = 0; schedule < (s.pp > 1 ? 5 : 2); ++schedule) {
            s.schedule = static_cast<PipelineSchedule>(schedule);
            if (s.pp == 1 && s.schedule != PipelineSchedule::k1F1B) continue;
            const bool chunks = s.schedule == PipelineSchedule::kInterleaved;
            const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
            const int64_t most = chunks ? request_.model.layers : in_a_v ? 2 : 1;
            for (s.vpp = chunks || in_a_v ? 2 : 1; s.vpp <= most; ++s.vpp) Layers(s);
            s.vpp = 1;
          }
        }
      }
    }
  }

  // Of all layers, or of the first quarters of an average chunk, as far as they differ.
  void Layers(Strategy s) {
    Batches(s);
    if (s.recompute != Recompute::kFull || !preset_.recompute_first) return;
    const double chunk = static_cast<double>(request_.model.layers) / (s.pp * s.vpp);
    std::set<int> tried{static_cast<int>(std::ceil(chunk))};
    for (int quarters = 1; quarters < 4; ++quarters) {
      s.recompute.first = static_cast<int>(std::ceil(chunk * quarters / 4));
      if (tried.insert(s.recompute.first).second) Batches(s);
    }
  }

  void Batches(Strategy s) {
    if (!preset_.uneven_chunks && s.vpp > 1 && request_.model.layers % (s.vpp * s.pp) != 0) return;
    for (s.micro_batch = 1; s.micro_batch <= request_.work.global_batch; ++s.micro_batch) {
      s.layout = nullptr;
      Add(s);
      if (s.pp == 1 || !preset_.uneven_chunks || request_.model.family == Family::kMlp) continue;
      const Strategy full = preset_.Complete(s, request_.work.precision);
      const auto table = predictor_.Table(KeyOf(request_.model, full));
      if (std::holds_alternative<Refusal>(table)) continue;
      const Layouts layouts = LayoutsOf(*std::get<const LayerTable*>(table), request_.model.layers,
                                        full, {}, request_.work.lora.on());
      for (const auto& layout : {layouts.balanced, layouts.lighter}) {
        s.layout = layout;
        if (layout) Add(s);
      }
    }
  }

  void Add(const Strategy& s) {
    Strategy full = preset_.Complete(s, request_.work.precision);
    FollowFramework(framework_, &full);
    if (!preset_.Refuses(full).empty()) return;
    if (CheckStrategy(request_.model, request_.work, full)) return;
    // Fewer ranks per sequence and smaller micro-batches are at least as fast: tested apart.
    const bool dominated = std::gcd(full.cp, full.micro_batch) > 1;
    const auto lowered = Lower(request_.model, request_.work, full);
    const double memory =
        ReportMemory(std::get<ir::Plan>(lowered), limits_, Communicators(full)).total.value;
    (dominated ? dominated_ : all_)
        .push_back({full, std::get<StepTime>(predictor_.Predict(full)).total, memory});
  }

  const SearchRequest& request_;
  const FrameworkPreset& preset_;
  const MemoryLimits limits_;
  const ClusterSummary cluster_;
  const FrameworkProfile& framework_;
  StepPredictor predictor_;
  std::vector<Exact> all_, dominated_;
};

// Both bounds of the search on one strategy.
class Bounds {
 public:
  Bounds(const SearchRequest& request, const Profiles& profiles)
      : request_(request),
        preset_(FindFramework(request.framework)),
        memory_(request.model, request.work, AllocationOf(profiles.framework)),
        job_(JobOf(request, profiles)),
        evaluator_(request_, preset_, LimitsOf(profiles.gpu, profiles.framework), job_, memory_) {}

  Entry Of(const Strategy& strategy) { return std::get<Entry>(evaluator_.One(strategy)); }

 private:
  const SearchRequest& request_;
  const FrameworkPreset& preset_;
  MemoryModel memory_;
  const orrery::Job job_;
  Evaluator evaluator_;
};

// A walk that is asked for no more than its step takes does not end before it, and bounds are below it.
void ExpectWalksToEnd(const SearchRequest& request, const Profiles& profiles,
                      const std::vector<Exact>& all) {
  const orrery::Job job = JobOf(request, profiles);
  StepPredictor predictor(job);
  StepSweep sweep(predictor.closed_form());
  for (const Exact& exact : all) {
    const Strategy& s = exact.strategy;
    const auto found = predictor.Table(KeyOf(job.model, s));
    const LayerTable& table = *std::get<const LayerTable*>(found);
    const PlanOutline outline = OutlineOf(job.model, job.work, s, LayersOf(job.model, s));
    sweep.Start(*predictor.StagesOf(s));
    const double seconds = sweep.Seconds(table, outline, *predictor.DataOf(s));
    EXPECT_NEAR(seconds, exact.seconds, 1e-9 * seconds) << DescribeLayout(s);
    sweep.Start(*predictor.StagesOf(s));
    EXPECT_EQ(sweep.Seconds(table, outline, *predictor.DataOf(s), seconds * (1 + 1e-9)),
              std::optional(seconds))
        << DescribeLayout(s);
    double least = 0;
    sweep.Start(*predictor.StagesOf(s));
    const bool formula = sweep.ByFormula(table, outline, *predictor.DataOf(s), &least).has_value();
    EXPECT_TRUE(formula || least <= seconds) << DescribeLayout(s) << ": " << least;
    EXPECT_LE(JourneyBound(table, s, outline, outline.micro_batches, *predictor.StagesOf(s)),
              seconds)
        << DescribeLayout(s);
  }
}

class Exactness : public testing::TestWithParam<Job> {};

TEST_P(Exactness, TheRankingEqualsPlainEnumeration) {
  SearchRequest request = RequestOf(GetParam());
  const Profiles profiles = LoadProfiles(request);
  BruteForce brute(request, profiles);
  std::vector<Exact> all = brute.All();
  ASSERT_FALSE(all.empty());
  // No slower; they may keep one communicator more.
  for (const Exact& exact : brute.dominated()) {
    double memory_of_faster = std::numeric_limits<double>::infinity();
    for (const Exact& other : all) {
      if (other.seconds <= exact.seconds * (1 + 1e-9))
        memory_of_faster = std::min(memory_of_faster, other.memory);
    }
    EXPECT_LE(memory_of_faster, 1.02 * exact.memory) << DescribeLayout(exact.strategy);
  }
  std::vector<double> memory;
  Bounds bounds(request, profiles);
  const MemoryLimits limits = LimitsOf(profiles.gpu, profiles.framework);
  for (const Exact& exact : all) {
    memory.push_back(exact.memory);
    const Entry entry = bounds.Of(exact.strategy);
    EXPECT_DOUBLE_EQ(entry.seconds, exact.seconds);
    EXPECT_LE(entry.seconds_bound, exact.seconds * (1 + 1e-12)) << DescribeLayout(exact.strategy);
    EXPECT_LE(limits.Total(Bytes(entry.allocated), Communicators(exact.strategy)).value,
              exact.memory * (1 + 1e-12))
        << DescribeLayout(exact.strategy);
  }
  ExpectWalksToEnd(request, profiles, all);
  std::sort(memory.begin(), memory.end());
  request.memory_limit = Bytes(memory[static_cast<std::size_t>(
      GetParam().memory_quantile * static_cast<double>(memory.size() - 1))]);
  std::erase_if(all,
                [&](const Exact& exact) { return exact.memory > request.memory_limit->value; });
  // Nearly full ones below all others.
  const double margin = request.memory_limit->value * limits.nearly_full;
  const auto place = [&](const Exact& exact) {
    return std::pair(exact.memory > margin, exact.seconds);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Exact& a, const Exact& b) { return place(a) < place(b); });

  const SearchResult result = SearchOnly(request, profiles);
  const std::size_t expected = std::min(all.size(), static_cast<std::size_t>(request.top));
  ASSERT_EQ(result.ranked.size(), expected);
  for (std::size_t i = 0; i < expected; ++i) {
    EXPECT_DOUBLE_EQ(result.ranked[i].time.total, all[i].seconds)
        << i << ": " << DescribeLayout(result.ranked[i].strategy) << " / "
        << DescribeLayout(all[i].strategy);
    EXPECT_LE(result.ranked[i].memory->total, *request.memory_limit);
    EXPECT_EQ(result.ranked[i].memory->nearly_full, all[i].memory > margin);
    EXPECT_TRUE(ir::Verify(*result.ranked[i].plan).empty());
  }
  EXPECT_EQ(result.counts.space, result.counts.illegal + static_cast<int64_t>(memory.size()));

  // Readers that set the pace of the fastest and not of all: the first rows, which the search prunes for.
  const auto& fastest = all.front();
  const double tokens = static_cast<double>(request.work.global_batch * request.work.seq_len);
  request.input.reader =
      tokens / (1.5 * fastest.seconds * static_cast<double>(fastest.strategy.data_parallel()));
  const auto fed = [&](const Strategy& strategy, double seconds) {
    return std::max(
        seconds, tokens / (request.input.reader * static_cast<double>(strategy.data_parallel())));
  };
  std::vector<std::pair<bool, double>> values;
  for (const Exact& exact : all)
    values.emplace_back(exact.memory > margin, fed(exact.strategy, exact.seconds));
  std::sort(values.begin(), values.end());
  request.top = 3;
  const SearchResult first = SearchOnly(request, profiles);
  ASSERT_EQ(first.ranked.size(), std::min<std::size_t>(3, all.size()));
  for (std::size_t i = 0; i < first.ranked.size(); ++i)
    EXPECT_DOUBLE_EQ(fed(first.ranked[i].strategy, first.ranked[i].time.total), values[i].second)
        << i << ": " << DescribeLayout(first.ranked[i].strategy);
  std::printf("%s: %zu strategies, %zu fit; search evaluated %ld, bounded %ld, over memory %ld\n",
              GetParam().name, memory.size(), all.size(),
              static_cast<long>(result.counts.evaluated), static_cast<long>(result.counts.bounded),
              static_cast<long>(result.counts.over_memory));
}

// Every way to split `layers` over `chunks`, some perhaps empty.
std::vector<std::vector<int>> AllLayouts(int layers, std::size_t chunks) {
  std::vector<std::vector<int>> all;
  std::vector<int> layout;
  const std::function<void(int)> next = [&](int left) {
    const bool last = layout.size() + 1 == chunks;
    for (int held = 0; held <= left; ++held) {
      if (last && held != left) continue;
      layout.push_back(held);
      if (last)
        all.push_back(layout);
      else
        next(left - held);
      layout.pop_back();
    }
  };
  next(layers);
  return all;
}

// With memory for everything. The search balances stages and then moves layers: where the bubble is a large part of the step a
// heavier stage in the middle is up to 1.6 % faster here.
TEST(Layouts, NoOtherSplitOfTheLayersOverStagesIsFaster) {
  SearchRequest request = RequestOf(kJobs[0]);
  request.model.layers = 7;
  request.memory_limit = Bytes(1e12);
  request.shares = true;
  const Profiles profiles = LoadProfiles(request);
  StepPredictor predictor(JobOf(request, profiles));
  const FrameworkPreset& preset = FindFramework(request.framework);
  int compared = 0, uneven = 0;
  for (const auto& [pp, vpp] : {std::pair{2, 1}, {4, 1}, {8, 1}}) {
    request.fixed = {};
    request.fixed.pp = pp, request.fixed.vpp = vpp, request.fixed.tp = 1;
    request.fixed.zero = 0;
    request.fixed.micro_batch = 1;
    request.fixed.recompute = Recompute::kNone;
    request.fixed.schedule = vpp > 1 ? PipelineSchedule::kInterleaved : PipelineSchedule::k1F1B;
    const SearchResult result = SearchOnly(request, profiles);
    Strategy s;
    s.pp = pp, s.vpp = vpp, s.dp = 8 / pp, s.schedule = *request.fixed.schedule;
    double fastest = std::numeric_limits<double>::infinity();
    for (const std::vector<int>& layout : AllLayouts(7, static_cast<std::size_t>(pp) * vpp)) {
      s.layout = std::make_shared<const std::vector<int>>(layout);
      Strategy full = preset.Complete(s, request.work.precision);
      FollowFramework(profiles.framework, &full);
      ASSERT_FALSE(CheckStrategy(request.model, request.work, full));
      fastest = std::min(fastest, std::get<StepTime>(predictor.Predict(full)).total);
      ++compared;
    }
    ASSERT_FALSE(result.ranked.empty());
    uneven += result.ranked[0].strategy.layout != nullptr;
    EXPECT_LE(result.ranked[0].time.total, (1 + 1e-9) * fastest)
        << DescribeLayout(result.ranked[0].strategy);
  }
  EXPECT_GT(compared, 30);
  EXPECT_GT(uneven, 1);
}

const auto kNameOf = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Jobs, Exactness, testing::ValuesIn(kJobs), kNameOf);
INSTANTIATE_TEST_SUITE_P(JobsSlow, Exactness, testing::ValuesIn(kSlowJobs), kNameOf);

}  // namespace
}  // namespace orrery
