// SPDX-License-Identifier: Apache-2.0
// The form with flags only: rank the layouts of a job on a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "model/base/text.h"
#include "model/program/common/answer.h"
#include "model/program/common/bundle.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/names.h"
#include "model/program/common/step_picture.h"
#include "model/program/common/table.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/export_flags.h"
#include "model/program/plan/search_report.h"
#include "model/program/plan/search_run.h"
#include "model/program/plan/training_report.h"
#include "model/twin/fastest.h"

namespace orrery::cli {
namespace {

struct SearchFlags {
  JobFlags job;
  LayoutFlags layout;
  LongRunFlags run;
  Flag objective, top, refine, json, html, bundle;
  ExportFlags exporting;
  FlagSet set{
      "--model NAME [flags]",
      "Finds the best parallel layout and batch split of a training job on a cluster: how fast it "
      "will be, "
      "what fills the memory, what would not fit and why.",
      {"plan --nodes 32 --model bert-1.5b",
       "plan --nodes 8,16,32 --model llama2-70b --topology aws-p5 --objective tokens-per-dollar",
       "plan --model gpt3-175b --nodes 128 --global-batch 512..2048 --top 10",
       "plan --model ./config.json --topology aws-p4d --nodes 4 --global-batch 512 --tp 8 --json "
       "plan.json",
       "plan --model llama3-8b --topology aws-p5,dgx-b200 --nodes 8 --tokens 2T --deadline 30d"}};

  SearchFlags() {
    job.Declare(&set, true);
    layout.Declare(&set, "Axes to fix (all others are searched)");
    run.Declare(&set);
    set.Group("The answer");
    set.Value(&objective, "--objective", "WHAT",
              "time (default), cost or tokens-per-dollar; of a step, with --tokens of the run",
              Words::kList, NamesOf<Objective>(report::kObjectiveNames));
    set.Value(&top, "--top", "K",
              "layouts to print (default 5): the best of each choice of degrees and micro-batch; "
              "where one choice alone is left, its variants");
    set.Value(
        &refine, "--refine", "K",
        fmt::format("simulate at least the best K layouts with contention and rank by simulated "
                    "time (default {}; 0: closed form only)",
                    kRefine));
    DeclareJson(&json, &set, "plan");
    DeclareHtml(&html, &set);
    DeclareBundle(&bundle, &set);
    DeclareFrom(&job, &set);
    set.Group("Files for a framework and a cluster (plan export)");
    exporting.Declare(&set, "--export");
  }
};

void RefuseExportFlags(const ExportFlags& flags) {
  for (const Flag* flag :
       {&flags.launcher, &flags.out, &flags.image, &flags.strict, &flags.force}) {
    if (flag->given)
      throw InputError({{flag->where, fmt::format("{} belongs to an export", flag->name),
                         "--export TARGET, such as --export megatron"}});
  }
}

// "A,B": each once. Throws InputError: one stands twice.
std::vector<std::string> TopologiesIn(const Flag& flag) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    std::string name = flag.text.substr(begin, end - begin);
    begin = end + 1;
    if (std::ranges::find(names, name) != names.end())
      throw InputError({{flag.where, fmt::format("--topology: '{}' stands there twice", name),
                         "each topology once"}});
    names.push_back(std::move(name));
  }
  return names;
}

// --topology A,B: one search each. A deadline and a budget are kept by some node counts and not by the fastest, perhaps, and runs
// on several topologies are compared in days and money: then one search for each count too.
std::vector<report::Compared> SearchAll(const SearchFlags& flags, const SearchSettings& settings,
                                        const LongRun& run) {
  std::vector<std::string> counts = {flags.job.nodes.text};
  const std::vector<std::string> topologies = TopologiesIn(flags.job.topology);
  if (run.deadline || run.budget || (run.tokens_given && topologies.size() > 1)) {
    Diagnostics diagnostics;  // said by the search
    const std::vector<int64_t> numbers =
        ReadNumbers(flags.job.nodes, true, 1, std::numeric_limits<int32_t>::max(), &diagnostics);
    if (numbers.size() > 1) counts.clear();
    if (numbers.size() > 1)
      for (const int64_t count : numbers) counts.push_back(std::to_string(count));
  }
  std::vector<report::Compared> all;
  for (const std::string& topology : topologies) {
    for (const std::string& nodes : counts) {
      JobFlags job = flags.job;
      job.topology.text = topology;
      job.nodes.text = nodes;
      SearchOutcome outcome = RunSearchOf(job, flags.layout, settings);
      if (run.tokens_given)
        CheckTokens(flags.run, job.global_batch.given, outcome.job, run.conditions.tokens);
      all.push_back({std::move(outcome.job), std::move(outcome.result), std::move(outcome.placed)});
    }
  }
  return all;
}

// Limits mean nothing without tokens.
LongRun ReadRun(const LongRunFlags& flags) {
  if (const Flag* flag = flags.AnyButTokens(); flag != nullptr && !flags.tokens.given) {
    throw InputError({{flag->where, fmt::format("{} is of a whole run", flag->name),
                       "--tokens N says how long it is, such as --tokens 2T"}});
  }
  return flags.tokens.given ? ReadLongRun(flags) : LongRun();
}

// Half the nodes, where they take the same step in less time: messages outweigh what the others compute.
struct FewerNodes {
  Candidate all, half;  // the fastest layouts, both with the same kind of step time
  double step = 0, half_step = 0;
  const char* By() const { return half.simulated ? "simulated" : "by the closed form"; }
};

// `slowest`: 1 as rows rank, beside a slow node; input.slowest: as readers and storage deliver.
double StepWithInput(const report::Job& job, const Candidate& candidate, double seconds,
                     double slowest = 1) {
  return std::max(seconds, slowest * FedIn(job.request.input,
                                           JobOf(job.request, job.profiles, candidate.nodes,
                                                 candidate.global_batch),
                                           candidate.strategy.data_parallel()));
}

// Step for step, where rows rank by their run.
SearchRequest BySteps(const report::Job& job) {
  SearchRequest request = job.request;
  request.run = nullptr;
  return request;
}

std::optional<FewerNodes> FasterOnFewer(const report::Compared& one) {
  if (!one.result.feasible() || one.job.request.objective != Objective::kTime) return std::nullopt;
  const Candidate& best = one.result.ranked.front();
  if (best.nodes < 2) return std::nullopt;
  // The first nodes are not half of a mixed cluster, and shares of layers (--placement search) may be what is missing.
  if (!one.job.request.topology.other_nodes.empty()) return std::nullopt;
  const SearchRequest request = BySteps(one.job);
  const FastestLayouts fastest(request, one.job.profiles);
  try {
    // The engines may differ in what is faster: within so much of the closed form, simulations tell.
    const double closed = StepWithInput(one.job, best, best.ClosedForm().total);
    const double may = best.simulated ? 1 + kEnginesDiffer : 1;
    auto half = fastest.Find(best.nodes / 2, {best.global_batch, best.global_batch},
                             one.result.shapes.get(), 0,
                             may * closed / static_cast<double>(best.global_batch));
    if (!half) return std::nullopt;
    if (best.simulated) fastest.Settle(&*half, one.result.shapes.get(), 0, 2);
    const bool both = best.simulated && half->candidate.simulated;
    const auto step = [&](const Candidate& candidate) {
      return StepWithInput(one.job, candidate,
                           both ? candidate.time.total : candidate.ClosedForm().total);
    };
    FewerNodes found{best, half->candidate, step(best), step(half->candidate)};
    if (found.half_step >= found.step) return std::nullopt;
    if (!both) found.half.simulated.reset();
    return found;
  } catch (const InputError&) {
    return std::nullopt;  // the fixed axes do not fit on so few
  }
}

std::string FewerNodesText(const FewerNodes& found) {
  return "\n" +
         report::Fold(
             fmt::format(
                 "More nodes make this step slower: {} {} on {} nodes, {} on {} node{} ({})",
                 Format(Seconds(found.step)), found.By(), found.all.nodes,
                 Format(Seconds(found.half_step)), found.half.nodes,
                 found.half.nodes == 1 ? "" : "s",
                 DescribeLayout(found.half.strategy, found.half.micro_batches)),
             0) +
         "\n";
}

// The answer about one topology.
std::string OneText(const report::Compared& one, const LongRun& run,
                    const std::optional<FewerNodes>& fewer) {
  const bool training = run.tokens_given && one.result.feasible();
  report::PlacedWords words;
  if (!one.placed.empty())
    words = {report::BestPlaced(one.placed),
             report::RankPlaced(one.placed, one.result.ranked.size()).words};
  return report::SearchText(one.job, one.result, words) + (fewer ? FewerNodesText(*fewer) : "") +
         (one.placed.empty() ? ""
                             : report::PlacementText(one.placed, one.result.ranked.size(),
                                                     one.job.request.topology.fabric)) +
         (training ? report::TrainingText(one, run) : "");
}

nlohmann::ordered_json OneJson(const report::Compared& one, const LongRun& run,
                               const std::optional<FewerNodes>& fewer) {
  nlohmann::ordered_json json = report::SearchJson(one.job, one.result);
  for (const report::PlacedRow& row : one.placed) {
    nlohmann::ordered_json& ranked = json["ranked"][static_cast<std::size_t>(row.row) - 1];
    ranked["placement"] = report::PlacementJson(row.choice, row.given);
    const StepTime time =
        report::InItsOrder(one.result.ranked[static_cast<std::size_t>(row.row) - 1], row.row,
                           one.placed)
            .time;
    ranked["placement"]["step_time_interval_s"] = {time.low, time.high};
  }
  if (!one.placed.empty()) {
    const report::PlacedRanking ranking = report::RankPlaced(one.placed, one.result.ranked.size());
    json["placed"] = {{"order", ranking.order}, {"words", ranking.words}};
  }
  if (run.tokens_given && one.result.feasible()) json["training"] = report::TrainingJson(one, run);
  if (fewer) {
    json["faster_on_fewer_nodes"] = {
        {"nodes", fewer->half.nodes},
        {"layout", DescribeLayout(fewer->half.strategy, fewer->half.micro_batches)},
        {"simulated", fewer->half.simulated.has_value()},
        {"step_time_s", fewer->half_step},
        {"step_time_of_all_s", fewer->step},
        {"closed_form_s", fewer->half.ClosedForm().total},
        {"closed_form_of_all_s", fewer->all.ClosedForm().total}};
  }
  return json;
}

bool Answers(const report::Compared& one, const LongRun& run) {
  if (!one.result.feasible()) return false;
  if (!run.tokens_given) return true;
  const bool priced = one.job.request.node_price || one.job.request.topology.node_price;
  const std::vector<RunEstimate> runs = report::EstimateRuns(one, run);
  return std::ranges::any_of(
      runs, [&](const RunEstimate& estimate) { return run.Keeps(estimate, priced); });
}

double WithInput(const report::Job& job, const Candidate& candidate) {
  return StepWithInput(job, candidate, candidate.time.total, job.request.input.slowest);
}

// In closed form: it, or a ranked layout of the same nodes and batch that is faster. `one`: of the same topology.
Candidate FasterOf(const report::Compared& one, Candidate candidate) {
  for (Candidate row : one.result.ranked) {
    if (row.nodes != candidate.nodes || row.global_batch != candidate.global_batch) continue;
    row.SetTime(row.ClosedForm());
    const bool full = row.memory && row.memory->nearly_full;
    if (!full && WithInput(one.job, row) < WithInput(one.job, candidate))
      candidate = std::move(row);
  }
  return candidate;
}

// With half and twice the nodes of the best and so on, and as many as were asked for.
std::set<int64_t> NodesOfCurve(const std::set<int64_t>& asked, int64_t best) {
  constexpr int64_t kHalvings = 4, kDoublings = 2;
  constexpr std::size_t kMostAsked = 12;
  std::set<int64_t> nodes;
  for (int64_t halvings = 0; halvings <= kHalvings; ++halvings)
    nodes.insert(std::max<int64_t>(1, best >> halvings));
  for (int64_t doublings = 1; doublings <= kDoublings; ++doublings) nodes.insert(best << doublings);
  const auto shown = static_cast<std::ptrdiff_t>(std::min(asked.size(), kMostAsked));
  nodes.insert(asked.begin(), std::next(asked.begin(), shown));
  return nodes;
}

// The fastest layout in closed form at those node counts, for a curve. Layers are moved between stages as
// in the search: no point is slower than a layout of the answer.
nlohmann::ordered_json ScalingJson(const std::vector<report::Compared>& all,
                                   const report::Compared& one) {
  const Candidate& best = one.result.ranked.front();
  std::vector<const report::Compared*> alike;  // answers of this topology: node counts may be apart
  std::set<int64_t> asked;
  for (const report::Compared& other : all) {
    if (other.job.request.topology.name != one.job.request.topology.name) continue;
    alike.push_back(&other);
    asked.insert(other.job.request.nodes.begin(), other.job.request.nodes.end());
  }
  const SearchRequest request = BySteps(one.job);
  const FastestLayouts fastest(request, one.job.profiles);
  ShapeCache* const shapes = one.result.shapes.get();
  nlohmann::ordered_json scaling = nlohmann::ordered_json::array();
  for (const int64_t nodes : NodesOfCurve(asked, best.nodes)) {
    try {
      auto found =
          fastest.Find(nodes, {best.global_batch, best.global_batch}, shapes, request.input.reader);
      if (!found) continue;
      fastest.MoveMoreLayers(&*found, shapes, request.input.reader);
      Candidate candidate = std::move(found->candidate);
      for (const report::Compared* other : alike)
        candidate = FasterOf(*other, std::move(candidate));
      const double step = WithInput(one.job, candidate);
      const double pace = candidate.time.total / step;
      scaling.push_back({{"nodes", nodes},
                         {"layout", DescribeLayout(candidate.strategy, candidate.micro_batches)},
                         {"step_time_s", step},
                         {"tokens_per_s", candidate.tokens_per_second * pace},
                         {"mfu", candidate.mfu * pace}});
    } catch (const InputError&) {
      continue;  // the topology does not have so many, or the fixed axes do not fit on them
    }
  }
  return scaling;
}

// What the figures of --html need beyond the answer.
void AddPicture(const std::vector<report::Compared>& all, const report::Compared& one,
                nlohmann::ordered_json* json) {
  if (!one.result.feasible()) return;
  const Candidate& best = one.result.ranked.front();
  report::AddStepPicture(JobOf(one.job.request, one.job.profiles, best.nodes, best.global_batch),
                         PlacedCandidate(one.job, one.result, one.placed, 1).strategy, json);
  (*json)["scaling"] = ScalingJson(all, one);
}

}  // namespace

Description DescribeSearch() { return SearchFlags().set.Describe(); }

Answer RunSearch(const CommandLine& line, std::size_t first) {
  SearchFlags flags;
  if (flags.set.Parse(line, first)) return RunHelp(CommandLine({"plan"}), 1);
  Diagnostics diagnostics;
  const auto objective =
      ReadChoice<Objective>(flags.objective, report::kObjectiveNames, &diagnostics);
  const auto top = ReadInteger(flags.top, 1, 1000, &diagnostics);
  const auto refine = ReadInteger(flags.refine, 0, report::kMostRefined, &diagnostics);
  diagnostics.ThrowIfAny();
  CheckHtml(flags.html, flags.json);
  CheckBundle(flags.bundle);
  const exchange::TargetInfo* target = flags.exporting.Target();
  TakeImports(&flags.job, nullptr);
  if (target == nullptr) RefuseExportFlags(flags.exporting);
  const bool named = flags.job.framework.given;
  flags.exporting.SetFramework(&flags.job);
  if (target != nullptr && !named) flags.exporting.TakeFramework(&flags.job, flags.layout);
  const LongRun run = ReadRun(flags.run);
  const std::vector<report::Compared> all =
      SearchAll(flags,
                {objective.value_or(Objective::kTime), static_cast<int>(top.value_or(5)),
                 static_cast<int>(refine.value_or(kRefine)), flags.objective, &run,
                 flags.exporting.Schedules(flags.job)},
                run);
  const std::vector<std::size_t> order = report::OrderOf(all, run);
  const std::size_t first_of_all = order.front();
  const report::Compared& best = all[first_of_all];
  const bool several = all.size() > 1;
  const auto fewer = FasterOnFewer(best);
  std::string text =
      (several ? report::ComparisonText(all, run) : std::string()) + OneText(best, run, fewer);
  nlohmann::ordered_json json;
  const bool wanted = flags.json.given || flags.html.given || flags.bundle.given;
  if (wanted && !several) json = OneJson(best, run, fewer);
  if (flags.html.given && !several) AddPicture(all, best, &json);
  if (wanted && several) {
    json = {{"schema", "orrery.plans/1"},
            {"best", best.job.request.topology.name},
            {"best_index", first_of_all},
            {"order", order}};
    if (run.tokens_given) {
      json["frontier"] = report::FrontierOf(all, run);
      json["passed_over"] = report::PassedOverWords(all, run);
    }
    for (const report::Compared& one : all)
      json["topologies"].push_back(OneJson(one, run, &one == &best ? fewer : FasterOnFewer(one)));
    if (flags.html.given) AddPicture(all, best, &json["topologies"][first_of_all]);
  }
  const bool answered =
      std::ranges::any_of(all, [&](const auto& one) { return Answers(one, run); });
  ExitCode code = answered ? ExitCode::kOk : ExitCode::kInfeasible;
  if (target != nullptr && best.result.feasible()) {
    const int row = best.placed.empty()
                        ? 1
                        : report::RankPlaced(best.placed, best.result.ranked.size()).order.front();
    const ExportResult files = MakeExport(flags.exporting, best.job,
                                          PlacedCandidate(best.job, best.result, best.placed, row));
    text += "\n" +
            WriteExport(flags.exporting, files,
                        flags.exporting.out.given ? flags.exporting.out.text : files.bundle.name);
    if (flags.exporting.strict.given && !files.Complete()) code = ExitCode::kCheckFailed;
  }
  WriteBundle(flags.bundle, json);
  Answer answer = Deliver(code, std::move(text), json, flags.json, flags.html);
  if (best.result.feasible()) {
    const Candidate& winner = best.result.ranked.front();
    answer.brief = report::Brief(DescribeLayout(winner.strategy, winner.micro_batches), winner);
    if (several)
      answer.brief = fmt::format("{}, {} node{}: {}", best.job.request.topology.name, winner.nodes,
                                 winner.nodes == 1 ? "" : "s", answer.brief);
    if (const std::string words = report::BestPlaced(best.placed); !words.empty())
      answer.brief += "; " + words;
    if (run.tokens_given) answer.brief += "; " + report::RunBrief(best, run);
    if (fewer)
      answer.brief +=
          fmt::format("; faster on {} node{}: {}", fewer->half.nodes,
                      fewer->half.nodes == 1 ? "" : "s", Format(Seconds(fewer->half_step)));
  } else {
    answer.brief = "nothing fits";
  }
  return answer;
}

}  // namespace orrery::cli
