// SPDX-License-Identifier: Apache-2.0
// calib/ACCURACY.md is what the command writes today. Text is equal word by word; numbers may differ by one unit of
// their last printed digit, which is what other compilers and processors change.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "calib/program/validate/accuracy.h"

namespace orrery {
namespace {

const std::string kRoot = ORRERY_SOURCE_DIR;

std::vector<std::string> WordsOf(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Value and last digit's unit of "12.3", "-5" or "+0.97,".
bool NumberIn(std::string word, double* value, double* unit) {
  while (!word.empty() && (word.back() == ',' || word.back() == ')')) word.pop_back();
  if (!word.empty() && word.front() == '(') word.erase(0, 1);
  char* end = nullptr;
  *value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !(std::isdigit(static_cast<unsigned char>(word.back())) != 0))
    return false;
  const std::size_t point = word.find('.');
  *unit = point == std::string::npos
              ? 1
              : std::pow(10.0, -static_cast<double>(word.size() - point - 1));
  return true;
}

bool SameWord(const std::string& a, const std::string& b) {
  double first = 0, second = 0, unit = 0, other = 0;
  if (a == b) return true;
  if (!NumberIn(a, &first, &unit) || !NumberIn(b, &second, &other)) return false;
  return std::abs(first - second) <= 1.01 * std::max(unit, other);
}

bool SameLine(const std::string& a, const std::string& b) {
  const std::vector<std::string> first = WordsOf(a), second = WordsOf(b);
  if (first.size() != second.size()) return false;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!SameWord(first[i], second[i])) return false;
  }
  return true;
}

std::vector<std::string> LinesOf(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(AccuracyDocument, NumbersAreComparedByTheirLastDigit) {
  EXPECT_TRUE(SameLine("| a | 1.4 |", "| a | 1.5 |"));
  EXPECT_FALSE(SameLine("| a | 1.4 |", "| a | 1.6 |"));
  EXPECT_TRUE(SameLine("| a | -36 | 2.0, 1.4 |", "| a | -37 | 2.1, 1.4 |"));
  EXPECT_FALSE(SameLine("| a | 0.978 |", "| b | 0.978 |"));
  EXPECT_FALSE(SameLine("| a | - |", "| a | 3.0 |"));
}

TEST(AccuracyDocument, IsWhatTheCommandWritesToday) {
  std::ifstream committed_file(kRoot + "/calib/ACCURACY.md");
  std::istringstream written(
      RenderAccuracy(MeasureAccuracy(kRoot + "/calib/data/published_runs.csv")));
  const std::vector<std::string> committed = LinesOf(committed_file), today = LinesOf(written);
  ASSERT_EQ(committed.size(), today.size());
  for (std::size_t i = 0; i < today.size(); ++i)
    EXPECT_TRUE(SameLine(committed[i], today[i]))
        << "calib/ACCURACY.md:" << i + 1 << "\n  " << committed[i] << "\n  today: " << today[i]
        << "\n./plan validate calib/data/published_runs.csv --accuracy calib/ACCURACY.md writes it "
           "again";
}

}  // namespace
}  // namespace orrery
