// SPDX-License-Identifier: Apache-2.0
// The one place that decides how an answer looks: width, colour, how much of it, and who waits for it.
//
// Where standard output is no terminal, an answer is the same on every machine: 100 columns, no colour.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace orrery::cli {

struct Terminal {
  std::size_t width = 0;        // columns of standard output; 0: no terminal
  bool colour = false;          // on standard output
  bool error_colour = false;    // on standard error
  bool quiet = false;           // one line
  bool shows_progress = false;  // standard error is a terminal, and not `quiet`
  bool logs_progress = false;   // it is none, and not `quiet`: a line now and then
  std::vector<std::string>
      given;  // the words that say so, for a program that is started instead of this one
};

// --quiet and --color auto|always|never (NO_COLOR, TERM) are those of every command: they are taken out of `words`,
// up to a "--". Throws InputError: another colour.
Terminal DecideTerminal(std::vector<std::string>* words);
const Terminal& CurrentTerminal();
void SetTerminal(Terminal terminal);
// The words by which ranks that this program starts look as it does: they do not see its terminal.
std::vector<std::string> LooksForRanks();

// An answer with its headings bold, its first row green and what does not fit red.
std::string Painted(const std::string& text);

// Says on standard error how far work is and how long it still takes: from two seconds on, erased at the end; where it is no
// terminal, as a line every ten seconds.
class Progress {
 public:
  Progress();
  ~Progress();
  // From any thread. `what`: "searching"; `share`: of it that is done.
  void At(const char* what, double share);

 private:
  class Writer;
  std::unique_ptr<Writer> writer_;  // null: nobody looks
};

}  // namespace orrery::cli
