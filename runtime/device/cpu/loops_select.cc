// SPDX-License-Identifier: Apache-2.0
// Chooses the compiled set of loops that fits this processor.
#include <atomic>

#include "runtime/device/cpu/loops.h"

namespace orrery::cpu {

extern const Loops kLoopsBase;
#ifdef ORRERY_CPU_X86
extern const Loops kLoopsAvx2, kLoopsAvx512;
#endif

namespace {

const Loops* Available(Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return &kLoopsBase;
#ifdef ORRERY_CPU_X86
    case Isa::kAvx2:
      return __builtin_cpu_supports("x86-64-v3") ? &kLoopsAvx2 : nullptr;
    case Isa::kAvx512:
      return __builtin_cpu_supports("x86-64-v4") ? &kLoopsAvx512 : nullptr;
#else
    case Isa::kAvx2:
    case Isa::kAvx512:
      return nullptr;
#endif
  }
  return nullptr;
}

const Loops* Best() {
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (const Loops* loops = Available(isa)) return loops;
  }
  return &kLoopsBase;
}

std::atomic<const Loops*> chosen{Best()};

}  // namespace

const Loops& ActiveLoops() { return *chosen.load(std::memory_order_relaxed); }

bool SelectIsa(Isa isa) {
  const Loops* loops = Available(isa);
  if (loops != nullptr) chosen.store(loops, std::memory_order_relaxed);
  return loops != nullptr;
}

}  // namespace orrery::cpu
