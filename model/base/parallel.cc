// SPDX-License-Identifier: Apache-2.0
// Starts as many threads as the machine allows.
#include "model/base/parallel.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace orrery {

void OnThreads(int threads, const std::function<void(int)>& work) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&](int index) {
    try {
      work(index);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int t = 1; t < threads; ++t) others.emplace_back(guarded, t);
  } catch (const std::system_error&) {
    // `ulimit -u`, or the pids of a control group: those that run take the rest.
  }
  guarded(0);
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace orrery
