// SPDX-License-Identifier: Apache-2.0
// Work of the start-up, shared by threads on the cores that the calling thread may use.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <vector>

namespace orrery::exec {

// Cores that this thread may run on: one where ranks are bound to cores.
inline int64_t CoresAllowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

// Calls task(0) to task(count - 1), each once, on `workers` threads. The first error of them is thrown at the end.
template <typename Task>
void Share(int64_t count, int64_t workers, const Task& task) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t at = next++; at < count; at = next++) task(at);
  };
  std::vector<std::future<void>> others;
  for (int64_t w = 1; w < workers; ++w)  // deferred, hence done below, where no thread is to be had
    others.push_back(std::async(std::launch::async | std::launch::deferred, work));
  std::exception_ptr error;
  const auto keep = [&](const auto& call) {
    try {
      call();
    } catch (...) {
      next = count;
      if (!error) error = std::current_exception();
    }
  };
  keep(work);
  for (std::future<void>& other : others) keep([&] { other.get(); });
  if (error) std::rethrow_exception(error);
}

// Sets memory to `value`. Large memory is touched by all cores: a new page costs more than the writing. `stops`: asked before
// each piece; true: nobody will read what is left.
inline void Fill(std::byte* to, int value, int64_t bytes, bool (*stops)() = nullptr) {
  constexpr int64_t kPiece = int64_t{16} << 20;
  const int64_t pieces = (bytes + kPiece - 1) / kPiece;
  Share(pieces, std::clamp<int64_t>(pieces / 4, 1, CoresAllowed()), [&](int64_t at) {
    if (stops != nullptr && stops()) return;
    std::memset(to + at * kPiece, value,
                static_cast<std::size_t>(std::min(kPiece, bytes - at * kPiece)));
  });
}

}  // namespace orrery::exec
