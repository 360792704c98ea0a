// SPDX-License-Identifier: Apache-2.0
// What a search starts from: the request is checked, and its jobs and their splits are listed.
#include <fmt/format.h>

#include "model/plan/lower/names.h"
#include "model/plan/lower/schedules.h"
#include "model/twin/runner.h"
#include "model/twin/space.h"

namespace orrery {
namespace {

void CheckFixed(const SearchRequest& request, const FrameworkPreset& preset) {
  const FixedAxes& fixed = request.fixed;
  for (const auto& [name, value] : {std::pair{"tp", fixed.tp},
                                    {"pp", fixed.pp},
                                    {"dp", fixed.dp},
                                    {"dp-outer", fixed.dp_outer},
                                    {"cp", fixed.cp},
                                    {"cp-inner", fixed.cp_inner},
                                    {"vpp", fixed.vpp},
                                    {"micro-batch", fixed.micro_batch}}) {
    if (value && *value < 1)
      throw InputError(fmt::format("{} is {}", name, *value), "every degree is at least 1");
  }
  if (fixed.zero && (*fixed.zero < 0 || *fixed.zero > 3)) {
    throw InputError(fmt::format("ZeRO stage {}", *fixed.zero), "stages are 0 to 3");
  }
  const std::string refusal = preset.Refuses(LeastStrategy(fixed, preset));
  if (!refusal.empty())
    throw InputError(refusal, "another --framework may: 'orrery' offers every axis");
}

// The chunks of a stage, and what is laid out of the winners, grow with the layers.
void CheckLayers(const ModelSpec& model) {
  const int64_t layers = model.layers + model.decoder_layers;
  if (layers <= kMostSearchedLayers) return;
  throw InputError(
      fmt::format("{} layers: a search takes models of 1 to {}", layers, kMostSearchedLayers),
      "one layout of a deeper model: `plan predict`");
}

// "tp 3 does not divide", "tp 8 x pp 3 do not divide": what the user fixed of the degrees.
std::string FixedDegrees(const FixedAxes& fixed) {
  std::string text;
  int count = 0;
  for (const auto& [name, value] : {std::pair{"tp", fixed.tp},
                                    {"pp", fixed.pp},
                                    {"cp", fixed.cp},
                                    {"dp", fixed.dp},
                                    {"dp-outer", fixed.dp_outer}}) {
    if (!value) continue;
    text += fmt::format("{}{} {}", count++ > 0 ? " x " : "", name, *value);
  }
  return text + (count == 1 ? " does not divide" : " do not divide");
}

void CheckArithmetic(const SearchRequest& request, const GpuProfile& gpu) {
  std::string hint;
  if (const std::string why = gpu.WhyNo(request.work.fp8, &hint); !why.empty())
    throw InputError(why, hint);
  if (gpu.Peak(request.work.precision).value > 0) return;
  std::string wrong, right;
  for (const auto& [name, precision] : kPrecisionNames) {
    if (precision == request.work.precision) wrong = name;
    if (gpu.Peak(precision).value > 0)
      right += fmt::format("{}{}", right.empty() ? "" : ", ", name);
  }
  throw InputError(fmt::format("{} has no {} arithmetic", gpu.header.id, wrong),
                   fmt::format("give --precision, one of: {}", right));
}

}  // namespace

Strategy LeastStrategy(const FixedAxes& fixed, const FrameworkPreset& preset) {
  Strategy asked;
  asked.tp = fixed.tp.value_or(1);
  asked.pp = fixed.pp.value_or(fixed.schedule && NeedsStages(*fixed.schedule) ? 2 : 1);
  asked.dp = 2;
  asked.dp_outer = fixed.dp_outer.value_or(1);
  asked.cp = fixed.cp.value_or(fixed.cp_method ? 2 : 1);
  asked.context.method = fixed.cp_method.value_or(preset.DefaultContext().method);
  asked.zero = fixed.zero.value_or(preset.DefaultZero(fixed.offload.value_or(Offload{})));
  asked.sequence_parallel = fixed.sequence_parallel.value_or(false);
  asked.recompute = fixed.recompute.value_or(Recompute::kNone);
  asked.offload = fixed.offload.value_or(Offload{});
  asked.schedule = fixed.schedule.value_or(PipelineSchedule::k1F1B);
  asked.layout = fixed.layout;
  return asked;
}

Runner::Runner(const SearchRequest& request, const Profiles& profiles)
    : request_(request),
      profiles_(profiles),
      preset_(FindFramework(request.framework)),
      limits_(LimitsOf(profiles.gpu, profiles.framework)),
      memory_(request.model, request.work, limits_.allocation) {
  if (request.memory_limit) limits_.capacity = *request.memory_limit;
  CheckLayers(request.model);
  CheckArithmetic(request, profiles.gpu);
  CheckFixed(request, preset_);
  if (request.work.seq_len < 1)
    throw InputError("the sequence length must be at least 1", "give --seq-len");
  MakeJobs();
  MakeSplits();
}

void Runner::MakeJobs() {
  const bool priced = request_.objective != Objective::kTime;
  if (priced && !request_.node_price && !request_.topology.node_price) {
    throw InputError(fmt::format("topology '{}' has no price, but the objective needs one",
                                 request_.topology.name),
                     "give a price per node and hour, or use the objective time");
  }
  std::vector<int64_t> nodes = request_.nodes, batches = request_.global_batches;
  if (nodes.empty()) nodes = {request_.topology.nodes};
  if (batches.empty()) batches = {request_.work.global_batch};
  for (const int64_t count : nodes) {
    for (const int64_t batch : batches) {
      if (batch < 1)
        throw InputError(fmt::format("global batch {}", batch), "at least one sequence per step");
      jobs_.push_back(orrery::JobOf(request_, profiles_, count, batch));
      evaluators_.push_back(std::make_unique<Evaluator>(request_, preset_, limits_, jobs_.back(),
                                                        memory_, shapes_.get()));
    }
  }
}

void Runner::MakeSplits() {
  const Space space(request_, preset_);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    const std::vector<Split> degrees =
        space.Degrees(job.cluster.ranks(), job.cluster.domain_gpus());
    if (degrees.empty()) {
      SearchRequest free = request_;
      free.fixed.zero.reset(), free.fixed.vpp.reset(), free.fixed.sequence_parallel.reset();
      free.fixed.schedule.reset();
      if (!Space(free, preset_).Degrees(job.cluster.ranks(), job.cluster.domain_gpus()).empty())
        throw InputError(
            "the fixed axes contradict each other: ZeRO 1 to 3 needs data-parallel ranks, model "
            "chunks and interleaved or zero-bubble schedules need pipeline stages, sequence "
            "parallelism needs tensor-parallel ranks",
            "fix fewer of them");
      throw InputError(
          fmt::format("{} the {} GPUs of {} node{}", FixedDegrees(request_.fixed),
                      job.cluster.ranks(), job.cluster.nodes, job.cluster.nodes == 1 ? "" : "s"),
          "tp x pp x dp must be the number of GPUs");
    }
    for (const Split& degree : degrees) {
      std::vector<Split> splits = space.Splits(degree, job.work.global_batch);
      if (splits.empty()) CountUndivided(degree, static_cast<int>(i));
      for (Split& split : splits) {
        split.job = static_cast<int>(i);
        splits_.push_back(split);
      }
    }
  }
}

// Degrees under which the batch does not divide: one strategy per choice, whatever the micro-batch.
void Runner::CountUndivided(const Split& degrees, int job) {
  const int64_t strategies =
      Space(request_, preset_).Choices(degrees, jobs_[job].cluster.domain_gpus());
  counts_.space += strategies;
  counts_.illegal += strategies;
  const int64_t micro_batch = request_.fixed.micro_batch.value_or(1);
  Tally& tally = refusals_[fmt::format(
      "global batch {} does not divide by data-parallel ranks {} x micro-batch {}",
      jobs_[job].work.global_batch, degrees.data, micro_batch)];
  tally.strategies += strategies;
  Strategy example;
  example.tp = degrees.tp;
  example.pp = degrees.pp;
  example.cp = degrees.cp;
  example.dp = degrees.data;
  tally.example = ChoiceOf(job) + DescribeLayout(example);
}

}  // namespace orrery
