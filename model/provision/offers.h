// SPDX-License-Identifier: Apache-2.0
// What vendors ask for a node: prices with date, region and kind, checked when they are read.
//
// One file per machine type in offers/ (offers/README.md), and files of the same form that a user brings. Refused on
// reading, with place and hint: spot above on demand; an on-demand price below 0.6 of the median of the others of its type
// (catalogues list commitments as on demand); a price of zero or beyond any machine; a date that is none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/base/quantity.h"

namespace orrery {

// kUnclear: the source does not say what the price is for.
enum class PriceKind { kOnDemand, kCapacityBlock, kReserved1y, kReserved3y, kSpot, kUnclear };
inline constexpr std::pair<const char*, PriceKind> kPriceKindNames[] = {
    {"on-demand", PriceKind::kOnDemand},
    {"capacity-block", PriceKind::kCapacityBlock},
    {"reserved-1y", PriceKind::kReserved1y},
    {"reserved-3y", PriceKind::kReserved3y},
    {"spot", PriceKind::kSpot},
    {"unclear", PriceKind::kUnclear}};
const char* NameOf(PriceKind kind);

// A day, or the first day of a month or year where a source names no more.
struct Date {
  int year = 0, month = 0, day = 0;  // month, day 0: not said
  int64_t DayNumber() const;         // days since 1970-01-01 of its first day
  std::string Text() const;
};
std::optional<Date> ParseDate(const std::string& text);  // 2026, 2026-07, 2026-07-20

struct OfferPrice {
  PriceKind kind = PriceKind::kOnDemand;
  std::string region;
  DollarsPerHour price;  // of a node
  Date date;
  char evidence = 'C';
  std::string source, note;
  Seconds quantum{3600};   // billed in whole ones
  Seconds term;            // billed at least
  int64_t most_nodes = 0;  // 0: as the offer
};

struct Offer {
  std::string name, provider, instance;
  std::string topology;     // name or path; empty: `no_topology` says why
  Location topology_at;     // in its file
  std::string no_topology;  // why nothing can be predicted
  std::string stand_in;     // why another cluster's topology is taken; empty: it is this one
  std::string note;
  int64_t least_nodes = 1, most_nodes = 0, step = 1;  // most_nodes 0: the topology's
  std::optional<BytesPerSecond> storage;  // of the shared file system that comes with it
  std::optional<Seconds> spot_notice;
  std::optional<double> spot_rate;  // interruptions per 1000 node-days
  std::vector<OfferPrice> prices;
  std::string file;
};

// Reads one offer; problems go to `diagnostics`.
Offer ReadOffer(SourcePtr source, Diagnostics* diagnostics);
Offer LoadOffer(const std::string& path);

// Of users and of the catalogue (model/arch/data_root.h), by name.
std::vector<std::string> OfferNames();
// By its file's name, whatever the file calls it: a copy of another offer is not that one.
Offer LoadOfferOf(const std::string& name);
// The name of a file that is no offer, and why.
struct NoOffer {
  std::string name;
  InputError why;
};
// Those that can be read; the others are left to whoever names them.
std::vector<Offer> OfferCatalogue(std::vector<NoOffer>* broken);

// A price of an offer that a question considers.
struct Quote {
  Offer offer;
  OfferPrice price;
  bool one_of_several = false;  // regions of this kind, so that its name needs it
  std::string Name() const;     // "aws-p5", "aws-p5 spot" or "aws-p5 in eu"
  int64_t MostSold() const;  // nodes, by the offer and by this price; the largest number: no limit
  bool Sells(int64_t nodes) const;  // so many, in the steps in which nodes are sold
};
// For each offer and each of `kinds` the newest prices by region, only of `region` unless that is empty, and of those the ones
// that may be the cheapest bill of some run: no other is as cheap an hour, billed as shortly, for as many nodes.
std::vector<Quote> QuotesOf(const std::vector<Offer>& offers, const std::vector<PriceKind>& kinds,
                            const std::string& region);

// A commented file for a vendor's quote.
std::string OfferTemplate();

}  // namespace orrery
