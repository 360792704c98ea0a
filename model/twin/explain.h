// SPDX-License-Identifier: Apache-2.0
// Why the winner wins, which limit comes next, and what would make a job fit.
#pragma once

#include "model/twin/runner.h"

namespace orrery {

// What a comparison knows of the two beside their steps.
struct ComparedBy {
  double winner_fed = 0,
         other_fed = 0;  // seconds in which the input of each delivers a step, FedIn()
  double slowest = 1;    // as of InputRates
  // What a second of the other's step counts in seconds of the winner's, by the search's objective: not 1 on other nodes
  // where money counts, and at another batch.
  double weight = 1;
};

// Term by term, by one engine: the closed form where one of them is not simulated. Where one of them waits for its input,
// the words say the steps with it.
Comparison Compare(const Candidate& winner, const Candidate& other, const ComparedBy& by = {});

// Of a winner whose input delivers a step in `fed` seconds, more than it takes; `slowest`: as of InputRates.
Limit InputLimit(const Candidate& winner, double fed, double slowest);

// The winner's step with twice of each resource, and without a memory limit, largest gain first; those that gain at least
// 0.5 %. Each term of the step changes as the closed form of it does. Where one constant of the framework is behind most of
// a gain, the words name it.
std::vector<Limit> NextLimits(const SearchRequest& request, const Profiles& profiles,
                              const Candidate& winner, const std::optional<Candidate>& unlimited,
                              ShapeCache* shapes);

// Searches with one change each until something fits.
std::vector<Remedy> FindRemedies(const SearchRequest& request, const Profiles& profiles);

// The ranked candidates alone, by closed form, without explanations; simulated if the request refines.
SearchResult SearchOnly(const SearchRequest& request, const Profiles& profiles);

// No layout is legal, whatever the memory: the numbers contradict each other.
bool NothingIsLegal(const SearchResult& result);
// Of such a result, with its first reasons: "no layout of 7 sequences per step on 512 GPUs is possible: ...".
std::string WhyNothingIsLegal(const SearchResult& result, int64_t batch, int64_t gpus,
                              std::size_t reasons = 3);
// The next larger batch that `gpus` divide.
int64_t BatchThatDivides(int64_t batch, int64_t gpus);

}  // namespace orrery
