// SPDX-License-Identifier: Apache-2.0
// What a log says of its own run: the model and layout from its arguments, and what contradicts the user.
#pragma once

#include <string>

#include "calib/import/log_facts.h"
#include "calib/import/training_log.h"
#include "calib/validate/case_row.h"

namespace orrery {

// Where a log without a sheet ran, and how.
struct RunPlace {
  std::string topology;   // name or file
  std::string framework;  // "": what the log's format and arguments say
};

// The run that Megatron's dump of arguments describes. row.refused: what is not modelled, or missing.
// Throws InputError: unknown topology.
CaseRow RowOfArguments(const measured::LogFacts& facts, const RunPlace& place,
                       const std::string& log);

// Why the log cannot be of this run: another GPU by name, memory, peak or printed rate; another number of
// ranks; another model or layout than its arguments. "": nothing contradicts it. Throws InputError: unknown
// topology.
std::string MismatchOf(const measured::LogFacts& facts, const measured::TrainingLog& log,
                       const CaseRow& row);

}  // namespace orrery
