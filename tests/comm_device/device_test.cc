// SPDX-License-Identifier: Apache-2.0
// Ranks that share a device, on a pretended one whose streams run in random order; and on a real
// one where there is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/comm/device_local.h"
#include "runtime/comm/local_collectives.h"
#include "runtime/comm/peer_sums.h"
#include "runtime/half.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/timing/time_collective.h"
#include "tests/comm_device/delayed_queue.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/host_accelerator.h"
#include "tests/runtime/timed.h"

namespace orrery::runtime_test {
namespace {

using comm::Collective;
using comm::CollectiveKind;
using testing::HasSubstr;

// Gives each operation a stream, and is done when the device is.
class OnStreams : public comm::Endpoint {
 public:
  OnStreams(comm::Endpoint* inner, DelayedQueue* device) : inner_(inner), device_(device) {}
  int64_t rank() const override { return inner_->rank(); }
  int64_t size() const override { return inner_->size(); }
  std::string host() const override { return inner_->host(); }
  comm::CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    return std::make_unique<Line>(inner_->Join(key, members), device_, &streams_[0]);
  }
  comm::OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    inner_->SetStream(&streams_[1]);
    return std::make_unique<Done>(inner_->Send(peer, channel, bytes, n), device_, &streams_[1]);
  }
  comm::OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    inner_->SetStream(&streams_[2]);
    return std::make_unique<Done>(inner_->Receive(peer, channel, bytes, n), device_, &streams_[2]);
  }
  comm::OperationPtr Barrier() override { return inner_->Barrier(); }
  void Idle() override { inner_->Idle(); }
  std::string Silent() override { return inner_->Silent(); }
  void Abort(const std::string& why) override { inner_->Abort(why); }

 private:
  class Done : public comm::Operation {
   public:
    Done(comm::OperationPtr inner, DelayedQueue* device, void* stream)
        : inner_(std::move(inner)), device_(device), stream_(stream) {}
    bool Test() override { return inner_->Test() && device_->Drain(stream_); }

   private:
    comm::OperationPtr inner_;
    DelayedQueue* device_;
    void* stream_;
  };
  class Line : public comm::Communicator {
   public:
    Line(comm::CommunicatorPtr inner, DelayedQueue* device, void* stream)
        : inner_(std::move(inner)), device_(device), stream_(stream) {}
    comm::OperationPtr Start(const Collective& asked) override {
      Collective c = asked;
      if (c.kind == CollectiveKind::kBarrier) return inner_->Start(c);
      c.stream = stream_;
      return std::make_unique<Done>(inner_->Start(c), device_, stream_);
    }

   private:
    comm::CommunicatorPtr inner_;
    DelayedQueue* device_;
    void* stream_;
  };

  comm::Endpoint* inner_;
  DelayedQueue* device_;
  char streams_[3] = {};
};

struct Device {
  explicit Device(uint64_t seed) {
    auto owned = std::make_unique<DelayedQueue>(seed);
    queue = owned.get();
    world = std::make_unique<comm::DeviceWorld>(std::move(owned));
  }
  DelayedQueue* queue;
  std::unique_ptr<comm::DeviceWorld> world;
};

class DeviceRanks : public testing::TestWithParam<int> {};

TEST_P(DeviceRanks, ExchangeRightly) {
  Device device(static_cast<uint64_t>(GetParam()));
  std::vector<std::string> faults(static_cast<std::size_t>(GetParam()));
  const std::string failure = launch::RunLocalRanks(GetParam(), [&](comm::Endpoint* control) {
    const auto endpoint = device.world->Connect(control);
    OnStreams streamed(endpoint.get(), device.queue);
    faults[static_cast<std::size_t>(control->rank())] = ExerciseEndpoint(&streamed);
  });
  EXPECT_EQ(failure, "");
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

TEST_P(DeviceRanks, HostMemoryGoesToTheControlEndpoint) {
  Device device(1);
  const std::string failure = launch::RunLocalRanks(GetParam(), [&](comm::Endpoint* control) {
    const auto endpoint = device.world->Connect(control);
    EXPECT_EQ(ExerciseEndpoint(endpoint.get()), "");
  });
  EXPECT_EQ(failure, "");
  EXPECT_EQ(device.queue->events(), 0);
}

INSTANTIATE_TEST_SUITE_P(Counts, DeviceRanks, testing::Values(1, 2, 3));

std::vector<std::byte> RandomBytes(std::mt19937_64* random, ir::Dtype dtype, int64_t n) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(n * ir::DtypeBytes(dtype)));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n; ++i) {
    const float x = normal(*random);
    const auto put = [&](auto value) {
      std::memcpy(bytes.data() + i * ir::DtypeBytes(dtype), &value, sizeof value);
    };
    if (dtype == ir::Dtype::kBf16) put(ToBf16(x));
    if (dtype == ir::Dtype::kF16) put(ToF16(x));
    if (dtype == ir::Dtype::kF32) put(x);
    if (dtype == ir::Dtype::kF64) put(static_cast<double>(x));
    if (dtype == ir::Dtype::kI32) put(static_cast<int32_t>(x * 100));
  }
  return bytes;
}

// In place, streams in random order, a writer of the input before it and one of the output behind:
// bit by bit what the threads' endpoint computes.
TEST(DeviceLocal, SumsAreThoseOfTheCpuToTheLastBit) {
  constexpr int64_t kRanks = 4, kElements = 1003;
  std::mt19937_64 random(7);
  for (const ir::Dtype dtype :
       {ir::Dtype::kF32, ir::Dtype::kBf16, ir::Dtype::kF16, ir::Dtype::kF64, ir::Dtype::kI32}) {
    for (const bool maximum : {false, true}) {
      Device device(random());
      std::vector<std::vector<std::byte>> inputs, expected, memory;
      for (int64_t r = 0; r < kRanks; ++r) inputs.push_back(RandomBytes(&random, dtype, kElements));
      expected = inputs;
      std::vector<Collective> parts;
      for (auto& data : expected)
        parts.push_back(
            {CollectiveKind::kAllReduce, data.data(), data.data(), kElements, dtype, maximum});
      comm::Perform(parts);
      memory.resize(kRanks);
      for (auto& data : memory) data.resize(inputs[0].size());
      const std::string failure = launch::RunLocalRanks(kRanks, [&](comm::Endpoint* control) {
        const auto endpoint = device.world->Connect(control);
        const auto line = endpoint->Join(0, {0, 1, 2, 3});
        const auto r = static_cast<std::size_t>(control->rank());
        void* stream = &memory[r];
        device.queue->Enqueue([&, r] { memory[r] = inputs[r]; }, stream);
        Collective c{CollectiveKind::kAllReduce,
                     memory[r].data(),
                     memory[r].data(),
                     kElements,
                     dtype,
                     maximum};
        c.stream = stream;
        const auto operation = line->Start(c);
        while (!operation->Test()) endpoint->Idle();
        std::vector<std::byte> result;
        device.queue->Enqueue(
            [&, r] {
              result = memory[r];
              std::fill(memory[r].begin(), memory[r].end(), std::byte{0xa5});
            },
            stream);
        comm::Wait(endpoint.get(), endpoint->Barrier().get(), 60, "test");
        EXPECT_TRUE(device.queue->Drain(stream));
        EXPECT_EQ(result, expected[r]) << "rank " << r << ", type " << static_cast<int>(dtype);
        comm::Wait(endpoint.get(), endpoint->Barrier().get(), 60, "test");
      });
      EXPECT_EQ(failure, "");
    }
  }
}

TEST(DeviceLocal, RefusesWhatDoesNotFitTogether) {
  Device device(3);
  std::string failure = launch::RunLocalRanks(2, [&](comm::Endpoint* control) {
    const auto endpoint = device.world->Connect(control);
    const auto line = endpoint->Join(0, {0, 1});
    float x = 1;
    Collective c{CollectiveKind::kAllReduce, &x, &x, 1};
    c.stream = &x;
    c.tag = static_cast<int32_t>(control->rank());
    comm::Wait(endpoint.get(), line->Start(c).get(), 60, "test");
  });
  EXPECT_THAT(failure, HasSubstr("members of a group start different collectives"));
  failure = launch::RunLocalRanks(2, [&](comm::Endpoint* control) {
    const auto endpoint = device.world->Connect(control);
    int64_t x[2] = {};
    endpoint->SetStream(x);
    const auto operation =
        control->rank() == 0 ? endpoint->Send(1, 0, x, 8) : endpoint->Receive(0, 0, x, 16);
    comm::Wait(endpoint.get(), operation.get(), 60, "test");
  });
  EXPECT_THAT(failure, HasSubstr("8 bytes sent from rank 0 where rank 1 expects 16"));
  EXPECT_THROW(
      {
        const std::vector<const void*> many(300);
        (void)comm::MakePeerSum(nullptr, many, 1, ir::Dtype::kF32, false);
      },
      comm::CommError);
}

// What `plan bench --comm local` does on a GPU: every collective, both sides.
TEST(Shared, RanksAreTimedAndChecked) {
  for (const int ranks : {1, 2, 3, 5}) {
    auto owned = std::make_unique<DelayedQueue>(7);
    DelayedQueue* device = owned.get();
    comm::DeviceWorld world(std::move(owned));
    const std::string failure = launch::RunLocalRanks(ranks, [&](comm::Endpoint* control) {
      const auto endpoint = world.Connect(control);
      HostAccelerator accelerator([&](void* stream) { return device->Drain(stream); });
      constexpr int64_t kCount = 500;
      bench::CollectiveTimer timer(endpoint.get(), {3, 1, 2, 30},
                                   {&accelerator, device,
                                    bench::BufferBytes({orrery::Collective::kAllToAll,
                                                        ir::Dtype::kF32, false, ranks, kCount})});
      runtime_test::ExpectTimed(&timer, ranks, kCount);
    });
    EXPECT_EQ(failure, "");
  }
}

}  // namespace
}  // namespace orrery::runtime_test
