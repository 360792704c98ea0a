// SPDX-License-Identifier: Apache-2.0
// Runs and times calls.
#include "runtime/timing/time_collective.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace orrery::bench {
namespace {

constexpr int32_t kRingChannel = 32010;  // of sendrecv
constexpr int kPoison = 0xa5;            // bytes that no result may keep

std::vector<int64_t> AllRanks(int64_t size) {
  std::vector<int64_t> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

comm::CollectiveKind KindOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return comm::CollectiveKind::kAllReduce;
    case Collective::kAllGather:
      return comm::CollectiveKind::kAllGather;
    case Collective::kReduceScatter:
      return comm::CollectiveKind::kReduceScatter;
    case Collective::kBroadcast:
      return comm::CollectiveKind::kBroadcast;
    case Collective::kAllToAll:
      return comm::CollectiveKind::kAllToAll;
    case Collective::kSendRecv:
      break;
  }
  return comm::CollectiveKind::kBarrier;  // sendrecv is none of them
}

bool Exchanges(Collective collective) {
  return collective == Collective::kAllToAll || collective == Collective::kSendRecv;
}

}  // namespace

// Input and output, apart or overlapping.
struct CollectiveTimer::Buffers {
  Buffers(const Pattern& pattern, int64_t rank, bool in_place, CallMemory* memory) {
    const int64_t width = ir::DtypeBytes(pattern.dtype);
    in_bytes = pattern.inputs() * width;
    out_bytes = pattern.outputs() * width;
    const bool apart = !in_place || Exchanges(pattern.collective);
    bytes = apart ? PaddedBytes(in_bytes) + out_bytes : std::max(in_bytes, out_bytes);
    in = out = begin = memory->Allocate(bytes);
    if (apart) out += PaddedBytes(in_bytes);
    if (!apart && pattern.collective == Collective::kAllGather) in += rank * in_bytes;
    if (!apart && pattern.collective == Collective::kReduceScatter) out += rank * out_bytes;
    if (in_place && apart) staged = out;
  }

  std::byte *begin = nullptr, *in = nullptr, *out = nullptr;
  std::byte* staged = nullptr;  // an exchange in place: the input's content stands here
  int64_t bytes = 0, in_bytes = 0, out_bytes = 0;
};

int64_t BufferBytes(const Pattern& pattern) {
  const int64_t width = ir::DtypeBytes(pattern.dtype);
  return PaddedBytes(pattern.inputs() * width) + PaddedBytes(pattern.outputs() * width);
}

CollectiveTimer::CollectiveTimer(comm::Endpoint* endpoint, const TimingOptions& options,
                                 const CallDevice& device)
    : endpoint_(endpoint),
      options_(options),
      memory_(device.accelerator == nullptr ? MakeHostMemory() : MakeDeviceMemory(device)),
      all_(endpoint->Join(0, AllRanks(endpoint->size()))) {}

void CollectiveTimer::Await(comm::Operation* operation, const Pattern& pattern) {
  comm::Wait(endpoint_, operation, options_.deadline_s, Name(pattern.collective));
}

void CollectiveTimer::AwaitDevice(const Pattern& pattern) {
  class Over : public comm::Operation {
   public:
    explicit Over(CallMemory* memory) : memory_(memory) {}
    bool Test() override { return memory_->Finished(); }

   private:
    CallMemory* memory_;
  } over(memory_.get());
  comm::Wait(endpoint_, &over, options_.deadline_s,
             std::string(Name(pattern.collective)) + " on the device");
}

void CollectiveTimer::Call(const Pattern& pattern, const Buffers& buffers) {
  // In place the data stands where the result goes.
  if (buffers.staged != nullptr) memory_->Copy(buffers.in, buffers.staged, buffers.in_bytes);
  if (pattern.collective == Collective::kSendRecv) {
    const int64_t size = endpoint_->size(), rank = endpoint_->rank();
    endpoint_->SetStream(memory_->stream());
    const auto receive =
        endpoint_->Receive((rank + size - 1) % size, kRingChannel, buffers.out, buffers.out_bytes);
    const auto send =
        endpoint_->Send((rank + 1) % size, kRingChannel, buffers.in, buffers.in_bytes);
    endpoint_->SetStream(nullptr);
    Await(send.get(), pattern);
    return Await(receive.get(), pattern);
  }
  comm::Collective call;
  call.kind = KindOf(pattern.collective);
  call.in = buffers.in;
  call.out = buffers.out;
  call.n = pattern.count;
  call.dtype = pattern.dtype;
  call.maximum = pattern.maximum;
  call.stream = memory_->stream();
  Await(all_->Start(call).get(), pattern);
}

double CollectiveTimer::MeanOverRanks(double value) {
  comm::Collective call;
  call.kind = comm::CollectiveKind::kAllReduce;
  call.in = call.out = &value;
  call.n = 1;
  call.dtype = ir::Dtype::kF64;
  comm::Wait(endpoint_, all_->Start(call).get(), options_.deadline_s, "the ranks' times");
  return value / static_cast<double>(endpoint_->size());
}

// Elements of one call that are wrong on this rank.
int64_t CollectiveTimer::CountOnce(const Pattern& pattern, const Buffers& buffers) {
  const int64_t rank = endpoint_->rank();
  memory_->Write(buffers.begin, buffers.bytes, [&](std::byte* to) {
    if (buffers.bytes > 0) std::memset(to, kPoison, static_cast<std::size_t>(buffers.bytes));
  });
  memory_->Write(buffers.staged ? buffers.staged : buffers.in, buffers.in_bytes,
                 [&](std::byte* to) { FillInput(pattern, rank, to); });
  Call(pattern, buffers);
  AwaitDevice(pattern);
  int64_t wrong = 0;
  memory_->Read(buffers.out, buffers.out_bytes,
                [&](const std::byte* from) { wrong = CountWrong(pattern, rank, from); });
  return wrong;
}

SideTime CollectiveTimer::MeasureSide(const Pattern& pattern, bool in_place) {
  const Buffers buffers(pattern, endpoint_->rank(), in_place, memory_.get());
  for (int64_t i = 0; i < options_.warmup; ++i) Call(pattern, buffers);
  AwaitDevice(pattern);
  comm::Wait(endpoint_, endpoint_->Barrier().get(), options_.deadline_s, "the other ranks");
  memory_->Begin();
  for (int64_t i = 0; i < options_.iterations; ++i) Call(pattern, buffers);
  memory_->End();
  AwaitDevice(pattern);
  SideTime side;
  side.us = MeanOverRanks(1e6 * memory_->Seconds() / static_cast<double>(options_.iterations));
  for (int64_t i = 0; i < options_.checks; ++i) {
    const auto wrong = static_cast<double>(CountOnce(pattern, buffers));
    side.wrong += std::llround(MeanOverRanks(wrong) * static_cast<double>(endpoint_->size()));
  }
  return side;
}

CallTime CollectiveTimer::Measure(const Pattern& pattern) {
  CallTime time;
  time.out_of_place = MeasureSide(pattern, false);
  time.in_place = MeasureSide(pattern, true);
  return time;
}

}  // namespace orrery::bench
