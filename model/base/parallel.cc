// SPDX-License-Identifier: Apache-2.0
// Starts as many threads as the machine allows.
#include "model/base/parallel.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
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

// So many arenas, of which each call gets the same; fewer where there is no memory for more.
std::vector<unsigned> Arenas(std::size_t count) {
  static std::mutex mutex;
  static std::vector<unsigned> made;
  const std::lock_guard lock(mutex);
  while (made.size() < count) {
    unsigned arena = 0;
    std::size_t size = sizeof(arena);
    if (mallctl == nullptr || mallctl("arenas.create", &arena, &size, nullptr, 0) != 0) break;
    made.push_back(arena);
  }
  return {made.begin(), made.begin() + static_cast<std::ptrdiff_t>(std::min(count, made.size()))};
}

}  // namespace

// jemalloc 5.3 asks in a thread's first call for some memory of the thread's own, and crashes where there is none (`ulimit -v`).
// So a piece of the address space is kept until then.
std::thread StartThread(std::function<void()> run) {
  constexpr std::size_t kFirstSteps = std::size_t{4} << 20;
  void* kept = mmap(nullptr, kFirstSteps, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (kept == MAP_FAILED)
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  try {
    return std::thread([kept, run = std::move(run)] {
      munmap(kept, kFirstSteps);
      run();
    });
  } catch (...) {
    munmap(kept, kFirstSteps);
    throw;
  }
}

// Threads live shortly, and what they leave is freed by others: with an arena each, memory is fresh again and again. A few of
// them share that of the caller (`plan --nodes 32 --model bert-1.5b` on two cores: 3,700 to 2,170 page faults, a fifth of the
// time); many would wait for its locks. jemalloc would make arenas in the threads, and crash where one cannot be made; so
// cmake/jemalloc_options.cc allows it a single one, and the others are made here.
void OnThreads(int threads, const std::function<void(int)>& work) {
  constexpr int kFew = 4;
  const std::optional<unsigned> arena = OwnArena();
  const std::vector<unsigned> arenas = arena && threads > kFew
                                           ? Arenas(static_cast<std::size_t>(threads) - 1)
                                           : std::vector<unsigned>();
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
      others.push_back(StartThread([&, t] {
        const auto mine = static_cast<std::size_t>(t) - 1;
        if (arena) UseArena(mine < arenas.size() ? arenas[mine] : *arena);
        guarded(t);
      }));
    }
  } catch (const std::system_error&) {
    // `ulimit -u`, `ulimit -v`, or the pids of a control group: those that run take the rest.
  } catch (const std::bad_alloc&) {
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
