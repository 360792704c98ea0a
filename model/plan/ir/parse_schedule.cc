// SPDX-License-Identifier: Apache-2.0
// Parses schedules: `for i in 0..183 { B0[i] F0[8+i] }` and single calls `E[0]`, `B0[191]:last`.
#include <fmt/format.h>

#include <algorithm>

#include "model/plan/ir/plan_parser.h"
#include "model/plan/ir/text_words.h"

namespace orrery::ir {
namespace {

constexpr std::size_t kMostDepth = 32;
constexpr int64_t kMostStride = kMostMicroBatches;

// What a schedule unfolds to, without unfolding it.
struct Unfolded {
  int64_t calls = 0;  // stops growing above kMostCalls
  int64_t low = 0, high = 0;
};

Unfolded ExtentOf(const std::vector<Item>& items) {
  Unfolded all;
  bool first = true;
  for (const Item& item : items) {
    Unfolded one{1, item.micro_batch, item.micro_batch};
    if (item.block < 0) {
      one = ExtentOf(item.body);
      const int64_t reach = int64_t{item.count - 1} * item.stride;
      one.calls = std::min(one.calls * item.count, kMostCalls + 1);
      one.low += std::min<int64_t>(reach, 0);
      one.high += std::max<int64_t>(reach, 0);
    }
    all.calls = std::min(all.calls + one.calls, kMostCalls + 1);
    all.low = first ? one.low : std::min(all.low, one.low);
    all.high = first ? one.high : std::max(all.high, one.high);
    first = false;
  }
  return all;
}

}  // namespace

std::vector<Item> PlanParser::ParseSchedule() {
  const Token at = lex_.Take();
  loops_.clear();
  std::vector<Item> items = Items();
  lex_.EndLine();
  const Unfolded extent = ExtentOf(items);
  if (extent.calls > kMostCalls)
    lex_.Fail(at, fmt::format("the schedule unfolds to more than {} calls", kMostCalls));
  if (extent.low < 0 || extent.high >= plan_.micro_batches) {
    lex_.Fail(at, fmt::format("calls use micro-batches {} to {}, the plan has 0 to {}", extent.low,
                              extent.high, plan_.micro_batches - 1));
  }
  return items;
}

// "{ item item ... }"; line ends do not matter inside.
std::vector<Item> PlanParser::Items() {
  lex_.Expect('{');
  std::vector<Item> items;
  for (lex_.SkipNewlines(); !lex_.TakeIf('}'); lex_.SkipNewlines()) {
    if (lex_.PeekIsWord("for")) {
      const Token word = lex_.Take();
      items.push_back(lex_.PeekIs('[') ? CallItem(lex_.Resolve(blocks_, word, "for", "block"))
                                       : Loop());
    } else {
      items.push_back(CallItem(lex_.Reference(blocks_, "block")));
    }
  }
  return items;
}

Item PlanParser::Loop() {
  const Token at = lex_.Peek();
  if (loops_.size() == kMostDepth) lex_.Fail(at, "loops nest more than 32 deep");
  lex_.ExpectWord(LoopVariable(loops_.size()));
  lex_.ExpectWord("in");
  const Token range = lex_.Word("a range 0..last");
  if (!range.text.starts_with("0..")) lex_.Fail(range, "a range starts with 0, like 0..7");
  Item loop;
  loop.count = static_cast<int32_t>(
      1 + lex_.IntegerIn(range, range.text.substr(3), "the last index", 0, kMostCalls));
  loops_.push_back({});
  loop.body = Items();
  loop.stride = static_cast<int32_t>(loops_.back().stride);
  loops_.pop_back();
  if (loop.body.empty()) lex_.Fail(at, "a loop without calls");
  return loop;
}

Item PlanParser::CallItem(int block) {
  Item call;
  call.block = block;
  lex_.Expect('[');
  CallIndex(&call);
  lex_.Expect(']');
  const Token flags = lex_.Peek();
  if (flags.kind == Token::Kind::kWord && flags.text[0] == ':') {
    lex_.Take();
    const std::string_view text = flags.text.substr(1);
    call.flags = text == kLastWord
                     ? kWhenLast
                     : static_cast<uint8_t>(lex_.IntegerIn(flags, text, "call flags", 0, 255));
  }
  return call;
}

// One word such as 8+16i+j. Every call inside a loop must have the same factor for its variable.
void PlanParser::CallIndex(Item* call) {
  const Token word = lex_.Word("a micro-batch");
  std::vector<int64_t> factors(loops_.size(), 0);
  std::string_view rest = word.text;
  while (!rest.empty()) {
    const std::size_t length = std::min(rest.find_first_of("+-", 1), rest.size());
    std::string_view term = rest.substr(0, length);
    rest.remove_prefix(length);
    const bool negative = term[0] == '-';
    if (term[0] == '-' || term[0] == '+') term.remove_prefix(1);
    const std::size_t digits = std::min(term.find_first_not_of("0123456789"), term.size());
    const std::string_view variable = term.substr(digits);
    int64_t value = 1;
    if (digits > 0 || variable.empty()) {
      value = lex_.IntegerIn(word, term.substr(0, digits), "a micro-batch", 0, kMostStride);
    }
    if (negative) value = -value;
    std::size_t depth = 0;
    while (depth < loops_.size() && variable != LoopVariable(depth)) ++depth;
    if (variable.empty()) {
      call->micro_batch = static_cast<int32_t>(
          std::clamp<int64_t>(call->micro_batch + value, -kMostStride, kMostStride));
    } else if (depth == loops_.size()) {
      lex_.Fail(word, fmt::format("'{}' is no loop variable here", variable.substr(0, 20)));
    } else {
      factors[depth] = value;
    }
  }
  for (std::size_t depth = 0; depth < loops_.size(); ++depth) {
    OpenLoop& loop = loops_[depth];
    if (loop.known && loop.stride != factors[depth]) {
      lex_.Fail(word, fmt::format("'{}' has another factor than in the loop's first call",
                                  LoopVariable(depth)));
    }
    loop = {factors[depth], true};
  }
}

}  // namespace orrery::ir
