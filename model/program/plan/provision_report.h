// SPDX-License-Identifier: Apache-2.0
// What `plan provision` prints.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/program/common/job.h"
#include "model/program/plan/long_run_flags.h"
#include "model/program/plan/run_report.h"

namespace orrery::report {

// A row replayed: how long simulated runs took.
struct Replay {
  int64_t runs = 0;
  Seconds mean, deviation;
};

// The answer with what it was asked.
struct ProvisionAnswer {
  const std::vector<Job>* jobs;  // by site
  const cli::LongRun* run;
  const std::vector<Quote>* quotes;
  const std::vector<std::size_t>* site_of;
  const std::vector<Site>* sites;
  const Provisioned* result;
  BatchFacts batch_facts;
  std::optional<BatchRange> range = {};  // advised; empty: no rule for this family
  bool batch_given = false;
  std::optional<Row> beyond_range = {};  // the row told in full, with a batch just above the range
  bool tokens_by_rule = false;
  double memory_margin = 0;  // share that stays free
  std::vector<std::pair<std::string, std::string>> left_out =
      {};                                             // offers, and why they were not asked
  std::map<std::size_t, std::string> far_below = {};  // quotes that cost far less than all others
  std::vector<std::string> far_above = {};            // words on those that cost far more
  std::string nodes_left_out = {};  // node counts that were asked for and no offer sells; "": none
  std::optional<int64_t> most_nodes = {};  // that were looked at, where the user named no counts
  std::vector<std::pair<std::size_t, double>> margin_costs =
      {};  // row, step time over that without the margin
  std::vector<std::pair<std::size_t, Replay>> replays = {};
  bool all = false;  // print every row

  // Row that is told in full: the cheapest in time, else the fastest of all. The frontier is not empty.
  std::size_t Told() const;
  // Its job, with the defaults that its cluster and framework set; of the first site where nothing runs.
  const Job& TheJob() const;
};

// How old a price is; dates without a day count from the first day that they may mean.
struct PriceAge {
  int64_t days = 0;  // below zero: its day is to come
  bool old = false;  // ask again
  std::string words;
};
PriceAge AgeOf(const ProvisionAnswer& answer, const OfferPrice& price);

// From which batches the search chose, with the source; "": the user said which.
std::string BatchWords(const ProvisionAnswer& answer);
// What a batch just beyond the range would gain; "": nothing.
std::string BeyondRangeWords(const ProvisionAnswer& answer);
// Per day that the run at a place of the frontier takes less than that of the place before; empty: it is the first.
std::optional<Dollars> PerDaySooner(const Provisioned& result, std::size_t place);
// Which limits a row breaks.
struct Beyond {
  bool late, dear;
  std::string words;  // "too late, over the budget"; "": none
};
Beyond BeyondLimits(const ProvisionAnswer& answer, const Row& row);
// How likely a row stays within the budget. There is one.
double WithinBudget(const ProvisionAnswer& answer, const Row& row);
// Places in the frontier of the rows that the table prints.
std::vector<std::size_t> ShownPlaces(const ProvisionAnswer& answer);
// What columns and marks of the frontier mean. There is one.
std::string FrontierNotes(const ProvisionAnswer& answer);
// On the row that is told in full.
std::vector<std::string> AdviceOf(const ProvisionAnswer& answer);

std::string ProvisionText(const ProvisionAnswer& answer);
std::string ProvisionBrief(const ProvisionAnswer& answer);  // in one line
// Clusters, node counts and batches are this command's own.
bool SearchedByProvision(const Decision& decision);
std::string NodesWords(const Row& row);  // "16 nodes + 1 spare"
// Nothing is on the frontier: the offers' one reason, or all.
std::string NoOffer(const ProvisionAnswer& answer);
// Offers and node counts that were not asked, by reason; prices of the frontier's offers with their sources.
std::string LeftOutText(const ProvisionAnswer& answer);
std::string PricesText(const ProvisionAnswer& answer);
// Offers that are not on the frontier, each with its reason.
std::string LosersText(const ProvisionAnswer& answer);
nlohmann::ordered_json LosersJson(const ProvisionAnswer& answer);
nlohmann::ordered_json ProvisionJson(const ProvisionAnswer& answer);
// Key "picture", with --html: a step of the row that is told in full (step_picture.h).
nlohmann::ordered_json PictureJson(const ProvisionAnswer& answer);

}  // namespace orrery::report
