// SPDX-License-Identifier: Apache-2.0
// Why layouts were refused, most frequent first: reasons that differ in numbers alone are one.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "model/base/text.h"
#include "model/memory/software_memory.h"
#include "model/twin/explain.h"
#include "model/twin/runner.h"

namespace orrery {
namespace {

// Digits of a number that begins there, with its fraction and exponent: "3.44e+13"; 0: none does.
std::size_t NumberLength(std::string_view text) {
  const auto digit = [&](std::size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  std::size_t end = 0;
  const auto skip = [&] {
    while (digit(end)) ++end;
  };
  skip();
  if (end == 0) return 0;
  if (text.substr(end).starts_with('.') && digit(end + 1)) ++end, skip();
  const std::string_view rest = text.substr(end);
  const bool sign = rest.starts_with("e+") || rest.starts_with("e-");
  if ((rest.starts_with('e') || sign) && digit(end + (sign ? 2 : 1))) end += sign ? 2 : 1, skip();
  return end;
}

// "25 attention heads do not divide by tp 2" -> "attention heads do not divide by tp".
std::string WithoutNumbers(std::string_view reason) {
  std::string words;
  for (std::size_t i = 0; i < reason.size(); ++i) {
    const bool starts = i == 0 || reason[i - 1] == ' ';
    const std::size_t length = starts ? NumberLength(reason.substr(i)) : 0;
    if (length == 0) {
      words += reason[i];
      continue;
    }
    i += length - 1;
    if (words.empty() && i + 1 < reason.size() && reason[i + 1] == ' ') ++i;
    if (!words.empty() && words.back() == ' ') words.pop_back();
  }
  return words;
}

}  // namespace

std::vector<Rejection> Runner::Rejections() const {
  std::vector<Rejection> rejections;
  std::map<std::string, std::size_t> by_words;
  for (const auto& [reason, tally] : refusals_) {
    const std::string words = WithoutNumbers(reason);
    const auto [at, fresh] = by_words.emplace(words, rejections.size());
    if (fresh) rejections.push_back({words, 0, fmt::format("{} ({})", reason, tally.example)});
    rejections[at->second].strategies += tally.strategies;
  }
  if (counts_.over_memory > 0)
    rejections.push_back({kOutOfMemory, counts_.over_memory, MemoryExample()});
  std::stable_sort(
      rejections.begin(), rejections.end(),
      [](const Rejection& a, const Rejection& b) { return a.strategies > b.strategies; });
  return rejections;
}

std::string Runner::ChoiceOf(int job) const {
  return ChosenWords(request_, jobs_[job].cluster.nodes, jobs_[job].work.global_batch);
}

std::string Runner::MemoryExample() const {
  auto entry = BestOf(&SplitResult::near_miss);
  if (!entry) entry = BestOf(&SplitResult::smallest);
  if (!entry) return "";
  const Split& split = splits_[entry->rank.split];
  const BoundOfGpu bound = MemoryBoundOf(*entry);
  return fmt::format("needs at least {} of {} ({}{})", Format(bound.total), Format(bound.capacity),
                     ChoiceOf(split.job), DescribeLayout(entry->strategy, split.micro_batches));
}

bool NothingIsLegal(const SearchResult& result) {
  return !result.feasible() && result.counts.over_memory + result.counts.exact_over_memory == 0;
}

std::string WhyNothingIsLegal(const SearchResult& result, int64_t batch, int64_t gpus,
                              std::size_t reasons) {
  std::string words;
  for (std::size_t i = 0; i < std::min(reasons, result.rejections.size()); ++i)
    words += (i == 0 ? ": " : "; ") + result.rejections[i].reason;
  return fmt::format("no layout of {} sequence{} per step on {} GPUs is possible{}", batch,
                     batch == 1 ? "" : "s", gpus, words);
}

int64_t BatchThatDivides(int64_t batch, int64_t gpus) { return (batch / gpus + 1) * gpus; }

}  // namespace orrery
