// SPDX-License-Identifier: Apache-2.0
// Where what a script sets ends: subshells, assignments in front of one command, and what unset, set, cd and others of the
// shell's own commands change.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/exchange/shell_assignments.h"

namespace orrery::exchange {

class ShellScopes : public ShellAssigner {
 protected:
  using ShellAssigner::ShellAssigner;

  // Assignments in front of a command: other values of these variables, which hold while it runs.
  using Prefix = std::vector<std::pair<std::string, std::optional<ShellVariable>>>;
  // The assignment that stands here may be one: its variable as it was.
  void KeepPrefix(Prefix* prefix) const;
  // Puts the values of the command in the place of those of the script, and back.
  void Swap(Prefix* prefix);

  // "(", and "{ ... }" and functions in a pipeline: what is set inside is lost behind. `end`: of "{", where its "}" stands.
  void OpenSubshell(std::size_t end = 0);
  void CloseSubshell();
  std::size_t Subshells() const { return subshells_.size(); }
  bool InSubshell() const { return !subshells_.empty(); }
  // "}" at this place ends one.
  bool EndsSubshell() const { return InSubshell() && subshells_.back().end == at_ && at_ > 0; }
  // The block behind "{" is a part of a pipeline or runs in the background; `end` takes the place of its "}".
  bool IsForked(std::size_t* end);
  // So does the command whose words end here.
  bool Forks() const;

  // COMMAND && NAME=... of a command that is not followed: what is set is known up to the end of the list, and may not be set
  // behind it. `frame`: of functions, files and texts that are run in each other.
  void OpenChain(int frame);
  // Where a list ends, in that frame; `keeps`: what follows runs only where the whole list ran.
  void EndChain(int frame, bool keeps);
  void EndChains(int frame);  // all in others, which it called
  bool InChain() const { return !chains_.empty(); }
  // exit, return or a block that ends so stands behind the operator that is read.
  bool LeavesBehind() const;

  // unset, set, shift, printf -v, cd, pushd, popd and shopt. What is not followed is named, and leaves variables that nobody knows.
  void Builtins(const Words& words);
  // The file as it is seen from the folder of the script. `expanded`: the word begins with a variable or command.
  Word FromFolder(const Word& file, bool expanded = false) const;
  // So the files that a command writes, by its words.
  Words FilesFromFolder(Words words) const;
  // Those of kCountVariables.
  static void CopyCounts(const std::map<std::string, ShellVariable>& from,
                         std::map<std::string, ShellVariable>* to);

  struct Body {  // of a function: tokens of a text
    std::shared_ptr<const Lexed> of;
    std::size_t begin = 0, end = 0;
    bool called = false;
  };
  std::vector<Body> bodies_;
  std::map<std::string, std::size_t> functions_;
  std::vector<std::size_t> calls_;  // in each other
  bool piped_ = false;              // "|" stands before the command
  // In which commands run, from that of the script; nullopt: nobody knows.
  std::optional<std::string> folder_ = "";

 private:
  struct Subshell {
    std::size_t end = 0;
    std::map<std::string, ShellVariable> variables;
    std::set<std::string> integers;
    std::map<std::string, std::size_t> functions;
    std::optional<Words> arguments;
    std::optional<std::string> folder;
    std::optional<bool> any_case;
  };

  struct Chain {
    int frame = 0;
    std::size_t blocks = 0, subshells = 0;
    bool usual = true;
    std::map<std::string, ShellVariable> variables;  // in front of it
  };
  void Rewind(Chain chain);

  void Unset(const Words& words);
  void UnsetElement(const std::string& name, const std::string& key, const Location& where);
  void SetArguments(const Words& words);
  void Shift(const Words& words);
  void PrintInto(const Words& words);
  void ChangeFolder(const Words& words);
  void Options(const Words& words);

  std::vector<Subshell> subshells_;
  std::vector<Chain> chains_;                        // in each other
  std::vector<std::optional<std::string>> folders_;  // of pushd
  std::size_t kept_ = 0;                             // variables, by all subshells
  std::size_t looked_ = 0;                           // at tokens, for ends of blocks
};

}  // namespace orrery::exchange
