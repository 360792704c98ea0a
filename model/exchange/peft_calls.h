// SPDX-License-Identifier: Apache-2.0
// Adapters of PEFT and frozen weights in few bits, as a Python program makes them.
#pragma once

#include <string_view>
#include <vector>

#include "model/exchange/document.h"
#include "model/exchange/python_calls.h"

namespace orrery::exchange {

// Functions of a program that say something of its adapters, or of the weights that they adapt.
bool IsOfAdapters(std::string_view function);

// Adds what `calls` (of those functions, and of the classes of Trainers) say to the document, as fields of the workload. An argument
// that decides and is no literal has `unresolved`. Throws InputError: adapters that are not modelled.
void TakeAdapterCalls(const std::vector<PythonCall>& calls, Document* document);

}  // namespace orrery::exchange
