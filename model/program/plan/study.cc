// SPDX-License-Identifier: Apache-2.0
// Reads lists and ranges, and counts rows like the wheels of an odometer.
#include "model/program/plan/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

namespace orrery::cli {
namespace {

constexpr int64_t kMostRows = 1'000'000'000;
constexpr int64_t kMostValues = 100'000;  // of a range
constexpr const char* kRangeHint =
    "ranges of whole numbers: 1..8 doubles (1, 2, 4, 8), '8..32 by 8' adds 8";

std::string KeyOf(const Flag& flag) {
  std::string key = flag.name.substr(2);
  std::ranges::replace(key, '-', '_');
  return key;
}

// Their own text has commas: several values are a list in the file.
bool HasCommas(const std::string& key) {
  return key == "layout" || key == "fact" || key == "lora_targets" || key == "placement" ||
         key == "slow_node" || key == "fp8_skip";
}

void AddRange(const Flag& flag, const std::smatch& match, std::vector<std::string>* values,
              Diagnostics* diagnostics) {
  Flag low = flag, high = flag, step = flag;
  low.text = match[1];
  high.text = match[2];
  step.text = match[4];
  constexpr int64_t kMost = int64_t{1} << 53;
  const auto first = ReadInteger(low, 0, kMost, diagnostics),
             last = ReadInteger(high, 0, kMost, diagnostics);
  const auto by =
      match[4].matched ? ReadInteger(step, 0, kMost, diagnostics) : std::optional<int64_t>(0);
  if (!first || !last || !by) return;
  if (match[4].matched && *by == 0) {
    diagnostics->Error(flag.where, fmt::format("{}: the step of {} is 0", flag.name, flag.text),
                       kRangeHint);
    return;
  }
  if (*first > *last || (*by == 0 && *first == 0)) {
    diagnostics->Error(flag.where,
                       *first > *last
                           ? fmt::format("{}: the range {} is empty", flag.name, flag.text)
                           : fmt::format("{}: {} doubles, which 0 does not", flag.name, flag.text),
                       fmt::format("A..B doubles from A, at least 1, up to B; '{}..{} by 1' adds 1",
                                   std::min(*first, *last), std::max(*first, *last)));
    return;
  }
  if (*by > 0 && (*last - *first) / *by >= kMostValues) {
    diagnostics->Error(
        flag.where,
        fmt::format("{}: {} has more than {} values", flag.name, flag.text, kMostValues),
        "a larger step: A..B by S");
    return;
  }
  for (int64_t n = *first; n < *last; n = *by == 0 ? 2 * n : n + *by)
    values->push_back(std::to_string(n));
  if (*by == 0 || (*last - *first) % *by == 0) values->push_back(std::to_string(*last));
}

// A list in the list is one value, whose own commas stand between its parts.
std::vector<std::string> ValuesOf(const Node& item, Flag flag, Diagnostics* diagnostics) {
  if (item.IsMap()) {
    item.Error(fmt::format("'{}' takes a value or a list of values, not a map", KeyOf(flag)));
    return {};
  }
  if (!item.IsSequence()) {
    flag.text = item.AsString();
    return StudyValues(flag, diagnostics);
  }
  std::string whole;
  for (const Node& part : item.Elements()) whole += (whole.empty() ? "" : ",") + part.AsString();
  if (whole.empty()) diagnostics->Error(item.where(), "a value is missing");
  return {whole};
}

// Of a value in the list of a flag on the command line; of a range, and where it stands elsewhere, the flag's place.
Location PlaceOf(const Flag& flag, const std::string& value) {
  if (!flag.where.source) return flag.where;
  const std::string& line = flag.where.source->text;
  const std::size_t list = line.find(flag.text, static_cast<std::size_t>(flag.where.column - 1));
  for (std::size_t begin = 0; list != line.npos && begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    const std::string_view piece = std::string_view(flag.text).substr(begin, end - begin);
    Location at = flag.where;
    at.column = static_cast<int>(list + begin + piece.find_first_not_of(' ')) + 1;
    if (Trim(piece) == value) return at;
    begin = end + 1;
  }
  return flag.where;
}

bool IsRange(const std::string& text, std::smatch* match) {
  if (text.find("..") == text.npos)
    return false;  // most are none, and the expression takes a millisecond to build
  static const std::regex kRange(R"(\s*(\d+)\s*\.\.\s*(\d+)(\s+by\s+(\d+))?\s*)");
  return std::regex_match(text, *match, kRange);
}

// "1..8 by -2", "1...8": "no whole number" would say nothing of how ranges are written. "1../a.yaml" is a path.
bool IsLikeARange(const std::string& text) {
  if (text.find("..") == text.npos) return false;
  static const std::regex kLike(R"(\s*-?\d+\s*\.\.[^/]*)");
  return std::regex_match(text, kLike);
}

// Flags stand under the name of their section.
void RefuseAtTop(const Node& root, const std::vector<Flag*>& flags, const char* section,
                 Diagnostics* diagnostics) {
  for (const Flag* flag : flags) {
    const std::string key = KeyOf(*flag);
    if (key == "layout" || !root.Has(key)) continue;  // a section has that name
    root.Child(key);                                  // known, though not here
    diagnostics->Error(root.where(key), fmt::format("'{}' stands under '{}:'", key, section),
                       "plan sweep --template prints a study");
  }
}

}  // namespace

std::vector<std::string> StudyValues(const Flag& flag, Diagnostics* diagnostics) {
  std::vector<std::string> values;
  const bool whole = HasCommas(KeyOf(flag));
  for (std::size_t begin = 0; begin <= flag.text.size();) {
    const std::size_t end =
        whole ? flag.text.size() : std::min(flag.text.find(',', begin), flag.text.size());
    Flag one = flag;
    one.text = std::string(Trim(std::string_view(flag.text).substr(begin, end - begin)));
    begin = end + 1;
    std::smatch match;
    if (one.text.empty()) {
      diagnostics->Error(flag.where, fmt::format("{}: a value is missing", flag.name),
                         "values with a comma in between: 1,2,4");
      break;  // once is enough
    } else if (!whole && IsRange(one.text, &match)) {
      AddRange(one, match, &values, diagnostics);
    } else if (!whole && IsLikeARange(one.text)) {
      diagnostics->Error(flag.where, fmt::format("{}: '{}' is no range", flag.name, one.text),
                         kRangeHint);
    } else {
      values.push_back(one.text);
    }
  }
  return values;
}

Study::Study() : declared_(std::make_shared<FlagSet>("sweep", "", std::vector<std::string>())) {
  base_.job.Declare(declared_.get(), false);
  base_.layout.Declare(declared_.get(), "The layout");
}

void Study::Take(const Flag& flag, bool of_job, std::vector<std::string> values,
                 std::vector<Location> where) {
  std::vector<Flag*> own = of_job ? base_.job.All() : base_.layout.All();
  Flag* target = *std::ranges::find(own, flag.name, [](const Flag* one) { return one->name; });
  if (values.size() == 1) {
    *target = flag;
    target->text = values.front();
    target->where = where.front();
    return;
  }
  StudyAxis axis{KeyOf(flag), std::move(values), std::move(where)};
  if (of_job) {
    axes_.insert(axes_.begin() + static_cast<std::ptrdiff_t>(job_axes_++), std::move(axis));
  } else {
    axes_.push_back(std::move(axis));
  }
}

Study Study::Read(const Flag& file) {
  SourcePtr source;
  AtFlag(file, [&] { source = ReadSource(file.text); });
  Diagnostics diagnostics;
  const Node root = Node::Parse(std::move(source), &diagnostics);
  diagnostics.ThrowIfAny();
  Study study;
  root.String("description", "");
  for (const bool of_job : {true, false}) {
    const char* const name = of_job ? "job" : "layout";
    const auto section = root.Find(name);
    const std::vector<Flag*> flags = of_job ? study.base_.job.All() : study.base_.layout.All();
    RefuseAtTop(root, flags, name, &diagnostics);
    if (!section) continue;
    for (const Flag* flag : flags) {
      const std::string key = KeyOf(*flag);
      if (!section->Has(key)) {
        // Without a value it would be left out without a word.
        const std::vector<std::string> keys = section->Keys();
        if (std::ranges::find(keys, key) != keys.end()) section->Child(key);
        continue;
      }
      Flag given{flag->name, "", true, section->where(key)};
      std::vector<std::string> values;
      std::vector<Location> where;
      std::set<std::string> seen;
      const Node value = section->Child(key);
      const std::vector<Node> items =
          value.IsSequence() ? value.Elements() : std::vector<Node>{value};
      if (items.empty()) diagnostics.Error(given.where, fmt::format("'{}' has no value", key));
      for (const Node& item : items) {
        for (std::string& one : ValuesOf(item, given, &diagnostics)) {
          if (!seen.insert(one).second) {
            diagnostics.Error(item.where(), fmt::format("'{}': {} stands there twice", key, one));
          } else {
            values.push_back(std::move(one));
            where.push_back(item.where());
          }
        }
      }
      if (!values.empty())  // else said
        study.Take(given, of_job, std::move(values), std::move(where));
    }
    section->RejectUnknownKeys();
  }
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  study.CheckSize(root.where());
  if (!study.HasModel())
    throw InputError({{root.where("job"), "the study names no model",
                       "model: NAME under job:, a YAML file or a HuggingFace config.json; `plan "
                       "list models` shows the names"}});
  study.CheckValues();
  return study;
}

std::optional<Study> Study::Of(const JobFlags& job, const LayoutFlags& layout) {
  JobFlags of_job = job;
  LayoutFlags of_layout = layout;
  Study study;
  Diagnostics diagnostics;
  for (const bool first : {true, false}) {
    for (const Flag* flag : first ? of_job.All() : of_layout.All()) {
      if (!flag->given) continue;
      if (flag->text.empty()) {  // a switch
        study.Take(*flag, first, {flag->text}, {flag->where});
        continue;
      }
      std::vector<std::string> values = StudyValues(*flag, &diagnostics);
      std::set<std::string> seen;
      for (const std::string& one : values) {
        if (!seen.insert(one).second)
          diagnostics.Error(flag->where, fmt::format("{}: {} stands there twice", flag->name, one),
                            "each value once");
      }
      std::vector<Location> where;
      for (const std::string& one : values) where.push_back(PlaceOf(*flag, one));
      if (!values.empty()) study.Take(*flag, first, std::move(values), std::move(where));
    }
  }
  diagnostics.ThrowIfAny();
  if (study.axes_.empty()) return std::nullopt;
  study.base_.job.own_model = job.own_model;
  study.base_.job.from = job.from;
  study.base_.job.notes = job.notes;
  study.CheckValues();
  return study;
}

bool Study::HasModel() const {
  return base_.job.model.given ||
         std::ranges::any_of(axes_, [](const StudyAxis& axis) { return axis.key == "model"; });
}

void Study::CheckSize(const Location& where) const {
  if (rows() <= kMostRows) return;
  std::string counts;
  for (const StudyAxis& axis : axes_)
    counts += fmt::format("{}{} of {}", counts.empty() ? "" : ", ", axis.values.size(), axis.key);
  throw InputError({{where, fmt::format("more than {} rows, the most of a study", kMostRows),
                     "values: " + counts + "; each row is a combination of them"}});
}

int64_t Study::rows() const {
  int64_t rows = 1;
  for (const StudyAxis& axis : axes_) {
    const auto count = static_cast<int64_t>(axis.values.size());
    rows = rows > kMostRows / count ? kMostRows + 1 : rows * count;
  }
  return rows;
}

int64_t Study::RowsPerJob() const {
  int64_t rows = 1;
  for (std::size_t a = job_axes_; a < axes_.size(); ++a)
    rows *= static_cast<int64_t>(axes_[a].values.size());
  return rows;
}

std::vector<std::size_t> Study::At(int64_t row) const {
  std::vector<std::size_t> at(axes_.size());
  for (std::size_t a = axes_.size(); a-- > 0;) {
    const auto count = static_cast<int64_t>(axes_[a].values.size());
    at[a] = static_cast<std::size_t>(row % count);
    row /= count;
  }
  return at;
}

StudyCase Study::CaseOf(int64_t row) const {
  StudyCase out = base_;
  const std::vector<std::size_t> at = At(row);
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    std::vector<Flag*> flags = a < job_axes_ ? out.job.All() : out.layout.All();
    Flag* flag =
        *std::ranges::find(flags, axes_[a].key, [](const Flag* one) { return KeyOf(*one); });
    flag->text = axes_[a].values[at[a]];
    flag->given = true;
    flag->where = axes_[a].where[at[a]];
  }
  return out;
}

// By itself: what it means with other flags is a matter of each row.
void Study::CheckLayoutValue(const std::string& key, const std::string& value,
                             const Location& where) const {
  // The shape of stages means nothing without the number of stages.
  if (key == "layout" || key.starts_with("cp_") || key == "zigzag") return;
  LayoutFlags only = base_.layout;
  for (Flag* flag : only.All()) {
    flag->given = KeyOf(*flag) == key;
    if (flag->given) *flag = {flag->name, value, true, where};
  }
  only.Read();
}

void Study::CheckValues() const {
  CaseOf(0).job.Resolve();
  StudyCase shared = base_;
  for (const Flag* flag : shared.layout.All()) {
    if (flag->given) CheckLayoutValue(KeyOf(*flag), flag->text, flag->where);
  }
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const StudyAxis& axis = axes_[a];
    for (std::size_t v = 0; v < axis.values.size(); ++v) {
      if (a >= job_axes_) {
        CheckLayoutValue(axis.key, axis.values[v], axis.where[v]);
      } else if (axis.values.size() <= 64) {
        StudyCase alone = CaseOf(0);
        for (Flag* flag : alone.job.All()) {
          if (KeyOf(*flag) == axis.key) flag->text = axis.values[v], flag->where = axis.where[v];
        }
        alone.job.Resolve();
      }
    }
  }
}

std::string Study::Files() const {
  std::string text;
  const auto add = [&](const std::string& value) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(value, error)) return;
    std::ostringstream held;
    held << std::ifstream(value, std::ios::binary).rdbuf();
    text += fmt::format("file {}: {:016x}\n", value, std::hash<std::string>()(held.str()));
  };
  StudyCase base = base_;
  for (std::vector<Flag*> flags : {base.job.All(), base.layout.All()}) {
    for (const Flag* flag : flags) {
      if (flag->given) add(flag->text);
    }
  }
  for (const StudyAxis& axis : axes_) {
    for (const std::string& value : axis.values) add(value);
  }
  return text;
}

std::string Study::Text() const {
  std::string text;
  StudyCase base = base_;
  for (std::vector<Flag*> flags : {base.job.All(), base.layout.All()}) {
    for (const Flag* flag : flags) {
      if (flag->given) text += fmt::format("{}: {}\n", KeyOf(*flag), flag->text);
    }
  }
  for (const StudyAxis& axis : axes_) {
    text += axis.key + ":";
    for (const std::string& value : axis.values) text += fmt::format(" [{}]", value);
    text += "\n";
  }
  return text;
}

}  // namespace orrery::cli
