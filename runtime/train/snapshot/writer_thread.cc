// SPDX-License-Identifier: Apache-2.0
// Waits for work at low priority.
#include "runtime/train/snapshot/writer_thread.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "runtime/train/snapshot/files.h"

namespace orrery::snapshot {
namespace {

// Linux moves threads where the loads of two cores differ by 17 %, and a core that has three of four ranks holds all of
// them up: a writer at the lowest priority weighs 15 where a rank weighs 1,024. One still gets 0.7 % of a core that two
// ranks fill: a shard takes milliseconds. SCHED_BATCH: it interrupts no rank when the disk is done. Neither is refused.
void GiveWayToRanks() {
  constexpr int kLowest = 19;
  const auto thread = static_cast<id_t>(gettid());
  const sched_param none{};
  sched_setscheduler(0, SCHED_BATCH, &none);
  setpriority(PRIO_PROCESS, thread, kLowest);
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
