// SPDX-License-Identifier: Apache-2.0
// The figures of bench_twin: one line `name = value unit` each.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

namespace orrery {

void Print(const std::string& name, double value, const char* unit);

// Seconds since construction: of the wall, and of this process on its cores.
class Stopwatch {
 public:
  double Wall() const { return std::chrono::duration<double>(Clock::now() - wall_).count(); }
  double Cpu() const { return static_cast<double>(std::clock() - cpu_) / CLOCKS_PER_SEC; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point wall_ = Clock::now();
  std::clock_t cpu_ = std::clock();
};

void NetworkFigures();
void StepFigures();

}  // namespace orrery
