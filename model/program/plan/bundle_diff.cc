// SPDX-License-Identifier: Apache-2.0
// Finds the items that two bundles differ in, and applies one after the other.
#include "model/program/plan/bundle_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <regex>

#include "model/base/text.h"
#include "model/price/breakdown.h"
#include "model/program/common/table.h"
#include "model/program/common/terminal.h"

namespace orrery::cli {
namespace {

constexpr double kSame = 1e-9;           // relative: rounding
constexpr std::size_t kMostItems = 200;  // of lines; beyond, whole files

using Files = std::map<std::string, std::string>;

// The keys of a line with those that it stands under, and the line; lists, texts over several lines and keys that stand
// twice have no such form.
struct Line {
  std::string key, text;
};

std::optional<std::vector<Line>> LinesOf(const std::string& yaml) {
  std::vector<Line> lines;
  std::vector<std::pair<std::size_t, std::string>> above;
  std::map<std::string, int> seen;
  std::size_t begin = 0;
  while (begin < yaml.size()) {
    const std::size_t end = std::min(yaml.find('\n', begin), yaml.size());
    const std::string text = yaml.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t indent = text.find_first_not_of(' ');
    if (indent == text.npos || text[indent] == '#') continue;
    std::string key;
    if (text[indent] == '-') {
      key = fmt::format("- {}", seen[fmt::format("{}-", indent)]++);
    } else {
      const std::size_t colon = text.find(':', indent);
      if (colon == text.npos) return std::nullopt;
      key = text.substr(indent, colon - indent);
    }
    while (!above.empty() && above.back().first >= indent) above.pop_back();
    std::string path;
    for (const auto& [at, name] : above) path += name + ".";
    path += key;
    if (seen["=" + path]++ > 0) return std::nullopt;
    above.emplace_back(indent, key);
    lines.push_back({path, text});
  }
  return lines;
}

std::string JoinLines(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) text += line.text + "\n";
  return text;
}

// "{value: 0.71, source: ...}": 0.71.
std::string ValueIn(const std::string& line) {
  static const std::regex value(R"(value: *("[^"]*"|\[[^\]]*\]|[^,}]+))");
  std::smatch match;
  if (std::regex_search(line, match, value)) return std::string(Trim(match[1].str()));
  const std::size_t colon = line.find(':');
  const std::string rest(Trim(colon == line.npos ? line : line.substr(colon + 1)));
  return rest.size() > 40 ? rest.substr(0, 37) + "..." : rest;
}

// The words of each flag, and of none before the first.
using Flags = std::vector<std::pair<std::string, std::vector<std::string>>>;
Flags FlagsOf(const std::vector<std::string>& question) {
  Flags flags;
  flags.emplace_back("", std::vector<std::string>{});
  for (const std::string& word : question) {
    if (word.starts_with("--")) {
      const std::size_t equals = word.find('=');
      flags.emplace_back(word.substr(0, equals), std::vector<std::string>{});
      if (equals != word.npos) flags.back().second.push_back(word.substr(equals + 1));
    } else {
      flags.back().second.push_back(word);
    }
  }
  return flags;
}

std::vector<std::string> WordsOf(const Flags& flags) {
  std::vector<std::string> words;
  for (const auto& [name, values] : flags) {
    if (!name.empty()) words.push_back(name);
    words.insert(words.end(), values.begin(), values.end());
  }
  return words;
}

std::string ValuesOf(const Flags& flags, const std::string& name) {
  std::string text;
  bool found = false;
  for (const auto& [flag, values] : flags) {
    if (flag != name) continue;
    found = true;
    for (const std::string& value : values) text += (text.empty() ? "" : " ") + value;
  }
  return !found ? "not given" : text.empty() ? "given" : text;
}

// What the old question becomes.
struct State {
  Flags question;
  Files files;
};

struct Item {
  std::string what, before, after;
  std::function<void(State*)> apply;
};

class Items {
 public:
  Items(const Bundle& before, const Bundle& after, State* start) {
    start->question = FlagsOf(before.question);
    start->files = {before.files.begin(), before.files.end()};
    const Files files(after.files.begin(), after.files.end());
    CompareQuestions(start->question, FlagsOf(after.question));
    // Files that the old question did not read have no effect before something names them; own ones stand before those of
    // the catalogue.
    for (const auto& [path, text] : files) {
      if (start->files.contains(path)) continue;
      if (path.starts_with(".orrery/")) {
        Whole(path, "not there", "there", text);
      } else {
        start->files[path] = text;
      }
    }
    for (const auto& [path, text] : start->files) {
      const auto same = files.find(path);
      if (same == files.end()) {
        if (path.starts_with(".orrery/")) Whole(path, "there", "not there", std::nullopt);
      } else if (same->second != text) {
        CompareFiles(path, text, same->second);
      }
    }
  }
  const std::vector<Item>& all() const { return items_; }

 private:
  void CompareQuestions(const Flags& before, const Flags& after) {
    if (before.front().second != after.front().second) {  // another command
      items_.push_back(
          {"the question", "", "", [after](State* state) { state->question = after; }});
      return;
    }
    std::vector<std::string> names;
    for (const Flags* flags : {&before, &after}) {
      for (const auto& [name, values] : *flags) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
    for (const std::string& name : names) {
      const std::string was = ValuesOf(before, name), is = ValuesOf(after, name);
      if (was == is) continue;
      items_.push_back({name, was, is, [name, after](State* state) {
                          std::erase_if(state->question,
                                        [&](const auto& flag) { return flag.first == name; });
                          for (const auto& flag : after) {
                            if (flag.first == name) state->question.push_back(flag);
                          }
                        }});
    }
  }

  void Whole(const std::string& path, const std::string& before, const std::string& after,
             const std::optional<std::string>& text) {
    items_.push_back({path, before, after, [path, text](State* state) {
                        if (text) {
                          state->files[path] = *text;
                        } else {
                          state->files.erase(path);
                        }
                      }});
  }

  // Line by line where both files have the form for it.
  void CompareFiles(const std::string& path, const std::string& before, const std::string& after) {
    const auto was = LinesOf(before), is = LinesOf(after);
    if (!path.ends_with(".yaml") || !was || !is || items_.size() > kMostItems)
      return Whole(path, "", "changed", after);
    std::map<std::string, std::string> old_lines, new_lines;
    for (const Line& line : *was) old_lines[line.key] = line.text;
    for (const Line& line : *is) new_lines[line.key] = line.text;
    std::string anchor;
    for (const Line& line : *is) {
      const auto old = old_lines.find(line.key);
      if (old == old_lines.end()) {
        Set(path, line, anchor, "not there", ValueIn(line.text));
      } else if (old->second != line.text) {
        Set(path, line, anchor, ValueIn(old->second), ValueIn(line.text));
      }
      anchor = line.key;
    }
    for (const Line& line : *was) {
      if (new_lines.contains(line.key)) continue;
      items_.push_back({path + ": " + line.key, ValueIn(line.text), "not there",
                        [path, key = line.key](State* state) {
                          std::vector<Line> lines = LinesOf(state->files[path]).value();
                          std::erase_if(lines, [&](const Line& l) { return l.key == key; });
                          state->files[path] = JoinLines(lines);
                        }});
    }
  }

  void Set(const std::string& path, const Line& line, const std::string& anchor,
           const std::string& before, const std::string& after) {
    items_.push_back({path + ": " + line.key, before, after, [path, line, anchor](State* state) {
                        std::vector<Line> lines = LinesOf(state->files[path]).value();
                        auto at = std::ranges::find(lines, line.key, &Line::key);
                        if (at != lines.end()) {
                          *at = line;
                        } else {
                          at = std::ranges::find(lines, anchor, &Line::key);
                          lines.insert(at == lines.end() ? lines.begin() : at + 1, line);
                        }
                        state->files[path] = JoinLines(lines);
                      }});
  }

  std::vector<Item> items_;
};

Headline HeadlineIn(const Bundle& bundle, const char* which) {
  const std::optional<Headline> headline = HeadlineOf(bundle.answer);
  if (!headline)
    throw InputError(fmt::format("the {} bundle has no step time to compare", which),
                     "bundles of plan, predict and simulate, with a layout that fits, have one");
  return *headline;
}

// nullopt: no answer, or one without a step.
std::optional<Headline> Asked(const State& state) {
  BundleFolder folder;
  for (const auto& [path, text] : state.files) folder.Write(path, text);
  return HeadlineOf(folder.Ask(WordsOf(state.question)).answer);
}

double Part(const Headline& headline, const char* key) {
  const auto part = headline.breakdown.find(key);
  return part != headline.breakdown.end() && part->is_number() ? part->get<double>() : 0.0;
}

bool Moved(const Headline& from, const Headline& to) {
  const double least = kSame * std::max(from.seconds, to.seconds);
  if (std::abs(to.seconds - from.seconds) > least || from.layout != to.layout) return true;
  return std::ranges::any_of(BreakdownTerms(), [&](const BreakdownTerm& term) {
    return std::abs(Part(to, term.key) - Part(from, term.key)) > least;
  });
}

MovedBy Movement(const std::string& what, const std::string& before, const std::string& after,
                 const Headline& from, const Headline& to) {
  MovedBy moved{what, before, after, to.seconds - from.seconds, "", "", 0};
  if (to.layout != from.layout) moved.layout = to.layout;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double by = Part(to, term.key) - Part(from, term.key);
    if (std::abs(by) <= std::abs(moved.term_seconds)) continue;
    moved.term_seconds = by;
    moved.term = term.name;
  }
  return moved;
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

std::string Signed(double seconds) {
  return fmt::format("{}{}", seconds < 0 ? "-" : "+", Format(Seconds(std::abs(seconds))));
}

}  // namespace

BundleDiff Diff(const Bundle& before, const Bundle& after) {
  BundleDiff diff{Sentence(before.question),
                  Sentence(after.question),
                  VersionOf(before),
                  VersionOf(after),
                  HeadlineIn(before, "old"),
                  HeadlineIn(after, "new"),
                  {},
                  0};
  State state;
  const Items items(before, after, &state);
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
  for (const Item& item : items.all()) {
    progress.At("comparing", done++ / static_cast<double>(items.all().size()));
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
  std::ranges::stable_sort(diff.moved, [](const MovedBy& a, const MovedBy& b) {
    return std::abs(a.seconds) > std::abs(b.seconds);
  });
  return diff;
}

std::string DiffText(const BundleDiff& diff) {
  const double by = diff.after.seconds - diff.before.seconds;
  std::string text = fmt::format("old  {}\n", report::Fold(diff.old_question, 5));
  if (diff.new_question != diff.old_question)
    text += fmt::format("new  {}\n", report::Fold(diff.new_question, 5));
  text += fmt::format("by   {}\n", diff.old_version == diff.new_version
                                       ? diff.old_version
                                       : diff.old_version + ", then " + diff.new_version);
  text +=
      fmt::format("\nStep {} before, {} now ({:+.1f} %)\n", Format(Seconds(diff.before.seconds)),
                  Format(Seconds(diff.after.seconds)), 100 * by / diff.before.seconds);
  if (diff.before.layout != diff.after.layout)
    text += fmt::format("  before  {}\n  now     {}\n", diff.before.layout, diff.after.layout);
  report::Table terms({{""}, {"before", true}, {"now", true}, {"moved", true}});
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double was = Part(diff.before, term.key), is = Part(diff.after, term.key);
    if (std::abs(is - was) <= kSame * diff.before.seconds) continue;
    terms.Row({term.name, Format(Seconds(was)), Format(Seconds(is)), Signed(is - was)});
  }
  if (terms.rows() > 0) text += terms.Text();
  text += diff.moved.empty() ? "\nNothing that moves the step differs.\n" : "\nBecause of\n";
  for (const MovedBy& moved : diff.moved) {
    std::string cause = moved.what;
    if (!moved.before.empty() || !moved.after.empty())
      cause += fmt::format(": {} before, {} now", moved.before.empty() ? "another" : moved.before,
                           moved.after);
    if (!moved.term.empty())
      cause += fmt::format("; {} {}", moved.term, Signed(moved.term_seconds));
    if (!moved.layout.empty()) cause += fmt::format("; layout now {}", moved.layout);
    text += fmt::format("  {:>9}  {}\n", Signed(moved.seconds), report::Fold(cause, 13));
  }
  if (diff.without_effect > 0)
    text += fmt::format("  {} other {} differ{} and move{} nothing.\n", diff.without_effect,
                        diff.without_effect == 1 ? "value" : "values",
                        diff.without_effect == 1 ? "s" : "", diff.without_effect == 1 ? "s" : "");
  return text;
}

nlohmann::ordered_json DiffJson(const BundleDiff& diff) {
  const auto side = [](const std::string& question, const std::string& version,
                       const Headline& headline) {
    return nlohmann::ordered_json{{"question", question},
                                  {"version", version},
                                  {"layout", headline.layout},
                                  {"step_time_s", headline.seconds},
                                  {"breakdown", headline.breakdown}};
  };
  nlohmann::ordered_json json = {{"schema", "orrery.diff/1"},
                                 {"old", side(diff.old_question, diff.old_version, diff.before)},
                                 {"new", side(diff.new_question, diff.new_version, diff.after)},
                                 {"moved", nlohmann::ordered_json::array()},
                                 {"without_effect", diff.without_effect}};
  for (const MovedBy& moved : diff.moved) {
    json["moved"].push_back({{"what", moved.what},
                             {"before", moved.before},
                             {"after", moved.after},
                             {"step_time_s", moved.seconds},
                             {"term", moved.term},
                             {"term_s", moved.term_seconds},
                             {"layout", moved.layout}});
  }
  return json;
}

}  // namespace orrery::cli
