// SPDX-License-Identifier: Apache-2.0
// Reads offers and picks prices.
#include "model/provision/offers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "model/arch/data_root.h"
#include "model/base/median.h"
#include "model/base/node.h"
#include "model/base/plain_text.h"
#include "model/hardware/catalog.h"
#include "model/hardware/node_price.h"

namespace orrery {
namespace {

constexpr int64_t kMostNodes = 1'000'000;
constexpr int kOldestYear = 2010;  // before GPUs were rented by the hour
constexpr double kLeastOfMedian =
    0.6;  // lower on-demand prices are commitments, as catalogues showed

constexpr std::pair<const char*, char> kGrades[] = {{"A", 'A'}, {"B", 'B'}, {"C", 'C'}};

OfferPrice ReadPrice(const Node& node) {
  OfferPrice price;
  price.kind =
      node.Choice("kind", std::span<const std::pair<const char*, PriceKind>>(kPriceKindNames));
  price.region = node.String("region", "all");
  price.price = node.ReadDollarsPerHour("price");
  if (node.diagnostics()->ok() && price.price.value <= 0)
    node.ErrorAt("price", "a node costs something",
                 "leave the row out where the price is not known");
  if (node.diagnostics()->ok() && price.price.value > kMostNodePrice)
    node.ErrorAt("price", fmt::format("{:.4g} USD/h is no price of a node", price.price.value),
                 fmt::format("per node and hour, at most {:.0f}", kMostNodePrice));
  const std::string date = node.String("date");
  const auto parsed = ParseDate(date);
  if (!parsed)
    node.ErrorAt("date", fmt::format("'{}' is no date", date),
                 "such as 2026-07-20, 2026-07 or 2026");
  else if (parsed->year < kOldestYear)
    node.ErrorAt("date", fmt::format("nobody rented out such a machine on {}", date),
                 "the day of the quote, such as 2026-07-20");
  else
    price.date = *parsed;
  price.evidence =
      node.Choice("evidence", std::span<const std::pair<const char*, char>>(kGrades), 'C');
  price.source = node.String("source");
  price.note = node.String("note", "");
  if (node.Has("quantum")) price.quantum = node.ReadSeconds("quantum");
  if (price.quantum.value <= 0)
    node.ErrorAt("quantum", "nothing is billed in steps of no time",
                 "such as 24h; without quantum: 1h");
  if (node.Has("term")) price.term = node.ReadSeconds("term");
  if (node.Has("most_nodes")) price.most_nodes = node.Integer("most_nodes", 1, kMostNodes);
  node.RejectUnknownKeys();
  return price;
}

double MedianOnDemand(const std::vector<OfferPrice>& prices) {
  std::vector<double> values;
  for (const OfferPrice& price : prices) {
    if (price.kind == PriceKind::kOnDemand) values.push_back(price.price.value);
  }
  return Median(std::move(values));
}

// What a price cannot be next to the others of its type.
void CheckPrices(const std::vector<OfferPrice>& prices, const std::vector<Node>& nodes) {
  const double median = MedianOnDemand(prices);
  double dearest = 0;
  std::map<std::string, double> here;  // on demand, by region
  for (const OfferPrice& price : prices) {
    if (price.kind != PriceKind::kOnDemand) continue;
    dearest = std::max(dearest, price.price.value);
    here[price.region] = price.price.value;
  }
  for (std::size_t i = 0; i < prices.size(); ++i) {
    const OfferPrice& price = prices[i];
    const auto before = prices.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(prices.begin(), before, [&](const OfferPrice& other) {
          return other.kind == price.kind && other.region == price.region &&
                 other.date.DayNumber() == price.date.DayNumber();
        }))
      nodes[i].Error(fmt::format("a second {} price in {} of {}", NameOf(price.kind), price.region,
                                 price.date.Text()),
                     "one price of a kind, region and date");
    if (price.kind == PriceKind::kOnDemand && price.price.value < kLeastOfMedian * median) {
      nodes[i].ErrorAt(
          "price",
          fmt::format("{:.4g} USD/h is {:.2f} x the median of the on-demand prices",
                      price.price.value, price.price.value / median),
          fmt::format("it looks like a commitment: kind reserved-1y or reserved-3y, or "
                      "unclear; or the dearest, {:.4g} USD/h, is no price",
                      dearest));
    }
    if (price.kind != PriceKind::kSpot || dearest == 0) continue;
    const double limit = here.contains(price.region) ? here[price.region] : dearest;
    if (price.price.value > limit) {
      nodes[i].ErrorAt(
          "price",
          fmt::format("spot costs {:.4g} USD/h, on demand {:.4g}", price.price.value, limit),
          "one of the two is of another kind or for another machine");
    }
  }
}

void ReadNodes(const Node& root, Offer* offer) {
  const auto nodes = root.Find("nodes");
  if (!nodes) return;
  offer->least_nodes = nodes->Integer("min", 1, kMostNodes, 1);
  offer->most_nodes = nodes->Integer("max", 1, kMostNodes, 0);
  offer->step = nodes->Integer("step", 1, kMostNodes, 1);
  if (offer->most_nodes > 0 && offer->most_nodes < offer->least_nodes)
    nodes->ErrorAt(
        "max",
        fmt::format("at most {} nodes, but at least {}", offer->most_nodes, offer->least_nodes),
        "max is the larger one");
  nodes->RejectUnknownKeys();
}

// A price that holds for fewer nodes than are sold at least can never be paid.
void CheckMostNodes(const Offer& offer, const std::vector<Node>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const int64_t most = offer.prices[i].most_nodes;
    if (most == 0 || most >= offer.least_nodes) continue;
    nodes[i].ErrorAt("most_nodes",
                     fmt::format("at most {} node{} at this price, but at least {} are sold", most,
                                 most == 1 ? "" : "s", offer.least_nodes),
                     "a larger most_nodes, or a smaller min of nodes");
  }
}

void ReadSpot(const Node& root, Offer* offer) {
  if (const auto notice = root.Find("spot_notice")) {
    offer->spot_notice = notice->ReadSeconds("value");
    (void)notice->String("source");
    (void)notice->String("evidence", "C");
    notice->RejectUnknownKeys();
  }
  if (const auto rate = root.Find("spot_rate")) {
    offer->spot_rate = rate->Number("value", 0, 1e6);
    (void)rate->String("source");
    (void)rate->String("unit", "");
    (void)rate->String("evidence", "C");
    rate->RejectUnknownKeys();
  }
}

// A file next to the offer, or a name of the catalogue.
std::string TopologyOf(const Node& root) {
  const std::string text = root.String("topology", "");
  if (text.find('/') == std::string::npos && !text.ends_with(".yaml")) return text;
  try {
    const std::string file = ReferencedFile(root.where().source->name, text);
    return file.find('/') == std::string::npos ? "./" + file : file;
  } catch (const InputError& outside) {
    root.ErrorAt("topology", outside.diagnostics()[0].message, outside.diagnostics()[0].hint);
    return text;
  }
}

}  // namespace

const char* NameOf(PriceKind kind) {
  for (const auto& [name, value] : kPriceKindNames) {
    if (value == kind) return name;
  }
  return "?";
}

int64_t Date::DayNumber() const {
  using namespace std::chrono;
  const year_month_day day_of{std::chrono::year(year), std::chrono::month(month > 0 ? month : 1),
                              std::chrono::day(day > 0 ? day : 1)};
  return sys_days(day_of).time_since_epoch().count();
}

std::string Date::Text() const {
  if (month == 0) return fmt::format("{:04}", year);
  if (day == 0) return fmt::format("{:04}-{:02}", year, month);
  return fmt::format("{:04}-{:02}-{:02}", year, month, day);
}

std::optional<Date> ParseDate(const std::string& text) {
  if (text.size() != 4 && text.size() != 7 && text.size() != 10) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 4 || i == 7;
    if (dash != (text[i] == '-') || (!dash && (text[i] < '0' || text[i] > '9')))
      return std::nullopt;
  }
  Date date;
  date.year = std::stoi(text.substr(0, 4));
  if (text.size() > 4) date.month = std::stoi(text.substr(5, 2));
  if (text.size() > 7) date.day = std::stoi(text.substr(8, 2));
  const std::chrono::year_month_day whole{
      std::chrono::year(date.year),
      std::chrono::month(text.size() > 4 ? static_cast<unsigned>(date.month) : 1U),
      std::chrono::day(text.size() > 7 ? static_cast<unsigned>(date.day) : 1U)};
  if (!whole.ok()) return std::nullopt;
  return date;
}

Offer ReadOffer(SourcePtr source, Diagnostics* diagnostics) {
  Offer offer;
  offer.file = source->name;
  const Node root = Node::Parse(std::move(source), diagnostics);
  if (!diagnostics->ok()) return offer;
  offer.name = root.String("name");
  offer.provider = root.String("provider", offer.name);
  offer.instance = root.String("instance", offer.name);
  offer.topology = TopologyOf(root);
  offer.topology_at = root.where("topology");
  offer.no_topology = root.String("no_topology", "");
  offer.stand_in = root.String("stand_in", "");
  offer.note = root.String("note", "");
  if (offer.topology.empty() && offer.no_topology.empty())
    root.Error("an offer names the topology of its machines",
               "topology: NAME of `plan list topologies`, or a YAML file (topologies/README.md); "
               "no_topology: why there is none");
  ReadNodes(root, &offer);
  ReadSpot(root, &offer);
  if (const auto storage = root.Find("storage")) {
    offer.storage = storage->ReadBytesPerSecond("write");
    (void)storage->String("source", "");
    storage->RejectUnknownKeys();
  }
  const std::vector<Node> prices = root.Items("prices");
  for (const Node& price : prices) offer.prices.push_back(ReadPrice(price));
  if (diagnostics->ok() && prices.empty()) root.ErrorAt("prices", "no price", "at least one row");
  if (diagnostics->ok()) CheckPrices(offer.prices, prices);
  if (diagnostics->ok()) CheckMostNodes(offer, prices);
  root.RejectUnknownKeys();
  return offer;
}

Offer LoadOffer(const std::string& path) {
  Diagnostics diagnostics;
  Offer offer = ReadOffer(ReadSource(path), &diagnostics);
  diagnostics.ThrowIfAny();
  return offer;
}

std::vector<std::string> OfferNames() { return NamesOfKind("offers"); }

Offer LoadOfferOf(const std::string& name) {
  Offer offer = LoadOffer(FileOfName("offers", name));
  offer.name = name;
  return offer;
}

std::vector<Offer> OfferCatalogue(std::vector<NoOffer>* broken) {
  std::vector<Offer> offers;
  for (const std::string& name : OfferNames()) {
    try {
      offers.push_back(LoadOfferOf(name));
    } catch (const InputError& error) {
      broken->push_back({name, error});
    }
  }
  return offers;
}

int64_t Quote::MostSold() const {
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t sold : {offer.most_nodes, price.most_nodes}) {
    if (sold > 0) most = std::min(most, sold);
  }
  return most;
}

bool Quote::Sells(int64_t nodes) const {
  return nodes >= offer.least_nodes && nodes <= MostSold() &&
         (nodes - offer.least_nodes) % offer.step == 0;
}

std::string Quote::Name() const {
  std::string name = offer.name;
  if (price.kind != PriceKind::kOnDemand) name += fmt::format(" {}", NameOf(price.kind));
  if (one_of_several) name += " in " + price.region;
  return name;
}

namespace {

// Whether no bill of `two` is below that of `one`.
bool NoCheaper(const OfferPrice& two, const OfferPrice& one) {
  const auto sold = [](const OfferPrice& price) {
    return price.most_nodes > 0 ? price.most_nodes : std::numeric_limits<int64_t>::max();
  };
  return one.price <= two.price && one.term <= two.term && one.quantum <= two.quantum &&
         sold(one) >= sold(two);
}

// Of alike ones the first.
std::vector<Quote> WithoutDearer(const Offer& offer, const std::vector<const OfferPrice*>& prices) {
  std::vector<Quote> quotes;
  for (std::size_t i = 0; i < prices.size(); ++i) {
    bool dearer = false;
    for (std::size_t j = 0; j < prices.size() && !dearer; ++j)
      dearer = j != i && NoCheaper(*prices[i], *prices[j]) &&
               (j < i || !NoCheaper(*prices[j], *prices[i]));
    if (!dearer) quotes.push_back({offer, *prices[i]});
  }
  for (Quote& quote : quotes) quote.one_of_several = quotes.size() > 1;
  return quotes;
}

}  // namespace

std::vector<Quote> QuotesOf(const std::vector<Offer>& offers, const std::vector<PriceKind>& kinds,
                            const std::string& region) {
  std::vector<Quote> quotes;
  for (const Offer& offer : offers) {
    for (const PriceKind kind : kinds) {
      std::map<std::string, const OfferPrice*> newest;  // by region
      for (const OfferPrice& price : offer.prices) {
        if (price.kind != kind || (!region.empty() && price.region != region)) continue;
        const OfferPrice*& held = newest[price.region];
        if (held == nullptr || held->date.DayNumber() < price.date.DayNumber()) held = &price;
      }
      std::vector<const OfferPrice*> prices;
      for (const auto& [name, price] : newest) prices.push_back(price);
      std::ranges::move(WithoutDearer(offer, prices), std::back_inserter(quotes));
    }
  }
  return quotes;
}

std::string OfferTemplate() {
  return R"(# A vendor's quote: fill it in, then `plan provision --offers ./quote.yaml,aws ...`.
# orrery: 0.1.0               # the release that the file needs: older ones say so instead of misreading it
name: my-vendor-h100          # how answers call it
provider: my-vendor           # optional; --offers takes this name, too
instance: "8 x H100 SXM"      # optional: what the vendor calls the machine
topology: dgx-h100            # of `plan list topologies`, or a YAML file (relative to this one)
# stand_in: "no file describes their cluster; this one has the same GPUs and NICs"
# nodes: {min: 4, max: 256, step: 4}     # how many they sell; default 1 to the topology's limit
# storage: {write: 20GB/s, source: "the quote"}   # the shared file system that comes with it, unless --storage
# spot_notice: {value: 30s, source: "the quote"}
# spot_rate: {value: 7.3, source: "measured"}     # interruptions per 1000 node-days
prices:                       # of a node; the newest of a kind and region counts, of regions the cheapest bill
  - kind: on-demand           # on-demand, capacity-block, reserved-1y, reserved-3y, spot or unclear
    region: us-east           # default: all
    price: 36USD/h
    date: 2026-11-01          # of the quote; old prices are marked in the answer
    evidence: A               # A the vendor's own figures, B a second source, C derived
    source: "quote 4711 of 2026-11-01"
    # quantum: 24h            # billed in whole ones; default 1h
    # term: 365d              # billed at least so long
    # most_nodes: 64          # of this price
)";
}

}  // namespace orrery
