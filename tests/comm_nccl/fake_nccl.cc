// SPDX-License-Identifier: Apache-2.0
// A pretended NCCL over the memory of one process, ranks being threads: a shared library with the
// functions that runtime/comm/nccl_api.h loads.
//
// Like the real one, what is enqueued on a stream runs in that stream's order and an operation runs
// when all its partners stand at the head of their streams: an order that would hang on GPUs hangs
// here. A group becomes one launch per communicator: on one stream, one after the other. Communicators become ready when all members have come; a call is "in progress" for two
// polls.
#include "tests/comm_nccl/fake_nccl.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;
constexpr int kPollsBusy = 2;

enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kSend, kReceive };

struct Ring {  // communicators with one id
  int size = 0;
  std::vector<struct FakeComm*> members;
  int joined = 0, delay = 0;
};
struct FakeComm {
  std::shared_ptr<Ring> ring;
  int rank = 0, busy = 0, error = kSuccess, next = 0;
  std::string last;
};
struct Op {
  Kind kind;
  FakeComm* comm;
  const char* in;
  char* out;
  size_t n;
  int type, op, peer, sequence;
  bool done = false;
};
using Mark = std::shared_ptr<bool>;  // true: passed
struct Launch {
  std::vector<Op> ops;
  Mark records, awaits;
  std::function<void()> copies = {};

  bool Over() const {
    if (awaits && !*awaits) return false;
    return std::all_of(ops.begin(), ops.end(), [](const Op& op) { return op.done; });
  }
};

std::mutex mutex;
std::map<std::string, std::shared_ptr<Ring>> rings;
std::map<void*, std::deque<Launch>> streams;
std::map<void*, Mark> events;  // by event: its last recording
std::vector<FakeComm*> comms;
std::vector<int> delays;  // polls of the communicators of the n-th id
int version = 22809, ids = 0, next_error = kSuccess;
bool hangs = false;
FakeCounts counts{};

thread_local int depth = 0;
thread_local std::vector<std::pair<void*, Op>> gathered;

size_t Width(int type) { return type <= 1 ? 1 : type == 8 ? 8 : type == 6 || type == 9 ? 2 : 4; }

void Copy(char* to, const char* from, size_t n) {
  if (n > 0) std::memcpy(to, from, n);
}

template <class T>
void Fold(char* to, const char* from, size_t n, int op) {
  for (size_t i = 0; i < n; ++i) {
    T a, b;
    std::memcpy(&a, to + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = op == 2 ? std::max(a, b) : static_cast<T>(a + b);
    std::memcpy(to + i * sizeof(T), &a, sizeof(T));
  }
}
void FoldAny(char* to, const char* from, size_t n, int type, int op) {
  if (type == 7) return Fold<float>(to, from, n, op);
  if (type == 8) return Fold<double>(to, from, n, op);
  Fold<int>(to, from, n, op);
}

// All members' parts of one collective, in rank order.
void Perform(const std::vector<Op*>& parts) {
  const Op& a = *parts[0];
  const size_t g = parts.size(), width = Width(a.type), bytes = a.n * width;
  std::vector<std::vector<char>> inputs;
  for (const Op* part : parts) {
    const size_t size = part->kind == Kind::kReduceScatter ? g * bytes : bytes;
    inputs.emplace_back(part->in, part->in + size);
  }
  for (size_t r = 0; r < g; ++r) {
    char* out = parts[r]->out;
    if (a.kind == Kind::kBroadcast) Copy(out, inputs[static_cast<size_t>(a.peer)].data(), bytes);
    if (a.kind == Kind::kAllGather) {
      for (size_t k = 0; k < g; ++k) Copy(out + k * bytes, inputs[k].data(), bytes);
    }
    if (a.kind == Kind::kAllReduce || a.kind == Kind::kReduceScatter) {
      const size_t at = a.kind == Kind::kReduceScatter ? r * bytes : 0;
      Copy(out, inputs[0].data() + at, bytes);
      for (size_t k = 1; k < g; ++k) FoldAny(out, inputs[k].data() + at, a.n, a.type, a.op);
    }
    parts[r]->done = true;
  }
}

bool Collect(std::map<std::pair<Ring*, int>, std::vector<Op*>>* collectives) {
  bool moved = false;
  for (auto& [key, parts] : *collectives) {
    if (static_cast<int>(parts.size()) != key.first->size) continue;
    std::sort(parts.begin(), parts.end(),
              [](auto* a, auto* b) { return a->comm->rank < b->comm->rank; });
    const bool alike = std::all_of(parts.begin(), parts.end(), [&](const Op* p) {
      return p->kind == parts[0]->kind && p->n == parts[0]->n && p->type == parts[0]->type;
    });
    if (alike) {
      Perform(parts);
    } else {
      for (Op* part : parts) part->comm->error = kInvalidUsage, part->done = true;
    }
    moved = true;
  }
  return moved;
}

// One round over the heads of all streams; true: something ran.
bool Round() {
  std::map<std::pair<Ring*, int>, std::vector<Op*>> collectives;
  std::map<std::tuple<Ring*, int, int>, std::pair<Op*, Op*>> transfers;  // the first of each side
  for (auto& [stream, queue] : streams) {
    if (queue.empty()) continue;
    for (Op& op : queue.front().ops) {
      if (op.done) continue;
      Ring* ring = op.comm->ring.get();
      if (op.kind == Kind::kSend) {
        auto& pair = transfers[{ring, op.comm->rank, op.peer}];
        if (pair.first == nullptr) pair.first = &op;
      } else if (op.kind == Kind::kReceive) {
        auto& pair = transfers[{ring, op.peer, op.comm->rank}];
        if (pair.second == nullptr) pair.second = &op;
      } else {
        collectives[{ring, op.sequence}].push_back(&op);
      }
    }
  }
  bool moved = Collect(&collectives);
  for (auto& [key, pair] : transfers) {
    if (pair.first == nullptr || pair.second == nullptr) continue;
    Copy(pair.second->out, pair.first->in, pair.second->n * Width(pair.second->type));
    pair.first->done = pair.second->done = moved = true;
  }
  for (auto& [stream, queue] : streams) {
    while (!queue.empty() && queue.front().Over()) {
      if (queue.front().records) *queue.front().records = true;
      if (queue.front().copies) queue.front().copies();
      queue.pop_front();
      moved = true;
    }
  }
  return moved;
}

void EndGroup() {
  std::vector<std::pair<void*, Launch>> launches;  // by stream and communicator
  for (auto& [stream, op] : gathered) {
    auto at = std::find_if(launches.begin(), launches.end(), [&](const auto& entry) {
      return entry.first == stream && entry.second.ops[0].comm == op.comm;
    });
    if (at == launches.end()) at = launches.insert(launches.end(), {stream, {}});
    at->second.ops.push_back(op);
  }
  counts.largest_group = std::max(counts.largest_group, static_cast<int>(gathered.size()));
  for (auto& [stream, launch] : launches) {
    for (Op& op : launch.ops) op.comm->busy = kPollsBusy;
    streams[stream].push_back(std::move(launch));
  }
  if (!gathered.empty()) ++counts.groups;
  gathered.clear();
  while (Round()) {
  }
}

int Enqueue(Op op, void* stream) {
  const std::lock_guard lock(mutex);
  if (next_error != kSuccess) return std::exchange(next_error, kSuccess);
  if (op.comm == nullptr || stream == nullptr || depth == 0) return kInvalidArgument;
  if (op.comm->busy > 0) {
    ++counts.calls_while_busy;
    return kInvalidUsage;
  }
  op.sequence = op.kind == Kind::kSend || op.kind == Kind::kReceive ? -1 : op.comm->next++;
  gathered.emplace_back(stream, op);
  return kSuccess;
}

void Forget(FakeComm* comm) {
  for (auto& [stream, queue] : streams) {
    for (Launch& launch : queue) {
      std::erase_if(launch.ops, [&](const Op& op) { return op.comm == comm; });
    }
  }
  while (Round()) {
  }
  std::erase(comms, comm);
  for (FakeComm*& member : comm->ring->members) {
    if (member == comm) member = nullptr;
  }
  delete comm;
}

void Reset() {
  const std::lock_guard lock(mutex);
  rings.clear();
  streams.clear();
  events.clear();
  delays = {};
  version = 22809;
  next_error = kSuccess;
  hangs = false;
  counts = {};
}
int Drain(void* stream) {
  const std::lock_guard lock(mutex);
  while (Round()) {
  }
  return streams[stream].empty() ? 1 : 0;
}

}  // namespace

extern "C" {

struct FakeId {
  char internal[128];
};

FakeControls fake_nccl_controls() {
  return {
      Reset,
      [](int v) { version = v; },
      [](int hang) { hangs = hang != 0; },
      [](int error, const char* why) {
        const std::lock_guard lock(mutex);
        for (FakeComm* comm : comms) comm->error = error, comm->last = why;
      },
      [](int error) { next_error = error; },
      Drain,
      [] {
        const std::lock_guard lock(mutex);
        return counts;
      },
      [](const int* polls, int n) { delays.assign(polls, polls + n); },
      [](void* event, void* stream) {
        const std::lock_guard lock(mutex);
        streams[stream].push_back({{}, events[event] = std::make_shared<bool>(false), {}, {}});
      },
      [](void* event, void* stream) {
        const std::lock_guard lock(mutex);
        if (events.contains(event)) streams[stream].push_back({{}, {}, events[event], {}});
      },
      [](void* to, const void* from, size_t n, void* stream) {
        const std::lock_guard lock(mutex);
        streams[stream].push_back(
            {{}, {}, {}, [=] { Copy(static_cast<char*>(to), static_cast<const char*>(from), n); }});
      }};
}

int ncclGetVersion(int* v) { return *v = version, kSuccess; }
int ncclGetUniqueId(FakeId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "id %d", ++ids);
  return kSuccess;
}
int ncclCommInitRankConfig(FakeComm** comm, int size, FakeId id, int rank, void* config) {
  const std::lock_guard lock(mutex);
  int blocking = 1;
  std::memcpy(&blocking, static_cast<char*>(config) + 16, sizeof blocking);
  if (blocking != 0) return kInvalidArgument;  // would hang a rank for good
  std::shared_ptr<Ring>& ring = rings[id.internal];
  if (!ring) {
    ring = std::make_shared<Ring>();
    ring->size = size;
    ring->members.resize(static_cast<size_t>(size));
    if (rings.size() <= delays.size()) ring->delay = delays[rings.size() - 1];
  }
  if (ring->size != size || rank >= size || ring->members[static_cast<size_t>(rank)] != nullptr)
    return kInvalidArgument;
  *comm = new FakeComm{ring, rank, 0, kSuccess, 0, ""};
  ring->members[static_cast<size_t>(rank)] = *comm;
  ++ring->joined;
  comms.push_back(*comm);
  ++counts.inits;
  return kInProgress;
}
int ncclCommGetAsyncError(FakeComm* comm, int* error) {
  const std::lock_guard lock(mutex);
  *error = comm->error;
  if (comm->error != kSuccess) return kSuccess;
  if (hangs || comm->ring->joined < comm->ring->size) return *error = kInProgress, kSuccess;
  if (comm->ring->delay > 0) return --comm->ring->delay, *error = kInProgress, kSuccess;
  if (comm->busy > 0) --comm->busy, *error = kInProgress;
  return kSuccess;
}
int ncclCommFinalize(FakeComm*) { return kSuccess; }
int ncclCommDestroy(FakeComm* comm) {
  const std::lock_guard lock(mutex);
  ++counts.destroys;
  return Forget(comm), kSuccess;
}
int ncclCommAbort(FakeComm* comm) {
  const std::lock_guard lock(mutex);
  ++counts.aborts;
  return Forget(comm), kSuccess;
}
const char* ncclGetErrorString(int result) {
  return result == 6               ? "remote process exited or there was a network error"
         : result == kInvalidUsage ? "invalid usage"
                                   : "some error";
}
const char* ncclGetLastError(FakeComm* comm) { return comm->last.c_str(); }
int ncclGroupStart() { return ++depth, kSuccess; }
int ncclGroupEnd() {
  if (--depth > 0) return kSuccess;
  const std::lock_guard lock(mutex);
  EndGroup();
  return kInProgress;
}
int ncclAllReduce(const void* in, void* out, size_t n, int type, int op, FakeComm* comm,
                  void* stream) {
  return Enqueue({Kind::kAllReduce, comm, (const char*)in, (char*)out, n, type, op, 0, 0}, stream);
}
int ncclAllGather(const void* in, void* out, size_t n, int type, FakeComm* comm, void* stream) {
  return Enqueue({Kind::kAllGather, comm, (const char*)in, (char*)out, n, type, 0, 0, 0}, stream);
}
int ncclReduceScatter(const void* in, void* out, size_t n, int type, int op, FakeComm* comm,
                      void* stream) {
  return Enqueue({Kind::kReduceScatter, comm, (const char*)in, (char*)out, n, type, op, 0, 0},
                 stream);
}
int ncclBroadcast(const void* in, void* out, size_t n, int type, int root, FakeComm* comm,
                  void* stream) {
  return Enqueue({Kind::kBroadcast, comm, (const char*)in, (char*)out, n, type, 0, root, 0},
                 stream);
}
int ncclSend(const void* in, size_t n, int type, int peer, FakeComm* comm, void* stream) {
  return Enqueue({Kind::kSend, comm, (const char*)in, nullptr, n, type, 0, peer, 0}, stream);
}
int ncclRecv(void* out, size_t n, int type, int peer, FakeComm* comm, void* stream) {
  return Enqueue({Kind::kReceive, comm, nullptr, (char*)out, n, type, 0, peer, 0}, stream);
}

}  // extern "C"
