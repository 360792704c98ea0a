// SPDX-License-Identifier: Apache-2.0
// Node counts and batches that a question leaves to an offer, and why none of them runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/provision/frontier.h"

namespace orrery {

// The most nodes of a quote that may run or wait as spares.
int64_t MostNodes(const Quote& quote, const Site& site);

// Node counts that a quote sells, spares included, and the topology has.
std::vector<int64_t> NodesOf(const Question& question, const Quote& quote, const Site& site);

// Sequences per step, ascending.
std::vector<BatchSpan> BatchesOf(const Question& question, const Site& site);
// The same to be searched one by one: ranges end where a single step takes all tokens, and are cut in halves where the last
// step, which is a whole one, lengthens a run. RunSeconds() compares what is found.
std::vector<BatchSpan> SearchedBatches(const Question& question, const Site& site);
// Of all steps, without failures.
double RunSeconds(const Question& question, const FastestLayouts::Found& found);

// The row with its best batch beyond the range by at most a quarter, closed form; nullopt: it takes not 1 % less than the row.
std::optional<Row> JustBeyond(const Question& question, const Quote& quote, const Site& site,
                              const Row& row);

// For a quote without any NodesOf().
std::string WhyNotSold(const Question& question, const Quote& quote, const Site& site);

// Of rows by cost: off the frontier one number of spares stands for an offer at a node count, the cheapest in time, else
// the fastest.
void DropSpares(const Question& question, std::vector<Row>* rows);

// For `nodes`, ascending, at none of which a layout was found: sequences that do not divide, or what memory lacks. Searches.
std::string WhyNoLayout(const Question& question, const Site& site,
                        const std::vector<int64_t>& nodes);

}  // namespace orrery
