// SPDX-License-Identifier: Apache-2.0
// Where a command's answer goes: text or JSON on standard output, JSON also into a file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "model/program/common/flags.h"

namespace orrery::cli {

// What `plan` tells the shell.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,     // the answer could not be written, or a program could not be started
  kInputError = 2,  // command line or a file
  kInfeasible = 3,  // nothing fits, or the given layout does not
  kCheckFailed = 4,
};

struct Answer {
  ExitCode code = ExitCode::kOk;
  std::string text;       // for standard output
  std::string brief;      // the same in one line, for --quiet; empty: the text's first line
  bool document = false;  // `text` is JSON: neither painted nor shortened
};

// `--json` alone: the JSON replaces the text. `--json FILE`: the JSON goes there, the text stays.
Answer Deliver(ExitCode code, std::string text, const nlohmann::ordered_json& json,
               const Flag& flag);

// A file to start from, with --json within a document; --quiet does not shorten it.
Answer DeliverTemplate(std::string text, const Flag& json);

// What of an answer is shown: all, or a line of it.
std::string Shown(const Answer& answer);
// Writes everything to standard output. A reader that has gone (`plan | head`) is no failure.
ExitCode WriteOut(ExitCode code, std::string_view text);

// --json [FILE]: `command` names the schema, "orrery.run/1"; `what` is written as JSON, nothing: the answer.
void DeclareJson(Flag* json, FlagSet* set, std::string_view command, std::string_view what = "");
// --html FILE, the same in every command that has it.
void DeclareHtml(Flag* html, FlagSet* set);
// --bundle FILE, see bundle.h.
void DeclareBundle(Flag* bundle, FlagSet* set);
// Before the work: throws InputError when the file cannot be written, or is that of --json.
void CheckHtml(const Flag& html, const Flag& json);
// Deliver(), and the JSON as a page in the file of --html, under another name until it is whole.
Answer Deliver(ExitCode code, std::string text, const nlohmann::ordered_json& json,
               const Flag& flag, const Flag& html);

bool ColourOnErrors();  // see terminal.h

}  // namespace orrery::cli
