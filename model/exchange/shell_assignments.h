// SPDX-License-Identifier: Apache-2.0
// Assignments of a script: variables, arrays, and associative arrays by known keys.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/exchange/shell_expander.h"

namespace orrery::exchange {

class ShellAssigner : public ShellExpander {
 protected:
  ShellAssigner(std::shared_ptr<const Lexed> lexed, std::string path)
      : ShellExpander(std::move(path)), lexed_(std::move(lexed)) {}

  // NAME=..., NAME+=..., NAME=( ... ) or NAME[KEY]=... at the front of a command; false: none stands there.
  bool Assignment();
  // export, declare and their kin, and their options.
  bool Declares(const std::string& name, bool in_function);
  // Another word behind them: NAME, "NAME=..." or what nobody knows, whose reason is returned.
  std::string Declared();
  void EndAssignments();  // of the command

  const std::vector<Token>& tokens() const { return lexed_->tokens; }

  std::shared_ptr<const Lexed> lexed_;  // what is read: the script, or a text that it takes in
  std::size_t at_ = 0;
  bool declares_ = false;                                       // behind `export` and its kin
  bool local_ = false;                                          // behind `local`
  std::map<std::string, std::optional<ShellVariable>> locals_;  // of the function, before it
  std::set<std::string> integers_;  // of declare -i: what they are given is calculated

 private:
  // "[KEY]=VALUE" of a token behind its first `front` letters.
  struct Element {
    Word key, value;
    bool more = false;  // "+="
  };
  std::optional<Element> ElementIn(const Token& token, std::size_t front);
  void KeepLocal(const std::string& name);
  void StoreReference(const std::string& name, const Words& target, const Location& where);
  bool AssignElement(const std::string& name, const Token& token);
  void StoreElement(const std::string& name, const Element& element, const Location& where);
  void AssignMap(const std::string& name, bool more, const Location& where);
  Words List();

  // Behind declare -A, -i and -n.
  bool map_ = false, integer_ = false, reference_ = false;
};

}  // namespace orrery::exchange
