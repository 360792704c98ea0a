// SPDX-License-Identifier: Apache-2.0
// Contrast of every colour of the page, light and dark, by the formula of WCAG 2.2 (1.4.3 and 1.4.11).
#include "model/report/style.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <regex>
#include <vector>

#include "model/report/markup.h"

namespace orrery::report {
namespace {

using Palette = std::map<std::string, std::string>;  // "fg" -> "1b1f24"

// Of each :root rule.
std::vector<Palette> Palettes() {
  static const std::regex kRoot(":root\\{([^}]*)\\}"), kColour("--([a-z0-9]+):#([0-9a-f]{6})");
  std::vector<Palette> palettes;
  const std::string head = Head();
  for (std::sregex_iterator rule(head.begin(), head.end(), kRoot), end; rule != end; ++rule) {
    const std::string text = (*rule)[1];
    Palette palette;
    for (std::sregex_iterator one(text.begin(), text.end(), kColour); one != end; ++one)
      palette[(*one)[1]] = (*one)[2];
    palettes.push_back(palette);
  }
  return palettes;
}

double Luminance(const std::string& colour) {
  constexpr std::array kWeights = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(colour.substr(2 * i, 2), nullptr, 16) / 255.0;
    sum += kWeights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double Contrast(const std::string& a, const std::string& b) {
  const double x = Luminance(a), y = Luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST(Style, TheFormulaKnowsBlackOnWhite) {
  EXPECT_NEAR(Contrast("000000", "ffffff"), 21, 1e-9);
  EXPECT_NEAR(Contrast("777777", "ffffff"), 4.48, 0.005);
}

TEST(Style, TextAndMarksStandOut) {
  const std::vector<Palette> palettes = Palettes();
  ASSERT_EQ(palettes.size(), 2u);  // light, dark
  for (const Palette& palette : palettes) {
    for (const char* ground : {"bg", "card"}) {
      for (const char* text : {"fg", "muted", "accent"})
        EXPECT_GE(Contrast(palette.at(text), palette.at(ground)), 4.5) << text << " on " << ground;
      for (int c = 0; c < kColours; ++c) {
        const std::string name = "c" + std::to_string(c);
        EXPECT_GE(Contrast(palette.at(name), palette.at(ground)), 3) << name << " on " << ground;
      }
      EXPECT_GE(Contrast(palette.at("line"), palette.at(ground)), 3) << "frames on " << ground;
    }
  }
}

// What is translucent has less contrast than its colour; lines behind the marks may.
TEST(Style, OnlyTheGridIsTranslucent) {
  static const std::regex kRule("([^{}]+)\\{[^{}]*opacity:[^{}]*\\}");
  const std::string head = Head();
  std::vector<std::string> rules;
  for (std::sregex_iterator rule(head.begin(), head.end(), kRule), end; rule != end; ++rule)
    rules.push_back((*rule)[1]);
  EXPECT_EQ(rules, std::vector<std::string>{"\n.grid"});
}

}  // namespace
}  // namespace orrery::report
