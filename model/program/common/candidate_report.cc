// SPDX-License-Identifier: Apache-2.0
// The report of `plan predict`.
#include "model/program/common/candidate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/arch/parameters.h"
#include "model/base/text.h"
#include "model/collectives/group_shapes.h"
#include "model/memory/memory.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/check_low_precision.h"
#include "model/program/common/memory_report.h"
#include "model/program/common/names.h"
#include "model/program/common/provenance.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"
#include "model/report/short_number.h"

namespace orrery::report {
namespace {

constexpr std::size_t kLabel = 18;
constexpr double kMuchMasked = 0.1;  // of model FLOP: MFU is printed without it, too

std::string Line(const std::string& label, const std::string& text) {
  return fmt::format("  {:<{}}{}\n", label, kLabel - 2, Fold(text, kLabel));
}

double SamplesPerSecond(const Prediction& candidate) {
  return static_cast<double>(candidate.global_batch) / candidate.time.total;
}

double MicroStepSamples(const PredictReport& prediction) {
  const Strategy& strategy = prediction.candidate.strategy;
  return static_cast<double>(strategy.data_parallel() * strategy.micro_batch) /
         prediction.micro_step.total;
}

std::string Price(const Job& job, const Prediction& candidate) {
  const bool own = job.request.node_price.has_value();
  const std::string source = own ? "--node-price" : job.cluster.price_source;
  return fmt::format("{:.4g} USD per step, {} USD per billion tokens; {}",
                     candidate.price_per_step->value,
                     ThreeDigits(candidate.price_per_billion_tokens->value), source);
}

// What the calibration does not cover; the interval is wider for it.
std::string OutsideLines(const Prediction& candidate) {
  std::string text;
  for (const std::string& what : candidate.outside)
    text += Line(text.empty() ? "not calibrated" : "", what);
  return text;
}

nlohmann::ordered_json NearestJson(const Prediction& candidate) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const NearRun& run : candidate.nearest) {
    runs.push_back({{"case", run.name},
                    {"framework", run.framework},
                    {"gpu", run.gpu},
                    {"topology", run.topology},
                    {"nodes", run.at[kAtNodes]},
                    {"measured_s", run.measured},
                    {"predicted_s", run.predicted},
                    {"distance_doublings", run.distance}});
  }
  return runs;
}

nlohmann::ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

// For a framework whose timer of micro-steps does not wait for the device.
std::string TimerLine(const Job& job, const PredictReport& prediction) {
  const double printed = prediction.printed_s, sustained = prediction.sustained_s;
  if (std::isnan(printed) || std::abs(printed - sustained) < 1e-3 * sustained) return "";
  return Line("",
              fmt::format("the timer of {} does not synchronise: its log shows {} until the launch "
                          "queue is full, then {}",
                          FrameworkWords(job.request.framework), Format(Seconds(printed)),
                          Format(Seconds(sustained))));
}

std::string TimeSection(const Job& job, const PredictReport& prediction) {
  const Prediction& candidate = prediction.candidate;
  std::string text;
  if (prediction.window != Window::kStep) {
    text +=
        Line("micro-step", TimeWithInterval(prediction.micro_step) + ", 80 % prediction interval");
    text += Line("throughput", fmt::format("{} samples/s during micro-steps",
                                           Scaled(MicroStepSamples(prediction))));
    text += TimerLine(job, prediction);
  }
  const std::string interval = candidate.no_interval.empty()
                                   ? "80 % prediction interval"
                                   : "no interval: " + candidate.no_interval;
  text +=
      Line("step time", fmt::format("{}, {}, {}", TimeWithInterval(candidate.time),
                                    candidate.simulated ? "simulated" : "closed form", interval));
  if (candidate.closed_form) text += Line("closed form", TimeWithInterval(*candidate.closed_form));
  for (const Note& note : EngineNotes(job, candidate)) text += Line(note.label, note.words);
  text += Line("throughput",
               fmt::format("{} tokens/s, {} samples/s", Scaled(candidate.tokens_per_second),
                           Scaled(SamplesPerSecond(candidate))));
  if (prediction.window == Window::kStep && job.plan.empty()) {
    std::string micro = fmt::format("{} for forward and backward of one micro-batch",
                                    Format(Seconds(prediction.micro_step.total)));
    micro += candidate.strategy.pp > 1
                 ? ", alone in the pipeline"
                 : fmt::format(": {} samples/s", Scaled(MicroStepSamples(prediction)));
    text += Line("micro-step", micro) + TimerLine(job, prediction);
  }
  if (!candidate.shares.empty())
    text += Line("layers", orrery::LayoutWords(candidate.shares) + " by stage");
  if (!candidate.interval_basis.empty()) text += Line("interval from", candidate.interval_basis);
  text += OutsideLines(candidate);
  if (const auto words = RoundingOfParts(job.request.work, candidate.strategy); !words.empty())
    text += Line("rounding", words);
  text += Line("MFU", MfuFormula(job, candidate));
  text += Line("", "peak: " + PeakSource(job));
  if (candidate.price_per_step) text += Line("price", Price(job, candidate));
  return text;
}

}  // namespace

std::string Brief(const std::string& layout, const Prediction& prediction) {
  std::string text = fmt::format("{}: {}, {} tokens/s", layout, TimeWithInterval(prediction.time),
                                 Scaled(prediction.tokens_per_second));
  if (prediction.memory)
    text += fmt::format(", {} of {}{}", Format(prediction.memory->total),
                        Format(prediction.memory->capacity),
                        !prediction.memory->fits         ? ": does not fit"
                        : prediction.memory->nearly_full ? fmt::format(", {}", kNearlyFull)
                                                         : "");
  return text;
}

namespace {

// Whether groups of an axis have members in several scale-up domains.
bool LeavesNodes(CommAxis axis, const Strategy& s, const ClusterSummary& cluster) {
  const auto leaves = [&](int size, int inside) {
    return SlowestOfAxis(size, inside, cluster.domain_gpus(), cluster.ranks()).nodes() > 1;
  };
  switch (axis) {
    case CommAxis::kTensor:
      return leaves(s.tp, 1);
    case CommAxis::kContext:
      return leaves(s.cp, s.tp);
    case CommAxis::kPipeline:
      return leaves(s.pp, s.inside_stages());
    case CommAxis::kData:
      break;
  }
  return leaves(s.data_parallel(), s.inside_data() * s.cp);
}

// Axes whose messages share the links between nodes, in closed form: what they lose to each other is in no term. "": that cannot
// be worth a word. A group of neighbours that spans nodes shares the NICs with others of its kind all the time; other axes meet
// for no longer than all but the longest of them take.
std::string NotCounted(const Job& job, const Prediction& candidate) {
  if (candidate.simulated) return "";
  std::vector<std::string> axes;
  double sum = 0, longest = 0, neighbours = 0;
  for (const CommAxis axis : kCommAxes) {
    const double own = candidate.time.*ExposedOf(axis) + candidate.time.*HiddenOf(axis);
    if (!(own > 0) || !LeavesNodes(axis, candidate.strategy, job.cluster)) continue;
    axes.emplace_back(AxisWords(axis));
    sum += own;
    longest = std::max(longest, own);
    if (axis == CommAxis::kTensor || axis == CommAxis::kContext) neighbours += own;
  }
  if (axes.size() < 2) return "";
  if (std::max(sum - longest, neighbours) < kEnginesDiffer * candidate.time.total) return "";
  return fmt::format("contention: {} and {} share the links between nodes (--engine event)",
                     fmt::join(axes.begin(), axes.end() - 1, ", "), axes.back());
}

}  // namespace

std::vector<Note> EngineNotes(const Job& job, const Prediction& candidate) {
  std::vector<Note> notes;
  for (const Note& note : {Note{"not simulated", candidate.not_simulated},
                           Note{"not counted", job.plan.empty() ? NotCounted(job, candidate) : ""},
                           Note{"engines differ", EngineDifference(candidate)}})
    if (!note.words.empty()) notes.push_back(note);
  return notes;
}

std::string NotesText(const Job& job, const Prediction& candidate) {
  std::vector<std::string> notes;
  for (const Note& note : EngineNotes(job, candidate))
    notes.push_back(fmt::format("{}: {}", note.label, note.words));
  if (!candidate.outside.empty())
    notes.push_back(fmt::format("not calibrated: {}", fmt::join(candidate.outside, "; ")));
  return fmt::format("{}", fmt::join(notes, "; "));
}

std::string LayoutWords(const Job& job, const Prediction& prediction) {
  return job.plan.empty() ? DescribeLayout(prediction.strategy, prediction.micro_batches)
                          : job.plan;
}

std::string MaskedNote(const Prediction& candidate) {
  if (candidate.masked_flops <= kMuchMasked * candidate.model_flops) return "";
  return fmt::format(
      "; attention counts whole, as papers print it: {} without what the causal mask leaves out",
      Percent(candidate.MaskedMfu()));
}

// Tables of runs in 8 and 4 bits count against one peak or the other: NVIDIA's against that of the recipe, Megatron-LM's
// scripts and papers on them against bf16's.
std::string RecipeNote(const Job& job, const Prediction& candidate) {
  const Workload& work = job.request.work;
  if (work.fp8 == Fp8::kOff) return "";
  const GpuProfile& gpu = job.profiles.gpu;
  const ProductType product = FormOf(work.fp8).product;
  const FlopsPerSecond peak = gpu.Peak(product, work.precision);
  if (peak.value <= 0) return "";
  const double share = candidate.mfu * gpu.Peak(work.precision).value / peak.value;
  return fmt::format("; {} of {} in {}", Percent(share), Format(peak),
                     NameIn(kProductNames, product));
}

std::string MfuFormula(const Job& job, const Prediction& candidate) {
  std::string number = fmt::format("{:.2e}", candidate.model_flops);
  number.erase(std::remove(number.begin(), number.end(), '+'), number.end());
  const int64_t gpus = candidate.strategy.ranks();
  const std::string precision = Name(job.request.work.precision);
  const std::string beside = RecipeNote(job, candidate) + MaskedNote(candidate);
  if (!job.request.topology.gpu_peak.empty()) {
    return fmt::format("{} = {} model FLOP / ({} x {} in {} of {} GPUs){}", Percent(candidate.mfu),
                       number, Format(Seconds(candidate.time.total)),
                       Format(FlopsPerSecond(candidate.peak_flops)), precision, gpus, beside);
  }
  return fmt::format("{} = {} model FLOP / ({} x {} GPU{} x {} in {}){}", Percent(candidate.mfu),
                     number, Format(Seconds(candidate.time.total)), gpus, gpus == 1 ? "" : "s",
                     Format(job.profiles.gpu.Peak(job.request.work.precision)), precision, beside);
}

std::string PeakSource(const Job& job) {
  const auto& constants = job.profiles.gpu.header.constants;
  const auto found = constants.find(fmt::format("peak_{}", Name(job.request.work.precision)));
  return found == constants.end() ? "not stated" : found->second.source;
}

std::string NearestText(const Prediction& candidate) {
  if (candidate.nearest.empty())
    return fmt::format(
        "\n{}\n", Fold("Nearest published runs: none can be compared, as no run trains a model "
                       "of such layers",
                       0));
  Table table({{"run"},
               {"on"},
               {"nodes", true},
               {"hidden", true},
               {"measured", true},
               {"predicted", true},
               {"error", true},
               {"distance", true}});
  for (const NearRun& run : candidate.nearest) {
    table.Row({run.name, fmt::format("{}, {}", run.topology, run.framework),
               fmt::format("{:g}", run.at[kAtNodes]), fmt::format("{:g}", run.at[kAtHidden]),
               Format(Seconds(run.measured)), Format(Seconds(run.predicted)),
               fmt::format("{:+.1f} %", 100 * (run.predicted / run.measured - 1)),
               fmt::format("{:.1f}", run.distance)});
  }
  return fmt::format(
      "\n{}:\n{}",
      Fold("Nearest published runs, predicted leave-one-model-out. Distance: doublings in scale "
           "and shape; another chip or framework counts 2, another cluster or precision of "
           "products 1",
           0),
      table.Text(2));
}

std::string PredictionText(const Job& job, const PredictReport& prediction) {
  const Prediction& candidate = prediction.candidate;
  const bool step = prediction.window == Window::kStep;
  std::string text = JobHeader(job);
  text += fmt::format("\n{}\n", Fold(LayoutWords(job, candidate), 0));
  if (candidate.memory && !candidate.memory->fits)
    text += Line("out of memory",
                 "this layout does not fit (see below); the times assume enough memory");
  text += TimeSection(job, prediction);
  text += fmt::format("\nWhere the {} goes\n", step ? "step" : "micro-step");
  const StepTime& shown = step ? candidate.time : prediction.micro_step;
  text += BreakdownTable(shown, shown.total);
  if (candidate.memory) {
    text += fmt::format("\nPeak memory of a GPU: {}, {}\n", MemoryOfCapacity(*candidate.memory),
                        FitWords(*candidate.memory));
    if (!candidate.memory->fits) text += fmt::format("  {}\n", Fold(candidate.memory->summary, 2));
    if (!candidate.memory->fits && job.plan.empty()) {
      const Strategy& s = candidate.strategy;
      const std::string cp = s.cp > 1 ? fmt::format(" --cp {}", s.cp) : "";
      text += fmt::format(
          "  {}\n",
          Fold(fmt::format("`plan` with the same job and --tp {} --pp {}{} --dp {} searches "
                           "what fits of these degrees: micro-batch, schedule, chunks and "
                           "recomputation",
                           s.tp, s.pp, cp, s.dp),
               2));
    }
    text += fmt::format("  {}\n",
                        Fold(FitBasis(*candidate.memory, FrameworkWords(job.request.framework),
                                      FullShare(job.profiles.gpu, job.profiles.framework)),
                             2));
    text += MemoryText(*candidate.memory);
  }
  return text + NearestText(candidate) + "\nProfiles\n" + ProvenanceText(job);
}

nlohmann::ordered_json CandidateJson(const Prediction& candidate) {
  const Strategy& strategy = candidate.strategy;
  nlohmann::ordered_json json;
  json["layout"] = DescribeLayout(strategy, candidate.micro_batches);
  json["strategy"] = {{"tp", strategy.tp},
                      {"pp", strategy.pp},
                      {"dp", strategy.data_parallel()},
                      {"dp_outer", strategy.dp_outer},
                      {"vpp", strategy.vpp},
                      {"micro_batch", strategy.micro_batch},
                      {"schedule", Name(strategy.schedule)},
                      {"zero", strategy.zero},
                      {"recompute", RecomputeText(strategy.recompute)},
                      {"sequence_parallel", strategy.sequence_parallel},
                      {"flash_attention", strategy.flash_attention}};
  if (!candidate.shares.empty()) json["layers_by_stage"] = candidate.shares;
  if (strategy.placement) json["strategy"]["placement"] = PlacementText(*strategy.placement);
  if (strategy.cp > 1) {
    json["strategy"]["cp"] = strategy.cp;
    json["strategy"]["cp_method"] = NameIn(kCpMethodNames, strategy.context.method);
    json["strategy"]["cp_inner"] = strategy.context.inner;
    json["strategy"]["zigzag"] = strategy.context.zigzag;
  }
  if (strategy.offload.on()) json["strategy"]["offload"] = OffloadText(strategy.offload);
  if (strategy.layout) json["strategy"]["layout"] = *strategy.layout;
  json["nodes"] = candidate.nodes;
  json["gpus"] = strategy.ranks();
  json["global_batch"] = candidate.global_batch;
  json["micro_batches"] = candidate.micro_batches;
  json["digest"] = TextOrNull(candidate.digest);
  json["engine"] = candidate.simulated ? "event" : "closed";
  json["not_simulated"] = TextOrNull(candidate.not_simulated);
  json["step_time_s"] = candidate.time.total;
  json["step_time_interval_s"] = {candidate.time.low, candidate.time.high};
  json["interval_from"] = TextOrNull(candidate.interval_basis);
  json["no_interval"] = TextOrNull(candidate.no_interval);
  const bool has_closed_form = candidate.closed_form || !candidate.simulated;
  json["closed_form_step_time_s"] =
      has_closed_form ? candidate.ClosedForm().total : std::numeric_limits<double>::quiet_NaN();
  json["engines_differ"] = TextOrNull(EngineDifference(candidate));
  json["outside_calibration"] = candidate.outside;
  json["nearest_runs"] = NearestJson(candidate);
  json["breakdown"] = TimeJson(candidate.time);
  json["tokens_per_s"] = candidate.tokens_per_second;
  json["samples_per_s"] = SamplesPerSecond(candidate);
  json["mfu"] = candidate.mfu;
  json["mfu_counts"] = kMfuCounts;
  json["mfu_without_masked"] = candidate.MaskedMfu();
  json["price_per_step_usd"] = nullptr;
  json["price_per_billion_tokens_usd"] = nullptr;
  if (candidate.price_per_step) json["price_per_step_usd"] = candidate.price_per_step->value;
  if (candidate.price_per_billion_tokens) {
    json["price_per_billion_tokens_usd"] = candidate.price_per_billion_tokens->value;
  }
  json["memory"] = candidate.memory ? MemoryJson(*candidate.memory) : nlohmann::ordered_json();
  return json;
}

nlohmann::ordered_json PredictionJson(const Job& job, const PredictReport& prediction) {
  return RecordJson(job, prediction, "orrery.predict/1",
                    prediction.candidate.simulated ? "event" : "closed");
}

nlohmann::ordered_json RecordJson(const Job& job, const PredictReport& prediction,
                                  const std::string& schema, const std::string& engine) {
  nlohmann::ordered_json json = {{"schema", schema}, {"engine", engine}};
  json.update(JobJson(job));
  json["digest"] = prediction.candidate.digest;  // of the plan
  json["window"] = Name(prediction.window);
  json["micro_step_time_s"] = prediction.micro_step.total;
  json["micro_step_time_interval_s"] = {prediction.micro_step.low, prediction.micro_step.high};
  json["micro_step_breakdown"] = TimeJson(prediction.micro_step);
  json["micro_step_samples_per_s"] = MicroStepSamples(prediction);
  json["micro_step_printed_s"] = prediction.printed_s;
  json["micro_step_sustained_s"] = prediction.sustained_s;
  json["prediction"] = CandidateJson(prediction.candidate);
  json["prediction"]["not_counted"] =
      TextOrNull(job.plan.empty() ? NotCounted(job, prediction.candidate) : "");
  json["prediction"]["rounding"] =
      TextOrNull(RoundingOfParts(job.request.work, prediction.candidate.strategy));
  if (!job.plan.empty()) {  // not to be seen in a plan text
    json["prediction"]["layout"] = job.plan;
    for (const char* key : {"vpp", "schedule", "zero", "recompute", "sequence_parallel"})
      json["prediction"]["strategy"][key] = nullptr;
  }
  json["mfu_formula"] = MfuFormula(job, prediction.candidate);
  json["provenance"] = ProvenanceJson(job);
  return json;
}

}  // namespace orrery::report
