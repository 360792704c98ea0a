// SPDX-License-Identifier: Apache-2.0
// Which commands of a script run: those of branches by the tests in front of them, where their words are known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/exchange/shell.h"

namespace orrery::exchange {

class ShellBranches {
 public:
  // Whether the first word of a command is one of the shell's own.
  bool Keyword(const std::string& word);
  // Behind the words of a command, and the operator that follows. No words: an assignment, which fails as a command in $(...)
  // does (`substitutes`), a keyword, or nothing.
  void Ran(const Words& words, bool substitutes = false);
  void Operator(const std::string& op);

  // Of "case WORD in": what is chosen by, and whether the patterns in front of the next arm are it (nullopt: nobody knows).
  void Choose(const Word& word);
  void Arm(std::optional<bool> matches);
  const Word* Chosen() const;  // null: no pattern is awaited

  // The body of a function that is called here, or that nobody calls (`unsure`).
  void Enter(bool unsure);
  // What follows in it may not run: an arm that may be taken leaves it.
  void Doubt();

  bool Skips() const;    // the command that is read is not run
  bool Unknown() const;  // nobody knows whether it is
  // It is run unless a command before it fails that is not followed: a && b. `Usual`: the last of these makes a place ready
  // (cd, mkdir, source), so that a script in which it fails is no script that works.
  bool Likely() const { return run_ == Is::kLikely; }
  bool Usual() const { return usual_; }
  std::size_t Depth() const { return blocks_.size(); }
  // It runs where a word is empty: scripts stop there for want of an argument or a variable, which whoever starts them gives.
  bool ForWant() const;
  bool InLoop() const;      // it may be run several times
  bool InFunction() const;  // it runs where the function is called

  std::optional<bool> any_case = false;  // shopt nocasematch; nullopt: nobody knows

 private:
  enum class Is : unsigned char { kYes, kNo, kLikely, kUnknown };
  struct Block {
    bool tests = false;  // "if": arms with conditions
    bool loop = false;
    bool choice = false;  // "case"
    bool awaits = false;  // a pattern of it is next
    Word chosen = {};
    bool function = false;
    bool condition = false;                     // one of them is read
    Is now = Is::kUnknown;                      // whether this arm runs
    bool taken = false;                         // an arm before it ran
    bool doubt = false;                         // an arm before it may have run
    bool was_taken = false, was_doubt = false;  // likewise, in front of this arm
    Is falls = Is::kNo;                         // the arm before it goes on into this one (";&")
    bool want = false;                          // it runs where a word is empty
    int commands = 0;                           // in the condition
    Is held = Is::kUnknown;                     // the last of them
  };

  // Of the command with these words.
  Is ResultOf(const Words& words);
  void Condition(Block* block);
  void Then(Block* block);
  void Else(Block* block);

  std::vector<Block> blocks_;
  Is run_ = Is::kYes;     // by && and ||
  Is result_ = Is::kYes;  // of the command before
  bool usual_ = true;     // of the last command whose result is likely
  bool want_ = false;     // of an empty word
  bool closed_ = false;   // ")" stands before: of NAME ()
  bool ended_ = false;    // the end of a block or subshell does
  bool negated_ = false;  // "!" in front of the command
};

}  // namespace orrery::exchange
