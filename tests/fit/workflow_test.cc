// SPDX-License-Identifier: Apache-2.0
// From timed kernels of a chip to steps of models that were not timed, with a chip that is made up:
// other constants than its family's, and deviations by shape that no formula knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "calib/fit/fit.h"
#include "calib/fit/job.h"
#include "calib/fit/rewrite.h"
#include "calib/fit/shape_table.h"
#include "calib/program/calibrate/inputs.h"
#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/twin/step_predictor.h"

namespace orrery {
namespace {

using measured::KernelKind;
using measured::KernelSample;

constexpr const char* kMadeUpChip = "h100-sxm5-80gb";
constexpr double kTimingNoise = 0.02;
constexpr int kSequence = 2048;

// ln(measured / formula) of the chip.
double Deviation(const std::string& kernel, const KernelFactors::Shape& shape) {
  const KernelFactors::Shape x = KernelFactors::Log2(shape);
  if (kernel == "mm")
    return 0.10 * std::sin(0.9 * x[1] + 0.4 * x[2]) + 0.06 * std::cos(0.8 * x[0] - 0.3 * x[2]);
  return 0.08 * std::sin(0.7 * x[0] + 0.9 / 8 * x[3]);  // the width counts eightfold
}

KernelSample SampleOf(const GemmShape& s) {
  KernelSample sample;
  sample.op = "nt";
  sample.dtype = "bf16";
  sample.m = std::llround(s.m), sample.n = std::llround(s.n), sample.k = std::llround(s.k);
  return sample;
}

KernelSample SampleOf(const AttentionShape& s) {
  KernelSample sample;
  sample.kind = KernelKind::kAttention;
  sample.op = s.backward ? "backward" : "forward";
  sample.dtype = "bf16";
  sample.algorithm = "cudnn";  // what the framework below takes
  sample.batch = std::llround(s.batch);
  sample.heads = sample.kv_heads = std::llround(s.heads);
  sample.seq_q = std::llround(s.seq_q), sample.seq_kv = std::llround(s.seq_kv);
  sample.head_dim = std::llround(s.head_dim);
  sample.causal = s.causal;
  return sample;
}

Workload WorkOf() {
  Workload work;
  work.seq_len = kSequence;
  work.global_batch = 64;
  work.precision = Precision::kBf16;
  return work;
}

// Products and attentions of one micro-batch.
std::vector<OpShape> ShapesOf(const std::string& model, int tp, int micro_batch) {
  ModelSpec spec = LoadModel(model).spec;
  spec.max_positions = std::max<int64_t>(spec.max_positions, kSequence);
  MicroBatchKey key;
  key.tp = tp, key.micro_batch = micro_batch;
  const auto shaped = ShapeMicroBatch(spec, WorkOf(), key);
  std::vector<OpShape> shapes;
  const auto take = [&](const SegmentOps& ops) {
    for (const auto* list : {&ops.forward, &ops.backward}) {
      for (const ShapedOp& op : *list) {
        if (std::holds_alternative<GemmShape>(op.shape) ||
            std::holds_alternative<AttentionShape>(op.shape))
          shapes.push_back(op.shape);
      }
    }
  };
  const auto& ops = std::get<MicroBatchOps>(shaped);
  take(ops.head);
  for (const LayerKind& kind : ops.layers) take(kind.ops);
  return shapes;
}

// The chip itself: its deviations at the shapes that a prediction will ask for.
class MadeUpChip {
 public:
  MadeUpChip() : gpu_(LoadGpuProfile(kMadeUpChip)) {
    gpu_.gemm_efficiency_bf16 = 0.61;
    gpu_.memory_efficiency = 0.68;
    gpu_.attention_cudnn = 0.42;
    gpu_.attention_backward = 0.74;
  }
  void Know(const std::vector<OpShape>& shapes) {
    for (const OpShape& shape : shapes) {
      const auto [kernel, at] = PlaceOf(shape);
      known_[kernel].insert(at);
    }
    for (const auto& [kernel, places] : known_) {
      std::vector<KernelFactors::Measured> all;
      for (const auto& at : places) all.push_back({at, Deviation(kernel, at)});
      gpu_.factors[static_cast<std::size_t>(Precision::kBf16)].Set(kernel, {0.1, 0.5, 1e-4}, all);
    }
  }
  double Time(const OpShape& shape) const {
    FrameworkProfile bare = LoadFrameworkProfile("megatron");
    bare.elementwise_traffic = 1;
    bare.kernel_gap = Seconds(0);
    const OpCost cost = OpCost(gpu_, bare, Precision::kBf16).WithoutFactors();
    if (const auto* stream = std::get_if<TrafficShape>(&shape)) return cost.Traffic(*stream);
    const auto [kernel, at] = PlaceOf(shape);
    const auto* gemm = std::get_if<GemmShape>(&shape);
    const double formula =
        gemm != nullptr ? cost.Gemm(*gemm) : cost.Attention(std::get<AttentionShape>(shape));
    return formula * std::exp(Deviation(kernel, at));
  }
  const GpuProfile& gpu() const { return gpu_; }

 private:
  static std::pair<std::string, KernelFactors::Shape> PlaceOf(const OpShape& shape) {
    if (const auto* gemm = std::get_if<GemmShape>(&shape))
      return {"mm", {gemm->m, gemm->n, gemm->k, gemm->batch}};
    const auto& s = std::get<AttentionShape>(shape);
    return {s.TableBy(AttentionKernel::kCudnn), {s.batch * s.heads, s.seq_q, s.seq_kv, s.head_dim}};
  }
  GpuProfile gpu_;
  std::map<std::string, std::set<KernelFactors::Shape>> known_;
};

// kernels.csv of the chip: shapes of some models, streams, 2 % noise.
std::string Timed(const MadeUpChip& chip) {
  std::mt19937 random(20);
  std::normal_distribution<double> noise(0, kTimingNoise);
  std::vector<KernelSample> samples;
  for (const char* model : {"gpt2-small", "gpt2-medium", "gpt2-xl", "sc21-3.6b", "llama2-7b"}) {
    for (const int tp : {1, 2}) {
      for (const int micro_batch : {1, 2, 4}) {
        if (model == std::string("gpt2-xl") && tp == 2) continue;  // 25 heads
        for (const OpShape& shape : ShapesOf(model, tp, micro_batch)) {
          const auto* gemm = std::get_if<GemmShape>(&shape);
          KernelSample sample =
              gemm != nullptr ? SampleOf(*gemm) : SampleOf(std::get<AttentionShape>(shape));
          sample.seconds = chip.Time(shape) * std::exp(noise(random));
          samples.push_back(sample);
        }
      }
    }
  }
  for (double bytes = 3e7; bytes < 3e9; bytes *= 1.5) {
    KernelSample sample;
    sample.kind = KernelKind::kMemory;
    sample.op = "copy";
    sample.dtype = "bf16";
    sample.bytes = bytes;
    sample.seconds = chip.Time(TrafficShape{bytes}) * std::exp(noise(random));
    samples.push_back(sample);
  }
  for (KernelSample& sample : samples) sample.calls = 10;
  return KernelCsv(samples, "made up");
}

struct Calibrated {
  GpuProfile with_tables, formulas;
  std::string said;
};

// What `plan calibrate kernels.csv --gpu ... -o FOLDER` does.
Calibrated Calibrate(const std::string& csv) {
  const std::string folder = testing::TempDir() + "orrery-workflow";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/kernels.csv") << csv;
  const FitInputs inputs = LoadInputs({folder + "/kernels.csv"});
  ProfileStore store;
  FitFlags flags;
  flags.gpus = {kMadeUpChip};
  flags.free = {"gpu:gemm_efficiency_bf16", "gpu:memory_efficiency", "gpu:attention_cudnn",
                "gpu:attention_backward"};
  const FitJob job = JobOf(flags, &store);
  const KernelSource source(inputs.kernels, job.kernels_of, &store);
  const Evidence evidence({&source}, store);
  Fitter fitter(evidence, MakeParameters(job.requests, &store), {});
  const FitResult result = fitter.Fit();
  const std::vector<ShapeTable> tables = FitShapeTables(
      source, result.error, LeaveGroupsOut(evidence, Holdout::kModel, &fitter).error);
  WriteProfiles(LinesOf(result, {}, "", evidence.store()), folder, evidence.store());
  const std::string path = folder + "/gpu/" + kMadeUpChip + ".yaml";
  Calibrated calibrated;
  calibrated.formulas = LoadGpuProfile(path);
  EXPECT_EQ(WriteShapeTables(tables, kMadeUpChip, folder), path);
  calibrated.with_tables = LoadGpuProfile(path);
  calibrated.said = RenderShapeTables(tables);
  return calibrated;
}

struct Layout {
  const char* model;
  int tp, micro_batch, zero;
};

double StepOf(const Layout& layout, const GpuProfile& gpu) {
  ModelSpec spec = LoadModel(layout.model).spec;
  spec.max_positions = std::max<int64_t>(spec.max_positions, kSequence);
  const FabricProfile fabric = LoadFabricProfile("infiniband");
  const FrameworkProfile framework = LoadFrameworkProfile("megatron");
  const ClusterSummary cluster = Summarise(LoadTopology("dgx-h100"), 1);
  Strategy strategy;
  strategy.tp = layout.tp, strategy.dp = 8 / layout.tp, strategy.micro_batch = layout.micro_batch;
  strategy.zero = layout.zero;
  StepPredictor predictor({spec, WorkOf(), {&gpu, &fabric, &framework, &cluster}});
  return std::get<StepTime>(predictor.Predict(strategy)).total;
}

TEST(Workflow, StepsOfModelsThatWereNotTimed) {
  MadeUpChip chip;
  const Calibrated calibrated = Calibrate(Timed(chip));
  EXPECT_THAT(calibrated.said, testing::ContainsRegex("mm bf16 .* used"));
  double with_tables = 0, formulas = 0, before = 0;
  const GpuProfile shipped = LoadGpuProfile(kMadeUpChip);
  const std::vector<Layout> layouts = {{"gpt2-large", 1, 4, 1},
                                       {"gpt2-large", 2, 2, 0},
                                       {"llama3-8b", 2, 1, 1},
                                       {"sc21-1.7b", 1, 2, 1},
                                       {"bert-1.5b", 1, 2, 0}};
  for (const Layout& layout : layouts) {
    chip.Know(ShapesOf(layout.model, layout.tp, layout.micro_batch));
    const double truth = StepOf(layout, chip.gpu());
    const auto miss = [&](const GpuProfile& gpu) { return StepOf(layout, gpu) / truth - 1; };
    EXPECT_LT(std::abs(miss(calibrated.with_tables)), 0.03)
        << layout.model << " tp " << layout.tp << "\n"
        << calibrated.said;
    with_tables += std::abs(miss(calibrated.with_tables));
    formulas += std::abs(miss(calibrated.formulas));
    before += std::abs(miss(shipped));
  }
  RecordProperty("mean_error_with_tables", std::to_string(with_tables / layouts.size()));
  RecordProperty("mean_error_formulas", std::to_string(formulas / layouts.size()));
  EXPECT_LT(with_tables, 0.7 * formulas) << calibrated.said;
  EXPECT_LT(formulas, before);
}

TEST(Workflow, TablesThatDoNotHelpAreNotUsed) {
  ShapeTable table;
  table.kernel = "mm";
  table.shapes = {{{512, 512, 512, 1}, 0.1}};
  EXPECT_THAT(RenderShapeTables({table}), testing::HasSubstr("not used"));
  const std::string text = "title: a\nconstants:\n  x: {value: 1}\n";
  EXPECT_EQ(WithShapeTables(text, {table}), text);
  table.used = true;
  table.rule = {0.1, 1, 0.01};
  const std::string with = WithShapeTables(text, {table});
  EXPECT_THAT(with, testing::HasSubstr("- [512, 512, 512, 1, 1.1052]"));
  EXPECT_EQ(WithShapeTables(with, {table}), with);
  // Constants that are written later stay above it.
  const std::string later = RewriteProfile("x.yaml", with, {{"y", "2", "", std::nullopt, 0, "a"}});
  EXPECT_LT(later.find("  y:"), later.find("kernel_factors:"));
}

}  // namespace
}  // namespace orrery
