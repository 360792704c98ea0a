// SPDX-License-Identifier: Apache-2.0
// What a model file says: layers, parameters, assumptions, and what became of its keys.
#pragma once

#include <string>

#include "model/arch/catalogue.h"

namespace orrery::report {

std::string ModelText(const LoadedModel& model);

}  // namespace orrery::report
