// SPDX-License-Identifier: Apache-2.0
// Work on several threads.
#pragma once

#include <functional>
#include <thread>

namespace orrery {

// A thread that runs this. std::system_error where the machine allows none, or has no memory for its first steps.
std::thread StartThread(std::function<void()> run);

// Calls work(0) on this thread and work(1) ... work(threads - 1) on others, which share the work by what they capture.
// Where the machine allows no further thread, fewer are called: work(0) alone must be able to do all. Returns when all
// have ended; throws what the first of them threw.
void OnThreads(int threads, const std::function<void(int)>& work);

// each(0) .. each(count - 1), on up to `threads` threads, in whichever order.
void EachOnThreads(int threads, std::size_t count, const std::function<void(std::size_t)>& each);

}  // namespace orrery
