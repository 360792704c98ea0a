// SPDX-License-Identifier: Apache-2.0
// `plan open`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/base/text.h"
#include "model/price/breakdown.h"
#include "model/program/common/program.h"
#include "model/program/common/table.h"
#include "model/program/common/version.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/headline.h"
#include "model/program/plan/recompute.h"
#include "model/program/plan/run_report.h"

namespace orrery::cli {
namespace {

using nlohmann::ordered_json;

struct OpenFlags {
  Flag bundle, folder, json;
  FlagSet set{"open FILE [flags]",
              "Answers the question of a bundle again, from the files that it holds and no others, "
              "and says whether this program comes to the same figures.",
              {"plan --nodes 32 --model bert-1.5b --bundle bert.json", "plan open bert.json"}};

  OpenFlags() {
    set.Positional(&bundle, "FILE", "a bundle that --bundle wrote", Words::kFile);
    DeclareJson(&json, &set, "open");
  }
};

// Places of files, and seconds that a machine took, are no figures of the answer.
bool IsFigure(const std::string& key) {
  return key != "file" && key != "user_files" && key != "wall_s";
}

// What --html adds to the answer for its page, and a recomputation without a page lacks.
bool IsOfPage(const std::string& key) {
  return key == "picture" || key == "timeline" || key == "memory_over_time" || key == "cluster" ||
         key == "not_pictured" || key == "scaling";
}

// Paths of the figures that differ, most `most`; how many there are.
int Differing(const ordered_json& was, const ordered_json& is, const std::string& path,
              std::size_t most, std::vector<std::string>* paths) {
  const auto note = [&](const std::string& values) {
    if (paths->size() < most) paths->push_back(path + values);
    return 1;
  };
  if (was.is_number() && is.is_number()) {
    const double a = was.get<double>(), b = is.get<double>();
    const bool same = a == b || std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
    return same ? 0 : note(fmt::format(": {:.6g} before, {:.6g} now", a, b));
  }
  if (was.type() != is.type()) return note(": of another kind");
  int count = 0;
  if (was.is_object()) {
    for (const auto& [key, value] : was.items()) {
      if (!IsFigure(key)) continue;
      const auto other = is.find(key);
      const std::string at = path.empty() ? key : path + "." + key;
      if (other == is.end()) {
        if (IsOfPage(key)) continue;
        if (paths->size() < most) paths->push_back(at + ": missing now");
        ++count;
      } else {
        count += Differing(value, *other, at, most, paths);
      }
    }
    return count;
  }
  if (was.is_array()) {
    if (was.size() != is.size()) return note(": of another length");
    for (std::size_t i = 0; i < was.size(); ++i)
      count += Differing(was[i], is[i], fmt::format("{}[{}]", path, i), most, paths);
    return count;
  }
  return was == is ? 0 : note(": another text");
}

// "nebius-b200, 32 + 1 nodes, 20.2 d, 1.09 MUSD; a step takes 6.19 s: tp 1, ..."; without a run "6.19 s: tp 1, ...".
std::string RunWords(const HeadlineRow& row) {
  const std::string step = fmt::format("{}: {}", Format(Seconds(row.seconds)), row.layout);
  if (!row.run_seconds) return row.name.empty() ? step : PlaceOf(row) + ", " + step;
  return fmt::format("{}{}{}; a step takes {}", row.name.empty() ? "" : row.name + ", ",
                     RowWords(row), row.beyond.empty() ? "" : ", " + row.beyond, step);
}

bool SameRun(const HeadlineRow& a, const HeadlineRow& b) {
  return a.name == b.name && a.nodes == b.nodes;
}

// What the answer says first: of `plan provision` its cheapest and its fastest run.
std::vector<std::string> AnswerLines(const Headline& answer) {
  if (answer.frontier.empty()) return {RunWords(answer)};
  const bool alone = answer.fastest && SameRun(*answer.fastest, answer);
  const bool late = answer.beyond.find("too late") != std::string::npos;
  std::vector<std::string> lines = {(late    ? "nothing is in time, fastest: "
                                     : alone ? "cheapest and fastest: "
                                             : "cheapest: ") +
                                    RunWords(answer)};
  if (answer.fastest && !alone) lines.push_back("fastest: " + RunWords(*answer.fastest));
  return lines;
}

// Days against dollars; "" of a step.
std::string FrontierText(const Headline& answer) {
  const std::vector<HeadlineRow>& frontier = answer.frontier;
  if (frontier.empty()) return "";
  report::Table table(
      {{"", true}, {"offer"}, {"nodes", true}, {"days", true}, {"cost", true}, {""}});
  for (const std::size_t at : answer.shown) {
    const HeadlineRow& row = frontier[at];
    table.Row({std::to_string(at + 1), row.name, row.nodes,
               row.run_seconds ? report::Days(Seconds(*row.run_seconds)) : "-",
               row.dollars ? report::Money(Dollars(*row.dollars)) : "-", row.beyond});
  }
  std::string text = "\nDays against dollars, now\n" + table.Text();
  if (answer.shown.size() < frontier.size())
    text += fmt::format("  {} of {} rows (--json)\n", answer.shown.size(), frontier.size());
  return text + "\n";
}

std::string ThenAndNow(const std::optional<Headline>& was, const std::optional<Headline>& is) {
  std::string text;
  const auto add = [&](const char* when, const std::optional<Headline>& answer) {
    if (!answer) return;
    for (const std::string& line : AnswerLines(*answer)) {
      text += fmt::format("  {:<4}  {}\n", when, report::Fold(line, 8));
      when = "";
    }
  };
  add("then", was);
  add("now", is);
  return is ? text + FrontierText(*is) : text;
}

}  // namespace

Description DescribeOpen() { return OpenFlags().set.Describe(); }

Answer RunOpen(const CommandLine& line, std::size_t first) {
  OpenFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeOpen().help};
  if (!flags.bundle.given)
    throw InputError({{line.where(line.words().size()), "`plan open` needs a bundle",
                       "`plan ... --bundle FILE` writes one"}});
  const Bundle bundle =
      AtFile(flags.bundle, "a bundle", [&] { return ReadBundle(flags.bundle.text); });
  BundleFolder folder;
  folder.WriteAll(bundle);
  const Recomputed again = folder.Ask(bundle.question);
  std::vector<std::string> paths;
  const int differing = Differing(bundle.answer, again.answer, "", 12, &paths);
  std::string question = "plan";
  for (const std::string& word : bundle.question) question += " " + Quoted(word);
  const std::string by =
      fmt::format("{}{}", bundle.version, bundle.commit.empty() ? "" : " (" + bundle.commit + ")");
  const auto was = HeadlineOf(bundle.answer), is = HeadlineOf(again.answer);
  std::string text =
      fmt::format("{}\nanswered by {}, with {} files\n", question, by, bundle.files.size());
  text += ThenAndNow(was, is);
  const bool answers = again.answer.contains("schema") && again.code != 2 && again.code != 1;
  if (!answers) {
    text += "This program cannot answer it:\n";
    if (const auto errors = again.answer.find("errors"); errors != again.answer.end()) {
      for (const ordered_json& error : *errors)
        text += fmt::format("  {}\n", error.value("message", std::string("no reason given")));
    }
  } else if (differing == 0) {
    text += "The same figures.\n";
  } else {
    text += fmt::format("{}:\n", differing == 1 ? "One figure differs"
                                                : fmt::format("{} figures differ", differing));
    for (const std::string& path : paths) text += "  " + path + "\n";
    if (static_cast<std::size_t>(differing) > paths.size()) text += "  ...\n";
  }
  std::string brief = !answers         ? "this program cannot answer it"
                      : differing == 0 ? "the same figures"
                      : differing == 1 ? "one figure differs"
                                       : fmt::format("{} figures differ", differing);
  if (const auto& shown = is ? is : was)
    brief = fmt::format("{}: {}", fmt::join(AnswerLines(*shown), "; "), brief);
  Answer answer = Deliver(answers && differing == 0 ? ExitCode::kOk : ExitCode::kCheckFailed, text,
                          {{"schema", "orrery.open/1"},
                           {"question", question},
                           {"version", bundle.version},
                           {"commit", bundle.commit},
                           {"exit_code", again.code},
                           {"differing", differing},
                           {"paths", paths},
                           {"answer", again.answer}},
                          flags.json);
  answer.brief = brief;
  return answer;
}

}  // namespace orrery::cli
