// SPDX-License-Identifier: Apache-2.0
// Says which candidates overtook others in the simulation, and which term of the step decided it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/base/text.h"
#include "model/twin/refine.h"

namespace orrery {
namespace {

// Contention is part of the reason when it makes up this share of it.
constexpr double kTells = 0.25;

double Extra(const Candidate& candidate, const BreakdownTerm& term) {
  return candidate.time.*term.seconds - candidate.ClosedForm().*term.seconds;
}

constexpr double kNoChange = 1e-3;  // of the step

std::string MoreOrLess(double seconds, double step) {
  if (std::abs(seconds) < kNoChange * step) return "as much";
  return fmt::format("{} {}", Format(Seconds(std::abs(seconds))), seconds < 0 ? "less" : "more");
}

// ", where it shares n0.nic1 -> leaf2 with transfers between stages".
std::string WhoShares(const sim::SharedLink& shared) {
  if (shared.link.empty()) return "";
  const std::vector<std::string> others = sim::SharedWith(shared);
  if (others.empty()) return fmt::format(", where it fills {} by itself", shared.link);
  return fmt::format(", where it shares {} with {}", shared.link, fmt::join(others, " and "));
}

// Why `ahead` is faster than `behind` in the simulation and was not in the closed form.
std::string Reason(const Candidate& ahead, const std::string& ahead_name, const Candidate& behind,
                   const std::string& behind_name) {
  const BreakdownTerm* deciding = nullptr;
  const auto gain = [&](const BreakdownTerm& term) {
    return Extra(behind, term) - Extra(ahead, term);
  };
  for (const BreakdownTerm& term : BreakdownTerms()) {
    if (deciding == nullptr || gain(term) > gain(*deciding)) deciding = &term;
  }
  std::string words;
  for (const auto& [candidate, name] : {std::pair{&behind, &behind_name}, {&ahead, &ahead_name}}) {
    const std::string more = MoreOrLess(Extra(*candidate, *deciding), candidate->time.total);
    words += !candidate->simulated ? fmt::format("; {} is not simulated", *name)
             : words.empty()
                 ? fmt::format("against the closed form, the simulation sees {} of {} in {}", more,
                               deciding->name, *name)
                 : fmt::format(" and {} in {}", more, *name);
  }
  if (!behind.simulated) return words.substr(2);
  const double contention = behind.time.contention - ahead.time.contention;
  const std::vector<sim::SharedLink>& shared = behind.simulated->shared;
  if (contention >= kTells * gain(*deciding) && !shared.empty()) {
    const auto most = std::ranges::max_element(shared, {}, &sim::SharedLink::seconds);
    words += fmt::format("; contention slows {} by {} in {}{}", AxisWords(most->axis),
                         Format(Seconds(most->seconds)), behind_name, WhoShares(*most));
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
                : fmt::format("{} was {} in the closed form", name(i), ranked[i].closed_rank);
    changes.push_back(what + ": " + Reason(ranked[i], name(i), ranked[overtaken], name(overtaken)));
  }
  return changes;
}

}  // namespace orrery
