// SPDX-License-Identifier: Apache-2.0
// Counts the heap of this program through its own operator new and delete.
#pragma once

#include <cstdint>

namespace orrery {

// From StartHeapCount() on: bytes handed out and not yet returned, and their maximum. Counting
// costs a few nanoseconds per allocation, so time nothing meanwhile.
void StartHeapCount();
void StopHeapCount();
int64_t HeapBytes();
int64_t HeapPeakBytes();

}  // namespace orrery
