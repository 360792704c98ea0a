// SPDX-License-Identifier: Apache-2.0
// The nearest right names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kModels = {"bert-tiny", "bert-large", "bert-1.5b", "gpt2-xl",
                                          "gpt3-175b"};

TEST(NearestNames, FindsSlipsBestFirst) {
  EXPECT_THAT(NearestNames("bert-lrage", kModels), ElementsAre("bert-large"));
  EXPECT_THAT(NearestNames("BERT-1.5B", kModels, 1), ElementsAre("bert-1.5b"));
  EXPECT_THAT(NearestNames("AWS", {"gcp", "aws", "azure"}), ElementsAre("aws"));
  EXPECT_THAT(NearestNames("EU", {"us", "eu"}, 1), ElementsAre("eu"));
  EXPECT_THAT(NearestNames("gpt2xl", kModels, 1), ElementsAre("gpt2-xl"));
  EXPECT_THAT(NearestNames("bert", kModels), ElementsAre("bert-tiny", "bert-large", "bert-1.5b"));
}

TEST(NearestNames, FindsWhereTheUserStoppedEarlyOrWentOn) {
  EXPECT_THAT(NearestNames("gpt2-x", {"gpt2-xl-long-name", "bert"}),
              ElementsAre("gpt2-xl-long-name"));
  EXPECT_THAT(NearestNames("selene-a100-80gb", {"selene", "s-1"}), ElementsAre("selene"));
}

TEST(NearestNames, DoesNotGuessWildly) {
  EXPECT_THAT(NearestNames("llama", kModels), IsEmpty());
  EXPECT_THAT(NearestNames("", kModels), IsEmpty());
  EXPECT_THAT(NearestNames(std::string(100000, 'b'), kModels), IsEmpty());
}

TEST(SuggestName, AsksOrLists) {
  EXPECT_EQ(SuggestName("ture", {"true", "false"}), "did you mean 'true'?");
  EXPECT_EQ(SuggestName("bort", {"bert", "bart", "port"}),
            "did you mean 'bert', 'bart' or 'port'?");
  EXPECT_EQ(SuggestName("xyz", {"dp", "zero", "fsdp"}), "one of: dp, zero, fsdp");
  EXPECT_EQ(SuggestName("xyz", {}), "");
  EXPECT_EQ(SuggestName("xyz", std::vector<std::string>(200, "something")), "");
}

}  // namespace
}  // namespace orrery
