// SPDX-License-Identifier: Apache-2.0
// What commands of a script leave behind: variables and files.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/exchange/shell.h"
#include "model/exchange/shell_branches.h"
#include "model/exchange/shell_lexer.h"

namespace orrery::exchange {

// Where a command reads and writes.
struct Redirects {
  Words to;             // files that it writes
  bool append = false;  // behind what is there
  bool read = false;    // from a file or a string
  bool document = false;
  Word text;          // of the here-document; its place is that of the first line
  std::string maker;  // the program in front of a pipe that makes a text of another file
};

// What a script knows of its own place.
void SetOwnPaths(const std::string& path, ShellScript* script);

// Variables that Slurm sets by the #SBATCH lines: numbers of nodes, tasks and GPUs.
void SetJobVariables(const std::vector<Token>& tokens, const std::vector<Token>& comments,
                     ShellScript* script);

// Schedulers read comments in front of the first command alone.
void AddComments(const std::vector<Token>& tokens, const std::vector<Token>& comments,
                 ShellScript* script);

// Throws InputError: a line of a text of `bash -c` is an option of the one before, which the shell would take for a command.
void CheckLines(const Word& text, const ShellScript& script);

// The commands and files of a script inside `to`, which the words `front` start.
void Append(ShellScript inner, const Words& front, ShellScript* to);

// Of "... bash -c" or "... bash -e -o pipefail -c" the place of the shell; words.size(): the next word is no script.
std::size_t ShellBefore(const Words& words);
// ssh HOST "a; b" and pdsh -w HOSTS "a; b": the next word is a script for those.
bool RunsOnHost(const Words& words, const Token& next);
// A command that takes its standard input for a script: bash, bash -s, sbatch. Its launcher's words are those before the place;
// words.size(): it does not.
std::size_t ShellOfInput(const Words& words);
// The text that `sbatch --wrap TEXT` runs, where the next word of a command holds it; else an empty word.
Word WrappedBy(const Words& words, const Word& word);

// Of "; do NAME=...; done" from there: where "done" stands; 0: the loop holds other commands than assignments, source and those
// that set variables.
std::size_t EndOfAssignments(const std::vector<Token>& tokens, std::size_t at);

// Whether anything but the ends of blocks stands from there on.
bool CommandsFollow(const std::vector<Token>& tokens, std::size_t at);

// Whether a word is one of the patterns of an arm of "case": "a | b", "*". `any_case`: of capitals, too (nullopt: nobody knows).
// nullopt: other patterns, or nobody knows the word.
std::optional<bool> MatchesPattern(std::span<const Token> patterns, const Word& word,
                                   std::optional<bool> any_case);

// Where the block that begins there ends: its "}"; 0: nowhere.
std::size_t EndOfBlock(const std::vector<Token>& tokens, std::size_t at);

// ${NAME%/*} and ${NAME##*/}
Word PartOfPath(const Words& whole, std::string_view cut, const Location& where);

// NAME=value or NAME+=value (`more`), of which a branch or loop may leave nothing that is known.
void StoreVariable(const ShellBranches& branches, const std::string& name, ShellVariable value,
                   bool more, const Location& where, ShellScript* script);

// A value that a loop or a branch that may not be taken sets.
void StoreDoubtful(const ShellBranches& branches, const std::string& name,
                   const ShellVariable& value, bool more, const Location& where,
                   ShellScript* script);

// read NAME ..., mapfile NAME and readarray NAME: one variable is followed where a here-document is its text.
void ReadVariables(const Words& words, const Redirects& redirects, const ShellBranches& branches,
                   ShellScript* script);

// What echo and printf print; nullopt: another command.
std::optional<Word> PrintedBy(const Words& words);

// sed -i: substitutions of plain text in files of this script are followed.
void EditFiles(const Words& words, const ShellBranches& branches, ShellScript* script);

// The program, if it is one, that makes a text of others in a way that is not followed: jq, envsubst.
std::string MakerOf(const Words& words);

// cp, mv and ln -s of one file.
void CopyFile(const Words& words, const ShellBranches& branches, ShellScript* script);

// cat > FILE <<WORD and tee FILE <<WORD, cat A B > FILE, echo and printf.
void WriteFiles(const Words& words, const Redirects& redirects, const ShellBranches& branches,
                ShellScript* script);

// The file that the command at `command` finds under that name; null: the script writes none.
const WrittenFile* FindWritten(const ShellScript& script, std::size_t command, const Setting& named,
                               const std::string& folder);

}  // namespace orrery::exchange
