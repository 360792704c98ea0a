// SPDX-License-Identifier: Apache-2.0
// Fibers for the threads of a block, barriers between them.
#include "tests/cuda_emulation/emulation.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace orrery::emulation {

constinit thread_local const Place* current = nullptr;

namespace {

constexpr size_t kStack = size_t{128} << 10;
constexpr unsigned kWarp = 32, kMostThreads = 1024;

[[noreturn]] void Die(const char* why) {
  std::fprintf(stderr, "CUDA emulation: %s\n", why);
  std::abort();
}

enum class State : uint8_t { kReady, kAtWarpBarrier, kAtBlockBarrier, kDone };

// A stack that runs one thread after the other. Switching by _setjmp and _longjmp costs no system call.
struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  bool started = false;
  State state = State::kDone;
  Place place;
};

struct Stacks {
  char* memory = static_cast<char*>(mmap(nullptr, kStack* kMostThreads, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ~Stacks() { munmap(memory, kStack * kMostThreads); }
};

class Machine {
 public:
  Machine() : fibers_(kMostThreads) {
    if (stacks_.memory == MAP_FAILED) Die("no memory for stacks");
  }

  void Run(dim3 grid, dim3 block, size_t shared, const std::function<void()>& body) {
    if (body_ != nullptr) Die("a kernel started a kernel");
    threads_ = block.x * block.y * block.z;
    if (threads_ == 0 || threads_ > kMostThreads || threads_ % kWarp != 0)
      Die("a block has a number of threads that is no multiple of 32 up to 1024");
    if (block.y != 1 || block.z != 1) Die("blocks of more than one dimension are not emulated");
    if (shared > (size_t{227} << 10)) Die("more shared memory than a block can have");
    body_ = &body;
    shared_.resize(shared / sizeof(max_align_t) + 2);
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) RunBlock({x, y, z}, block, grid);
    body_ = nullptr;
    current = nullptr;
  }

  void Barrier(bool warp) {
    Fiber& fiber = fibers_[running_];
    const unsigned first = warp ? running_ / kWarp * kWarp : 0, members = warp ? kWarp : threads_;
    fiber.state = warp ? State::kAtWarpBarrier : State::kAtBlockBarrier;
    for (unsigned i = first; i < first + members; ++i)
      if (fibers_[i].state != fiber.state) return Yield();
    for (unsigned i = first; i < first + members; ++i) fibers_[i].state = State::kReady;
    Yield();
  }

  unsigned Lane() const { return running_ % kWarp; }
  uint64_t* WarpSlots() { return slots_ + running_ / kWarp * kWarp; }
  void* Shared() { return shared_.data(); }
  Order order = Order::kForward;

 private:
  void RunBlock(dim3 at, dim3 block, dim3 grid) {
    std::memset(static_cast<void*>(shared_.data()), 0xff, shared_.size() * sizeof(max_align_t));
    for (unsigned i = 0; i < threads_; ++i) {
      fibers_[i].state = State::kReady;
      fibers_[i].place = {{i, 0, 0}, at, block, grid};
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (const unsigned i : Sequence()) {
        if (fibers_[i].state != State::kReady) continue;
        Resume(i);
        moved = true;
      }
    }
    for (unsigned i = 0; i < threads_; ++i)
      if (fibers_[i].state != State::kDone)
        Die("some threads wait at a barrier that others never reach");
  }

  const std::vector<unsigned>& Sequence() {
    sequence_.resize(threads_);
    std::iota(sequence_.begin(), sequence_.end(), 0u);
    if (order == Order::kBackward) std::reverse(sequence_.begin(), sequence_.end());
    if (order == Order::kShuffled) std::shuffle(sequence_.begin(), sequence_.end(), random_);
    return sequence_;
  }

  static void Main(unsigned low, unsigned high) {
    auto* machine = reinterpret_cast<Machine*>(static_cast<uintptr_t>(low) |
                                               static_cast<uintptr_t>(high) << 32);
    for (;;) {
      (*machine->body_)();
      machine->fibers_[machine->running_].state = State::kDone;
      machine->Yield();
    }
  }

  void Start(unsigned i) {
    Fiber& fiber = fibers_[i];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks_.memory + i * kStack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(Main), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
    fiber.started = true;
  }

#ifdef __SANITIZE_ADDRESS__
  void Resume(unsigned i) {
    Enter(i);
    swapcontext(&scheduler_context_, &fibers_[i].context);
  }
  void Yield() { swapcontext(&fibers_[running_].context, &scheduler_context_); }
#else
  void Resume(unsigned i) {
    const bool fresh = !fibers_[i].started;
    Enter(i);
    if (_setjmp(scheduler_) != 0) return;
    if (fresh) setcontext(&fibers_[i].context);
    _longjmp(fibers_[i].jump, 1);
  }
  void Yield() {
    if (_setjmp(fibers_[running_].jump) == 0) _longjmp(scheduler_, 1);
  }
#endif

  void Enter(unsigned i) {
    if (!fibers_[i].started) Start(i);
    running_ = i;
    current = &fibers_[i].place;
  }

  Stacks stacks_;
  std::vector<Fiber> fibers_;
  std::vector<unsigned> sequence_;
  std::vector<max_align_t> shared_;
  uint64_t slots_[kMostThreads];
  const std::function<void()>* body_ = nullptr;
  unsigned threads_ = 0, running_ = 0;
  std::mt19937 random_{7};
  jmp_buf scheduler_;
  ucontext_t scheduler_context_;
};

Machine& TheMachine() {
  static thread_local const std::unique_ptr<Machine> machine = std::make_unique<Machine>();
  return *machine;
}

thread_local std::optional<Recording> recording;

}  // namespace

void Perform(std::function<void()> action) {
  recording ? recording->push_back(std::move(action)) : action();
}
void StartRecording() { recording.emplace(); }
Recording StopRecording() { return *std::exchange(recording, std::nullopt); }

void SetOrder(Order order) { TheMachine().order = order; }
void RunGrid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body) {
  TheMachine().Run(grid, block, shared_bytes, body);
}
void SyncBlock() { TheMachine().Barrier(false); }
void SyncWarp() { TheMachine().Barrier(true); }
unsigned Lane() { return TheMachine().Lane(); }
void* DynamicShared() { return TheMachine().Shared(); }

uint64_t Exchange(uint64_t value, unsigned from) {
  uint64_t* slots = TheMachine().WarpSlots();
  slots[Lane()] = value;
  SyncWarp();
  const uint64_t found = slots[from];
  SyncWarp();
  return found;
}

const uint64_t* ExchangeAll(uint64_t value, uint64_t* all) {
  uint64_t* slots = TheMachine().WarpSlots();
  slots[Lane()] = value;
  SyncWarp();
  std::memcpy(all, slots, kWarp * sizeof(uint64_t));
  SyncWarp();
  return all;
}

}  // namespace orrery::emulation
