// SPDX-License-Identifier: Apache-2.0
// Names of offers and vendors, prices per hour, and layouts that wait for their input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/json_of.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// The template as a quote of this vendor.
std::string QuoteOf(const std::string& vendor) {
  std::string text = RunPlan({"provision", "--offer-template"}).out;
  const std::string from = "provider: my-vendor";
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, from.size(), "provider: " + vendor);
  const std::string path = ScratchFolder() + "/quote-of-" + vendor + ".yaml";
  WriteText(path, text);
  return path;
}

// A vendor's name stands for its offers in files that are given next to it, too; none counts twice.
TEST(Offers, AVendorOfAGivenFileIsKnown) {
  const std::string mine = QuoteOf("acme");
  const auto offers = [](const std::string& names) {
    const json answer = JsonOf({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                                names, "--nodes", "1,2", "--no-bounds", "--as-of", "2026-11-22"});
    std::map<std::string, std::size_t> rows;
    for (const json& row : answer["answers"]) ++rows[row["offer"]["provider"]];
    return rows;
  };
  const auto alone = offers(mine);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(offers(mine + ",acme"), alone);
  EXPECT_EQ(offers("acme," + mine), alone);
  EXPECT_EQ(offers(mine + ",aws-p5").at("acme"), alone.at("acme"));
  const Outcome wrong =
      RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", mine + ",acmee"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err,
              AllOf(HasSubstr("no offer or vendor 'acmee'"), HasSubstr("did you mean 'acme'?")));
  // With a vendor of the catalogue's: all of theirs and the quote.
  const std::string theirs = QuoteOf("nebius");
  EXPECT_EQ(offers(theirs + ",nebius").at("nebius"),
            offers("nebius").at("nebius") + alone.at("acme"));
}

TEST(Offers, PricesPerDayAreRefusedWithThePricePerHour) {
  EXPECT_THAT(RunPlan({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
                       "--node-price", "1200USD/d"})
                  .err,
              HasSubstr("prices are per hour: 1200USD/d is 50USD/h"));
  EXPECT_THAT(RunPlan({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
                       "--node-price", "7.3kUSD/month"})
                  .err,
              HasSubstr("7.3kUSD/month is 10USD/h"));
}

// Layouts rank by the step with its input, in text and JSON, and say so.
TEST(Tokens, LayoutsRankByTheStepWithItsInput) {
  const std::vector<std::string> words = {"--model", "llama3-8b", "--topology", "dgx-h100",
                                          "--nodes", "2",         "--tokens",   "100B",
                                          "--as-of", "2026-11-22"};
  const auto replicas = [](const json& row) {
    const json& strategy = row["strategy"];
    return strategy["dp"].get<int>() * strategy.value("dp_outer", 1);
  };
  const json free = JsonOf(words), fed = JsonOf(With(words, {"--input", "2ktokens/s"}));
  EXPECT_LT(replicas(free["ranked"][0]), 16);
  EXPECT_EQ(free["training"]["ranked_by_input"], "");
  EXPECT_EQ(replicas(fed["ranked"][0]), 16);
  double last = 0;
  for (std::size_t i = 0; i < fed["ranked"].size(); ++i) {
    const json& row = fed["ranked"][i];
    const double tokens = row["global_batch"].get<double>() * 8192;
    const double step = std::max(row["step_time_s"].get<double>(), tokens / (2e3 * replicas(row)));
    EXPECT_NEAR(fed["training"]["runs"][i]["step_time_s"].get<double>(), step, 1e-9 * step);
    EXPECT_GE(step, last * (1 - 1e-9));
    last = step;
  }
  EXPECT_LT(fed["training"]["runs"][0]["time_s"].get<double>(),
            0.6 * fed["training"]["runs"].back()["time_s"].get<double>());
  const std::string text = Folded(RunPlan(With(words, {"--input", "2ktokens/s"})).out);
  EXPECT_THAT(text, AllOf(HasSubstr("Ranked by the step with its input"),
                          HasSubstr("an input as fast as the GPUs")));
}

}  // namespace
}  // namespace orrery
