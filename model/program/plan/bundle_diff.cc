// SPDX-License-Identifier: Apache-2.0
// Applies the items that two bundles differ in one after the other.
#include "model/program/plan/bundle_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "model/base/text.h"
#include "model/price/breakdown.h"
#include "model/program/common/terminal.h"
#include "model/program/plan/bundle_items.h"
#include "model/program/plan/recompute.h"

namespace orrery::cli {
namespace {

// What the answer says of its offers, where it is of offers.
std::string WhyNothing(const nlohmann::ordered_json& answer) {
  const auto rejected = answer.find("rejected");
  if (rejected == answer.end() || !rejected->is_array()) return "no layout fits";
  for (const auto& one : *rejected) {
    const std::string why = one.value("reason", "");
    const auto offer = one.find("offer");
    if (why.empty() || why == "bounded" || offer == one.end() || !offer->is_object()) continue;
    return fmt::format("{}: {}", offer->value("id", ""), why);
  }
  return "no layout fits";
}

Headline HeadlineIn(const Bundle& bundle, const char* which) {
  const std::optional<Headline> headline = HeadlineOf(bundle.answer);
  if (!headline)
    throw InputError(
        fmt::format("the {} bundle has nothing to compare: {}", which, WhyNothing(bundle.answer)),
        "bundles of plan, predict, simulate and provision are compared by the step or the run that "
        "they tell first");
  return *headline;
}

// nullopt: no answer, or one in which nothing fits.
std::optional<Headline> Asked(const BundleState& state) {
  BundleFolder folder;
  for (const auto& [path, text] : state.files) folder.Write(path, text);
  return HeadlineOf(folder.Ask(WordsOf(state.question)).answer);
}

bool Differ(double a, double b) {
  return std::abs(a - b) > kSameFigure * std::max(std::abs(a), std::abs(b));
}

bool Differ(std::optional<double> a, std::optional<double> b) {
  return a.has_value() != b.has_value() || (a && Differ(*a, *b));
}

bool DifferentRows(const HeadlineRow& a, const HeadlineRow& b) {
  return a.name != b.name || a.nodes != b.nodes || a.layout != b.layout ||
         Differ(a.seconds, b.seconds) || Differ(a.run_seconds, b.run_seconds) ||
         Differ(a.dollars, b.dollars);
}

// Rows but the first whose answer is another one, or that one of both does not have.
std::vector<std::string> OthersMoved(const Headline& from, const Headline& to) {
  std::vector<std::string> names;
  const auto compare = [&](const Headline& a, const Headline& b) {
    for (const HeadlineRow& row : a.rows) {
      if (row.name == to.name || std::ranges::find(names, row.name) != names.end()) continue;
      if (std::ranges::all_of(b.rows,
                              [&](const HeadlineRow& other) { return DifferentRows(row, other); }))
        names.push_back(row.name);
    }
  };
  compare(from, to);
  compare(to, from);
  return names;
}

// "fastest now nebius-b300, 192 nodes, 1.29 d, 457 kUSD"
std::vector<std::string> NamedMoved(const Headline& from, const Headline& to) {
  std::vector<std::string> moved;
  const auto was = from.OtherAnswers(), is = to.OtherAnswers();
  for (std::size_t i = 0; i < is.size(); ++i) {
    if (DifferentAnswers(*was[i].second, *is[i].second))
      moved.push_back(fmt::format("{} now {}", is[i].first, AnswerWords(*is[i].second)));
  }
  return moved;
}

bool Moved(const Headline& from, const Headline& to) {
  if (DifferentRows(from, to) || !OthersMoved(from, to).empty() || !NamedMoved(from, to).empty())
    return true;
  const double least = kSameFigure * std::max(from.seconds, to.seconds);
  return std::ranges::any_of(BreakdownTerms(), [&](const BreakdownTerm& term) {
    return std::abs(PartOf(to, term.key) - PartOf(from, term.key)) > least;
  });
}

MovedBy Movement(const std::string& what, const std::string& before, const std::string& after,
                 const Headline& from, const Headline& to) {
  MovedBy moved;
  moved.what = what, moved.before = before, moved.after = after;
  moved.seconds = to.seconds - from.seconds;
  if (from.run_seconds && to.run_seconds) moved.run_seconds = *to.run_seconds - *from.run_seconds;
  if (from.dollars && to.dollars) moved.dollars = *to.dollars - *from.dollars;
  if (to.layout != from.layout) moved.layout = to.layout;
  if (to.name != from.name || to.nodes != from.nodes)
    moved.now = to.nodes.empty() ? to.name : PlaceOf(to);
  moved.others = OthersMoved(from, to);
  moved.named = NamedMoved(from, to);
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double by = PartOf(to, term.key) - PartOf(from, term.key);
    if (std::abs(by) <= std::abs(moved.term_seconds)) continue;
    moved.term_seconds = by;
    moved.term = term.name;
  }
  return moved;
}

// Of the whole: what moves days or money most comes first.
double WeightOf(const MovedBy& moved, const Headline& of) {
  if (!of.run_seconds) return std::abs(moved.seconds) / of.seconds;
  double weight = std::abs(moved.run_seconds.value_or(0)) / *of.run_seconds;
  if (of.dollars && *of.dollars > 0)
    weight = std::max(weight, std::abs(moved.dollars.value_or(0)) / *of.dollars);
  return weight;
}

std::string Sentence(const std::vector<std::string>& question) {
  std::string text = "plan";
  for (const std::string& word : question) text += " " + Quoted(word);
  return text;
}

std::string VersionOf(const Bundle& bundle) {
  return bundle.commit.empty() ? bundle.version
                               : fmt::format("{} ({})", bundle.version, bundle.commit);
}

}  // namespace

std::string AnswerWords(const std::optional<HeadlineRow>& row) {
  return row ? fmt::format("{}, {}", row->name, RowWords(*row)) : "none";
}

bool DifferentAnswers(const std::optional<HeadlineRow>& a, const std::optional<HeadlineRow>& b) {
  return a.has_value() != b.has_value() || (a && DifferentRows(*a, *b));
}

double PartOf(const Headline& headline, const char* key) {
  const auto part = headline.breakdown.find(key);
  return part != headline.breakdown.end() && part->is_number() ? part->get<double>() : 0.0;
}

// One of them would have to be asked whole after each flag of the other, to no end.
void RequireOneCommand(const Bundle& before, const Bundle& after) {
  const auto provisions = [](const Bundle& bundle) {
    return !bundle.question.empty() && bundle.question.front() == "provision";
  };
  if (provisions(before) == provisions(after)) return;
  const auto command = [&](const Bundle& bundle) {
    return provisions(bundle) ? "`plan provision`" : "one cluster";
  };
  throw InputError(
      fmt::format("the old bundle is of {}, the new one of {}: no change of a flag leads from one "
                  "question to the other",
                  command(before), command(after)),
      "two bundles of plan provision, or two of plan, predict and simulate");
}

BundleDiff Diff(const Bundle& before, const Bundle& after) {
  RequireOneCommand(before, after);
  BundleDiff diff{Sentence(before.question),
                  Sentence(after.question),
                  VersionOf(before),
                  VersionOf(after),
                  HeadlineIn(before, "old"),
                  HeadlineIn(after, "new"),
                  {},
                  0};
  BundleState state;
  const std::vector<BundleItem> items = ItemsBetween(before, after, &state);
  const auto again = [&](const char* which) {
    std::optional<Headline> answer = Asked(state);
    if (!answer)
      throw InputError(fmt::format("this program cannot answer the {} bundle's question", which),
                       "`plan open` says why");
    return *std::move(answer);
  };
  Headline now = again("old");
  const auto add = [&](MovedBy moved, bool moves) {
    if (moves) {
      diff.moved.push_back(std::move(moved));
    } else {
      ++diff.without_effect;
    }
  };
  if (Moved(diff.before, now))
    add(Movement("the program, on the old question", diff.old_version, "this one", diff.before,
                 now),
        true);
  Progress progress;
  std::string together;  // items that this program cannot answer without the next ones
  double done = 0;
  for (const BundleItem& item : items) {
    progress.At("comparing", done++ / static_cast<double>(items.size()));
    item.apply(&state);
    const std::optional<Headline> next = Asked(state);
    const std::string what = together.empty() ? item.what : together + ", " + item.what;
    if (!next) {
      together = what;
      continue;
    }
    const bool alone = together.empty();
    together.clear();
    add(Movement(what, alone ? item.before : "", alone ? item.after : "", now, *next),
        Moved(now, *next));
    now = *next;
  }
  if (!together.empty()) {
    state = {FlagsOf(after.question), {after.files.begin(), after.files.end()}};
    const Headline next = again("new");
    add(Movement(together, "", "", now, next), Moved(now, next));
    now = next;
  }
  if (Moved(now, diff.after))
    add(Movement("the program, on the new question", "this one", diff.new_version, now, diff.after),
        true);
  std::ranges::stable_sort(diff.moved, [&](const MovedBy& a, const MovedBy& b) {
    return WeightOf(a, diff.before) > WeightOf(b, diff.before);
  });
  return diff;
}

}  // namespace orrery::cli
