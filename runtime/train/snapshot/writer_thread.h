// SPDX-License-Identifier: Apache-2.0
// The thread that writes snapshots next to training.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace orrery::snapshot {

// One for all snapshots of a rank. Where ranks fill all cores, a new thread weighs as much as a rank until it
// runs, and a thread of that weight makes the kernel move ranks: while one core has three of four ranks, all
// wait for those three. This one has lowered itself before there is work, so it moves nobody, and takes what
// ranks leave.
class WriterThread {
 public:
  WriterThread() = default;
  ~WriterThread();  // waits for the work
  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;

  // One work at a time, the last one done before the next comes. The first call starts the thread; throws
  // SnapshotError if it cannot.
  template <class Work>
  auto Run(Work work) {
    auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
    auto future = task->get_future();
    Hand([task] { (*task)(); });
    return future;
  }

 private:
  void Hand(std::function<void()> work);
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace orrery::snapshot
