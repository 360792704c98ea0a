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

using Triple = std::array<double, 3>;

Triple Linear(const std::string& colour) {
  Triple rgb;
  for (std::size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(colour.substr(2 * i, 2), nullptr, 16) / 255.0;
    rgb[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return rgb;
}

double Weighted(const Triple& weights, const Triple& of) {
  return weights[0] * of[0] + weights[1] * of[1] + weights[2] * of[2];
}

double Luminance(const std::string& colour) {
  return Weighted({0.2126, 0.7152, 0.0722}, Linear(colour));
}

Triple OkLab(const std::string& colour) {
  const Triple rgb = Linear(colour);
  const Triple lms = {std::cbrt(Weighted({0.4122214708, 0.5363325363, 0.0514459929}, rgb)),
                      std::cbrt(Weighted({0.2119034982, 0.6806995451, 0.1073969566}, rgb)),
                      std::cbrt(Weighted({0.0883024619, 0.2817188376, 0.6299787005}, rgb))};
  return {Weighted({0.2104542553, 0.7936177850, -0.0040720468}, lms),
          Weighted({1.9779984951, -2.4285922050, 0.4505937099}, lms),
          Weighted({0.0259040371, 0.7827717662, -0.8086757660}, lms)};
}

double Distance(const std::string& one, const std::string& other) {
  const Triple a = OkLab(one), b = OkLab(other);
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
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

// Optimizer and setup were two olives in one legend. Distances in OKLab (Ottosson 2020), of which black and white are 1 apart.
TEST(Style, MarksAreToldApart) {
  for (const Palette& palette : Palettes()) {
    for (int a = 0; a < kColours; ++a) {
      for (int b = 0; b < a; ++b) {
        const std::string one = "c" + std::to_string(a), other = "c" + std::to_string(b);
        EXPECT_GE(Distance(palette.at(one), palette.at(other)), 0.08) << one << " and " << other;
      }
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
