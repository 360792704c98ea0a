// SPDX-License-Identifier: Apache-2.0
// Speed of the simulation engines. One line per figure: name = value unit; times are the least of
// several rounds, CPU time where the machine is shared.
#include <fmt/format.h>

#include "bench/twin/figures.h"

namespace orrery {

void Print(const std::string& name, double value, const char* unit) {
  fmt::print("{} = {:.6g} {}\n", name, value, unit);
}

}  // namespace orrery

int main() {
  orrery::NetworkFigures();
  orrery::StepFigures();
  return 0;
}
