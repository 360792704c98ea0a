// SPDX-License-Identifier: Apache-2.0
// What the user got wrong, where, and what would be right.
//
// Readers collect diagnostics and go on, so that one run reports up to ten of them; an InputError
// carries them to main(), which prints `file:line:col: error: message`, the source line, a caret
// and a hint, and exits with 2.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// A text that was read: a file, or a command-line argument (name "command line").
struct Source {
  std::string name;
  std::string text;
};
using SourcePtr = std::shared_ptr<const Source>;

// Line and column (in bytes) count from 1; 0 means that the place inside the source is unknown.
struct Location {
  SourcePtr source;
  int line = 0;
  int column = 0;
};

struct Diagnostic {
  Location where;
  std::string message;
  std::string hint;  // empty: none
};

class InputError : public std::exception {
 public:
  explicit InputError(std::vector<Diagnostic> diagnostics);
  explicit InputError(std::string message, std::string hint = "");      // no location
  const char* what() const noexcept override { return what_.c_str(); }  // rendered, no colour
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
  std::string what_;
};

// Collects diagnostics while reading one input; keeps the first thousand. One that repeats the last is left out.
class Diagnostics {
 public:
  void Error(Location where, std::string message, std::string hint = "");
  bool ok() const { return list_.empty(); }
  void ThrowIfAny();  // throws InputError with all of them

 private:
  std::vector<Diagnostic> list_;
};

// "file:3:7: error: ...", source line, caret, "  hint: ...". At most ten, then "... and N more".
// Control characters and bytes that are no UTF-8 come out as \xNN; long lines are cropped.
std::string Render(const std::vector<Diagnostic>& diagnostics, bool colour);

// Reads a file of at most `max_bytes`; a missing, unreadable, oversized or binary file (a NUL byte)
// is an InputError.
SourcePtr ReadSource(const std::string& path, std::size_t max_bytes = std::size_t{256} << 20);

// From now on ReadSource() keeps what it reads.
void RecordSources();
// In the order of reading; a file that was read twice stands there twice.
std::vector<SourcePtr> RecordedSources();

// The candidates nearest to `wrong` by edit distance, best first, only plausible ones.
std::vector<std::string> NearestNames(std::string_view wrong,
                                      const std::vector<std::string>& candidates,
                                      std::size_t most = 3);
// "did you mean 'x' or 'y'?", or "one of: a, b, c" when nothing is near and the list is short.
std::string SuggestName(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace orrery
