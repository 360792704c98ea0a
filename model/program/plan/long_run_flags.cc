// SPDX-License-Identifier: Apache-2.0
// Reads the flags of a run of weeks.
#include "model/program/plan/long_run_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "model/base/plain_text.h"
#include "model/base/quantity_limits.h"
#include "model/base/text.h"
#include "model/program/plan/run_report.h"
#include "model/report/short_number.h"

namespace orrery::cli {
namespace {

constexpr double kTokensPerParameter = 20;
constexpr double kMostRunTokens = 1e18;
constexpr double kLeastDollars = 0.01, kMostDollars = 1e12;
constexpr double kDay = 86400;
// More is a slip of the pen.
struct Longest {
  double days;
  const char* words;
};
constexpr Longest kLongestRun{1e5, "100,000 d"};
constexpr Longest kLongestSetup{365, "365 d"};
constexpr Longest kLongestRecovery{30, "30 d"};  // detection; restart

// Runs last days, where the unit that a bare number suggests elsewhere is a microsecond.
std::optional<Seconds> ReadTime(const Flag& flag, Longest longest, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  TextError error;
  const std::optional<Seconds> time = ParseQuantity<Seconds>(flag.text, &error);
  if (error.hint.starts_with("write ") || error.hint.starts_with("nothing "))
    error.hint = "such as 30d, 12h or 10min";
  if (IsTooSmall(error)) error.hint = fmt::format("0, or 1e-9ns to {}", longest.words);
  if (!time && !IsTooLarge(error)) {
    RecordBadValue(flag, error, diagnostics);
  } else if (!time || time->value > longest.days * kDay) {
    diagnostics->Error(
        flag.where, fmt::format("{}: {} is not from 0 to {}", flag.name, flag.text, longest.words),
        "such as 30d, 12h or 10min");
    return std::nullopt;
  }
  return time;
}

std::optional<Dollars> ReadBudget(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  TextError error;
  const std::optional<Dollars> budget = ParseQuantity<Dollars>(flag.text, &error);
  const bool small =
      budget ? budget->value > 0 && budget->value < kLeastDollars : IsTooSmall(error);
  if (small) {
    diagnostics->Error(flag.where, fmt::format("--budget: {} is less than a cent", flag.text),
                       "--budget takes 0.01USD to 1,000,000 MUSD, such as 500kUSD");
  } else if (!budget && !IsTooLarge(error)) {
    RecordBadValue(flag, error, diagnostics);
  } else if (!budget || budget->value > kMostDollars) {
    diagnostics->Error(flag.where,
                       fmt::format("--budget: {} is more than 1,000,000 MUSD", flag.text),
                       "such as 500kUSD or 2.5MUSD");
  } else if (budget->value <= 0) {
    diagnostics->Error(flag.where, "--budget: no money at all", "such as 500kUSD");
  }
  return budget;
}

// "2T", "300B", "1.4e12".
std::optional<double> ReadTokens(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  std::string text = flag.text;
  double factor = 1;
  constexpr std::pair<char, double> kUnits[] = {
      {'T', 1e12}, {'B', 1e9}, {'G', 1e9}, {'M', 1e6}, {'k', 1e3}};
  for (const auto& [unit, times] : kUnits) {
    if (text.empty() || text.back() != unit) continue;
    factor = times;
    text.pop_back();
    break;
  }
  double number = 0;
  const NumberFault fault = ParseNumber(std::string(Trim(text)), &number);
  const char* hint = "a number of tokens, such as 2T, 300B or 1.4e12";
  if (fault == NumberFault::kMalformed) {
    diagnostics->Error(flag.where, fmt::format("{}: '{}' is no number", flag.name, flag.text),
                       hint);
  } else if (fault == NumberFault::kOutOfRange || !(number * factor >= 1) ||
             number * factor > kMostRunTokens) {
    diagnostics->Error(flag.where,
                       fmt::format("{}: {} is not from 1 to 1e18", flag.name, flag.text), hint);
  } else {
    return number * factor;
  }
  return std::nullopt;
}

int64_t Today() {
  using namespace std::chrono;
  return floor<days>(system_clock::now()).time_since_epoch().count();
}

// A duration, or the day by which all is done.
std::optional<Seconds> ReadDeadline(const Flag& flag, int64_t today, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  const auto date = flag.text.size() == 10 ? ParseDate(flag.text) : std::nullopt;
  const auto digits = std::ranges::count_if(flag.text, [](char c) { return c >= '0' && c <= '9'; });
  if (!date && digits == 8 && std::ranges::count(flag.text, '-') == 2) {
    diagnostics->Error(flag.where, fmt::format("--deadline: there is no day '{}'", flag.text),
                       "such as 2027-03-01");
    return std::nullopt;
  }
  if (!date) {
    const auto time = ReadTime(flag, kLongestRun, diagnostics);
    if (time && time->value <= 0)
      diagnostics->Error(flag.where, "--deadline: no time at all", "such as 30d or 2027-03-01");
    return time;
  }
  const int64_t left = date->DayNumber() - today;
  if (static_cast<double>(left) > kLongestRun.days) {
    diagnostics->Error(
        flag.where,
        fmt::format("--deadline: {} is more than {} away", flag.text, kLongestRun.words),
        "a nearer day, or a duration such as 30d");
    return std::nullopt;
  }
  if (left > 0) return Seconds(static_cast<double>(left) * kDay);
  diagnostics->Error(flag.where,
                     fmt::format("--deadline: {} is {}", flag.text, left == 0 ? "today" : "past"),
                     "a later day, or a duration such as 12h or 30d");
  return std::nullopt;
}

void ReadFailures(const Flag& flag, Conditions* conditions, Diagnostics* diagnostics) {
  if (!flag.given) return;
  const std::vector<std::string> names = FactNames("failures");
  if (std::ranges::find(names, flag.text) != names.end()) {
    conditions->failures = LoadFailures(flag.text);
    return;
  }
  double rate = 0;
  const char* hint =
      "job stops per 1000 node-days, such as 3.8; or a name of calib/profiles/failures";
  const NumberFault fault = ParseNumber(flag.text, &rate);
  if (fault == NumberFault::kOutOfRange) {
    diagnostics->Error(flag.where, fmt::format("--failures: {} is not from 0 to 100", flag.text),
                       hint);
  } else if (fault != NumberFault::kNone || rate < 0) {
    diagnostics->Error(flag.where, fmt::format("--failures: '{}' is no rate", flag.text),
                       SuggestName(flag.text, names) + "; " + hint);
  } else if (rate > 100) {
    diagnostics->Error(
        flag.where,
        fmt::format("--failures: {} per 1000 node-days is a stop of every node every {}", flag.text,
                    report::Days(Seconds(1000 / rate * 86400))),
        hint);
  } else {
    conditions->failures = {"given", "as given", "--failures", {rate, rate, rate}};
  }
}

// A text that starts with a digit is a quantity in a wrong unit, not the name of a profile.
template <class F>
void LoadFact(const Flag& flag, const char* noun, const char* example, F&& load) {
  const bool number = flag.text[0] == '-' || (flag.text[0] >= '0' && flag.text[0] <= '9');
  if (number && !flag.text.ends_with(".yaml"))
    throw InputError(
        {{flag.where, fmt::format("{}: '{}' is no {}", flag.name, flag.text, noun), example}});
  AtFlag(flag, load);
}

// "2min+8min": detection and restart; or a name.
void ReadRecovery(const Flag& flag, Conditions* conditions, Diagnostics* diagnostics) {
  if (!flag.given) return;
  const std::size_t plus = flag.text.find('+');
  if (plus == std::string::npos) {
    LoadFact(flag, "name, nor detection and restart", "such as 2min+7min",
             [&] { conditions->recovery = LoadRecovery(flag.text); });
    return;
  }
  Flag detection = flag, restart = flag;
  detection.text = flag.text.substr(0, plus);
  restart.text = flag.text.substr(plus + 1);
  const auto down = ReadTime(detection, kLongestRecovery, diagnostics);
  const auto back = ReadTime(restart, kLongestRecovery, diagnostics);
  if (!down || !back) return;
  conditions->recovery.name = "given";
  conditions->recovery.title = "as given";
  conditions->recovery.detection = *down;
  conditions->recovery.restart = *back;
}

void ReadStorage(const Flag& flag, Conditions* conditions) {
  if (!flag.given) return;
  conditions->storage_given = true;
  TextError error;
  if (const auto rate = ParseQuantity<BytesPerSecond>(flag.text, &error); rate && rate->value > 0) {
    conditions->storage = {"given", "as given", *rate, *rate, {}, {}, Seconds(0)};
    return;
  }
  if (IsTooSmall(error) || IsTooLarge(error))
    throw InputError({{flag.where, fmt::format("--storage: {}", error.message), error.hint}});
  LoadFact(flag, "name, nor a rate above 0", "such as 20GB/s",
           [&] { conditions->storage = LoadStorage(flag.text); });
}

// A name, or what the reader of one GPU delivers.
void ReadInput(const Flag& flag, Conditions* conditions, Diagnostics* diagnostics) {
  if (!flag.given) return;
  const std::string unit = "tokens/s";
  if (!flag.text.ends_with(unit)) {
    LoadFact(flag, "name, nor a rate of tokens", "such as 256ktokens/s",
             [&] { conditions->input = LoadInput(flag.text); });
    return;
  }
  Flag number = flag;
  number.text = flag.text.substr(0, flag.text.size() - unit.size());
  if (const auto rate = ReadTokens(number, diagnostics)) {
    conditions->input.name = "given";
    conditions->input.title = "as given";
    conditions->input.source = "--input";
    conditions->input.reader = *rate;
  }
}

}  // namespace

void LongRunFlags::Declare(FlagSet* set) {
  set->Group("The run");
  set->Value(&tokens, "--tokens", "N", "tokens to train on, such as 2T, 300B or 1.4e12");
  set->Value(&deadline, "--deadline", "TIME", "such as 30d, or a day such as 2027-03-01");
  set->Value(&budget, "--budget", "MONEY", "such as 500kUSD or 2.5MUSD");
  set->Value(&failures, "--failures", "RATE",
             "job stops per 1000 node-days, or a name: default (3.8), young (20)", Words::kList,
             FactNames("failures"));
  set->Value(&recovery, "--recovery", "HOW",
             "automatic (default), manual, elastic, or detection and restart such as 2min+7min",
             Words::kList, FactNames("recovery"));
  set->Value(&checkpoint, "--checkpoint", "HOW", "asynchronous (default) or synchronous",
             Words::kList, FactNames("checkpoint"));
  set->Value(&storage, "--storage", "RATE|NAME",
             "rate of the shared file system, or a name (default: sized to write a checkpoint in a "
             "minute)",
             Words::kList, FactNames("storage"));
  set->Value(
      &spares, "--spares", "N",
      "nodes paid for and waiting (default: provision compares all that may pay; others take "
      "the least money x time within the limits)");
  set->Value(&straggler, "--straggler", "FACTOR",
             "slowest node over the predicted step (default 1.03)");
  set->Value(&setup, "--setup", "TIME", "before the first step (default 4h), up to 365 d");
  set->Value(&input, "--input", "NAME|RATE",
             "input pipeline: token-ids (default), hdf5-masked, or what the reader of one replica "
             "delivers, such as 256ktokens/s",
             Words::kList, FactNames("input"));
  set->Value(&as_of, "--as-of", "DATE", "today, for the age of prices (default: the clock)");
}

const Flag* LongRunFlags::AnyButTokens() const {
  for (const Flag* flag : {&deadline, &budget, &failures, &recovery, &checkpoint, &storage, &spares,
                           &straggler, &setup, &input, &as_of}) {
    if (flag->given) return flag;
  }
  return nullptr;
}

InputRates LongRun::InputLimits() const {
  return tokens_given ? SearchInput(conditions) : InputRates();
}

bool LongRun::Keeps(const RunEstimate& run, bool priced) const {
  if (deadline && run.time > *deadline) return false;
  return !budget || !priced || run.cost <= *budget;
}

LongRun ReadLongRun(const LongRunFlags& flags) {
  LongRun run;
  Diagnostics diagnostics;
  run.today = Today();
  if (flags.as_of.given) {
    if (const auto date = ParseDate(flags.as_of.text))
      run.today = date->DayNumber();
    else
      diagnostics.Error(flags.as_of.where,
                        fmt::format("--as-of: '{}' is no date", flags.as_of.text),
                        "such as 2026-11-22");
  }
  run.conditions = DefaultConditions();
  Conditions& conditions = run.conditions;
  conditions.tokens = ReadTokens(flags.tokens, &diagnostics).value_or(0);
  // Texts such as 1.4T come to a whole number but for rounding.
  if (const double whole = std::round(conditions.tokens);
      std::abs(conditions.tokens - whole) > 1e-12 * whole)
    diagnostics.Error(flags.tokens.where,
                      fmt::format("--tokens: {} is no whole number", flags.tokens.text),
                      "tokens are counted: such as 2T, 300B or 1.4e12");
  else
    conditions.tokens = whole;
  run.tokens_given = flags.tokens.given;
  run.deadline = ReadDeadline(flags.deadline, run.today, &diagnostics);
  run.budget = ReadBudget(flags.budget, &diagnostics);
  ReadFailures(flags.failures, &conditions, &diagnostics);
  ReadRecovery(flags.recovery, &conditions, &diagnostics);
  AtFlag(flags.checkpoint, [&] {
    if (flags.checkpoint.given) conditions.checkpoint = LoadCheckpoint(flags.checkpoint.text);
  });
  ReadStorage(flags.storage, &conditions);
  ReadInput(flags.input, &conditions, &diagnostics);
  conditions.spares = ReadInteger(flags.spares, 0, 1'000'000, &diagnostics);
  if (flags.straggler.given) {
    double factor = 0;
    if (ParseNumber(flags.straggler.text, &factor) == NumberFault::kNone && factor >= 1 &&
        factor <= 10)
      conditions.run.straggler = {factor, factor, factor};
    else
      diagnostics.Error(flags.straggler.where,
                        fmt::format("--straggler: '{}' is not from 1 to 10", flags.straggler.text),
                        "step time of the slowest node over the predicted one, such as 1.03");
  }
  if (const auto setup = ReadTime(flags.setup, kLongestSetup, &diagnostics))
    conditions.run.setup = *setup;
  diagnostics.ThrowIfAny();
  return run;
}

double DefaultTokens(const LongRunFlags& flags, const report::Job& job) {
  if (job.model.spec.family == Family::kDecoder)
    return kTokensPerParameter * static_cast<double>(job.parameters);
  throw InputError({{flags.tokens.where,
                     fmt::format("how many tokens? There is no rule for {}", job.model.spec.name),
                     "--tokens N; 20 per parameter is a rule for decoders only"}});
}

void CheckTokens(const LongRunFlags& flags, bool batch_given, const report::Job& job,
                 double tokens) {
  const int64_t batch = batch_given ? job.request.global_batches.front() : int64_t{1};
  const int64_t least = batch * job.request.work.seq_len;
  if (tokens >= static_cast<double>(least)) return;
  throw InputError({{flags.tokens.where,
                     fmt::format("{} token{} less than a step of {}", report::Count(tokens),
                                 tokens == 1 ? " is" : "s are", least),
                     "more --tokens, or a smaller --global-batch or --seq-len"}});
}

std::vector<int64_t> ReadNodeCounts(const Flag& flag, int64_t most, Diagnostics* diagnostics) {
  std::set<int64_t> counts;
  const auto add = [&](int64_t low, int64_t high) {
    for (const int64_t first : {1, 3}) {
      for (int64_t n = first; n <= high; n *= 2) {
        if (n >= low) counts.insert(n);
      }
    }
    counts.insert(low);
    counts.insert(high);
  };
  if (!flag.given) add(1, most);
  for (std::size_t begin = 0; flag.given && begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    Flag one = flag;
    one.text = flag.text.substr(begin, end - begin);
    begin = end + 1;
    const auto range = ReadRange(one, 1, 1'000'000, diagnostics);
    if (!range) return {};
    if (range->first == range->second)
      counts.insert(range->first);
    else
      add(range->first, range->second);
  }
  return {counts.begin(), counts.end()};
}

}  // namespace orrery::cli
