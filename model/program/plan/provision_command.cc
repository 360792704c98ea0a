// SPDX-License-Identifier: Apache-2.0
// `plan provision`: which offer, how many nodes, when done, at what cost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/program/common/answer.h"
#include "model/program/common/bundle.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/share.h"
#include "model/program/common/terminal.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/provision_market.h"
#include "model/program/plan/provision_report.h"
#include "model/program/plan/published_runs.h"
#include "model/provision/choices.h"
#include "model/provision/failure_simulation.h"

namespace orrery::cli {
namespace {

constexpr int64_t kMostNodes = 1024;  // by default: twenty counts
constexpr double kDefaultMargin = 0.08;

struct ProvisionFlags {
  JobFlags job;
  LongRunFlags run;
  OfferFlags offers;
  Flag nodes, margin, every, all, replay, offer_template, published, json, html, bundle;
  FlagSet set{
      "provision --model NAME --tokens N [flags]",
      "Which machines to rent: for each offer and node count the best layout and batch, the days "
      "with "
      "failures and the price. Prints days against dollars, the cheapest offer that keeps the "
      "deadline, the fastest within the budget and why others lose.",
      {"plan provision --model llama3-8b --tokens 2T --deadline 30d --budget 500kUSD",
       "plan provision --model llama3-70b --tokens 1.4T --deadline 21d --offers "
       "nebius,aws,./quote.yaml",
       "plan provision --offer-template > quote.yaml", "plan provision --published"}};

  ProvisionFlags() {
    job.cluster = false;
    job.batch_spans = true;
    job.Declare(&set, true);
    run.Declare(&set);
    set.Group("The offers");
    offers.Declare(&set);
    set.Value(&nodes, "--nodes", "A..B|A,B,...",
              fmt::format("node counts; a range stands for its powers of two and three times them, "
                          "and for what an offer sells in steps, up to 20 sizes (default 1..{})",
                          kMostNodes));
    set.Value(&margin, "--memory-margin", "SHARE",
              "memory that a run of weeks leaves free, such as 8% or 0.08 (default 8%)");
    set.Switch(&offer_template, "--offer-template", "print a commented file for a vendor's quote");
    set.Group("The answer");
    set.Switch(&all, "--all", "every row of the frontier and every offer");
    set.Switch(&every, "--no-bounds",
               "evaluate every offer at every node count (slow; same answer)");
    set.Value(&replay, "--replay", "N", "simulate the chosen runs N times with random failures");
    set.Switch(&published, "--published",
               "goodput of published runs, predicted with the defaults, next to what they printed");
    DeclareJson(&json, &set, "provision");
    DeclareHtml(&html, &set);
    DeclareBundle(&bundle, &set);
  }
};

double ReadMargin(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return kDefaultMargin;
  const std::optional<double> share = ParseShare(flag.text);
  if (share && *share >= 0 && *share < 0.9) return *share;
  double percent = 0;
  const bool bare = ParseNumber(flag.text, &percent) == NumberFault::kNone;
  diagnostics->Error(flag.where,
                     share ? fmt::format("--memory-margin: {} is out of range", flag.text)
                           : fmt::format("--memory-margin: '{}' is not a share", flag.text),
                     bare && percent >= 0.9 && percent < 90
                         ? fmt::format("write {0}% for {0} percent", flag.text)
                         : "from 0% to below 90%, such as 8% or 0.08");
  return kDefaultMargin;
}

// Time per sequence with the slowest node, as fast as its readers let it train.
double SecondsPerSequence(const Conditions& conditions, const Candidate& candidate,
                          double step_seconds, int64_t seq_len) {
  const double computed =
      step_seconds * conditions.run.straggler.value / static_cast<double>(candidate.global_batch);
  if (!conditions.input.reader) return computed;
  const double fed =
      *conditions.input.reader * static_cast<double>(candidate.strategy.data_parallel());
  return std::max(computed, static_cast<double>(seq_len) / fed);
}

// Time per sequence of a row over the best without the margin, of all batches that it was searched in: simulated where the
// row is, as its days are.
double MarginCost(const Question& question, const Market& market, const Row& row) {
  const Conditions& conditions = question.conditions;
  const Site& site = market.sites[row.site];
  Profiles profiles = site.profiles;
  profiles.framework.memory_nearly_full = 1;
  const FastestLayouts layouts(site.request, profiles);
  ShapeCache shapes;
  std::optional<FastestLayouts::Found> found;
  for (const BatchSpan& batches : SearchedBatches(question, site)) {
    auto one = layouts.Find(row.nodes, batches, &shapes, SearchInput(conditions).reader);
    if (one && (!found || one->seconds < found->seconds)) found = std::move(one);
  }
  if (!found) return 1;
  Candidate best = found->candidate;
  if (best.global_batch == row.candidate.global_batch &&
      DescribeLayout(best.strategy) == DescribeLayout(row.candidate.strategy))
    return 1;
  if (row.candidate.simulated) {
    layouts.Settle(&*found, &shapes, SearchInput(conditions).reader);
    best = found->candidate;
  }
  const bool alike = best.simulated.has_value() == row.candidate.simulated.has_value();
  const auto seconds = [&](const Candidate& one) {
    return SecondsPerSequence(conditions, one, alike ? one.time.total : one.ClosedForm().total,
                              site.request.work.seq_len);
  };
  // The row is one of those without the margin, and simulated times may turn round what closed forms have as the best.
  return std::max(1.0, seconds(row.candidate) / seconds(best));
}

report::Replay ReplayRow(const Row& row, const Conditions& conditions, int64_t runs) {
  report::Replay replay{runs, Seconds(0), Seconds(0)};
  Random random(2026);
  const Seconds work = row.run.Work();
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < runs; ++i) {
    const SimulatedJob job =
        row.run.elastic
            ? SimulateElasticJob(row.run.shrinking, row.run.stops, row.run.interval, work, &random)
            : SimulateJob(row.run.stops, row.run.interval, work, &random);
    const double time = (conditions.run.setup + job.time).value;
    sum += time;
    squares += time * time;
  }
  const auto count = static_cast<double>(runs);
  replay.mean = Seconds(sum / count);
  replay.deviation =
      Seconds(std::sqrt(std::max(0.0, squares / count - sum / count * (sum / count))));
  return replay;
}

void Explain(const ProvisionFlags& flags, const Question& question, const Market& market,
             int64_t replays, report::ProvisionAnswer* answer) {
  const Provisioned& result = *answer->result;
  std::set<std::size_t> chosen;
  if (result.cheapest) chosen.insert(*result.cheapest);
  if (result.fastest) chosen.insert(*result.fastest);
  if (!result.frontier.empty() && chosen.empty()) chosen.insert(result.frontier.back());
  for (const std::size_t i : chosen) {
    answer->margin_costs.emplace_back(i, MarginCost(question, market, result.rows[i]));
    if (replays > 0)
      answer->replays.emplace_back(i, ReplayRow(result.rows[i], answer->run->conditions, replays));
  }
  answer->all = flags.all.given;
  if (!answer->range || answer->batch_given || result.frontier.empty()) return;
  const Row& told = result.rows[answer->Told()];
  answer->beyond_range =
      JustBeyond(question, market.quotes[told.quote], market.sites[told.site], told);
}

}  // namespace

Description DescribeProvision() { return ProvisionFlags().set.Describe(); }

Answer RunProvision(const CommandLine& line, std::size_t first) {
  ProvisionFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeProvision().help};
  if (flags.offer_template.given) return DeliverTemplate(OfferTemplate(), flags.json);
  CheckHtml(flags.html, flags.json);
  CheckBundle(flags.bundle);
  if (flags.published.given) {
    Answer published = Deliver(ExitCode::kOk, report::PublishedRunsText(),
                               report::PublishedRunsJson(), flags.json, flags.html);
    published.brief = report::PublishedRunsBrief();
    return published;
  }
  Diagnostics diagnostics;
  const std::vector<PriceKind> kinds = ReadKinds(flags.offers.kind, &diagnostics);
  const double margin = ReadMargin(flags.margin, &diagnostics);
  const int64_t replays = ReadInteger(flags.replay, 1, 1'000'000, &diagnostics).value_or(0);
  Question question;
  question.nodes = ReadNodeCounts(flags.nodes, kMostNodes, &diagnostics);
  diagnostics.ThrowIfAny();
  const auto has = [&](const char* what) {
    return flags.nodes.text.find(what) != std::string::npos;
  };
  if (!flags.nodes.given || (has("..") && !has(",")))
    question.any_nodes = {question.nodes.front(), question.nodes.back()};
  LongRun run = ReadLongRun(flags.run);
  Market market(flags.job, flags.offers, kinds, margin);
  const report::Job& job = market.jobs.front();
  if (!run.tokens_given) run.conditions.tokens = DefaultTokens(flags.run, job);
  CheckTokens(flags.run, flags.job.global_batch.given, job, run.conditions.tokens);
  question.conditions = run.conditions;
  question.deadline = run.deadline;
  question.budget = run.budget;
  question.every = flags.every.given;
  report::ProvisionAnswer answer{&market.jobs,  &run,    &market.quotes, &market.site_of,
                                 &market.sites, nullptr, LoadBatch()};
  answer.batch_given = flags.job.global_batch.given;
  answer.tokens_by_rule = !run.tokens_given;
  answer.memory_margin = margin;
  answer.left_out = market.left_out;
  answer.far_below = market.far_below;
  answer.far_above = market.far_above;
  if (job.model.spec.family == Family::kDecoder) {
    question.range = BatchRangeFor(answer.batch_facts, run.conditions.tokens);
    answer.range = question.range;
  }
  if (flags.nodes.given)
    answer.nodes_left_out = market.NotSold(question);
  else if (!question.nodes.empty())
    answer.most_nodes = std::ranges::max(question.nodes);
  Progress progress;
  question.progress = [&](const char* what, double share) { progress.At(what, share); };
  const Provisioned result = Provision(question, market.quotes, market.site_of, market.sites);
  answer.result = &result;
  Explain(flags, question, market, replays, &answer);
  const bool answered = result.feasible && !result.frontier.empty();
  const bool wanted = flags.json.given || flags.html.given || flags.bundle.given;
  nlohmann::ordered_json json = wanted ? report::ProvisionJson(answer) : nlohmann::ordered_json();
  if (flags.html.given && !result.frontier.empty()) json["picture"] = report::PictureJson(answer);
  WriteBundle(flags.bundle, json);
  Answer delivered = Deliver(answered ? ExitCode::kOk : ExitCode::kInfeasible,
                             report::ProvisionText(answer), json, flags.json, flags.html);
  delivered.brief = report::ProvisionBrief(answer);
  return delivered;
}

}  // namespace orrery::cli
