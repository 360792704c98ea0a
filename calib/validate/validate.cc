// SPDX-License-Identifier: Apache-2.0
// Predictions of published runs, grouped so that profiles and layer tables are shared.
#include "calib/validate/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <tuple>

#include "calib/validate/case_names.h"
#include "calib/validate/predict_memory.h"
#include "calib/validate/uneven_steps.h"
#include "model/base/diagnostics.h"
#include "model/base/parallel.h"
#include "model/hardware/catalog.h"
#include "model/plan/lower/names.h"
#include "model/twin/predict.h"

namespace orrery {
namespace {

constexpr double kGibibyte = 1073741824.0;

// The first fault with its hint.
std::string ReasonOf(const InputError& error) {
  if (error.diagnostics().empty()) return error.what();
  const Diagnostic& first = error.diagnostics().front();
  return first.hint.empty() ? first.message : fmt::format("{}: {}", first.message, first.hint);
}

// Profiles and topologies by name; an unknown one is remembered as its message.
template <class T>
class Cache {
 public:
  template <class Load>
  const T* Get(const std::string& name, Load load, std::string* reason) {
    auto found = entries_.find(name);
    if (found == entries_.end()) {
      Entry entry;
      try {
        entry.value = std::make_unique<T>(load());
      } catch (const InputError& error) {
        entry.reason = ReasonOf(error);
      }
      found = entries_.emplace(name, std::move(entry)).first;
    }
    if (!found->second.value) *reason = found->second.reason;
    return found->second.value.get();
  }

 private:
  struct Entry {
    std::unique_ptr<T> value;
    std::string reason;
  };
  std::map<std::string, Entry> entries_;
};

// Rows that share a predictor: equal model, workload but for the batch, cluster and software.
using PredictorKey =
    std::tuple<std::string, std::string, std::string, int64_t, int, bool, std::array<int64_t, 17>>;

PredictorKey KeyOf(const CaseRow& row, const FrameworkProfile& framework) {
  const ModelSpec& m = row.model;
  return {row.topology,
          row.gpu,
          row.framework + " " + framework.header.id,  // an older release without fused attention
          row.nodes,
          row.gpus_per_node,
          row.strategy.flash_attention,
          {m.layers, m.hidden, m.ffn, m.gated, m.heads, m.kv_heads, m.vocab,
           static_cast<int64_t>(m.family), static_cast<int64_t>(m.norm), row.work.seq_len,
           static_cast<int64_t>(row.work.precision), static_cast<int64_t>(row.work.optimizer),
           m.head_dim, m.token_types,
           static_cast<int64_t>(row.work.fp8) + 16 * row.work.fp8_skip.key(), row.work.lora.key()}};
}

class CasePredictor {
 public:
  CasePredictor(Engine engine, bool terms) : engine_(engine), terms_(terms) {}

  void Predict(CasePrediction* prediction) {
    CaseRow& row = prediction->row;
    if (row.refused) return;
    std::string reason;
    const Setting* setting = FindSetting(row, &reason);
    if (setting == nullptr) {
      row.refused = reason;
      return;
    }
    if (!TakePrecision(*setting->job.gpu, &row)) return;
    TakeAttention(setting->job, &row);
    const Strategy as_read = row.strategy;
    FollowFramework(*setting->job.framework, &row.strategy);
    FollowFramework(*setting->job.framework, &row.work);
    if (row.recompute_open) ChooseRecompute(*setting, &row);
    prediction->gpu_gib = setting->job.gpu->Capacity().value / kGibibyte;
    if (const auto memory = memory_.Predict(row, *setting->job.gpu, *setting->job.framework)) {
      prediction->predicted_mem_gib = memory->device_gib;
      prediction->predicted_allocator_gib = memory->allocator_gib;
    }
    if (ReadsAsFlash(row, prediction->predicted_mem_gib, *setting)) {
      row.strategy = as_read;
      row.strategy.flash_attention = true;
      row.notes.emplace_back(
          "attention is not printed and would not fit if materialised: read as flash");
      Predict(prediction);
      return;
    }
    const auto result =
        PredictSteps(&row, [&](const Workload& work, const Strategy& strategy, Window window) {
          auto& step = steps_[{KeyOf(row, *setting->job.framework), work.global_batch}];
          if (!step) step = std::make_unique<StepPredictor>(JobOf(*setting, row.model, work));
          return step->Predict(strategy, window);
        });
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
      row.refused = refusal->reason;
      return;
    }
    prediction->time = std::get<StepTime>(result);
    AddConfidence(prediction, *setting);
    if (engine_ == Engine::kClosed) return;
    row.refused = Simulate(row, *setting, &*prediction->time);
    if (row.refused) prediction->time.reset();
  }

 private:
  // What rows of one cluster and framework share; model and work of the job are left to them.
  struct Setting {
    TopologySpec topology;
    int64_t described_nodes = 0;
    Job job;
  };

  static Job JobOf(const Setting& setting, const ModelSpec& model, const Workload& work) {
    Job job = setting.job;
    job.model = model;
    job.work = work;
    return job;
  }

  void AddConfidence(CasePrediction* prediction, const Setting& setting) {
    const CaseRow& row = prediction->row;
    const WholeSteps whole = RoundUp(row);
    Confidence confidence =
        ConfidenceOf(JobOf(setting, row.model, whole.work), whole.strategy, row.window, trust_,
                     &shapes_[KeyOf(row, *setting.job.framework)]);
    const double scale = prediction->time->total / confidence.total;
    prediction->time->low = confidence.low * scale;
    prediction->time->high = confidence.high * scale;
    prediction->outside = std::move(confidence.outside);
  }

  // Why the row cannot be simulated; nullopt: its time is simulated now.
  std::optional<std::string> Simulate(const CaseRow& row, const Setting& setting, StepTime* time) {
    if (row.window != Window::kStep) return "the event engine times whole steps only";
    if (auto refusal = CheckStrategy(row.model, row.work, row.strategy)) return refusal->reason;
    const ir::Plan plan = PlanOf(row);
    const Job job = JobOf(setting, row.model, row.work);
    try {
      const Cluster cluster = BuildCluster(setting.topology, row.nodes, row.gpus_per_node);
      const StepTime simulated = terms_ ? SimulateLayout(job, row.strategy, plan, cluster)
                                        : Total(SimulateTotal(job, row.strategy, plan, cluster));
      *time = WithInterval(simulated, *time);
      return std::nullopt;
    } catch (const InputError& error) {
      return error.diagnostics().empty() ? error.what() : error.diagnostics().front().message;
    }
  }

  // Its memory was read from the same blocks.
  ir::Plan PlanOf(const CaseRow& row) {
    if (std::optional<ir::Plan> plan = memory_.TakePlan(row)) {
      return WithMicroBatches(std::move(*plan), row.work, row.strategy,
                              MicroBatches(row.work, row.strategy));
    }
    return std::get<ir::Plan>(Lower(row.model, row.work, row.strategy));
  }

  static StepTime Total(double seconds) {
    StepTime time;
    for (const BreakdownTerm& term : BreakdownTerms())
      time.*term.seconds = std::numeric_limits<double>::quiet_NaN();
    time.total = seconds;
    return time;
  }

  // The score matrices of a run whose attention nobody printed must at least have fitted.
  static bool ReadsAsFlash(const CaseRow& row, const std::optional<double>& gib,
                           const Setting& setting) {
    const bool open = row.flash_assumed && !row.strategy.flash_attention && gib.has_value();
    return open && *gib * kGibibyte > setting.job.gpu->Capacity().value;
  }

  // As little recomputation as fits, where a row does not say.
  void ChooseRecompute(const Setting& setting, CaseRow* row) {
    const Job& job = setting.job;
    for (const Recompute kind : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      row->strategy.recompute = kind;
      const auto memory = memory_.Predict(*row, *job.gpu, *job.framework);
      if (!memory || memory->device_gib * kGibibyte <= job.gpu->Capacity().value) break;
    }
    row->recompute_open = false;
    row->notes.push_back(fmt::format("recompute not printed: {}, the least that fits",
                                     RecomputeText(row->strategy.recompute)));
  }

  // Attention of a row that does not say, as `plan predict` takes it.
  static void TakeAttention(const Job& job, CaseRow* row) {
    if (!row->flash_open || row->model.family == Family::kMlp) return;
    bool& flash = row->strategy.flash_attention;
    flash = flash && FusesAttention(*job.framework, *job.gpu);
    row->flash_open = false;
    row->notes.push_back(fmt::format("flash not printed: read as {}, the framework's default on {}",
                                     flash ? 1 : 0, job.gpu->header.id));
  }

  // A chip without the row's arithmetic runs the next of its kind.
  static bool TakePrecision(const GpuProfile& gpu, CaseRow* row) {
    std::string hint;
    if (const std::string why = gpu.WhyNo(row->work.fp8, &hint); !why.empty()) {
      row->refused = why;
      return false;
    }
    const Precision printed = row->work.precision;
    if (gpu.Peak(printed).value > 0) return true;
    const bool half = printed == Precision::kBf16;
    const Precision next = row->fp32_printed || !half ? Precision::kFp32 : Precision::kFp16;
    if (gpu.Peak(next).value <= 0) {
      row->refused = fmt::format("{} has no arithmetic in {}", gpu.header.id,
                                 NameIn(kPrecisionNames, printed));
      return false;
    }
    row->work.precision = next;
    row->strategy.fp32_grads = false;
    row->notes.push_back(fmt::format("{} has no arithmetic in {}: read as {}", gpu.header.id,
                                     NameIn(kPrecisionNames, printed),
                                     NameIn(kPrecisionNames, next)));
    return true;
  }

  const Setting* FindSetting(CaseRow& row, std::string* reason) {
    if (const auto alias = TopologyAlias(row.topology)) {
      row.notes.push_back(fmt::format("topology '{}' read as {}", row.topology, *alias));
      row.topology = *alias;
    }
    if (const auto larger = WithLargerNodes(row)) {
      row.notes.push_back(fmt::format("{} GPUs per node: topology '{}' read as {}",
                                      row.gpus_per_node, row.topology, *larger));
      row.topology = *larger;
    }
    const auto key = std::make_tuple(row.topology, row.gpu, row.framework, row.nodes,
                                     row.gpus_per_node, row.strategy.flash_attention);
    auto found = settings_.find(key);
    if (found == settings_.end()) {
      found = settings_.emplace(key, MakeSetting(row)).first;
    }
    const Setting* setting = found->second.first.get();
    if (setting == nullptr) {
      *reason = found->second.second;
      return nullptr;
    }
    const auto note = [&row](std::string text) {
      if (std::ranges::count(row.notes, text) == 0) row.notes.push_back(std::move(text));
    };
    if (row.nodes > setting->described_nodes)
      note(fmt::format("more nodes than {} describes: a larger one of its kind", row.topology));
    const ClusterSummary& cluster = setting->job.cluster;
    if (cluster.domain_nodes > 1) {
      note(fmt::format("placement not printed: {} scale-up domain{} of {} nodes = {} GPUs",
                       cluster.domains(), cluster.domains() == 1 ? "" : "s", cluster.domain_nodes,
                       cluster.domain_gpus()));
    }
    return setting;
  }

  // The topology of the same name whose nodes have as many GPUs as the row's, of a row that has more than its own: NAME-8.
  std::optional<std::string> WithLargerNodes(const CaseRow& row) {
    std::string reason;
    const TopologySpec* spec = topologies_.Get(
        row.topology, [&] { return LoadTopology(row.topology); }, &reason);
    if (spec == nullptr || row.gpus_per_node <= spec->node.gpus) return std::nullopt;
    const std::string name = fmt::format("{}-{}", row.topology, row.gpus_per_node);
    const std::vector<std::string> known = TopologyNames();
    return std::ranges::count(known, name) > 0 ? std::optional(name) : std::nullopt;
  }

  // The topology with the row's own GPU, and as many nodes as the row needs.
  static TopologySpec Fit(const CaseRow& row, const TopologySpec& described) {
    TopologySpec spec = described;
    if (!row.gpu.empty()) spec.gpu = row.gpu;
    if (spec.nodes > 1) spec.max_nodes = std::max(spec.max_nodes, row.nodes);
    return spec;
  }

  std::pair<std::unique_ptr<Setting>, std::string> MakeSetting(const CaseRow& row) {
    std::string reason;
    const TopologySpec* spec = topologies_.Get(
        row.topology, [&] { return LoadTopology(row.topology); }, &reason);
    if (spec == nullptr) return {nullptr, reason};
    auto setting = std::make_unique<Setting>();
    setting->topology = Fit(row, *spec);
    setting->described_nodes = spec->max_nodes;
    const TopologySpec& topology = setting->topology;
    if (topology.gpu == kUnknownGpu)
      return {nullptr, fmt::format("topology {} does not name its GPU: name it in a column gpu",
                                   row.topology)};
    const bool flash = row.strategy.flash_attention;
    const Profiles* profiles = profiles_.Get(
        fmt::format("{} {} {} {}", row.topology, topology.gpu, row.framework, flash),
        [&] { return LoadProfiles(topology, row.framework, flash); }, &reason);
    if (profiles == nullptr) return {nullptr, reason};
    try {
      setting->job = MakeJob({}, {}, topology, row.nodes, row.gpus_per_node, *profiles);
    } catch (const InputError& error) {
      return {nullptr, ReasonOf(error)};
    }
    return {std::move(setting), ""};
  }

  Engine engine_;
  bool terms_;
  Trust trust_ = LoadTrust();
  std::map<PredictorKey, ShapeCache> shapes_;
  Cache<TopologySpec> topologies_;
  Cache<Profiles> profiles_;
  std::map<std::tuple<std::string, std::string, std::string, int64_t, int, bool>,
           std::pair<std::unique_ptr<Setting>, std::string>>
      settings_;
  std::map<std::pair<PredictorKey, int64_t>, std::unique_ptr<StepPredictor>> steps_;
  MemoryPredictor memory_;
};

// Rows of one model share whatever a predictor keeps: they stay together, in their order, so that no prediction
// depends on the number of threads.
using ModelKey = std::array<int64_t, 5>;

struct RowsOfModel {
  std::vector<std::size_t> rows;  // ascending
  double effort = 0;              // of a simulation of them, roughly
};

std::vector<RowsOfModel> ByModel(const std::vector<CasePrediction>& cases) {
  std::map<ModelKey, RowsOfModel> groups;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CaseRow& row = cases[i].row;
    const ModelSpec& m = row.model;
    RowsOfModel& group = groups[{m.layers, m.hidden, m.ffn, m.heads, m.vocab}];
    group.rows.push_back(i);
    const Strategy& s = row.strategy;
    const double samples = std::max(1.0, static_cast<double>(s.data_parallel() * s.micro_batch));
    const double micro_batches = static_cast<double>(row.work.global_batch) / samples;
    group.effort += static_cast<double>(m.layers) * std::min(micro_batches, 8.0 * s.pp);
  }
  std::vector<RowsOfModel> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::ranges::stable_sort(sorted, std::greater<>(), &RowsOfModel::effort);
  return sorted;
}

}  // namespace

std::vector<CasePrediction> PredictCases(std::vector<CaseRow> rows, Engine engine, int threads,
                                         bool terms) {
  std::vector<CasePrediction> predictions(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) predictions[i].row = std::move(rows[i]);
  const std::vector<RowsOfModel> groups = ByModel(predictions);
  std::vector<std::exception_ptr> failures(rows.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&](int) {
    for (std::size_t group = next++; group < groups.size(); group = next++) {
      CasePredictor predictor(engine, terms);
      for (const std::size_t row : groups[group].rows) {
        try {
          predictor.Predict(&predictions[row]);
        } catch (...) {
          failures[row] = std::current_exception();
        }
      }
    }
  };
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  OnThreads(std::clamp(threads, 1, std::max(1, static_cast<int>(groups.size()))), work);
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return predictions;
}

}  // namespace orrery
