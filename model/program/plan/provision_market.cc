// SPDX-License-Identifier: Apache-2.0
// Finds offers, resolves the job on each cluster, compares prices.
#include "model/program/plan/provision_market.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "model/arch/data_root.h"
#include "model/base/text.h"
#include "model/hardware/catalog.h"
#include "model/hardware/cluster_file.h"
#include "model/program/common/names.h"
#include "model/provision/choices.h"

namespace orrery::cli {
namespace {

bool IsFile(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml");
}

std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::weakly_canonical(path, error);
  return error ? path : found.string();
}

// "not read (.orrery/offers/bad.yaml:1): ...".
std::string NotReadWords(const InputError& error) {
  const Diagnostic& why = error.diagnostics().front();
  std::string place;
  if (why.where.source) place = ShownPath(why.where.source->name);
  if (why.where.source && why.where.line > 0) place += fmt::format(":{}", why.where.line);
  return fmt::format("not read{}: {}", place.empty() ? "" : " (" + place + ")", why.message);
}

// The offers that the flags name: files, then names and vendors of these files and of the catalogue (that of the project's and
// the user's folders too), each offer once.
std::vector<orrery::Offer> OffersOf(const std::vector<Flag>& flags,
                                    const std::vector<orrery::Offer>& catalogue,
                                    const std::vector<NoOffer>& broken) {
  if (flags.empty()) return catalogue;
  std::vector<orrery::Offer> offers;
  std::vector<const Flag*> given;  // files, by their place in `offers`
  for (const Flag& flag : flags) {
    if (!IsFile(flag.text)) continue;
    AtFile(flag, "an offer", [&] { offers.push_back(LoadOffer(flag.text)); });
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
    if (const auto named = std::ranges::find(broken, flag.text, &NoOffer::name);
        named != broken.end())
      AtFlag(flag, [&] { throw InputError(named->why); });
    AtFlag(flag, [&] { RefuseMachineFile(flag.text, "an offer"); });
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

// The GPU lacks a precision or a kernel that the flags want.
bool MachineSpecific(const InputError& error) {
  const std::string& message = error.diagnostics().front().message;
  return message.find("does not compute") != std::string::npos ||
         message.find("no fused attention") != std::string::npos ||
         message.find("does not run on") != std::string::npos;
}

}  // namespace

void OfferFlags::Declare(FlagSet* flags) {
  flags->Values(
      &offers, "--offers", "NAME,...",
      "vendors, offers of the catalogue or files of your own (default: the whole catalogue)",
      Words::kOffer);
  std::vector<std::string> kinds = {"any", "reserved"};
  for (const auto& row : kPriceKindNames) kinds.emplace_back(row.first);
  flags->Value(&kind, "--kind", "KIND",
               "on-demand (default), capacity-block, reserved, spot, any; several with commas",
               Words::kList, kinds);
  flags->Value(&region, "--region", "NAME", "only prices of this region");
}

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

Market::Market(const JobFlags& job, const OfferFlags& flags, const std::vector<PriceKind>& kinds,
               double margin)
    : job_(job), flags_(flags), margin_(margin) {
  std::vector<NoOffer> broken;
  const std::vector<orrery::Offer> catalogue = OfferCatalogue(&broken);
  const std::vector<orrery::Offer> offers = OffersOf(flags.offers, catalogue, broken);
  Add(offers, kinds);
  if (std::ranges::any_of(flags.offers, [](const Flag& flag) { return !IsFile(flag.text); }) ||
      flags.offers.empty()) {
    for (const NoOffer& one : broken) left_out.emplace_back(one.name, NotReadWords(one.why));
  }
  if (quotes.empty()) ThrowNoneLeft(offers);
  ComparePrices(catalogue);
}

void Market::Add(const std::vector<orrery::Offer>& offers, const std::vector<PriceKind>& kinds) {
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

std::string Market::NoPrice(const orrery::Offer& offer) const {
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

namespace {

// "": some number of its nodes can be rented and used.
std::string NeverSold(const Quote& quote, const Site& site) {
  const int64_t most = MostNodes(quote, site);
  if (most >= quote.offer.least_nodes) return "";
  return fmt::format("at least {} nodes are sold, but topology {} has at most {} that compute",
                     quote.offer.least_nodes, site.request.topology.name, most);
}

}  // namespace

void Market::AddQuote(const Quote& quote) {
  const auto known = by_topology_.find(quote.offer.topology);
  if (known != by_topology_.end()) {
    if (known->second == kRefused) {
      left_out.emplace_back(quote.Name(), refused_[quote.offer.topology]);
      return;
    }
    if (const std::string why = NeverSold(quote, sites[known->second]); !why.empty()) {
      left_out.emplace_back(quote.Name(), why);
      return;
    }
    site_of.push_back(known->second);
    quotes.push_back(quote);
    return;
  }
  JobFlags job = job_;
  job.topology.text = quote.offer.topology;
  job.topology.given = true;
  job.topology.where = quote.offer.topology_at;
  try {
    report::Job resolved = job.Resolve();
    resolved.profiles.framework.memory_nearly_full = 1 - margin_;
    Site site{resolved.request, resolved.profiles, {}};
    if (const std::string why = NeverSold(quote, site); !why.empty()) {
      left_out.emplace_back(quote.Name(), why);
      return;
    }
    if (job_.global_batch.given || resolved.model.spec.family != Family::kDecoder)
      site.batches = BatchSpansOf(job_.global_batch, resolved.request.work.global_batch);
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

// Those of the catalogue are compared by a test; a file that a user brings is, here.
void Market::ComparePrices(const std::vector<orrery::Offer>& catalogue) {
  std::vector<NodePrice> prices;
  for (std::size_t q = 0; q < quotes.size(); ++q) {
    const TopologySpec& topology = sites[site_of[q]].request.topology;
    prices.push_back({quotes[q], topology.gpu, topology.node.gpus});
  }
  const std::size_t own = prices.size();
  std::set<std::string> shipped;  // files
  for (const orrery::Offer& offer : catalogue)
    if (!IsUserFile(offer.file)) shipped.insert(Canonical(offer.file));
  const auto brought = [&](const Quote& quote) {
    return !shipped.contains(Canonical(quote.offer.file));
  };
  if (std::ranges::none_of(quotes, brought)) return;
  std::set<std::string> asked;
  for (const Quote& quote : quotes) asked.insert(quote.Name());
  std::vector<PriceKind> kinds;
  for (const auto& [name, kind] : kPriceKindNames) kinds.push_back(kind);
  // Of another offer's topology that cannot be read (a user's own, or one that a bundle holds without its profiles) nothing
  // is compared: nobody asked for it.
  std::map<std::string, std::optional<TopologySpec>> known;
  const auto topology_of = [&](const std::string& name) -> const std::optional<TopologySpec>& {
    const auto [at, added] = known.try_emplace(name);
    if (!added) return at->second;
    try {
      at->second = LoadTopology(name);
    } catch (const InputError&) {
      return at->second;
    }
    return at->second;
  };
  for (const Quote& quote : QuotesOf(catalogue, kinds, "")) {
    if (quote.offer.topology.empty() || asked.contains(quote.Name())) continue;
    if (const auto& topology = topology_of(quote.offer.topology))
      prices.push_back({quote, topology->gpu, topology->node.gpus});
  }
  for (std::size_t q = 0; q < own; ++q) {
    if (!brought(quotes[q])) continue;
    if (const auto below = FarBelowOthers(prices[q], prices))
      far_below[q] = FarBelowWords(prices[q], *below);
    if (std::string words = FarAboveWords(prices[q], prices); !words.empty())
      far_above.push_back(std::move(words));
  }
}

void Market::ThrowNoneLeft(const std::vector<orrery::Offer>& offers) const {
  constexpr std::size_t kMostReasons = 4;
  const Flag& region = flags_.region;
  if (region.given) {
    std::set<std::string> regions;
    for (const orrery::Offer& offer : offers)
      for (const OfferPrice& price : offer.prices) regions.insert(price.region);
    if (!regions.contains(region.text))
      throw InputError({{region.where, fmt::format("--region: no price in '{}'", region.text),
                         SuggestName(region.text, {regions.begin(), regions.end()})}});
  }
  std::string why;
  for (const auto& [offer, reason] :
       std::span(left_out).first(std::min(kMostReasons, left_out.size())))
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", offer, reason);
  if (left_out.size() > kMostReasons) why += "; ...";
  const Location& where = !flags_.offers.empty() ? flags_.offers.front().where
                          : region.given         ? region.where
                                                 : flags_.kind.where;
  throw InputError({{where, fmt::format("no offer is left ({})", why),
                     "other --offers, --kind or --region; `plan list offers` shows prices"}});
}

std::string Market::NotSold(const Question& question) const {
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (std::size_t q = 0; q < quotes.size(); ++q) {
    least = std::min(least, quotes[q].offer.least_nodes);
    most = std::max(most, MostNodes(quotes[q], sites[site_of[q]]));
  }
  std::set<int64_t> sold;
  for (std::size_t q = 0; q < quotes.size(); ++q) {
    for (const int64_t nodes : NodesOf(question, quotes[q], sites[site_of[q]])) sold.insert(nodes);
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

}  // namespace orrery::cli
