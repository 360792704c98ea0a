// SPDX-License-Identifier: Apache-2.0
// open, fstat, mmap; SIGBUS for pages that the file no longer has.
#include "runtime/data/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>

#include "model/base/input_files.h"

namespace orrery {

// The handler reads them while others change them: they are never freed, and used again.
struct MappedRange {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // both 0: free
  std::atomic<bool> torn{false};
  MappedRange* next = nullptr;
};

namespace {

std::mutex ranges_mutex;  // for all but the handler
std::atomic<MappedRange*> ranges{nullptr};
struct sigaction before;  // who had the signal
const std::uintptr_t page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));

// A page of zeros takes the place of the one that is gone, and the read goes on.
void OnBusError(int number, siginfo_t* info, void* /*context*/) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (MappedRange* one = ranges; one != nullptr; one = one->next) {
    if (at < one->begin || at >= one->end) continue;
    one->torn = true;
    void* place = reinterpret_cast<void*>(at / page * page);
    if (mmap(place, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
      return;
  }
  // The same again, for whoever had it.
  sigaction(number, &before, nullptr);
  raise(number);
}

void TakeBusErrors() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &action, &before);
}

MappedRange* AddRange(const std::byte* bytes, int64_t size) {
  const std::lock_guard lock(ranges_mutex);
  if (ranges == nullptr) TakeBusErrors();
  MappedRange* range = ranges;
  while (range != nullptr && range->end != 0) range = range->next;
  const bool fresh = range == nullptr;
  if (fresh) range = new MappedRange;
  range->torn = false;
  range->begin = reinterpret_cast<std::uintptr_t>(bytes);
  range->end = range->begin + (static_cast<std::uintptr_t>(size) + page - 1) / page * page;
  if (fresh) {
    range->next = ranges;
    ranges = range;
  }
  return range;
}

// Links are followed: the caches of HuggingFace's hub consist of them.
RegularFile Opened(const std::string& path) {
  try {
    return RegularFile(path, Links::kFollow);
  } catch (const FileError& error) {
    throw MappingError(fmt::format("cannot be read: {}", error.what()));
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : file_(Opened(path)), size_(file_.size()) {
  NoteInput(file_.descriptor(), path);
  Map();
}

MappedFile::~MappedFile() { Close(); }

void MappedFile::Close() {
  if (range_ != nullptr) range_->begin = range_->end = 0;
  if (bytes_ != nullptr) munmap(const_cast<std::byte*>(bytes_), static_cast<std::size_t>(size_));
}

void MappedFile::Map() {
  if (size_ == 0) return;
  void* memory =
      mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (memory == MAP_FAILED)
    throw MappingError(fmt::format("cannot be mapped: {}", std::strerror(errno)));
  bytes_ = static_cast<const std::byte*>(memory);
  range_ = AddRange(bytes_, size_);
}

bool MappedFile::torn() const {
  return range_ != nullptr && range_->torn.load(std::memory_order_relaxed);
}

void MappedFile::CheckWhole() const {
  struct stat about {};
  if (fstat(file_.descriptor(), &about) != 0 || about.st_size < size_ || torn())
    throw MappingError(
        fmt::format("has become shorter while it was read, at byte {}", about.st_size));
}

}  // namespace orrery
