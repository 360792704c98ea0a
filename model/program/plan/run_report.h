// SPDX-License-Identifier: Apache-2.0
// A run of weeks in words: days, money, what stops, checkpoints and the input pipeline do to it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/provision/batch_range.h"
#include "model/provision/facts.h"
#include "model/provision/long_run.h"

namespace orrery::report {

// "23.1 d", "226 kUSD", "23.1 d (20.0 to 26.9)".
std::string Days(Seconds time);
std::string Money(Dollars money);
// A limit as the user gave it: 12.05 d stays 12.05 d.
std::string GivenDays(Seconds time);
std::string GivenMoney(Dollars money);
// The next amount and duration of three digits that are no smaller: what would do as a limit.
Dollars EnoughMoney(Dollars money);
Seconds EnoughDays(Seconds time);
std::string DaysWithInterval(const RunEstimate& run);
std::string MoneyWithInterval(const RunEstimate& run);

// Time, failures, checkpoints, storage, input.
std::vector<std::string> RunLines(const RunEstimate& run, const Conditions& conditions);
std::string Bullets(const std::vector<std::string>& lines);
// What sets the largest batch of the range: a published run, the exponent with its source, or their end.
std::string RangeWords(const BatchRange& range, const BatchFacts& facts);
// A batch beyond those of published runs of so many tokens; "": it is not.
std::string LargeBatch(double batch_tokens, double tokens, const BatchFacts& facts);
nlohmann::ordered_json RunJson(const RunEstimate& run);

}  // namespace orrery::report
