// SPDX-License-Identifier: Apache-2.0
// The endpoint over NCCL against a pretended NCCL: results, groups, errors, aborts.
#include "runtime/comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "runtime/launch/local_ranks.h"
#include "runtime/timing/time_collective.h"
#include "tests/comm_nccl/fake.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/host_accelerator.h"
#include "tests/runtime/timed.h"

namespace orrery::comm {
namespace {

using testing::HasSubstr;

// An endpoint that another owner keeps.
class Borrowed : public Endpoint {
 public:
  explicit Borrowed(Endpoint* other) : other_(other) {}
  int64_t rank() const override { return other_->rank(); }
  int64_t size() const override { return other_->size(); }
  std::string host() const override { return other_->host(); }
  CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    return other_->Join(key, members);
  }
  OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    return other_->Send(peer, channel, bytes, n);
  }
  OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    return other_->Receive(peer, channel, bytes, n);
  }
  void SetStream(void* stream) override { other_->SetStream(stream); }
  OperationPtr Barrier() override { return other_->Barrier(); }
  void Idle() override { other_->Idle(); }
  std::string Silent() override { return other_->Silent(); }
  void Abort(const std::string& why) override { other_->Abort(why); }

 protected:
  Endpoint* other_;
};

// Enqueued, and then run by the pretended device.
class Drained : public Operation {
 public:
  Drained(OperationPtr inner, void* stream) : inner_(std::move(inner)), stream_(stream) {}
  bool Test() override { return inner_->Test() && Fake().drain(stream_) != 0; }

 private:
  OperationPtr inner_;
  void* stream_;
};

// Gives every operation a stream and waits for the device.
class Streamed : public Borrowed {
 public:
  using Borrowed::Borrowed;
  CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    return std::make_unique<Line>(Borrowed::Join(key, members), &streams_[0]);
  }
  OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    SetStream(&streams_[1]);
    return std::make_unique<Drained>(Borrowed::Send(peer, channel, bytes, n), &streams_[1]);
  }
  OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    char* stream = &streams_[size() == 1 ? 1 : 2];  // to itself: one group
    SetStream(stream);
    return std::make_unique<Drained>(Borrowed::Receive(peer, channel, bytes, n), stream);
  }

 private:
  class Line : public Communicator {
   public:
    Line(CommunicatorPtr inner, void* stream) : inner_(std::move(inner)), stream_(stream) {}
    OperationPtr Start(const Collective& asked) override {
      Collective c = asked;
      if (c.kind == CollectiveKind::kBarrier) return inner_->Start(c);
      c.stream = stream_;
      return std::make_unique<Drained>(inner_->Start(c), stream_);
    }

   private:
    CommunicatorPtr inner_;
    void* stream_;
  };
  char streams_[3] = {};
};

// Streams and events of the pretended device.
class FakeQueue : public DeviceQueue {
 public:
  void* MakeEvent() override { return new char; }
  void FreeEvent(void* event) override { delete static_cast<char*>(event); }
  void Record(void* event, void* stream) override { Fake().record(event, stream); }
  void Await(void* event, void* stream) override { Fake().await(event, stream); }
  void* MakeStream() override { return new char; }
  void FreeStream(void* stream) override { delete static_cast<char*>(stream); }
  void Copy(void* to, const void* from, int64_t bytes, void* stream) override {
    Fake().copy(to, from, static_cast<std::size_t>(bytes), stream);
  }
  void Sum(void*, std::span<const void* const>, int64_t, ir::Dtype, bool, void*) override {
    ADD_FAILURE() << "NCCL sums";
  }
};

NcclOptions WithQueue() {
  NcclOptions options;
  options.queue = std::make_shared<FakeQueue>();
  return options;
}

std::string RunRanks(int64_t ranks, const std::function<void(Endpoint*)>& body,
                     const NcclOptions& options = {}) {
  const nccl::ApiPtr api = nccl::Load(ORRERY_FAKE_NCCL);
  return launch::RunLocalRanks(ranks, [&](Endpoint* control) {
    const auto endpoint = ConnectNccl(api, std::make_unique<Borrowed>(control), options);
    try {
      body(endpoint.get());
    } catch (const CommError& error) {
      if (!error.peer_failed) endpoint->Abort(error.what());
      throw;
    }
  });
}

class NcclRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { Fake().reset(); }
};

TEST_P(NcclRanks, ExchangeRightly) {
  std::vector<std::string> faults(static_cast<std::size_t>(GetParam()));
  const std::string failure = RunRanks(GetParam(), [&](Endpoint* endpoint) {
    Streamed streamed(endpoint);
    faults[static_cast<std::size_t>(endpoint->rank())] = runtime_test::ExerciseEndpoint(&streamed);
  });
  EXPECT_EQ(failure, "");
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
  EXPECT_EQ(Fake().counts().calls_while_busy, 0);
  EXPECT_EQ(Fake().counts().aborts, 0);
  EXPECT_GT(Fake().counts().inits, 0);
  EXPECT_EQ(Fake().counts().inits, Fake().counts().destroys);
}

TEST_P(NcclRanks, HostMemoryGoesToTheControlEndpoint) {
  const std::string failure = RunRanks(GetParam(), [](Endpoint* endpoint) {
    EXPECT_EQ(runtime_test::ExerciseEndpoint(endpoint), "");
  });
  EXPECT_EQ(failure, "");
  EXPECT_EQ(Fake().counts().groups, 0);
}

INSTANTIATE_TEST_SUITE_P(Counts, NcclRanks, testing::Values(1, 2, 3, 5));

class Nccl : public testing::Test {
 protected:
  void SetUp() override { Fake().reset(); }
};

void SendRound(Endpoint* endpoint, int rounds) {
  char stream = 0;
  const int64_t rank = endpoint->rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
  for (int round = 0; round < rounds; ++round) {
    int64_t mine = 100 * round + rank, theirs = -1;
    endpoint->SetStream(&stream);
    const auto in = endpoint->Receive(before, 4, &theirs, sizeof theirs);
    const auto out = endpoint->Send(next, 4, &mine, sizeof mine);
    while (!in->Test() || !out->Test()) endpoint->Idle();
    while (Fake().drain(&stream) == 0) endpoint->Idle();
    EXPECT_EQ(theirs, 100 * round + before);
  }
}

// On one stream, receiving first: one after the other they would wait for ever, whichever link is
// ready first.
TEST_F(Nccl, TransfersOfOneStreamRunAtTheSameTime) {
  int delays[] = {0, 40, 80};
  do {
    Fake().reset();
    Fake().delay_setups(delays, 3);
    EXPECT_EQ(RunRanks(
                  3, [](Endpoint* endpoint) { SendRound(endpoint, 3); }, WithQueue()),
              "");
    EXPECT_EQ(Fake().counts().largest_group, 2);
    EXPECT_EQ(Fake().counts().groups, 9);
  } while (std::next_permutation(std::begin(delays), std::end(delays)));
}

// What stands behind a batch waits for all of it, and it for what stands before.
TEST_F(Nccl, ABatchKeepsItsPlaceInTheStream) {
  const std::string failure = RunRanks(
      3,
      [](Endpoint* endpoint) {
        char stream = 0;
        const auto line = endpoint->Join(0, {0, 1, 2});
        const int64_t rank = endpoint->rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
        double x = 1 + static_cast<double>(rank), theirs = -1;
        Collective sum{CollectiveKind::kAllReduce, &x, &x, 1, ir::Dtype::kF64};
        sum.stream = &stream;
        const auto first = line->Start(sum);  // x = 6
        while (!first->Test()) endpoint->Idle();
        endpoint->SetStream(&stream);
        const auto in = endpoint->Receive(before, 4, &theirs, sizeof theirs);
        const auto out = endpoint->Send(next, 4, &x, sizeof x);
        while (!in->Test() || !out->Test()) endpoint->Idle();
        Collective again{CollectiveKind::kAllReduce, &theirs, &theirs, 1, ir::Dtype::kF64};
        again.stream = &stream;
        const auto last = line->Start(again);  // theirs = 18
        while (!last->Test()) endpoint->Idle();
        while (Fake().drain(&stream) == 0) endpoint->Idle();
        EXPECT_EQ(x, 6);
        EXPECT_EQ(theirs, 18);
      },
      WithQueue());
  EXPECT_EQ(failure, "");
}

// A transfer that is posted after a Test() waits for none of the earlier ones' links and they not
// for its: rank 1 takes the second only when it has the first.
TEST_F(Nccl, LaterTransfersDoNotHoldBackEarlierOnes) {
  const std::string failure = RunRanks(2, [](Endpoint* endpoint) {
    char stream = 0;
    int64_t values[2] = {7, 8};
    endpoint->SetStream(&stream);
    OperationPtr operations[2];
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<std::size_t>(i);
      operations[at] = endpoint->rank() == 0 ? endpoint->Send(1, i, &values[at], 8)
                                             : endpoint->Receive(0, i, &values[at], 8);
      bool done = operations[at]->Test();
      while (!done && endpoint->rank() == 1) done = operations[at]->Test();
    }
    while (!operations[0]->Test() || !operations[1]->Test()) endpoint->Idle();
    while (Fake().drain(&stream) == 0) endpoint->Idle();
  });
  EXPECT_EQ(failure, "");
}

TEST_F(Nccl, SeveralLinksOnOneStreamNeedTheDevicesStreams) {
  const std::string failure = RunRanks(3, [](Endpoint* endpoint) { SendRound(endpoint, 1); });
  EXPECT_THAT(failure, HasSubstr("several messages at once on one stream"));
}

// Two streams whose partners take them in the other order: no order between streams is imposed.
TEST_F(Nccl, StreamsDoNotWaitForOneAnother) {
  const std::string failure = RunRanks(2, [](Endpoint* endpoint) {
    char streams[2] = {};
    const int64_t rank = endpoint->rank();
    double values[2] = {1.0 + static_cast<double>(rank), 5.0}, got[2] = {};
    OperationPtr operations[2];
    for (const int64_t i : {rank, 1 - rank}) {
      endpoint->SetStream(&streams[i]);
      const auto channel = static_cast<int32_t>(i);
      operations[i] = i == 0 ? (rank == 0 ? endpoint->Send(1, channel, &values[0], 8)
                                          : endpoint->Receive(0, channel, &got[0], 8))
                             : (rank == 0 ? endpoint->Receive(1, channel, &got[1], 8)
                                          : endpoint->Send(0, channel, &values[1], 8));
      for (int k = 0; k < 3; ++k) operations[i]->Test();
    }
    while (!operations[0]->Test() || !operations[1]->Test()) endpoint->Idle();
    while (Fake().drain(&streams[0]) == 0 || Fake().drain(&streams[1]) == 0) endpoint->Idle();
    EXPECT_EQ(rank == 0 ? got[1] : got[0], rank == 0 ? 5.0 : 1.0);
  });
  EXPECT_EQ(failure, "");
}

TEST_F(Nccl, AsynchronousErrorIsSaidAndEverythingAborted) {
  const std::string failure = RunRanks(2, [](Endpoint* endpoint) {
    const auto line = endpoint->Join(0, {0, 1});
    Wait(endpoint, endpoint->Barrier().get(), 30, "test");
    if (endpoint->rank() == 0) Fake().fail_all(nccl::kRemoteError, "connection closed by node7");
    for (;;) endpoint->Idle();
  });
  EXPECT_THAT(failure,
              HasSubstr("NCCL communicator of ranks 0, 1, running: remote process exited"));
  EXPECT_THAT(failure, HasSubstr("connection closed by node7"));
  EXPECT_EQ(Fake().counts().aborts, 2);
  EXPECT_EQ(Fake().counts().destroys, 0);
}

TEST_F(Nccl, RefusedCallIsSaid) {
  const std::string failure = RunRanks(1, [](Endpoint* endpoint) {
    const auto line = endpoint->Join(0, {0});
    char stream = 0;
    float x = 0;
    Collective c{CollectiveKind::kAllReduce, &x, &x, 1};
    c.stream = &stream;
    Fake().fail_next(nccl::kInvalidUsage);
    line->Start(c);
  });
  EXPECT_THAT(failure, HasSubstr("NCCL communicator of rank 0, enqueueing: invalid usage"));
  EXPECT_EQ(Fake().counts().aborts, 1);
}

TEST_F(Nccl, SetUpHasADeadlineAndNamesWhoIsSilent) {
  const auto begin = std::chrono::steady_clock::now();
  NcclOptions options;
  options.deadline_s = 0.3;
  const std::string failure = RunRanks(
      2,
      [](Endpoint* endpoint) {
        if (endpoint->rank() == 0) endpoint->Join(0, {0, 1});
        std::this_thread::sleep_for(std::chrono::seconds(2));
      },
      options);
  EXPECT_THAT(failure, HasSubstr("waited 0.3 s for NCCL communicator of ranks 0, 1"));
  EXPECT_THAT(failure, HasSubstr("no answer from rank 1 on "));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(Nccl, HangingSetUpIsAborted) {
  Fake().hang_setup(1);
  NcclOptions options;
  options.deadline_s = 0.3;
  const std::string failure = RunRanks(
      2,
      [](Endpoint* endpoint) {
        endpoint->Join(0, {0, 1});
      },
      options);
  EXPECT_THAT(failure, HasSubstr("waited 0.3 s for NCCL communicator of ranks 0, 1"));
  EXPECT_EQ(Fake().counts().aborts, 2);
}

TEST_F(Nccl, AFailedPeerAbortsWhatWaitsOnTheDevice) {
  const std::string failure = RunRanks(2, [](Endpoint* endpoint) {
    const auto line = endpoint->Join(0, {0, 1});
    if (endpoint->rank() == 1) throw CommError("made up");
    char stream = 0;
    float x = 0;
    Collective c{CollectiveKind::kAllReduce, &x, &x, 1};
    c.stream = &stream;
    const auto operation = line->Start(c);
    try {
      while (!operation->Test() || Fake().drain(&stream) == 0) endpoint->Idle();
      ADD_FAILURE() << "nobody summed";
    } catch (const CommError& error) {
      EXPECT_TRUE(error.peer_failed);
      EXPECT_EQ(Fake().drain(&stream), 1);  // aborted: the device is free
      throw;
    }
  });
  EXPECT_THAT(failure, HasSubstr("made up"));
}

// What `plan bench` does on GPUs: every collective, both sides, on a stream of its own.
TEST_P(NcclRanks, AreTimedAndChecked) {
  const int ranks = GetParam();
  const std::string failure = RunRanks(
      ranks,
      [&](Endpoint* endpoint) {
        runtime_test::HostAccelerator device([](void* s) { return Fake().drain(s) != 0; });
        FakeQueue queue;
        constexpr int64_t kCount = 1000;
        bench::CollectiveTimer timer(endpoint, {3, 1, 2, 30},
                                     {&device, &queue,
                                      bench::BufferBytes({orrery::Collective::kAllToAll,
                                                          ir::Dtype::kF32, false, ranks, kCount})});
        runtime_test::ExpectTimed(&timer, ranks, kCount);
      },
      WithQueue());
  EXPECT_EQ(failure, "");
  EXPECT_EQ(Fake().counts().calls_while_busy, 0);
}

}  // namespace
}  // namespace orrery::comm
