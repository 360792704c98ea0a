// SPDX-License-Identifier: Apache-2.0
// Follows the commands of a script and of the texts that it takes in: functions, files of `source`, eval, bash -c.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/exchange/shell.h"
#include "model/exchange/shell_effects.h"
#include "model/exchange/shell_scopes.h"

namespace orrery::exchange {

class Follower : private ShellScopes {
 public:
  // `path`: of the script itself; "": nobody knows.
  Follower(std::shared_ptr<const Lexed> lexed, std::string path, const OpenSourced& open)
      : ShellScopes(std::move(lexed), std::move(path)), open_(open) {}

  ShellScript Run();

 private:
  void Command();
  // if, {, for and the others of the shell; false: it is none.
  bool TakeKeyword(const std::string& word);
  // `plain`: of a bare word.
  void TakeWord(const std::string& plain, Prefix* prefix, Words* words);
  // The command with its own variables, up to the next one.
  void Start(Words words, Prefix* prefix);
  // NAME () { ... } and function NAME { ... }: kept until it is called.
  bool Defines();
  // "return" of a function or of a file that is taken in, and "exit". False: another command, or it goes on.
  bool Returns(const Words& words);
  // What the command's function does with its words. False: it is none.
  bool Call(const Words& words);
  // source FILE, and . FILE: its words in the place of the command. False: it is not followed.
  bool Sources(const Words& words);
  // What the script itself wrote under that name, else what lies there.
  SourcePtr OpenOf(const Word& file, std::string* why) const;
  void TakeIn(const SourcePtr& file, const Words& words);
  // eval TEXT ...: its words in the place of the command.
  bool Evals(const Words& words);
  // A text of which nobody knows what it does, or which variable it sets.
  static bool OnlyShellKnows(const std::string& text);
  // Tokens of another text in the place of the command.
  void RunText(const Body& body, bool unsure);
  // No arguments: nobody knows whether it is called.
  void RunBody(std::size_t which, std::optional<Words> arguments);
  // ((TEXT)) and let TEXT ...: the variables that they assign, and the value as a word of the command.
  void Calculations(Words* words);
  // NAME in WORDS behind "for": of several words nobody knows which is meant.
  void LoopVariable();
  // WORD in behind "case".
  void Choice();
  // PATTERN | PATTERN ) in front of what runs for it; false: no pattern stands here.
  bool Pattern();
  // A loop over known words in which nothing stands but assignments and files that are taken in: as often as there are words.
  bool FollowLoop(const std::string& name, const Words& values);
  // bash -c '...': a script of its own with the variables of this one. What is not known of its text stays a hole in the
  // words there. `front`: the launcher that starts it. `lines`: they are those of the file, too.
  void Inner(const Word& text, const Words& front, bool lines);
  // True: "<(", which is no file.
  bool TakeRedirect(const Words& words);
  // What a script that the command starts finds in its environment, beside variables of a subshell.
  void KeepEnvironment(const Prefix& prefix);
  // `prefix`: of the command that ends here.
  void Operator(Prefix* prefix = nullptr);
  // Behind the last word of a command and all its redirections.
  void Effects(const std::string& op);

  const OpenSourced& open_;
  int inner_ = 0;
  Words of_command_;  // that is read, and where it reads and writes
  Redirects redirects_;
  bool expanded_ = false;  // its second word begins with a variable or command
  int called_ = 0;
  std::size_t floor_ = 0;  // subshells around the text that is read
  int frames_ = 0;         // functions, files and texts that are run in each other
  bool returns_ = false;   // from the innermost of them
  std::size_t sourced_ = 0;
  std::vector<std::string> taking_;  // files in each other
};

}  // namespace orrery::exchange
