// SPDX-License-Identifier: Apache-2.0
// `plan diff` as text and JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/base/text.h"
#include "model/price/breakdown.h"
#include "model/program/common/table.h"
#include "model/program/plan/bundle_diff.h"
#include "model/program/plan/run_report.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kMostLines = 12;  // offers or topologies

std::string Signed(double seconds) {
  return fmt::format("{}{}", seconds < 0 ? "-" : "+", Format(Seconds(std::abs(seconds))));
}

// "-2.1 d -110 kUSD" of a run, else "-1.2 s" of the step.
std::string Movement(const MovedBy& moved) {
  if (!moved.run_seconds) return Signed(moved.seconds);
  const auto sign = [](double value) { return value < 0 ? "-" : "+"; };
  std::string text = sign(*moved.run_seconds) + report::Days(Seconds(std::abs(*moved.run_seconds)));
  if (moved.dollars)
    text += fmt::format(" {}{}", sign(*moved.dollars),
                        report::Money(Dollars(std::abs(*moved.dollars))));
  return text;
}

std::string Percent(double before, double now) {
  return fmt::format("{:+.1f} %", 100 * (now / before - 1));
}

// "Run 20.2 d before, 18.1 d now (-10.4 %); ..." and "Step 1.44 s before, ..."; "": no run.
std::string RunWords(const BundleDiff& diff) {
  const Headline &was = diff.before, &is = diff.after;
  if (!was.run_seconds || !is.run_seconds) return "";
  std::string text = fmt::format(
      "Run {} before, {} now ({})", report::Days(Seconds(*was.run_seconds)),
      report::Days(Seconds(*is.run_seconds)), Percent(*was.run_seconds, *is.run_seconds));
  if (was.dollars && is.dollars)
    text += fmt::format("; {} before, {} now ({})", report::Money(Dollars(*was.dollars)),
                        report::Money(Dollars(*is.dollars)), Percent(*was.dollars, *is.dollars));
  return text;
}

std::string StepWords(const BundleDiff& diff) {
  return fmt::format("Step {} before, {} now ({})", Format(Seconds(diff.before.seconds)),
                     Format(Seconds(diff.after.seconds)),
                     Percent(diff.before.seconds, diff.after.seconds));
}

std::string First(const BundleDiff& diff) {
  const Headline &was = diff.before, &is = diff.after;
  std::string text;
  for (const std::string& words : {RunWords(diff), StepWords(diff)})
    if (!words.empty()) text += "\n" + words;
  text += "\n";
  const bool moved = was.name != is.name || was.nodes != is.nodes || was.layout != is.layout;
  const auto of = [](const Headline& one) {
    return one.name.empty() ? one.layout : PlaceOf(one) + ": " + one.layout;
  };
  if (moved)
    text += fmt::format("  before  {}\n  now     {}\n", report::Fold(of(was), 10),
                        report::Fold(of(is), 10));
  report::Table terms({{""}, {"before", true}, {"now", true}, {"moved", true}});
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double before = PartOf(was, term.key), now = PartOf(is, term.key);
    if (std::abs(now - before) <= kSameFigure * was.seconds) continue;
    terms.Row({term.name, Format(Seconds(before)), Format(Seconds(now)), Signed(now - before)});
  }
  return terms.rows() > 0 ? text + terms.Text() : text;
}

// What `plan provision` names besides the run that it tells in full.
std::string Named(const BundleDiff& diff) {
  std::string text;
  const auto was = diff.before.OtherAnswers(), is = diff.after.OtherAnswers();
  for (std::size_t i = 0; i < is.size(); ++i) {
    const std::optional<HeadlineRow>&before = *was[i].second, &now = *is[i].second;
    if (!DifferentAnswers(before, now)) continue;
    std::string line = fmt::format("The {}: {} before, {} now", is[i].first, AnswerWords(before),
                                   AnswerWords(now));
    if (before && now && before->layout != now->layout)
      line += fmt::format("; layout {} before, {} now", before->layout, now->layout);
    text += report::Fold(line, 0) + "\n";
  }
  return text.empty() ? "" : "\n" + text;
}

// A topology may stand there at several node counts.
const HeadlineRow* RowLike(const std::vector<HeadlineRow>& rows, const HeadlineRow& one,
                           bool several) {
  const auto found = std::ranges::find_if(rows, [&](const HeadlineRow& row) {
    return row.name == one.name && (!several || row.nodes == one.nodes);
  });
  return found == rows.end() ? nullptr : &*found;
}

bool NamedTwice(const std::vector<HeadlineRow>& rows) {
  return std::ranges::any_of(rows, [&](const HeadlineRow& row) {
    return std::ranges::count(rows, row.name, &HeadlineRow::name) > 1;
  });
}

// Offers or topologies with another answer, the first ones too.
std::string Rows(const BundleDiff& diff) {
  const std::vector<HeadlineRow>&was = diff.before.rows, &is = diff.after.rows;
  const bool several = NamedTwice(was) || NamedTwice(is);
  std::vector<std::string> lines;
  const auto add = [&](const HeadlineRow* before, const HeadlineRow* now) {
    const HeadlineRow& one = before != nullptr ? *before : *now;
    const std::string words_before = before != nullptr ? RowWords(*before) : "not there",
                      words_now = now != nullptr ? RowWords(*now) : "not there";
    const bool layout = before != nullptr && now != nullptr && before->layout != now->layout;
    if (words_before == words_now && !layout) return;
    std::string line = fmt::format("{}: {} before, {} now", one.name, words_before, words_now);
    if (layout) line += fmt::format("; layout {} before, {} now", before->layout, now->layout);
    lines.push_back(fmt::format("  - {}\n", report::Fold(line, 4)));
  };
  for (const HeadlineRow& row : was) add(&row, RowLike(is, row, several));
  for (const HeadlineRow& row : is)
    if (RowLike(was, row, several) == nullptr) add(nullptr, &row);
  if (lines.empty()) return "";
  std::string text =
      fmt::format("\n{} with another answer\n", diff.after.run_seconds ? "Runs" : "Topologies");
  for (std::size_t i = 0; i < std::min(kMostLines, lines.size()); ++i) text += lines[i];
  if (lines.size() > kMostLines)
    text += fmt::format("  and {} more (--json)\n", lines.size() - kMostLines);
  return text;
}

std::string CauseWords(const MovedBy& moved) {
  std::string cause = moved.what;
  if (!moved.before.empty() || !moved.after.empty())
    cause += fmt::format(": {} before, {} now", moved.before.empty() ? "another" : moved.before,
                         moved.after);
  if (!moved.term.empty()) cause += fmt::format("; {} {}", moved.term, Signed(moved.term_seconds));
  if (!moved.now.empty()) cause += fmt::format("; first now {}", moved.now);
  if (!moved.layout.empty()) cause += fmt::format("; layout now {}", moved.layout);
  for (const std::string& named : moved.named) cause += "; " + named;
  if (!moved.others.empty()) {
    const std::size_t shown = std::min<std::size_t>(3, moved.others.size());
    cause += fmt::format("; moves {}{}",
                         fmt::join(moved.others.begin(),
                                   moved.others.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                         moved.others.size() > shown
                             ? fmt::format(" and {} more", moved.others.size() - shown)
                             : "");
  }
  return cause;
}

}  // namespace

std::string DiffText(const BundleDiff& diff) {
  std::string text = fmt::format("old  {}\n", report::Fold(diff.old_question, 5));
  if (diff.new_question != diff.old_question)
    text += fmt::format("new  {}\n", report::Fold(diff.new_question, 5));
  text += fmt::format("by   {}\n", diff.old_version == diff.new_version
                                       ? diff.old_version
                                       : diff.old_version + ", then " + diff.new_version);
  text += First(diff) + Named(diff) + Rows(diff);
  text += diff.moved.empty() ? "\nNothing that moves the answer differs.\n" : "\nBecause of\n";
  std::size_t width = 9;
  for (const MovedBy& moved : diff.moved) width = std::max(width, Movement(moved).size());
  for (const MovedBy& moved : diff.moved)
    text += fmt::format("  {:>{}}  {}\n", Movement(moved), width,
                        report::Fold(CauseWords(moved), width + 4));
  if (diff.without_effect > 0)
    text += fmt::format("  {} other {} differ{} and move{} nothing.\n", diff.without_effect,
                        diff.without_effect == 1 ? "value" : "values",
                        diff.without_effect == 1 ? "s" : "", diff.without_effect == 1 ? "s" : "");
  return text;
}

std::string DiffBrief(const BundleDiff& diff) {
  const std::string run = RunWords(diff);
  std::string text = run.empty() ? StepWords(diff) : run;
  if (!diff.moved.empty())
    text += fmt::format("; most by {}: {}", diff.moved.front().what, Movement(diff.moved.front()));
  return text;
}

nlohmann::ordered_json DiffJson(const BundleDiff& diff) {
  using Json = nlohmann::ordered_json;
  const auto maybe = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  const auto row = [&](const HeadlineRow& one) {
    return Json{{"name", one.name},
                {"nodes", one.nodes},
                {"layout", one.layout},
                {"step_time_s", one.seconds},
                {"time_s", maybe(one.run_seconds)},
                {"cost_usd", maybe(one.dollars)}};
  };
  const auto side = [&](const std::string& question, const std::string& version,
                        const Headline& headline) {
    Json json = {{"question", question}, {"version", version}};
    json.update(row(headline));
    json["breakdown"] = headline.breakdown;
    json["rows"] = Json::array();
    for (const HeadlineRow& one : headline.rows) json["rows"].push_back(row(one));
    if (headline.frontier.empty()) return json;
    json["fastest"] = headline.fastest ? row(*headline.fastest) : Json();
    json["sure"] = headline.sure ? row(*headline.sure) : Json();
    json["fastest_sure"] = headline.fastest_sure ? row(*headline.fastest_sure) : Json();
    return json;
  };
  Json json = {{"schema", "orrery.diff/1"},
               {"old", side(diff.old_question, diff.old_version, diff.before)},
               {"new", side(diff.new_question, diff.new_version, diff.after)},
               {"moved", Json::array()},
               {"without_effect", diff.without_effect}};
  for (const MovedBy& moved : diff.moved) {
    json["moved"].push_back({{"what", moved.what},
                             {"before", moved.before},
                             {"after", moved.after},
                             {"step_time_s", moved.seconds},
                             {"time_s", maybe(moved.run_seconds)},
                             {"cost_usd", maybe(moved.dollars)},
                             {"term", moved.term},
                             {"term_s", moved.term_seconds},
                             {"layout", moved.layout},
                             {"first", moved.now},
                             {"others", moved.others},
                             {"named", moved.named}});
  }
  return json;
}

}  // namespace orrery::cli
