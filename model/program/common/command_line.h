// SPDX-License-Identifier: Apache-2.0
// The words after `plan`, with their places, so that errors can point at one.
#pragma once

#include <string>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::cli {

inline constexpr const char* kCommandLine = "command line";  // name of its source

// The word as a shell takes it.
std::string Quoted(const std::string& word);

class CommandLine {
 public:
  // `words[0]` is the program; it is shown as "plan".
  explicit CommandLine(std::vector<std::string> words);

  const std::vector<std::string>& words() const { return words_; }
  Location where(std::size_t word) const;  // past the end: behind the last word

 private:
  std::vector<std::string> words_;
  std::vector<int> columns_;
  SourcePtr source_;
};

}  // namespace orrery::cli
