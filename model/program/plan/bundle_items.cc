// SPDX-License-Identifier: Apache-2.0
// Compares the questions flag by flag and the files line by line.
#include "model/program/plan/bundle_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>

#include "model/base/text.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kMostItems = 200;  // of lines; beyond, whole files

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

std::string ValuesOf(const QuestionFlags& flags, const std::string& name) {
  std::string text;
  bool found = false;
  for (const auto& [flag, values] : flags) {
    if (flag != name) continue;
    found = true;
    for (const std::string& value : values) text += (text.empty() ? "" : " ") + value;
  }
  return !found ? "not given" : text.empty() ? "given" : text;
}

class Items {
 public:
  Items(const Bundle& before, const Bundle& after, BundleState* start) {
    start->question = FlagsOf(before.question);
    start->files = {before.files.begin(), before.files.end()};
    const BundledFiles files(after.files.begin(), after.files.end());
    CompareQuestions(start->question, FlagsOf(after.question));
    // Files that the old question did not read have no effect before something names them. But own ones stand before those of
    // the catalogue, and of offers a question reads all that are there.
    const auto counts = [](const std::string& path) {
      return path.starts_with(".orrery/") || path.starts_with("offers/");
    };
    for (const auto& [path, text] : files) {
      if (start->files.contains(path)) continue;
      if (counts(path)) {
        Whole(path, "not there", "there", text);
      } else {
        start->files[path] = text;
      }
    }
    for (const auto& [path, text] : start->files) {
      const auto same = files.find(path);
      if (same == files.end()) {
        if (counts(path)) Whole(path, "there", "not there", std::nullopt);
      } else if (same->second != text) {
        CompareFiles(path, text, same->second);
      }
    }
  }
  const std::vector<BundleItem>& all() const { return items_; }

 private:
  void CompareQuestions(const QuestionFlags& before, const QuestionFlags& after) {
    if (before.front().second != after.front().second) {  // another command
      items_.push_back(
          {"the question", "", "", [after](BundleState* state) { state->question = after; }});
      return;
    }
    std::vector<std::string> names;
    for (const QuestionFlags* flags : {&before, &after}) {
      for (const auto& [name, values] : *flags) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
    for (const std::string& name : names) {
      const std::string was = ValuesOf(before, name), is = ValuesOf(after, name);
      if (was == is) continue;
      items_.push_back({name, was, is, [name, after](BundleState* state) {
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
    items_.push_back({path, before, after, [path, text](BundleState* state) {
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
                        [path, key = line.key](BundleState* state) {
                          std::vector<Line> lines = LinesOf(state->files[path]).value();
                          std::erase_if(lines, [&](const Line& l) { return l.key == key; });
                          state->files[path] = JoinLines(lines);
                        }});
    }
  }

  void Set(const std::string& path, const Line& line, const std::string& anchor,
           const std::string& before, const std::string& after) {
    items_.push_back(
        {path + ": " + line.key, before, after, [path, line, anchor](BundleState* state) {
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

  std::vector<BundleItem> items_;
};

}  // namespace

QuestionFlags FlagsOf(const std::vector<std::string>& question) {
  QuestionFlags flags;
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

std::vector<std::string> WordsOf(const QuestionFlags& flags) {
  std::vector<std::string> words;
  for (const auto& [name, values] : flags) {
    if (!name.empty()) words.push_back(name);
    words.insert(words.end(), values.begin(), values.end());
  }
  return words;
}

std::vector<BundleItem> ItemsBetween(const Bundle& before, const Bundle& after,
                                     BundleState* start) {
  return Items(before, after, start).all();
}

}  // namespace orrery::cli
