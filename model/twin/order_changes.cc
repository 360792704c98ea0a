// SPDX-License-Identifier: Apache-2.0
// Says which candidates overtook others in the simulation, and which term of the step decided it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/base/text.h"
#include "model/twin/refine.h"

namespace orrery {
namespace {

// Contention is part of the reason when it makes up this share of it.
constexpr double kTells = 0.25;

double Extra(const SimulatedTerm& term) { return term.simulated - term.closed; }

std::string MoreOrLess(double seconds) {
  return fmt::format("{} {}", Format(Seconds(std::abs(seconds))), seconds < 0 ? "less" : "more");
}

// "both share n0.nic1 -> leaf2": whose traffic is on the link, as far as it is known.
std::string WhoShares(const SimulatedTerm& term) {
  if (term.shared_link.empty()) return "";
  if (term.shared_with.empty())
    return fmt::format(", where several of its groups share {}", term.shared_link);
  std::string others;
  for (const std::string& other : term.shared_with)
    others += fmt::format("{}{}", others.empty() ? "" : " and ", other);
  return fmt::format(", where it shares {} with {}", term.shared_link, others);
}

// Why `ahead` is faster than `behind` in the simulation and was not in the closed form.
std::string Reason(const Candidate& ahead, const std::string& ahead_name, const Candidate& behind,
                   const std::string& behind_name) {
  const std::vector<SimulatedTerm>& a = ahead.simulated->terms;
  const std::vector<SimulatedTerm>& b = behind.simulated->terms;
  std::size_t deciding = 0;
  const auto gain = [&](std::size_t i) { return Extra(b[i]) - Extra(a[i]); };
  for (std::size_t i = 1; i < a.size(); ++i) {
    if (gain(i) > gain(deciding)) deciding = i;
  }
  std::string words =
      fmt::format("against the closed form, the simulation sees {} {} in {} and {} in {}",
                  MoreOrLess(Extra(b[deciding])), b[deciding].term, behind_name,
                  MoreOrLess(Extra(a[deciding])), ahead_name);
  const double contention = b[deciding].contention - a[deciding].contention;
  if (contention >= kTells * gain(deciding)) {
    words +=
        fmt::format("; contention slows it by {} in {}{}", Format(Seconds(b[deciding].contention)),
                    behind_name, WhoShares(b[deciding]));
  }
  return words;
}

}  // namespace

std::vector<std::string> OrderChanges(const std::vector<Candidate>& ranked, std::size_t shown,
                                      std::size_t most) {
  const auto name = [&](std::size_t i) {
    return i < shown ? std::to_string(i + 1)
                     : DescribeLayout(ranked[i].strategy, ranked[i].micro_batches);
  };
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < std::min(shown, ranked.size()) && changes.size() < most; ++i) {
    if (ranked[i].closed_rank <= static_cast<int>(i) + 1) continue;
    std::size_t overtaken = i + 1;  // the best of them
    while (overtaken < ranked.size() && ranked[overtaken].closed_rank > ranked[i].closed_rank)
      ++overtaken;
    if (overtaken == ranked.size()) continue;
    const bool swapped = ranked[i].closed_rank == static_cast<int>(overtaken) + 1 &&
                         ranked[overtaken].closed_rank == static_cast<int>(i) + 1;
    const std::string what =
        swapped ? fmt::format("{} and {} swapped", name(i), name(overtaken))
                : fmt::format("{} was {} by the closed form", name(i), ranked[i].closed_rank);
    changes.push_back(what + ": " + Reason(ranked[i], name(i), ranked[overtaken], name(overtaken)));
  }
  return changes;
}

}  // namespace orrery
