// SPDX-License-Identifier: Apache-2.0
// The catalogue of offers, of which every file can be read.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "model/provision/offers.h"

namespace orrery {

inline std::vector<Offer> WholeCatalogue() {
  std::vector<NoOffer> broken;
  std::vector<Offer> offers = OfferCatalogue(&broken);
  EXPECT_TRUE(broken.empty());
  return offers;
}

}  // namespace orrery
