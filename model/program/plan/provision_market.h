// SPDX-License-Identifier: Apache-2.0
// The offers that `plan provision` asks, each with the job on its cluster.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/program/common/job_flags.h"
#include "model/provision/frontier.h"
#include "model/provision/price_check.h"

namespace orrery::cli {

// --offers, --kind, --region
struct OfferFlags {
  std::vector<Flag> offers;
  Flag kind, region;
  void Declare(FlagSet* flags);
};
std::vector<PriceKind> ReadKinds(const Flag& flag, Diagnostics* diagnostics);

class Market {
 public:
  // Throws InputError: no offer is left. `margin`: of the memory, stays free.
  Market(const JobFlags& job, const OfferFlags& offers, const std::vector<PriceKind>& kinds,
         double margin);

  // Node counts of the question that no offer sells, in words; "": none, or all (then each offer says why).
  std::string NotSold(const Question& question) const;

  std::vector<report::Job> jobs;  // by site
  std::vector<Site> sites;
  std::vector<Quote> quotes;
  std::vector<std::size_t> site_of;                           // by quote
  std::vector<std::pair<std::string, std::string>> left_out;  // offers, and why
  std::map<std::size_t, std::string>
      far_below;  // quotes of the user's files that cost far less than all others
  std::vector<std::string> far_above;  // words on those that cost far more

 private:
  void Add(const std::vector<orrery::Offer>& offers, const std::vector<PriceKind>& kinds);
  std::string NoPrice(const orrery::Offer& offer) const;
  void AddQuote(const Quote& quote);
  [[noreturn]] void ThrowNoneLeft(const std::vector<orrery::Offer>& offers) const;
  void ComparePrices(const std::vector<orrery::Offer>& catalogue);

  static constexpr std::size_t kRefused = static_cast<std::size_t>(-1);
  const JobFlags& job_;
  const OfferFlags& flags_;
  const double margin_;
  std::map<std::string, std::size_t> by_topology_;
  std::map<std::string, std::string> refused_;
};

}  // namespace orrery::cli
