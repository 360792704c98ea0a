// SPDX-License-Identifier: Apache-2.0
// Follows if, elif, else and fi, case, && and ||. Loops and functions may run or not.
#include "model/exchange/shell_branches.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_lexer.h"

namespace orrery::exchange {
namespace {

const std::set<std::string, std::less<>> kOpeners = {"for", "while",  "until",   "case",
                                                     "{",   "select", "function"};
const std::set<std::string, std::less<>> kClosers = {"fi", "done", "esac", "}"};

// [ -z "$NODES" ] of a variable that the file does not set: as ${NODES:-4}, of an empty environment.
bool AsksForDefault(const Words& words) {
  return words.size() == 4 && words[0].text.starts_with('[') && words[1].text == "-z" &&
         IsUnset(words[2].unresolved);
}

// [ -z WORD ], [ -n WORD ] or a comparison with "".
bool AsksForEmpty(const Words& words) {
  return std::ranges::any_of(words, [](const Word& word) {
    return word.text == "-z" || word.text == "-n" || (word.text.empty() && word.unresolved.empty());
  });
}

// Commands that end well, and those in front of all else that a script does.
constexpr std::string_view kSucceed[] = {"true", ":",     "echo", "printf",
                                         "set",  "shopt", "wait", "sleep"};
constexpr std::string_view kMakeReady[] = {"cd", "pushd",  "popd", "mkdir", "source",
                                           ".",  "module", "ml",   "conda"};

}  // namespace

bool ShellBranches::Keyword(const std::string& word) {
  const bool ends = std::exchange(ended_, kClosers.contains(word));
  Block* const inner = blocks_.empty() || !blocks_.back().tests ? nullptr : &blocks_.back();
  if (word == "if") {
    Block block;
    block.tests = true;
    block.taken = run_ == Is::kNo;
    block.doubt = run_ == Is::kUnknown;
    Condition(&block);
    blocks_.push_back(block);
  } else if (word == "elif" && inner != nullptr) {
    inner->taken |= inner->now == Is::kYes;
    inner->doubt |= inner->now == Is::kUnknown;
    Condition(inner);
  } else if (word == "then" && inner != nullptr) {
    Then(inner);
  } else if (word == "else" && inner != nullptr) {
    Else(inner);
  } else if (word == "{" && closed_ && !blocks_.empty() && blocks_.back().function) {
    // function NAME () {
  } else if (kOpeners.contains(word)) {
    Block block;
    block.function = word == "function" || (word == "{" && closed_);
    // { ... } of no function runs as what stands around it.
    if (word == "{" && !closed_ && (run_ == Is::kYes || run_ == Is::kLikely)) block.now = Is::kYes;
    block.loop = word == "for" || word == "while" || word == "until" || word == "select";
    if (run_ == Is::kNo) block.now = Is::kNo;
    block.want = want_;
    blocks_.push_back(block);
  } else if (kClosers.contains(word)) {
    if (!blocks_.empty()) blocks_.pop_back();
  } else if (word == "!") {
    negated_ = true;
  } else {
    const bool other =
        word == "then" || word == "else" || word == "elif" || word == "do" || word == "time";
    if (!other) ended_ = ends;
    return other;
  }
  return true;
}

void ShellBranches::Choose(const Word& word) {
  Block& block = blocks_.back();  // Keyword("case") made it
  block.choice = block.awaits = true;
  block.chosen = word;
  block.taken = run_ == Is::kNo;
  block.doubt = run_ == Is::kUnknown;
  block.now = Is::kNo;
}

void ShellBranches::Arm(std::optional<bool> matches) {
  Block& block = blocks_.back();
  block.awaits = false;
  block.now = block.taken || matches == false ? Is::kNo
              : block.doubt || !matches       ? Is::kUnknown
                                              : Is::kYes;
  if (block.falls == Is::kYes || (block.falls == Is::kUnknown && block.now == Is::kNo))
    block.now = block.falls;
  block.falls = Is::kNo;
  block.was_taken = block.taken;
  block.was_doubt = block.doubt;
  block.taken |= block.now == Is::kYes;
  block.doubt |= block.now == Is::kUnknown;
  run_ = result_ = Is::kYes;
}

const Word* ShellBranches::Chosen() const {
  return !blocks_.empty() && blocks_.back().awaits ? &blocks_.back().chosen : nullptr;
}

// Its commands run where no arm before was taken.
void ShellBranches::Condition(Block* block) {
  block->condition = true;
  block->now = block->taken ? Is::kNo : block->doubt ? Is::kUnknown : Is::kYes;
  block->commands = 0;
  block->want = false;
}

void ShellBranches::Then(Block* block) {
  block->condition = false;
  const Is held = block->commands == 1 ? block->held : Is::kUnknown;
  if (block->now == Is::kNo || held == Is::kNo) {
    block->now = Is::kNo;
  } else if (held != Is::kYes || block->now == Is::kUnknown) {
    block->now = Is::kUnknown;
  }
}

void ShellBranches::Else(Block* block) {
  const bool before = block->taken || block->now == Is::kYes;
  const bool doubt = block->doubt || block->now == Is::kUnknown;
  block->now = before ? Is::kNo : doubt ? Is::kUnknown : Is::kYes;
}

ShellBranches::Is ShellBranches::ResultOf(const Words& words) {
  Command test;
  bool known = true;
  for (const Word& word : words) {
    known = known && word.unresolved.empty();
    test.push_back(word.text);
  }
  std::optional<bool> holds = known ? Holds(test) : std::nullopt;
  if (known && test.front() == "[[" && any_case != false) {
    for (std::string& word : test)
      std::ranges::transform(word, word.begin(),
                             [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    const std::optional<bool> either = Holds(test);
    holds = any_case || holds == either ? either : std::nullopt;
  }
  const std::string& name = words.front().text;
  const bool tests = name == "[" || name == "[[" || name == "test" || name == kArithmetic;
  if (tests) want_ = AsksForEmpty(words);
  if (AsksForDefault(words) || std::ranges::find(kSucceed, name) != std::end(kSucceed))
    holds = true;
  if (name == "false") holds = false;
  if (!holds && !tests)
    usual_ = !negated_ && std::ranges::find(kMakeReady, name) != std::end(kMakeReady);
  if (!holds) return tests ? Is::kUnknown : Is::kLikely;
  return *holds != negated_ ? Is::kYes : Is::kNo;
}

void ShellBranches::Ran(const Words& words, bool substitutes) {
  const bool skips = Skips(), ends = std::exchange(ended_, false);
  Is result = Is::kYes;
  if (!words.empty()) {
    closed_ = false;  // a ")" before it is none of NAME ()
    result = ResultOf(words);
  } else if (ends || substitutes) {  // whether its last command failed is not followed
    result = Is::kLikely;
    if (!skips) usual_ = false;
  }
  negated_ = false;
  if (skips) return;
  // a && b && c: a may have failed. Where b surely fails, c does not run.
  if (run_ == Is::kUnknown || (run_ == Is::kLikely && result == Is::kYes)) result = run_;
  result_ = result;
  if (!words.empty() && !blocks_.empty() && blocks_.back().condition) {
    ++blocks_.back().commands;
    blocks_.back().held = result_;
    blocks_.back().want |= want_;
  }
}

void ShellBranches::Operator(const std::string& op) {
  closed_ = op == ")" || (closed_ && op == "\n");
  ended_ = op == ")";
  if (op == "&&") {
    run_ = result_;
  } else if (op == "||") {
    // A command may fail: what stands behind may run.
    run_ = result_ == Is::kYes ? Is::kNo : result_ == Is::kNo ? Is::kYes : Is::kUnknown;
  } else if (op == "\n" || op == "&" || op.starts_with(';')) {
    run_ = result_ = Is::kYes;
    want_ = false;
  }
  if (op.starts_with(';') && op != ";" && !blocks_.empty() && blocks_.back().choice) {
    Block& block = blocks_.back();
    if (op == ";&") block.falls = block.now;
    if (op != ";;") {  // the next pattern is tried whether this arm was taken or not
      block.taken = block.was_taken;
      block.doubt = block.was_doubt;
    }
    block.awaits = true;
    block.now = Is::kNo;
  }
}

void ShellBranches::Enter(bool unsure) {
  Block block;
  block.function = unsure;
  block.now = Skips() ? Is::kNo : unsure || Unknown() ? Is::kUnknown : Is::kYes;
  blocks_.push_back(block);
  run_ = result_ = Is::kYes;
  negated_ = closed_ = ended_ = false;
}

void ShellBranches::Doubt() {
  for (Block& block : blocks_) {
    if (block.now == Is::kYes) block.now = Is::kUnknown;
  }
}

bool ShellBranches::Skips() const {
  return run_ == Is::kNo ||
         std::ranges::any_of(blocks_, [](const Block& block) { return block.now == Is::kNo; });
}

bool ShellBranches::Unknown() const {
  return run_ == Is::kUnknown ||
         std::ranges::any_of(blocks_, [](const Block& block) { return block.now == Is::kUnknown; });
}

bool ShellBranches::ForWant() const { return want_ || std::ranges::any_of(blocks_, &Block::want); }
bool ShellBranches::InLoop() const { return std::ranges::any_of(blocks_, &Block::loop); }
bool ShellBranches::InFunction() const { return std::ranges::any_of(blocks_, &Block::function); }

}  // namespace orrery::exchange
