// SPDX-License-Identifier: Apache-2.0
// Waits for work at low priority.
#include "runtime/train/snapshot/writer_thread.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "runtime/train/snapshot/files.h"

namespace orrery::snapshot {
namespace {

// Linux moves threads where loads of two cores differ by 17 %: four writers fifteen levels lower are 7 % of two
// ranks (weights 36 and 1,024). One still gets 2 % of a core that two ranks fill: milliseconds suffice.
void GiveWayToRanks() {
  constexpr int kLevels = 15, kLowest = 19;
  const auto thread = static_cast<id_t>(gettid());
  const int now = getpriority(PRIO_PROCESS, thread);
  setpriority(PRIO_PROCESS, thread, std::min(now + kLevels, kLowest));  // refused: as it was
}

}  // namespace

WriterThread::~WriterThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WriterThread::Hand(std::function<void()> work) {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Loop(); });
    } catch (const std::system_error& error) {
      throw SnapshotError(fmt::format(
          "cannot start the thread that writes snapshots: {}; raise the limit (ulimit -u)",
          error.code().message()));
    }
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_one();
}

void WriterThread::Loop() {
  GiveWayToRanks();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || work_; });
    if (!work_) return;
    const std::function<void()> work = std::exchange(work_, nullptr);
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace orrery::snapshot
