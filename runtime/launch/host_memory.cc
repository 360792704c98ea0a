// SPDX-License-Identifier: Apache-2.0
// Reads the kernel's estimate.
#include "runtime/launch/host_memory.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace orrery::launch {

double FreeMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name, rest;
  for (double kib = 0; file >> name >> kib && std::getline(file, rest);) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

double PeakResidentMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace orrery::launch
