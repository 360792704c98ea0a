// SPDX-License-Identifier: Apache-2.0
// How ranks talk: collectives within communicators, point-to-point on channels, all of it started
// without blocking and driven forward by Test().
//
// One communicator per (group, stream); its members start the same operations in the same order. A
// channel is first in, first out per (sender, receiver). Buffers belong to an operation from its
// start until Test() has returned true. Endpoints of devices work on device memory: Test() is true
// once the operation is enqueued on its stream, which then orders everything. What has failed there
// is thrown by Idle(). An endpoint is used by one thread. Sums of bf16 and f16 are
// taken in f32 and rounded once per member; all implementations add in ring order (the sum of piece
// c of g starts with member c + 1 and ends with member c), so that they agree to the last bit.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/plan/ir/plan.h"

namespace orrery::comm {

// Communication that failed here. `peer_failed`: another rank has failed first and has said why.
struct CommError : std::runtime_error {
  explicit CommError(const std::string& message, bool peer_failed_first = false)
      : std::runtime_error(message), peer_failed(peer_failed_first) {}
  bool peer_failed;
};

enum class CollectiveKind : uint8_t {
  kAllReduce,      // out[n] = sum of in[n]; in == out: in place
  kAllGather,      // out[g * n] = in[n] of all members in order
  kReduceScatter,  // out[n] = piece of the sum of in[g * n]
  kBroadcast,      // out[n] = in[n] of member `root`
  kAllToAll,       // out[g * n]: piece k comes from member k's piece of this rank
  kBarrier,
};

struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t n = 0;  // elements, as above
  ir::Dtype dtype = ir::Dtype::kF32;
  bool maximum = false;    // instead of the sum
  int root = 0;            // index into the members
  int32_t tag = 0;         // identity of the call site; `local` compares it
  void* stream = nullptr;  // device memory: the stream (cudaStream_t) that it is enqueued on
};

// Something under way.
class Operation {
 public:
  virtual ~Operation() = default;
  // Drives it forward without blocking. True: done (and stays so). Throws CommError.
  virtual bool Test() = 0;
};
using OperationPtr = std::unique_ptr<Operation>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual OperationPtr Start(const Collective& collective) = 0;
};
using CommunicatorPtr = std::unique_ptr<Communicator>;

// What a rank holds of the world.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::string host() const = 0;

  // Collective over `members` (world ranks, this one among them); every rank joins its groups in
  // rising order of `key`, 0 <= key < 2^14.
  virtual CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) = 0;
  // 0 <= channel < 2^15. Both sides must name the same number of bytes.
  virtual OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) = 0;
  virtual OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) = 0;
  // Endpoints of devices: the stream (cudaStream_t) that Send and Receive enqueue on from now on.
  virtual void SetStream(void* stream) { (void)stream; }

  // Done once every rank of the world has called it as often as this one.
  virtual OperationPtr Barrier() = 0;

  // To be called now and then while waiting: answers those who ask whether this rank is alive, and
  // throws CommError when another rank has failed.
  virtual void Idle() = 0;
  // The ranks that do not answer, as text ("rank 3 on node7"); "" when all do. Takes about a
  // second.
  virtual std::string Silent() = 0;
  // Ends the job on all ranks, with `why` as the one message; returns where the ranks are threads.
  virtual void Abort(const std::string& why) = 0;
};

// Tests until done, for set-up and measuring. After `deadline_s` seconds throws CommError with the
// ranks that do not answer.
void Wait(Endpoint* endpoint, Operation* operation, double deadline_s, const std::string& what);

// dst = dst + src, or the larger of both (NaN stays), element by element.
void ReduceInto(void* dst, const void* src, int64_t n, ir::Dtype dtype, bool maximum);
// dst = a + b likewise; dst may be a or b.
void Reduce(void* dst, const void* a, const void* b, int64_t n, ir::Dtype dtype, bool maximum);

// First element of piece c of n elements split over g members.
inline int64_t PieceBegin(int64_t n, int64_t c, int64_t g) { return n / g * c + n % g * c / g; }

}  // namespace orrery::comm
