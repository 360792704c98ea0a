// SPDX-License-Identifier: Apache-2.0
// Numbers as reports print them: three digits.
#pragma once

#include <string>

namespace orrery::report {

// "1.56 billion", "345 million", "21".
std::string Count(double number);
// "1740", "98.4", "0.12", "0.012".
std::string ThreeDigits(double number);
// A number that somebody gave, with all its digits up to six: "500", "12.05".
std::string GivenDigits(double number);
// Three digits with a decimal prefix: "1.03 M", "12.3 k", "961".
std::string Scaled(double number);
std::string OnStorage(double bytes);  // what file systems hold, in decimal units: "112 GB"
std::string Percent(double share);    // "41.2 %"
// Of a probability, rounded down: what is said to be 95 % likely is no less. 100 only above 99.99 %.
int WholePercent(double probability);
std::string LongerWords(double ratio);  // "12.4 % longer", "2.59 times as long"

std::string DollarsOf(double dollars);  // "421 kUSD"
std::string DaysOf(double seconds);     // "21.5 d"; "12.4 min" below 0.01 d
// Limits as they were given.
std::string GivenDaysOf(double seconds);
std::string GivenDollarsOf(double dollars);
std::string SpanOf(const std::string& low, const std::string& high);  // a unit of both said once

}  // namespace orrery::report
