// SPDX-License-Identifier: Apache-2.0
// The report of `plan --nodes N --model NAME`.
#include "model/program/plan/search_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/exchange/rules.h"
#include "model/memory/memory.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/check_low_precision.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/memory_report.h"
#include "model/program/common/names.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"
#include "model/twin/default_shares.h"
#include "model/twin/evaluator.h"
#include "model/twin/other_nodes.h"

namespace orrery::report {
namespace {

constexpr std::size_t kMostRejections = 6;

std::string Bullet(const std::string& text) { return fmt::format("  - {}\n", Fold(text, 4)); }

// "3,796".
std::string Grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

// Seconds of a step with its input; empty: it does not wait for it.
std::optional<Seconds> StepOfInput(const Job& job, const Candidate& row) {
  const InputRates& input = job.request.input;
  const orrery::Job twin = JobOf(job.request, job.profiles, row.nodes, row.global_batch);
  const double fed = FedIn(input, twin, row.strategy.data_parallel());
  if (fed <= row.time.total) return std::nullopt;
  return Seconds(fed * input.slowest);
}

// With its nodes and batch, where the search has several.
std::string Named(const Job& job, const Candidate& candidate) {
  return ChosenWords(job.request, candidate.nodes, candidate.global_batch) +
         DescribeLayout(candidate.strategy, candidate.micro_batches);
}

// Of other nodes or another batch than plan 1 a step is no measure; "": of the same.
std::string RateBeside(const SearchResult& result, const Candidate& other) {
  if (!result.feasible()) return "";
  const Candidate& first = result.ranked[0];
  if (other.nodes == first.nodes && other.global_batch == first.global_batch) return "";
  const auto of_node = [](const Candidate& c) {
    return Scaled(c.tokens_per_second / static_cast<double>(c.nodes));
  };
  if (other.nodes == first.nodes)
    return fmt::format(" ({} tokens/s; plan 1: {})", Scaled(other.tokens_per_second),
                       Scaled(first.tokens_per_second));
  return fmt::format(" ({} tokens/s per node; plan 1: {})", of_node(other), of_node(first));
}

}  // namespace

std::string NearlyFull(const Job& job, const SearchResult& result) {
  const double limit = FullShare(job.profiles.gpu, job.profiles.framework);
  std::string rows;
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    const auto& memory = result.ranked[i].memory;
    if (!memory || !memory->nearly_full) continue;
    rows += fmt::format("{}{}", rows.empty() ? "" : ", ", i + 1);
  }
  if (!rows.empty()) {
    return fmt::format(
        "Nearly full, and so below all others: {}. Above {:.0f} % of the memory, frameworks retry "
        "allocations, slow down or fail: neither \"fits\" nor the time is reliable there.",
        rows, 100 * limit);
  }
  if (!result.nearly_full) return "";
  const Candidate& other = *result.nearly_full;
  const std::string rate = RateBeside(result, other);
  const std::string words =
      fmt::format("Nearly full, not ranked: {}, {} per step{}, needs {}", Named(job, other),
                  Format(Seconds(other.time.total)), rate, MemoryOfCapacity(*other.memory));
  if (!rate.empty()) return words + ".";
  return words + fmt::format(
                     ". The margin of {:.0f} % of the memory costs {}: so much longer takes "
                     "plan 1.",
                     100 * (1 - limit),
                     Percent(result.ranked[0].time.total / other.time.total - 1));
}

namespace {

std::string Outside(const SearchResult& result) {
  const std::string& basis = result.ranked[0].interval_basis;
  const std::string from =
      basis.empty() ? ""
                    : fmt::format("  {}\n", Fold(fmt::format("Interval of 1 from: {}.", basis), 2));
  std::string text;
  for (const std::string& what : result.ranked[0].outside)
    text += (text.empty() ? "" : "; ") + what;
  if (text.empty()) return from;
  return from +
         fmt::format(
             "  {}\n",
             Fold(fmt::format("Plan 1 is outside the calibrated range, its interval is wider: {}.",
                              text),
                  2));
}

std::string MemoryColumn(const Job& job, const Candidate& first) {
  if (!job.request.topology.gpu_memory.empty())
    return "of the stage that fills its GPUs most, as a share of theirs";
  return fmt::format("highest of all GPUs, out of {}",
                     Format(first.memory ? first.memory->capacity : job.profiles.gpu.Capacity()));
}

std::string Ranking(const Job& job, const SearchResult& result, const PlacedWords& placed) {
  const Candidate& first = result.ranked[0];
  std::string text = fmt::format("\nBest by {}: {}\n", Aim(job.request),
                                 Fold(DescribeLayout(first.strategy, first.micro_batches), 9));
  if (!placed.best.empty()) text += fmt::format("  {}\n", Fold(placed.best, 7));
  text += RankedTable(job, result.ranked);
  if (!placed.ranking.empty()) text += fmt::format("  {}.\n", Fold(placed.ranking, 2));
  if (result.ranked.size() < static_cast<std::size_t>(job.request.top))
    text += "  All that fits: one row for each choice of degrees and micro-batch, its best.\n";
  text += fmt::format(
      "  {}\n",
      Fold(fmt::format("micro-batch: sequences per GPU x micro-batches per step. memory: {}. MFU "
                       "of 1: {}; peak: {}.",
                       MemoryColumn(job, first), MfuFormula(job, first), PeakSource(job)),
           2));
  if (result.refinement && result.refinement->simulated > 0) {
    text +=
        fmt::format("  {}\n", Fold("step time: simulated op by op where the table also shows the "
                                   "closed form; interval, tokens/s, MFU and price follow from it.",
                                   2));
  }
  if (const std::string waiting = WaitingForInput(job, result); !waiting.empty())
    text += fmt::format("  {}.\n", Fold(waiting, 2));
  text += Outside(result);
  if (const std::string full = NearlyFull(job, result); !full.empty())
    text += fmt::format("  {}\n", Fold(full, 2));
  return text + RefinementText(job.request, result) + NearestText(first);
}

// "Plans 1 to 3" or "Plans 1, 3 and 4".
std::string TiedPlans(const std::vector<std::size_t>& tied) {
  if (tied.back() == tied.size() && tied.size() > 2)
    return fmt::format("Plans 1 to {}", tied.size());
  const std::vector<std::size_t> first(tied.begin(), tied.end() - 1);
  return fmt::format("Plans {} and {}", fmt::join(first, ", "), tied.back());
}

}  // namespace

std::string Ties(const SearchResult& result) {
  std::vector<std::size_t> tied = {1};
  for (std::size_t i = 1; i < result.ranked.size(); ++i) {
    if (result.ranked[i].tie_with_first) tied.push_back(i + 1);
  }
  if (tied.size() == 1) return "";
  const Candidate& first = result.ranked[0];
  if (first.difference_pairs == 0)
    return fmt::format("{} are tied (=): their 80 % intervals overlap.", TiedPlans(tied));
  return fmt::format(
      "{} are tied (=): differences between layouts are accurate to +-{:.0f} % (80 %, from {} "
      "published pairs).",
      TiedPlans(tied), 100 * std::expm1(first.difference), Grouped(first.difference_pairs));
}

namespace {

std::string Why(const SearchResult& result) {
  std::string text;
  for (const Comparison& comparison : result.comparisons) text += Bullet(comparison.words);
  if (const std::string ties = Ties(result); !ties.empty()) text += Bullet(ties);
  return text.empty() ? text : "\nWhy 1 wins\n" + text;
}

// Layers are moved until no single move helps, so that other shares may be faster: by how much at most.
std::string LeftByShares(const Candidate& candidate) {
  constexpr double kNothing = 1e-3;
  const double left = 1 - candidate.equals->bound / candidate.ClosedForm().total;
  if (candidate.equals->bound <= 0) return "";
  return left < kNothing ? "; no shares are faster"
                         : fmt::format("; other shares may take up to {:.1f} % less", 100 * left);
}

// What it gains that stages hold as many layers as suits them.
std::string Shares(const Job& job, const SearchResult& result) {
  std::string text;
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    const Candidate& candidate = result.ranked[i];
    if (!candidate.equals) continue;
    const double before = candidate.equals->seconds, now = candidate.time.total;
    text += Bullet(fmt::format(
        "Plan {}: {} instead of {} with equal shares, {:.1f} % {}, {}{}{}", i + 1,
        Format(Seconds(now)), Format(Seconds(before)), 100 * std::abs(1 - now / before),
        now <= before ? "less" : "more", candidate.simulated ? "simulated" : "in closed form",
        candidate.equals->fits ? "" : "; equal shares do not fit", LeftByShares(candidate)));
  }
  const bool mixed = !job.request.topology.slowdown.empty();
  return text.empty()
             ? text
             : fmt::format("\nLayers by {}\n", mixed ? "the GPUs of each stage" : "stage") + text;
}

}  // namespace

std::string NearMiss(const Job& job, const SearchResult& result, const Candidate& miss) {
  const Strategy& s = miss.strategy;
  const bool waits = SplitsBackward(s.schedule) && s.sequence_parallel && s.tp > 1;
  const std::optional<Seconds> fed = StepOfInput(job, miss);
  return fmt::format("Near miss: {} would take {}{}{} but needs {}{}.", Named(job, miss),
                     Format(Seconds(miss.time.total)),
                     fed ? fmt::format(" ({} with its input)", Format(*fed)) : "",
                     RateBeside(result, miss),
                     miss.memory ? MemoryOfCapacity(*miss.memory) : Format(miss.memory_bound),
                     waits ? "; gradients that tensor ranks gathered stay until weight gradients "
                             "are computed"
                           : "");
}

namespace {

std::string NextLimit(const Job& job, const SearchResult& result) {
  std::string text;
  for (const Limit& limit : result.limits) text += Bullet(limit.words);
  for (const Candidate& miss : result.near_misses) text += Bullet(NearMiss(job, result, miss));
  return text.empty() ? text : "\nWhat limits it next\n" + text;
}

std::string Rejected(const SearchResult& result) {
  const SearchCounts& counts = result.counts;
  int64_t predicted = counts.space - counts.bounded;
  for (const Rejection& rejection : result.rejections) predicted -= rejection.strategies;
  std::string text =
      result.complete ? fmt::format("\nSearched all {} layouts.\n", Grouped(counts.space))
                      : fmt::format("\nSearched a part of {} layouts: the search was cut short.\n",
                                    Grouped(counts.space));
  const auto row = [&](int64_t number, const std::string& words) {
    if (number > 0) text += fmt::format("{:>11}  {}\n", Grouped(number), Fold(words, 13));
  };
  row(predicted, "predicted");
  if (const ShareCounts& shares = counts.shares; shares.moved > 0)
    row(shares.moved,
        fmt::format("of them with layers moved between stages, too ({} steps priced): {}",
                    Grouped(shares.priced),
                    shares.faster == 0 ? "none faster" : Grouped(shares.faster) + " faster so"));
  if (const int64_t over = counts.shares.too_long; over > 0)
    row(over, "of them with too many passes to tell stages apart: no layers moved");
  row(counts.bounded, "slower than the best plan by a lower bound on the step time");
  for (std::size_t i = 0; i < std::min(kMostRejections, result.rejections.size()); ++i) {
    const Rejection& rejection = result.rejections[i];
    row(rejection.strategies,
        rejection.reason +
            (rejection.example.empty() ? "" : fmt::format("; for example {}", rejection.example)));
  }
  if (result.rejections.size() > kMostRejections) {
    text += fmt::format("  and {} more reasons (--json lists all)\n",
                        result.rejections.size() - kMostRejections);
  }
  return text;
}

std::string Winner(const Job& job, const SearchResult& result) {
  const Candidate& first = result.ranked[0];
  std::string text = fmt::format("\nWhere the step of 1 goes{}\n{}",
                                 StepOfInput(job, first) ? ", without the wait for its input" : "",
                                 BreakdownTable(first.time, first.time.total));
  if (first.memory) {
    text += fmt::format("\nWhat fills the memory of 1: {}\n{}", MemoryOfCapacity(*first.memory),
                        MemoryText(*first.memory));
  }
  const auto& given = job.request.fixed.placement;
  const std::string rounding = RoundingOfParts(job.request.work, first.strategy);
  return text +
         fmt::format("\nDetails\n  {}{}{}\n", PredictCommand(job, first),
                     given ? " --placement " + orrery::PlacementText(*given) : "",
                     result.refinement ? "" : " --engine closed") +
         (rounding.empty() ? "" : fmt::format("  Rounding: {}.\n", Fold(rounding, 2)));
}

// Smaller micro-batches need less memory, and here none of them is a plan.
std::string TooManyPasses(const Job& job, const SearchResult& result) {
  const auto many = std::ranges::find_if(result.rejections, [](const Rejection& rejection) {
    return rejection.reason.starts_with("micro-batches per step are more");
  });
  if (many == result.rejections.end()) return "";
  const int64_t batch = *std::ranges::min_element(job.request.global_batches);
  return fmt::format(
      "\n  {}\n",
      Fold(fmt::format(
               "smaller micro-batches would take less memory, but {} sequences on {} GPUs are "
               "more of them than a plan can have (at most {} per step): a smaller "
               "--global-batch",
               Grouped(batch), job.cluster.ranks(), Grouped(ir::kMostCalls / 2 - 1)),
           2));
}

std::string NothingFits(const Job& job, const SearchResult& result) {
  std::string text = "\nNothing fits.\n";
  if (result.closest) {
    const Candidate& closest = *result.closest;
    text += fmt::format("  closest: {}\n", Fold(Named(job, closest), 11));
    if (closest.memory) {
      text += fmt::format("  {}\n\nWhat fills its memory: {}\n{}", Fold(closest.memory->summary, 2),
                          MemoryOfCapacity(*closest.memory), MemoryText(*closest.memory));
    }
  }
  text += TooManyPasses(job, result) + "\nSmallest changes that make it fit\n";
  for (const Remedy& remedy : result.remedies) {
    text += Bullet(
        fmt::format("{} ({}): {}, {} per step, {}", remedy.change, remedy.flag,
                    DescribeLayout(remedy.candidate.strategy, remedy.candidate.micro_batches),
                    Format(Seconds(remedy.candidate.time.total)),
                    remedy.candidate.memory ? MemoryOfCapacity(*remedy.candidate.memory) : ""));
  }
  if (result.remedies.empty()) {
    text += Bullet(fmt::format(
        "None found up to {} nodes of {}: use GPUs with more memory (--gpu, --topology).",
        NodesThatCompute(job.request.topology), job.request.topology.name));
  }
  return text;
}

}  // namespace

const char* Aim(const SearchRequest& request) {
  const bool run = request.run != nullptr;
  switch (request.objective) {
    case Objective::kTime:
      return run ? "time of the run" : "time";
    case Objective::kCost:
      return run                                 ? "cost of the run"
             : request.global_batches.size() > 1 ? "cost of a token"
                                                 : "cost of a step";
    case Objective::kTokensPerDollar:
      return "tokens per dollar";
  }
  return "";
}

std::string WaitingForInput(const Job& job, const SearchResult& result) {
  std::string rows;
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    if (const auto step = StepOfInput(job, result.ranked[i]))
      rows += fmt::format("{}{}: {}", rows.empty() ? "" : ", ", i + 1, Format(*step));
  }
  return rows.empty() ? ""
                      : fmt::format(
                            "Ranked by the step with its input (--input, --storage), longer than "
                            "in this table where rows wait for it: {} per step",
                            rows);
}

std::string PredictCommand(const Job& job, const Candidate& candidate) {
  const Strategy& strategy = candidate.strategy;
  std::string text = fmt::format("plan predict{} --nodes {}", job.arguments, candidate.nodes);
  if (job.model.defaults.global_batch != candidate.global_batch) {
    text += fmt::format(" --global-batch {}", candidate.global_batch);
  }
  if (strategy.tp > 1) text += fmt::format(" --tp {}", strategy.tp);
  if (strategy.pp > 1)
    text += fmt::format(" --pp {} --schedule {}", strategy.pp, Name(strategy.schedule));
  if (strategy.vpp > 1) text += fmt::format(" --vpp {}", strategy.vpp);
  if (strategy.cp > 1) {
    const ContextLayout& context = strategy.context;
    text +=
        fmt::format(" --cp {} --cp-method {}", strategy.cp, NameIn(kCpMethodNames, context.method));
    if (context.inner > 1) text += fmt::format(" --cp-inner {}", context.inner);
    text += fmt::format(" --zigzag {}", context.zigzag ? "on" : "off");
  }
  if (strategy.dp_outer > 1) text += fmt::format(" --dp-outer {}", strategy.dp_outer);
  text += fmt::format(" --zero {} --micro-batch {}", strategy.zero, strategy.micro_batch);
  if (strategy.recompute != Recompute::kNone)
    text += fmt::format(" --recompute {}", RecomputeText(strategy.recompute));
  if (strategy.offload.on()) text += " --offload " + OffloadText(strategy.offload);
  const FrameworkPreset& preset = FindFramework(job.request.framework);
  if (strategy.sequence_parallel)
    text += " --sequence-parallel on";
  else if (preset.DefaultSequence(strategy.tp, strategy.pp))
    text += " --sequence-parallel off";
  if (strategy.layout) {
    text += fmt::format(" --layout {}", exchange::ListText(*strategy.layout));
  } else if (ChoosesShares(job.request.model, preset, strategy)) {
    std::vector<int> by_rule;  // without the flag, others would be chosen
    for (const LayerRange& range : BalanceLayers(job.request.model.layers, strategy))
      by_rule.push_back(static_cast<int>(range.count));
    text += fmt::format(" --layout {}", exchange::ListText(by_rule));
  }
  if (strategy.placement) text += " --placement " + PlacementText(*strategy.placement);
  return text;
}

std::string SearchText(const Job& job, const SearchResult& result, const PlacedWords& placed) {
  std::string text = JobHeader(job);
  if (!result.feasible()) return text + NothingFits(job, result) + Rejected(result);
  return text + Ranking(job, result, placed) + Shares(job, result) + Why(result) +
         NextLimit(job, result) + Winner(job, result) + Rejected(result);
}

}  // namespace orrery::report
