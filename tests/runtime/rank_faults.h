// SPDX-License-Identifier: Apache-2.0
// Ranks as threads with sockets of their own.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/tcp_socket.h"

namespace orrery::runtime_test {

inline int FreePort() { return comm::PortOf(comm::Listen(0, true)); }

// What `body` throws on each rank, "" when nothing.
inline std::vector<std::string> Faults(int64_t ranks, const std::function<void(int64_t)>& body) {
  std::vector<std::string> faults(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& error) {
        faults[static_cast<std::size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return faults;
}

}  // namespace orrery::runtime_test
