// SPDX-License-Identifier: Apache-2.0
// `plan provision`: which offer, how many nodes, when done, at what cost.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/program/common/answer.h"
#include "model/program/common/bundle.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/share.h"
#include "model/program/plan/commands.h"
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
  std::vector<Flag> offers;
  Flag kind, region, nodes, margin, every, all, replay, offer_template, published, json, html,
      bundle;
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
    set.Values(
        &offers, "--offers", "NAME,...",
        "vendors, offers of the catalogue or files of your own (default: the whole catalogue)",
        Words::kOffer);
    std::vector<std::string> kinds = {"any", "reserved"};
    for (const auto& row : kPriceKindNames) kinds.emplace_back(row.first);
    set.Value(&kind, "--kind", "KIND",
              "on-demand (default), capacity-block, reserved, spot, any; several with commas",
              Words::kList, kinds);
    set.Value(&region, "--region", "NAME", "only prices of this region");
    set.Value(&nodes, "--nodes", "A..B|A,B,...",
              fmt::format("node counts; a range stands for its powers of two and three times them "
                          "(default 1..{})",
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

std::vector<PriceKind> ReadKinds(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return {PriceKind::kOnDemand};
  std::vector<std::string> names = {"any", "reserved"};
  for (const auto& [name, kind] : kPriceKindNames) names.emplace_back(name);
  std::vector<PriceKind> kinds;
  const auto add = [&](PriceKind kind) {
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  };
  for (std::size_t begin = 0; begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    Flag one = flag;
    one.text = flag.text.substr(begin, end - begin);
    begin = end + 1;
    const auto index = ReadName(one, names, diagnostics);
    if (!index) return kinds;
    for (const auto& [name, kind] : kPriceKindNames) {
      const bool reserved = kind == PriceKind::kReserved1y || kind == PriceKind::kReserved3y;
      if (*index == 0 || (*index == 1 && reserved) || names[*index] == name) add(kind);
    }
  }
  return kinds;
}

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

bool IsFile(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml");
}

std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::weakly_canonical(path, error);
  return error ? path : found.string();
}

// The offers that the flags name: files, then names and vendors of these files and of the catalogue (that of the project's and
// the user's folders too), each offer once.
std::vector<orrery::Offer> OffersOf(const std::vector<Flag>& flags) {
  const std::vector<orrery::Offer> catalogue = OfferCatalogue();
  if (flags.empty()) return catalogue;
  std::vector<orrery::Offer> offers;
  std::vector<const Flag*> given;  // files, by their place in `offers`
  for (const Flag& flag : flags) {
    if (!IsFile(flag.text)) continue;
    AtFlag(flag, [&] { offers.push_back(LoadOffer(flag.text)); });
    given.push_back(&flag);
  }
  std::set<std::string> known, taken;  // names; files
  for (const orrery::Offer& offer : offers) known.insert({offer.name, offer.provider});
  for (const orrery::Offer& offer : catalogue) known.insert({offer.name, offer.provider});
  for (const orrery::Offer& offer : offers) taken.insert(Canonical(offer.file));
  const std::vector<std::string> names(known.begin(), known.end());
  Diagnostics diagnostics;
  for (const Flag& flag : flags) {
    if (IsFile(flag.text)) continue;
    for (const orrery::Offer& offer : catalogue) {
      if (offer.name != flag.text && offer.provider != flag.text) continue;
      if (taken.insert(Canonical(offer.file)).second) offers.push_back(offer);
    }
    if (known.contains(flag.text)) continue;
    const std::string near = SuggestName(flag.text, names);
    diagnostics.Error(
        flag.where, fmt::format("no offer or vendor '{}'", flag.text),
        near.empty() ? "`plan list offers` shows them; a file of your own ends in .yaml" : near);
  }
  std::set<std::string> told;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const std::string& name = offers[i].name;
    const auto same = std::ranges::count(offers, name, &orrery::Offer::name);
    if (same > 1 && told.insert(name).second)
      diagnostics.Error((i < given.size() ? *given[i] : flags.front()).where,
                        fmt::format("{} offers are called '{}'", same, name),
                        "each offer once, each with a name of its own");
  }
  diagnostics.ThrowIfAny();
  return offers;
}

// "N,A..B": each range as one; else the default alone.
std::vector<BatchSpan> SpansOf(const Flag& flag, int64_t otherwise) {
  if (!flag.given) return {{otherwise, otherwise}};
  std::vector<BatchSpan> spans;
  Diagnostics diagnostics;  // said when the job was made
  for (std::size_t begin = 0; begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    Flag one = flag;
    one.text = flag.text.substr(begin, end - begin);
    begin = end + 1;
    if (const auto range = ReadRange(one, 1, std::numeric_limits<int64_t>::max(), &diagnostics))
      spans.push_back({range->first, range->second});
  }
  std::ranges::sort(spans, {}, &BatchSpan::most);
  return spans;
}

// Offers with the sites that they are of.
class Market {
 public:
  Market(const ProvisionFlags& flags, double margin) : flags_(flags), margin_(margin) {}

  void Add(const std::vector<orrery::Offer>& offers, const std::vector<PriceKind>& kinds) {
    for (const orrery::Offer& offer : offers) {
      const std::vector<Quote> found = QuotesOf({offer}, kinds, flags_.region.text);
      if (!offer.no_topology.empty() && offer.topology.empty()) {
        left_out.emplace_back(offer.name, offer.no_topology);
      } else if (found.empty()) {
        left_out.emplace_back(offer.name, NoPrice(offer));
      }
      if (offer.topology.empty()) continue;
      for (const Quote& quote : found) AddQuote(quote);
    }
  }

  std::vector<report::Job> jobs;  // by site
  std::vector<Site> sites;
  std::vector<Quote> quotes;
  std::vector<std::size_t> site_of;
  std::vector<std::pair<std::string, std::string>> left_out;

 private:
  std::string NoPrice(const orrery::Offer& offer) const {
    std::set<std::string> kinds;
    for (const OfferPrice& price : offer.prices) {
      if (!flags_.region.given || price.region == flags_.region.text)
        kinds.insert(NameOf(price.kind));
    }
    if (kinds.empty()) return fmt::format("no price in {}", flags_.region.text);
    if (kinds == std::set<std::string>{"unclear"})
      return "the source does not say what its price is for (--kind unclear)";
    return fmt::format("only {} prices are known (--kind)", fmt::join(kinds, ", "));
  }

  void AddQuote(const Quote& quote) {
    const auto known = by_topology_.find(quote.offer.topology);
    if (known != by_topology_.end()) {
      if (known->second == kRefused) {
        left_out.emplace_back(quote.Name(), refused_[quote.offer.topology]);
        return;
      }
      site_of.push_back(known->second);
      quotes.push_back(quote);
      return;
    }
    JobFlags job = flags_.job;
    job.topology.text = quote.offer.topology;
    job.topology.given = true;
    job.topology.where = quote.offer.topology_at;
    try {
      report::Job resolved = job.Resolve();
      resolved.profiles.framework.memory_nearly_full = 1 - margin_;
      Site site{resolved.request, resolved.profiles, {}};
      if (flags_.job.global_batch.given || resolved.model.spec.family != Family::kDecoder)
        site.batches = SpansOf(flags_.job.global_batch, resolved.request.work.global_batch);
      by_topology_[quote.offer.topology] = sites.size();
      site_of.push_back(sites.size());
      quotes.push_back(quote);
      sites.push_back(std::move(site));
      jobs.push_back(std::move(resolved));
    } catch (const InputError& error) {
      // Not this machine's fault: the flags or the model are wrong for every one.
      if (sites.empty() && by_topology_.empty() && !MachineSpecific(error)) throw;
      by_topology_[quote.offer.topology] = kRefused;
      refused_[quote.offer.topology] = error.diagnostics().front().message;
      left_out.emplace_back(quote.Name(), refused_[quote.offer.topology]);
    }
  }

  // The GPU lacks a precision or a kernel that the flags want.
  static bool MachineSpecific(const InputError& error) {
    const std::string& message = error.diagnostics().front().message;
    return message.find("does not compute") != std::string::npos ||
           message.find("no fused attention") != std::string::npos ||
           message.find("does not run on") != std::string::npos;
  }

  static constexpr std::size_t kRefused = static_cast<std::size_t>(-1);
  const ProvisionFlags& flags_;
  const double margin_;
  std::map<std::string, std::size_t> by_topology_;
  std::map<std::string, std::string> refused_;
};

// Step time of a row over the best without the margin.
double MarginCost(const Market& market, const Conditions& conditions, const Row& row) {
  const Site& site = market.sites[row.site];
  Profiles profiles = site.profiles;
  profiles.framework.memory_nearly_full = 1;
  ShapeCache shapes;
  const auto found = FastestLayouts(site.request, profiles)
                         .Find(row.nodes, {row.candidate.global_batch, row.candidate.global_batch},
                               &shapes, conditions.input.reader.value_or(0));
  if (!found) return 1;
  return row.candidate.ClosedForm().total / found->candidate.time.total;
}

report::Replay ReplayRow(const Row& row, const Conditions& conditions, int64_t runs) {
  report::Replay replay{runs, Seconds(0), Seconds(0)};
  Random random(2026);
  const Seconds work = row.run.ideal * conditions.run.straggler.value;
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < runs; ++i) {
    const double time = conditions.run.setup.value +
                        SimulateJob(row.run.stops, row.run.interval, work, &random).time.value;
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
    answer->margin_costs.emplace_back(i,
                                      MarginCost(market, answer->run->conditions, result.rows[i]));
    if (replays > 0 && !result.rows[i].run.elastic)
      answer->replays.emplace_back(i, ReplayRow(result.rows[i], answer->run->conditions, replays));
  }
  answer->all = flags.all.given;
  if (!answer->range || answer->batch_given || result.frontier.empty()) return;
  const Row& told = result.rows[answer->Told()];
  answer->beyond_range =
      JustBeyond(question, market.quotes[told.quote], market.sites[told.site], told);
}

// Offers that are left, with their sites. Throws InputError: none is.
void FillMarket(const ProvisionFlags& flags, const std::vector<PriceKind>& kinds, Market* market) {
  constexpr std::size_t kMostReasons = 4;
  const std::vector<orrery::Offer> offers = OffersOf(flags.offers);
  market->Add(offers, kinds);
  if (!market->quotes.empty()) return;
  if (flags.region.given) {
    std::set<std::string> regions;
    for (const orrery::Offer& offer : offers)
      for (const OfferPrice& price : offer.prices) regions.insert(price.region);
    const std::string& name = flags.region.text;
    if (!regions.contains(name))
      throw InputError({{flags.region.where, fmt::format("--region: no price in '{}'", name),
                         SuggestName(name, {regions.begin(), regions.end()})}});
  }
  std::string why;
  for (const auto& [offer, reason] :
       std::span(market->left_out).first(std::min(kMostReasons, market->left_out.size())))
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", offer, reason);
  if (market->left_out.size() > kMostReasons) why += "; ...";
  const Location& where = !flags.offers.empty() ? flags.offers.front().where
                          : flags.region.given  ? flags.region.where
                                                : flags.kind.where;
  throw InputError({{where, fmt::format("no offer is left ({})", why),
                     "other --offers, --kind or --region; `plan list offers` shows prices"}});
}

// Node counts that the user names and no offer sells; "": none, or all (then each offer says why).
std::string NotSold(const Question& question, const Market& market) {
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (std::size_t q = 0; q < market.quotes.size(); ++q) {
    least = std::min(least, market.quotes[q].offer.least_nodes);
    most = std::max(most, MostNodes(market.quotes[q], market.sites[market.site_of[q]]));
  }
  std::set<int64_t> sold;
  for (std::size_t q = 0; q < market.quotes.size(); ++q) {
    for (const int64_t nodes : NodesOf(question, market.quotes[q], market.sites[market.site_of[q]]))
      sold.insert(nodes);
  }
  if (sold.empty()) return "";  // each offer says so
  std::vector<int64_t> lacking;
  for (const int64_t nodes : question.nodes) {
    if (!sold.contains(nodes)) lacking.push_back(nodes);
  }
  if (lacking.empty()) return "";
  const int64_t spares = question.conditions.spares.value_or(0);
  return fmt::format(
      "{} nodes{}: no offer sells {} (they have {} to {} nodes, some in steps; --nodes)",
      fmt::join(lacking, ", "), spares > 0 ? fmt::format(" and {} spares", spares) : "",
      lacking.size() == 1 ? "that many" : "these numbers", least, most);
}

}  // namespace

Description DescribeProvision() { return ProvisionFlags().set.Describe(); }

Answer RunProvision(const CommandLine& line, std::size_t first) {
  ProvisionFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeProvision().help};
  if (flags.offer_template.given) return {ExitCode::kOk, OfferTemplate()};
  CheckHtml(flags.html, flags.json);
  CheckBundle(flags.bundle);
  if (flags.published.given)
    return Deliver(ExitCode::kOk, report::PublishedRunsText(), report::PublishedRunsJson(),
                   flags.json, flags.html);
  Diagnostics diagnostics;
  const std::vector<PriceKind> kinds = ReadKinds(flags.kind, &diagnostics);
  const double margin = ReadMargin(flags.margin, &diagnostics);
  const int64_t replays = ReadInteger(flags.replay, 1, 1'000'000, &diagnostics).value_or(0);
  Question question;
  question.nodes = ReadNodeCounts(flags.nodes, kMostNodes, &diagnostics);
  diagnostics.ThrowIfAny();
  LongRun run = ReadLongRun(flags.run);
  if (replays > 0 && run.conditions.recovery.elastic)
    throw InputError({{flags.replay.where, "--replay replays restarts, and an elastic run has none",
                       "another --recovery, or no --replay"}});
  Market market(flags, margin);
  FillMarket(flags, kinds, &market);
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
  if (job.model.spec.family == Family::kDecoder) {
    question.range = BatchRangeFor(answer.batch_facts, run.conditions.tokens);
    answer.range = question.range;
  }
  if (flags.nodes.given)
    answer.nodes_left_out = NotSold(question, market);
  else if (!question.nodes.empty())
    answer.most_nodes = std::ranges::max(question.nodes);
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
