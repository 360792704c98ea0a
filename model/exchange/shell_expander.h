// SPDX-License-Identifier: Apache-2.0
// Expands words of a script: variables, arithmetic, defaults and commands that name files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/exchange/shell.h"
#include "model/exchange/shell_branches.h"
#include "model/exchange/shell_lexer.h"

namespace orrery::exchange {

struct WordBuilder;

class ShellExpander {
 public:
  // `path`: of the script itself; "": nobody knows.
  explicit ShellExpander(std::string path) : path_(std::move(path)) {}

 protected:
  // A word of the script as the words that it stands for. Throws InputError: too many, or nested too deeply.
  Words Expand(const Token& token, bool keep_holes = false);
  // The word as one, as an assignment takes it.
  Word Joined(const Token& token);
  // Of arithmetic; what it assigns is stored, as unknown where the value is. nullopt: it needs a shell.
  std::optional<int64_t> Evaluate(std::string_view text, const Location& where);
  // NAME=value or NAME+=value (`more`) where the script is now.
  void Store(const std::string& name, ShellVariable value, bool more, const Location& where);

  std::string path_;
  ShellBranches branches_;
  bool substitutes_ = false;  // a command of $(...) decides whether the one around it fails
  ShellScript script_;
  std::optional<Words> arguments_;  // of the function that runs

 private:
  struct Part {  // of an expansion
    Words words;
    bool several = false;  // an array: each word stands for itself
    bool joined = false;   // but in quotes they are one: ${NAME[*]} and $*
  };

  Word Separator() const;
  void ExpandPiece(const Piece& piece, WordBuilder* builder);
  Part ExpandAt(std::string_view text, const Location& where, std::size_t* length);
  Part Argument(char which, const Location& where) const;
  Part Counted(std::string_view inside, const Location& where) const;
  Part Braced(std::string_view inside, const Location& where);
  Part Printed(std::string_view inside, const Location& where);
  Part Default(const std::string& text, const Location& where);
  Part ValueOf(const std::string& name, bool list, const Location& where) const;
  Part ElementOf(const std::string& name, std::string_view key, const Location& where);
  Part KeysOf(std::string_view inside, const Location& where) const;
  std::optional<int64_t> WholeOf(const std::string& name) const;
  static Part Unknown(const Location& where, std::string why);

  std::size_t total_ = 0;
  int nested_ = 0;
};

}  // namespace orrery::exchange
