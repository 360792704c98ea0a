// SPDX-License-Identifier: Apache-2.0
// Reads shell scripts without running them: assignments, arrays, plain expansions and integer arithmetic are followed, and
// what only a shell could know is marked with the reason.
//
// Followed: NAME=word, NAME+=word, NAME=(...), export and its kin, $NAME, ${NAME}, ${NAME:-word}, ${NAME[@]}, ${#NAME[@]}, $((...)), ((...)), let, declare -i,
// quotes, continued lines, here-documents (what cat and tee write of them, what read, bash and sbatch take), copies of files, loops over known words that only
// assign, associative arrays by known keys, files of `source`, eval, unset, set --, printf -v, cd, subshells and assignments in front of one command, the script's own folder ($0, BASH_SOURCE and the commands around
// them), and what Slurm sets by #SBATCH lines (SLURM_NNODES). A branch behind a test of known words, or an arm of a case of one, is taken or left out; what another branch, a loop, a function or a list behind a command that may fail sets is unknown,
// and so is the output of other commands. Behind an exit that is surely reached nothing is read. The environment is taken as empty: ${NODES:-4} is 4.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/exchange/setting.h"

namespace orrery::exchange {

struct Word {
  std::string text;
  Location where;
  std::string unresolved;  // why a shell would be needed; "": `text` is the word
  // Of a text that may be split: where its later parts stand, each with its first letter, ascending.
  std::vector<std::pair<std::size_t, Location>> parts = {};
};
using Words = std::vector<Word>;

struct ShellVariable {
  Words words;  // one of a plain variable
  bool array = false;
  bool map = false;                    // declare -A
  std::vector<std::string> keys = {};  // of its words; fewer of them: nobody knows which there are
};
// A file that the script writes: a here-document, what it prints, a copy.
struct WrittenFile {
  Word name;
  std::string text;
  Location where;          // of its first line
  std::string unresolved;  // why the text is not known
  std::size_t before = 0;  // of how many commands the next one reads it
  std::string copy = "";   // of this file, which the script does not write; "": `text` is known
};
struct ShellScript {
  std::vector<Words> commands;                     // in the order of the text, never empty ones
  std::map<std::string, ShellVariable> variables;  // as they are at the end
  std::vector<Word> branches;      // lists that a branch makes longer: what it adds is left out
  std::vector<WrittenFile> files;  // in the order of the text
  // Of kCountVariables and the names below them, where they are not those at the end: by the place of the command that finds them.
  std::map<std::size_t, std::map<std::string, ShellVariable>> environments;
  std::map<std::size_t, std::string>
      folders;                  // in which commands run, where it is not the script's
  std::vector<Word> comments;   // lines that begin with '#', without it
  Words sourced;                // files of `source` that are followed, under their own names
  Words unsourced;              // and those that are not, eval and others, with the reason
  std::optional<Location> end;  // of the `exit` at which it surely ends before its last line
  struct Reasons {              // why parts of texts are not known, by number
    std::vector<std::string> texts;
    std::map<std::string, std::size_t> numbers;
  } reasons;
};

// Variables that scripts mostly give these names.
inline constexpr const char* kCountVariables[] = {
    "NNODES",         "NUM_NODES",         "N_NODES", "GPUS_PER_NODE",
    "NPROC_PER_NODE", "NUM_GPUS_PER_NODE", "NGPU"};
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
inline constexpr const char *kAgentNodes = "PET_NNODES",  // torchrun's --nnodes
    *kWorldSize = "WORLD_SIZE";

// The file that a script takes in by `source`; null: it is not found.
using OpenSourced = std::function<SourcePtr(const Word& file)>;

// `open`: without it such commands are commands like others. Throws InputError: a quote or bracket is never closed, or the
// text has more words than a script would.
ShellScript ReadShell(const SourcePtr& source, const OpenSourced& open = nullptr);

// As the command at this place finds it; null: the script does not set it.
const ShellVariable* VariableAt(const ShellScript& script, std::size_t command, const char* name);

// Files that it takes in, and what is not followed, as notes.
std::vector<std::string> SourcedNotes(const ShellScript& script);
// A value that no line sets may stand in a file that was not read.
void ExplainUnset(const ShellScript& script, Setting* setting);

}  // namespace orrery::exchange
