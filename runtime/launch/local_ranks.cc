// SPDX-License-Identifier: Apache-2.0
// A thread per rank, and what becomes of those that never end.
#include "runtime/launch/local_ranks.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/comm/local.h"

namespace orrery::launch {

std::string RunLocalRanks(int64_t ranks, const std::function<void(comm::Endpoint*)>& body,
                          double grace_s, const std::function<void(const std::string&)>& stuck) {
  comm::LocalWorld world(ranks);
  std::mutex mutex;
  std::condition_variable changed;
  int64_t left = ranks;
  const auto run = [&](int64_t rank) {
    const std::unique_ptr<comm::Endpoint> endpoint = world.Connect(rank);
    try {
      body(endpoint.get());
    } catch (const std::exception& error) {
      endpoint->Abort(fmt::format("rank {} on {}: {}", rank, endpoint->host(), error.what()));
    }
    const std::lock_guard lock(mutex);
    --left;
    changed.notify_all();
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  } catch (const std::system_error& error) {
    const auto started = static_cast<int64_t>(threads.size());
    world.Connect(started)->Abort(
        fmt::format("only {} of {} ranks could be started as threads: {}; raise the limit (ulimit "
                    "-u, or the pids of the control group), or run fewer ranks",
                    started, ranks, error.code().message()));
    const std::lock_guard lock(mutex);
    left -= ranks - started;
  }
  {
    std::unique_lock lock(mutex);
    const auto pause = std::chrono::milliseconds(50);
    double waited = 0;
    while (!changed.wait_for(lock, pause, [&] { return left == 0; })) {
      if (world.failure().empty()) continue;
      waited += 0.05;
      if (waited >= grace_s && stuck) stuck(world.failure());
    }
  }
  for (std::thread& thread : threads) thread.join();
  return world.failure();
}

}  // namespace orrery::launch
