// SPDX-License-Identifier: Apache-2.0
// The files that a command reads: no answer of it goes onto one of them.
#pragma once

#include <string>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {

// A new command begins: nothing has been read, no answer has a place.
void ForgetInputs();

// A regular file that is read, by whatever name: what counts is its device and inode. ReadSource() calls it; whoever opens
// files by itself has to. Throws InputError at the flag where an answer is to go there (ClaimOutput).
void NoteInput(int descriptor, const std::string& name);
void NoteInput(const std::string& path);

// An answer is to go to `path`, as `flag` at `where` says. Throws InputError where the command has read that file.
void ClaimOutput(const std::string& path, const std::string& flag, const Location& where);

// Those that were read, each by its first name.
std::vector<std::string> InputNames();

// "" or, of a file that the command has read, why nothing is written onto it.
std::string WhyInput(const std::string& path);

// While one lives, what this thread reads is no input: files of a catalogue that are looked through.
class LookingThrough {
 public:
  LookingThrough();
  ~LookingThrough();
  LookingThrough(const LookingThrough&) = delete;
  LookingThrough& operator=(const LookingThrough&) = delete;
};

}  // namespace orrery
