// SPDX-License-Identifier: Apache-2.0
// Offers: the catalogue reads, wrong files are refused with a place and a hint.
#include "model/provision/offers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "model/hardware/catalog.h"
#include "model/provision/price_check.h"
#include "tests/provision/whole_catalogue.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Offer Read(const std::string& text, std::string* errors = nullptr) {
  Diagnostics diagnostics;
  Offer offer = ReadOffer(std::make_shared<const Source>(Source{"quote.yaml", text}), &diagnostics);
  try {
    diagnostics.ThrowIfAny();
  } catch (const InputError& error) {
    if (errors == nullptr) throw;
    *errors = error.what();
  }
  return offer;
}

const std::string kHead = "name: mine\ntopology: dgx-h100\nprices:\n";
std::string Price(const std::string& kind, const std::string& price, const std::string& region,
                  const std::string& date) {
  return "  - {kind: " + kind + ", region: " + region + ", price: " + price +
         "USD/h, date: " + date + ", source: quote}\n";
}

TEST(Offers, TheCatalogueReadsAndNamesTopologiesThatExist) {
  const std::vector<Offer> offers = WholeCatalogue();
  EXPECT_GE(offers.size(), 60u);
  const std::vector<std::string> topologies = TopologyNames();
  std::set<std::string> names;
  std::size_t prices = 0;
  for (const Offer& offer : offers) {
    EXPECT_TRUE(names.insert(offer.name).second) << offer.name;
    EXPECT_THAT(offer.file, HasSubstr("/" + offer.name + ".yaml"));
    if (!offer.topology.empty()) {
      EXPECT_TRUE(std::ranges::binary_search(topologies, offer.topology)) << offer.name;
    }
    EXPECT_NE(offer.topology.empty(), offer.no_topology.empty()) << offer.name;
    for (const OfferPrice& price : offer.prices) {
      EXPECT_FALSE(price.source.empty()) << offer.name;
      ++prices;
    }
  }
  EXPECT_GE(prices, 150u);
}

NodePrice PriceOfNode(const Quote& quote) {
  const TopologySpec topology = LoadTopology(quote.offer.topology);
  return {quote, topology.gpu, topology.node.gpus};
}

// No price of the catalogue is far below all others; one in another file is.
TEST(Offers, APriceFarBelowThoseOfOtherFilesIsNamedWithTheNext) {
  std::vector<PriceKind> kinds;
  for (const auto& [name, kind] : kPriceKindNames) kinds.push_back(kind);
  std::vector<NodePrice> all;
  for (const Quote& quote : QuotesOf(WholeCatalogue(), kinds, "")) {
    if (!quote.offer.topology.empty()) all.push_back(PriceOfNode(quote));
  }
  EXPECT_GT(all.size(), 80u);
  for (const NodePrice& price : all) {
    const auto below = FarBelowOthers(price, all);
    EXPECT_FALSE(below) << FarBelowWords(price, *below);
    EXPECT_EQ(FarAboveWords(price, all), "");
  }
  for (const char* kind : {"on-demand", "reserved-3y", "spot"}) {
    const Offer mine = Read(kHead + Price(kind, "1", "all", "2026-11-01"));
    const NodePrice one = PriceOfNode({mine, mine.prices[0]});
    const auto below = FarBelowOthers(one, all);
    ASSERT_TRUE(below) << kind;
    EXPECT_LT(below->ratio, 0.2);
    EXPECT_EQ(below->other.gpu, one.gpu);
    EXPECT_THAT(FarBelowWords(one, *below),
                AllOf(HasSubstr("quote.yaml"), HasSubstr("/" + below->other.quote.offer.name)));
    const Offer usual = Read(kHead + Price(kind, "30", "all", "2026-11-01"));
    EXPECT_FALSE(FarBelowOthers(PriceOfNode({usual, usual.prices[0]}), all)) << kind;
  }
}

TEST(Offers, RefuseDatesAndStepsThatCannotBe) {
  std::string errors;
  Read(kHead + Price("on-demand", "36", "all", "1970-01-01"), &errors);
  EXPECT_THAT(errors, HasSubstr("nobody rented out such a machine on 1970-01-01"));
  Read(kHead + Price("on-demand", "36", "all", "2026-02-30"), &errors);
  EXPECT_THAT(errors, HasSubstr("'2026-02-30' is no date"));
  Read(kHead + "  - {kind: on-demand, price: 36USD/h, date: 2026-07, source: quote, quantum: 0h}\n",
       &errors);
  EXPECT_THAT(errors, HasSubstr("billed in steps of no time"));
}

TEST(Offers, TheTemplateIsAnOffer) {
  const Offer offer = Read(OfferTemplate());
  EXPECT_EQ(offer.name, "my-vendor-h100");
  ASSERT_EQ(offer.prices.size(), 1u);
  EXPECT_DOUBLE_EQ(offer.prices[0].price.value, 36);
}

TEST(Offers, RefuseNamesThatSteerATerminal) {
  std::string text = OfferTemplate(), errors;
  const std::string name = "my-vendor-h100";
  text.replace(text.find(name), name.size(), R"("red \x1b[31m")");
  Read(text, &errors);
  EXPECT_THAT(errors, HasSubstr("holds the control character 0x1b"));
}

TEST(Offers, TheNewestOfARegionAndTheCheapestOfRegionsCount) {
  const Offer offer =
      Read(kHead + Price("on-demand", "30", "east", "2025-01-01") +
           Price("on-demand", "40", "east", "2026-01-01") +
           Price("on-demand", "38", "west", "2025-06") + Price("spot", "12", "west", "2025"));
  const auto quotes = QuotesOf({offer}, {PriceKind::kOnDemand, PriceKind::kSpot}, "");
  ASSERT_EQ(quotes.size(), 2u);
  EXPECT_DOUBLE_EQ(quotes[0].price.price.value, 38);
  EXPECT_EQ(quotes[0].Name(), "mine");
  EXPECT_EQ(quotes[1].Name(), "mine spot");
  EXPECT_DOUBLE_EQ(QuotesOf({offer}, {PriceKind::kOnDemand}, "east").front().price.price.value, 40);
}

// 16 an hour for two nodes or a year is no cheaper bill than 20 for as many and as short as wanted.
TEST(Offers, RegionsThatBillOrSellOtherwiseStandBesideTheCheapestHour) {
  const auto quotes = [](const std::string& cap, const std::string& term) {
    Offer offer = Read(kHead + Price("on-demand", "16", "us", "2026-01-01") +
                       Price("on-demand", "20", "eu", "2026-01-01") +
                       Price("on-demand", "21", "asia", "2026-01-01"));
    for (OfferPrice& price : offer.prices) {
      if (price.region == "us" && !cap.empty()) price.most_nodes = 2;
      if (price.region == "us" && !term.empty()) price.term = Seconds(365 * 86400.0);
    }
    std::vector<std::string> names;
    for (const Quote& quote : QuotesOf({offer}, {PriceKind::kOnDemand}, ""))
      names.push_back(quote.Name());
    return names;
  };
  EXPECT_THAT(quotes("", ""), ElementsAre("mine"));
  EXPECT_THAT(quotes("2", ""), ElementsAre("mine in eu", "mine in us"));
  EXPECT_THAT(quotes("", "365d"), ElementsAre("mine in eu", "mine in us"));
}

struct Wrong {
  const char* name;
  std::string text;
  std::vector<std::string> said;
};
class WrongOffer : public testing::TestWithParam<Wrong> {};

TEST_P(WrongOffer, IsRefusedWithPlaceAndHint) {
  std::string errors;
  Read(GetParam().text, &errors);
  for (const std::string& part : GetParam().said) EXPECT_THAT(errors, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Files, WrongOffer,
    testing::Values(
        Wrong{"SpotAboveOnDemand",
              kHead + Price("on-demand", "30", "east", "2026-01") +
                  Price("spot", "31", "east", "2026-01"),
              {"quote.yaml:5", "spot costs 31 USD/h, on demand 30"}},
        Wrong{"APriceOfFewerNodesThanAreSold",
              "name: mine\ntopology: dgx-h100\nnodes: {min: 8, step: 8}\nprices:\n"
              "  - {kind: on-demand, price: 36USD/h, date: 2026-11-01, source: quote, "
              "most_nodes: 4}\n",
              {"quote.yaml:5", "at most 4 nodes at this price, but at least 8 are sold",
               "a larger most_nodes"}},
        Wrong{"Commitment",
              kHead + Price("on-demand", "88", "east", "2026-01") +
                  Price("on-demand", "112", "west", "2026-01") +
                  Price("on-demand", "43", "north", "2026-01"),
              {"quote.yaml:6", "the median of the on-demand prices", "commitment",
               "the dearest, 112 USD/h, is no price"}},
        Wrong{"TwoPricesOfADay",
              kHead + Price("on-demand", "36", "east", "2026-11-01") +
                  Price("on-demand", "36", "west", "2026-11-01") +
                  Price("on-demand", "40", "east", "2026-11-01"),
              {"quote.yaml:6", "a second on-demand price in east of 2026-11-01"}},
        Wrong{"NoDate",
              kHead + Price("on-demand", "30", "east", "2026-13-01"),
              {"quote.yaml:4", "'2026-13-01' is no date"}},
        Wrong{"NoUnit",
              "name: mine\ntopology: dgx-h100\nprices:\n  - {kind: on-demand, price: 30, date: "
              "2026-01, source: quote}\n",
              {"quote.yaml:4", "has no unit", "USD/h"}},
        Wrong{"Free", kHead + Price("on-demand", "0", "east", "2026-01"), {"quote.yaml:4"}},
        Wrong{"NoTopology",
              "name: mine\nprices:\n" + Price("on-demand", "30", "east", "2026-01"),
              {"names the topology", "no_topology"}},
        Wrong{"NoPrice", "name: mine\ntopology: dgx-h100\nprices: []\n", {"price"}},
        Wrong{"UnknownKind",
              kHead + Price("on-demnd", "30", "east", "2026-01"),
              {"on-demnd", "on-demand"}},
        Wrong{"UnknownKey",
              "name: mine\ntopolgy: dgx-h100\nno_topology: x\nprices:\n" +
                  Price("on-demand", "30", "east", "2026-01"),
              {"topolgy", "topology"}},
        Wrong{"MoreAtLeastThanAtMost",
              "name: mine\ntopology: dgx-h100\nnodes: {min: 8, max: 4}\nprices:\n" +
                  Price("on-demand", "30", "east", "2026-01"),
              {"quote.yaml:3", "at most 4 nodes, but at least 8"}}),
    [](const auto& test) { return test.param.name; });

// Whatever is in a file, reading it ends in an offer or in errors.
TEST(Offers, MutatedFilesNeverCrash) {
  const std::string text = OfferTemplate();
  std::mt19937 random(17);
  const std::string bytes = "0123456789-:{},#\"'[] \nabzUSD/h.%\xff";
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string mutated = text;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const std::size_t at = random() % mutated.size();
      if (random() % 3 == 0)
        mutated.erase(at, 1 + random() % 12);
      else
        mutated[at] = bytes[random() % bytes.size()];
      if (mutated.empty()) mutated = " ";
    }
    std::string errors;
    const Offer offer = Read(mutated, &errors);
    if (!errors.empty()) continue;
    ++read;
    EXPECT_FALSE(offer.prices.empty());
    EXPECT_GT(offer.prices[0].price.value, 0);
  }
  EXPECT_GT(read, 100);
}

TEST(Dates, AreDaysMonthsOrYears) {
  EXPECT_EQ(ParseDate("2026-11-22")->DayNumber() - ParseDate("2026-11-01")->DayNumber(), 21);
  EXPECT_EQ(ParseDate("2026-03")->DayNumber(), ParseDate("2026-03-01")->DayNumber());
  EXPECT_EQ(ParseDate("2024-02-29")->Text(), "2024-02-29");
  for (const char* text : {"2026-02-29", "2026-1-1", "26", "2026/01/01", "", "20260101"})
    EXPECT_FALSE(ParseDate(text)) << text;
}

}  // namespace
}  // namespace orrery
