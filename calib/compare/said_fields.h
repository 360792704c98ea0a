// SPDX-License-Identifier: Apache-2.0
// The fields of a layout that a record of this project tells, and those that a program says in its log, in the words of
// model/exchange's table: each field has a text on both sides.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "calib/import/log_facts.h"
#include "model/exchange/mapping.h"

namespace orrery::compare {

// `values`: what --from reads in the record. Adds the facts of the release, and what a record leaves out where it is off.
exchange::Values PlannedFields(const nlohmann::json& record, exchange::Values values);

// Of the values that --from reads in the log those that a line of it says, each with that line. Arguments that Megatron
// prints as False or None say something, too: what their field has without them.
exchange::Values SaidFields(const SourcePtr& log, const measured::LogFacts& facts,
                            const exchange::Values& values);

// Layers of stages are counted or listed: "2x3,4" is "3,3,4".
bool SameField(const std::string& field, const std::string& a, const std::string& b);

}  // namespace orrery::compare
