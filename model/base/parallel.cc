// SPDX-License-Identifier: Apache-2.0
// Starts as many threads as the machine allows.
#include "model/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

// Of jemalloc (jemalloc(3), "thread.arena"), where a program is linked with it.
extern "C" [[gnu::weak]] int mallctl(const char* name, void* old, std::size_t* old_size, void* set,
                                     std::size_t set_size);

namespace orrery {
namespace {

// The arena of this thread; nullopt: another allocator.
std::optional<unsigned> OwnArena() {
  unsigned arena = 0;
  std::size_t size = sizeof(arena);
  if (mallctl == nullptr || mallctl("thread.arena", &arena, &size, nullptr, 0) != 0)
    return std::nullopt;
  return arena;
}

// What this thread allocates comes from there.
void UseArena(unsigned arena) { mallctl("thread.arena", nullptr, nullptr, &arena, sizeof(arena)); }

}  // namespace

// Threads live shortly, and what they leave is freed by others: with an arena each, memory is fresh again and again. A few of
// them share that of the caller (`plan --nodes 32 --model bert-1.5b` on two cores: 3,700 to 2,170 page faults, a fifth of the
// time); many would wait for its locks.
void OnThreads(int threads, const std::function<void(int)>& work) {
  constexpr int kFew = 4;
  const std::optional<unsigned> arena = threads <= kFew ? OwnArena() : std::nullopt;
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
    for (int t = 1; t < threads; ++t) {
      others.emplace_back([&, t] {
        if (arena) UseArena(*arena);
        guarded(t);
      });
    }
  } catch (const std::system_error&) {
    // `ulimit -u`, or the pids of a control group: those that run take the rest.
  }
  guarded(0);
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

void EachOnThreads(int threads, std::size_t count, const std::function<void(std::size_t)>& each) {
  std::atomic<std::size_t> next{0};
  OnThreads(static_cast<int>(std::min(count, static_cast<std::size_t>(std::max(1, threads)))),
            [&](int) {
              for (std::size_t i = next++; i < count; i = next++) each(i);
            });
}

}  // namespace orrery
