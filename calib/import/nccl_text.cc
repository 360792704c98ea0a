// SPDX-License-Identifier: Apache-2.0
// Reads the tables that nccl-tests prints, by their column titles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "calib/import/nccl_log.h"
#include "model/base/plain_text.h"

namespace orrery::measured {
namespace {

constexpr std::size_t kMostColumns = 64;

struct Word {
  std::string_view text;
  int column = 1;  // in the line
};

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit);
}

// Length of "3: " or "[1,0]<stdout>:" at the front; 0: there is none.
std::size_t PrefixLength(std::string_view line) {
  std::size_t at = 0;
  while (at < line.size() && IsSpace(line[at])) ++at;
  if (at < line.size() && line[at] == '[') {
    for (const char* stream : {"]<stdout>:", "]<stderr>:"}) {
      const std::size_t end = line.substr(0, 200).find(stream);
      if (end != std::string_view::npos) return end + std::string_view(stream).size();
    }
    return 0;
  }
  std::size_t digits = at;
  while (digits < line.size() && IsDigit(line[digits])) ++digits;
  const bool label = digits > at && digits < line.size() && line[digits] == ':' &&
                     (digits + 1 == line.size() || IsSpace(line[digits + 1]));
  return label ? digits + 1 : 0;
}

std::vector<Word> Words(std::string_view line, std::size_t first) {
  std::vector<Word> words;
  for (std::size_t at = first; at < line.size();) {
    if (IsSpace(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && !IsSpace(line[end])) ++end;
    words.push_back({line.substr(at, end - at), static_cast<int>(at) + 1});
    at = end;
  }
  return words;
}

bool IsTypeName(std::string_view word) {
  static const std::set<std::string_view> kTypes = {
      "int8",   "uint8",    "int32", "uint32", "int64",    "uint64",   "half",   "float",
      "double", "bfloat16", "char",  "int",    "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"};
  return kTypes.contains(word);
}

std::optional<double> AmountOf(std::string_view text) {
  double value = 0;
  if (ParseNumber(text, &value) != NumberFault::kNone || value < 0) return std::nullopt;
  return value;
}

// Reads one file.
class TextReader {
 public:
  explicit TextReader(const SourcePtr& source) { log_.source = source; }

  NcclLog Read() {
    const std::string_view text = log_.source->text;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      ++line_;
      ReadLine(text.substr(begin, end - begin));
      begin = end + 1;
    }
    FinishLog(&log_);
    return std::move(log_);
  }

 private:
  void ReadLine(std::string_view line) {
    const std::vector<Word> words = Words(line, PrefixLength(line));
    if (words.empty()) return;
    if (words[0].text[0] == '#') {
      if (!IsTitles(words)) return ReadComment(words);
      StartTable(words);
    } else if (LooksLikeRow(words)) {
      ReadRow(words);
    } else {
      NoteProgram(words);
    }
  }

  // A row begins with a number, or names a type of elements among numbers.
  bool LooksLikeRow(const std::vector<Word>& words) const {
    if (AllDigits(words[0].text) && !columns_.empty()) return true;
    const auto type = std::find_if(words.begin(), words.end(),
                                   [](const Word& word) { return IsTypeName(word.text); });
    if (type == words.end()) return false;
    const auto numbers = std::count_if(words.begin(), words.end(), [](const Word& word) {
      return AmountOf(word.text).has_value();
    });
    return numbers >= 4;
  }

  static bool IsTitles(const std::vector<Word>& words) {
    const auto has = [&](std::string_view title) {
      return std::any_of(words.begin(), words.end(),
                         [&](const Word& word) { return word.text == title; });
    };
    return has("size") && has("count") && has("type") && has("algbw") && has("busbw");
  }

  void StartTable(const std::vector<Word>& words) {
    columns_.clear();
    for (const Word& word : words) {
      if (word.text != "#" && columns_.size() < kMostColumns) columns_.emplace_back(word.text);
    }
    pending_.line = line_;
    log_.runs.push_back(std::move(pending_));
    pending_ = NcclRun();
  }

  void NoteProgram(const std::vector<Word>& words) {
    for (const Word& word : words) {
      if (word.text.size() > 200) continue;
      const std::string collective = CollectiveOfProgram(std::string(word.text));
      if (!collective.empty()) pending_.collective = collective;
    }
  }

  void ReadComment(const std::vector<Word>& words) {
    const auto is = [&](std::size_t i, std::string_view text) {
      return i < words.size() && words[i].text == text;
    };
    if (is(1, "Rank")) return ReadDevice(words);
    if (is(1, "nThread")) {  // a new start: what was said before belongs to the run before
      pending_.devices.clear();
      pending_.ranks = 0;
      columns_.clear();
      return;
    }
    if (is(1, "Avg") && is(2, "bus") && words.size() > 5 && !log_.runs.empty()) {
      log_.runs.back().average_busbw = AmountOf(words[5].text);
      columns_.clear();
      return;
    }
    if (is(1, "Collective") && is(2, "test") && is(3, "concluded:")) return;
    NoteProgram(words);
  }

  // "#  Rank  0 Group  0 Pid  15784 on  nid007106 device  0 [0009:01:00] NVIDIA GH200 120GB"
  void ReadDevice(const std::vector<Word>& words) {
    MeasuredDevice device;
    int64_t rank = -1;
    std::size_t on = 0;
    while (on < words.size() && words[on].text != "on") ++on;
    if (words.size() < 3 || ParseInteger(words[2].text, &rank) != NumberFault::kNone || rank < 0 ||
        rank >= kMostRanks || on + 4 >= words.size() || words[on + 2].text != "device") {
      return AddGarbled(line_, words[0].column, "a device line without rank, host and device",
                        &log_);
    }
    device.rank = static_cast<int>(rank);
    device.host = words[on + 1].text;
    for (std::size_t i = on + 5; i < words.size(); ++i)
      device.name += (device.name.empty() ? "" : " ") + std::string(words[i].text);
    pending_.ranks = std::max(pending_.ranks, device.rank + 1);
    pending_.devices.push_back(std::move(device));
  }

  void ReadRow(const std::vector<Word>& words) {
    if (columns_.empty() || log_.runs.empty()) {
      return AddGarbled(line_, words[0].column, "a row of numbers without column titles above it",
                        &log_);
    }
    if (words.size() < TimedColumns() || words.size() > columns_.size() + 1) {
      return AddGarbled(
          line_, words[0].column,
          fmt::format("{} columns where the titles name {}", words.size(), columns_.size()), &log_);
    }
    Measurement row;
    row.line = line_;
    std::optional<Timing>* side = nullptr;
    const std::size_t count = std::min(words.size(), columns_.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (ReadCell(columns_[i], words[i].text, &row, &side)) continue;
      return AddGarbled(line_, words[i].column,
                        fmt::format("'{}' is no {}", words[i].text.substr(0, 40), columns_[i]),
                        &log_);
    }
    const std::string wrong = Contradiction(row);
    if (!wrong.empty()) return AddGarbled(line_, words[0].column, wrong, &log_);
    log_.runs.back().measurements.push_back(std::move(row));
  }

  // Columns up to the last one that is read; timestamps may be missing.
  std::size_t TimedColumns() const {
    std::size_t last = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] != "timestamp") last = i + 1;
    }
    return last;
  }

  static bool ReadCell(const std::string& title, std::string_view text, Measurement* row,
                       std::optional<Timing>** side) {
    if (title == "size")
      return ParseInteger(text, &row->bytes) == NumberFault::kNone && row->bytes >= 0;
    if (title == "count")
      return ParseInteger(text, &row->count) == NumberFault::kNone && row->count >= 0;
    if (title == "type") return row->type = text, IsTypeName(text);
    if (title == "redop") return row->redop = text, !AmountOf(text);
    if (title == "root") {
      int64_t root = 0;
      if (ParseInteger(text, &root) != NumberFault::kNone || root < -1 || root > kMostRanks)
        return false;
      row->root = static_cast<int>(root);
      return true;
    }
    if (title == "time" || title == "cputime") {
      *side = *side == nullptr ? &row->out_of_place : &row->in_place;
      (*side)->emplace();
      return ReadInto(text, &(**side)->us) && (**side)->us > 0;
    }
    if (*side == nullptr) return true;  // a column that this reader does not know
    if (title == "algbw") return ReadInto(text, &(**side)->algbw);
    if (title == "busbw") return ReadInto(text, &(**side)->busbw);
    if (title == "#wrong" || title == "error") {
      (**side)->wrong = AmountOf(text);
      return (**side)->wrong.has_value() || text == "N/A";
    }
    return true;
  }

  static bool ReadInto(std::string_view text, double* value) {
    const std::optional<double> amount = AmountOf(text);
    *value = amount.value_or(0);
    return amount.has_value();
  }

  // Digits that were lost show up as a bandwidth that is not size / time; a table may lack the column
  // of times. "": consistent.
  static std::string Contradiction(const Measurement& row) {
    if (!row.out_of_place && !row.in_place) return "a row without a time";
    for (const auto* timing : {&row.out_of_place, &row.in_place}) {
      if (!*timing) continue;
      const double expected = static_cast<double>(row.bytes) / (*timing)->us / 1e3;
      const double slack = 0.02 + 0.06 * expected + 0.005 * expected / (*timing)->us;
      if (std::abs((*timing)->algbw - expected) > slack) {
        return fmt::format("{} B in {} us are {:.3g} GB/s, but algbw says {}", row.bytes,
                           (*timing)->us, expected, (*timing)->algbw);
      }
    }
    return "";
  }

  NcclLog log_;
  NcclRun pending_;                   // said before its table
  std::vector<std::string> columns_;  // of the table that is open; empty: none
  int line_ = 0;
};

}  // namespace

NcclLog ReadNcclText(const SourcePtr& source) { return TextReader(source).Read(); }

}  // namespace orrery::measured
