// SPDX-License-Identifier: Apache-2.0
// Assignments of a script: variables, arrays, and associative arrays by known keys.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/exchange/shell_expander.h"

namespace orrery::exchange {

class ShellAssigner : public ShellExpander {
 protected:
  ShellAssigner(const Lexed& lexed, std::string path)
      : ShellExpander(std::move(path)), tokens_(lexed.tokens), documents_(lexed.documents) {}

  // NAME=..., NAME+=..., NAME=( ... ) or NAME[KEY]=... at the front of a command; false: none stands there.
  bool Assignment(bool integer = false);
  // Options of export, declare and their kin: whether they make integers (-i).
  bool Declares();
  // NAME behind declare -A.
  bool DeclaresMap(const std::string& name);
  void EndAssignments();  // of the command

  // Puts the tokens of another file in front of the next one, as a block; how many there are then.
  std::size_t Insert(Lexed lexed, const Location& where);

  std::vector<Token> tokens_;
  std::vector<HereDocument> documents_;
  std::size_t at_ = 0;
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
  bool AssignElement(const std::string& name, const Token& token);
  void StoreElement(const std::string& name, const Element& element, const Location& where);
  void AssignMap(const std::string& name, bool more, const Location& where);
  Words List();

  bool map_ = false;  // behind declare -A
};

}  // namespace orrery::exchange
