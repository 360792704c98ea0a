// SPDX-License-Identifier: Apache-2.0
// What a Python program says of its training outside of the call that makes its TrainingArguments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/exchange/document.h"
#include "model/exchange/python_calls.h"

namespace orrery::exchange {

// A literal of a program, part by part where it is a dictionary. A null `value` is computed.
void AddLiteral(const std::string& key, const YamlTree* value, const Location& where,
                Settings* settings);

// What else is to be found by CallsIn() for TakeEffects().
bool HasEffects(std::string_view function);

// `args.bf16 = True` behind the call of `arguments`, of which `trainers` take it, and what these are told beside it.
void TakeOverrides(const PythonCall& arguments, const std::vector<const PythonCall*>& trainers,
                   const std::vector<PythonAssignment>& assignments, Document* document);

// Recomputation that is switched on for the model, and parts of it that are frozen. The document has its adapters already.
void TakeEffects(const PythonCall& arguments, const std::vector<PythonCall>& calls,
                 const std::vector<PythonAssignment>& assignments, Document* document);

}  // namespace orrery::exchange
