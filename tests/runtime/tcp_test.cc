// SPDX-License-Identifier: Apache-2.0
// Ranks that meet over TCP: results, who is missing, who does not belong, what is lost.
#include "runtime/comm/tcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "model/base/diagnostics.h"
#include "runtime/comm/tcp_mesh.h"
#include "runtime/comm/tcp_socket.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/rank_faults.h"

namespace orrery::runtime_test {
namespace {

using comm::TcpPlace;
using testing::HasSubstr;

TcpPlace Rank(int64_t rank, int64_t size, int port) { return {rank, size, "127.0.0.1", port}; }

class TcpRanks : public testing::TestWithParam<int> {};

TEST_P(TcpRanks, ExchangeRightly) {
  const int port = FreePort();
  for (const std::string& fault : Faults(GetParam(), [&](int64_t rank) {
         const auto endpoint = comm::ConnectTcp(Rank(rank, GetParam(), port), 30);
         EXPECT_EQ(endpoint->rank(), rank);
         EXPECT_EQ(endpoint->size(), GetParam());
         EXPECT_EQ(ExerciseEndpoint(endpoint.get()), "");
       })) {
    EXPECT_EQ(fault, "");
  }
}
INSTANTIATE_TEST_SUITE_P(Counts, TcpRanks, testing::Values(1, 2, 3, 5, 8));

// More than sockets hold goes both ways at once, and some of it is asked for late.
TEST(Tcp, LargeMessagesCross) {
  const int port = FreePort();
  constexpr std::size_t kNumbers = 3 << 20;
  const auto faults = Faults(2, [&](int64_t rank) {
    const auto endpoint = comm::ConnectTcp(Rank(rank, 2, port), 30);
    std::vector<int64_t> mine(kNumbers, rank + 1), late(1000, 10 + rank), theirs(kNumbers),
        other(1000);
    const auto first = endpoint->Send(1 - rank, 1, mine.data(), kNumbers * 8);
    const auto second = endpoint->Send(1 - rank, 2, late.data(), 8000);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    comm::Wait(endpoint.get(), endpoint->Receive(1 - rank, 2, other.data(), 8000).get(), 30,
               "late");
    comm::Wait(endpoint.get(), endpoint->Receive(1 - rank, 1, theirs.data(), kNumbers * 8).get(),
               30, "large");
    comm::Wait(endpoint.get(), first.get(), 30, "sent");
    comm::Wait(endpoint.get(), second.get(), 30, "sent");
    EXPECT_EQ(theirs, std::vector<int64_t>(kNumbers, 2 - rank));
    EXPECT_EQ(other, std::vector<int64_t>(1000, 11 - rank));
  });
  EXPECT_THAT(faults, testing::Each(""));
}

TEST(Tcp, AbandonedMessagesDisturbNobody) {
  const int port = FreePort();
  const auto faults = Faults(2, [&](int64_t rank) {
    const auto endpoint = comm::ConnectTcp(Rank(rank, 2, port), 30);
    int64_t value = 40 + rank;
    {
      std::vector<int64_t> gone(1 << 20, 7);
      if (rank == 0) endpoint->Send(1, 5, gone.data(), 8 << 20);
      if (rank == 1) endpoint->Receive(0, 5, gone.data(), 8 << 20);
    }
    const auto last =
        rank == 0 ? endpoint->Send(1, 5, &value, 8) : endpoint->Receive(0, 5, &value, 8);
    comm::Wait(endpoint.get(), last.get(), 30, "what comes behind");
    EXPECT_EQ(value, 40);
  });
  EXPECT_THAT(faults, testing::Each(""));
}

TEST(Tcp, MissingRanksAreNamed) {
  const int port = FreePort();
  const auto begin = std::chrono::steady_clock::now();
  const auto faults = Faults(3, [&](int64_t rank) {
    if (rank != 1) comm::ConnectTcp(Rank(rank, 4, port), 0.5);
  });
  EXPECT_THAT(faults[0], HasSubstr("not all ranks have come to 127.0.0.1:"));
  EXPECT_THAT(faults[0], HasSubstr("after 0.5 s: ranks 1, 3 are missing"));
  EXPECT_EQ(faults[2], "rank 0 has failed: " + faults[0]);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Tcp, NobodyListening) {
  const auto faults = Faults(1, [&](int64_t) { comm::ConnectTcp(Rank(1, 2, FreePort()), 0.3); });
  EXPECT_THAT(faults[0], HasSubstr("rank 0 does not listen at 127.0.0.1:"));
  EXPECT_THAT(faults[0], HasSubstr("Connection refused"));
}

TEST(Tcp, APortThatIsTaken) {
  const comm::Socket taken = comm::Listen(0, true);
  const auto faults =
      Faults(1, [&](int64_t) { comm::ConnectTcp(Rank(0, 2, comm::PortOf(taken)), 1); });
  EXPECT_THAT(faults[0], HasSubstr("cannot be opened: another program has it; set MASTER_PORT"));
}

TEST(Tcp, SomethingElseListens) {
  const comm::Socket other = comm::Listen(0, true);
  std::thread server([&] {
    const auto socket = comm::Accept(other, comm::TcpClock::now() + std::chrono::seconds(20));
    comm::WriteAll(*socket, "HTTP/1.1 400 Bad Request\n");
  });
  const auto faults =
      Faults(1, [&](int64_t) { comm::ConnectTcp(Rank(1, 2, comm::PortOf(other)), 5); });
  server.join();
  EXPECT_THAT(faults[0], HasSubstr("does not answer as rank 0 of this run"));
}

TEST(Tcp, StrangersAreIgnored) {
  const int port = FreePort();
  const auto faults = Faults(2, [&](int64_t rank) {
    const auto soon = comm::TcpClock::now() + std::chrono::seconds(20);
    if (rank == 1) {
      const comm::Socket stranger = comm::Dial("127.0.0.1", port, soon);
      comm::WriteAll(stranger, "GET / HTTP/1.1\n");
      const comm::Socket broken = comm::Dial("127.0.0.1", port, soon);
    }
    const auto endpoint = comm::ConnectTcp(Rank(rank, 2, port), 20);
    comm::Wait(endpoint.get(), endpoint->Barrier().get(), 20, "barrier");
  });
  EXPECT_THAT(faults, testing::Each(""));
}

TEST(Tcp, RanksThatContradictEachOther) {
  int port = FreePort();
  auto faults = Faults(2, [&](int64_t rank) { comm::ConnectTcp(Rank(rank, rank + 2, port), 20); });
  EXPECT_THAT(faults[0], HasSubstr("has WORLD_SIZE 3, and rank 0 has 2"));
  EXPECT_EQ(faults[1], "rank 0 has failed: " + faults[0]);
  port = FreePort();
  faults =
      Faults(3, [&](int64_t r) { comm::ConnectTcp(Rank(std::min<int64_t>(r, 1), 3, port), 20); });
  EXPECT_THAT(faults[0], HasSubstr("two processes have RANK 1; the second is on "));
}

TEST(Tcp, AnAddressThatDoesNotResolve) {
  const TcpPlace place{1, 2, "no such host", 29500};
  EXPECT_THROW(comm::ConnectTcp(place, 1), InputError);
}

TEST(Tcp, MessagesOfDifferentSizesAreRefused) {
  const int port = FreePort();
  const auto faults = Faults(2, [&](int64_t rank) {
    const auto endpoint = comm::ConnectTcp(Rank(rank, 2, port), 20);
    int64_t x[2] = {};
    const auto one = rank == 0 ? endpoint->Send(1, 0, x, 8) : endpoint->Receive(0, 0, x, 16);
    comm::Wait(endpoint.get(), one.get(), 20, "test");
  });
  EXPECT_EQ(faults[0], "");
  EXPECT_EQ(faults[1], "8 bytes sent from rank 0 where rank 1 expects 16");
}

// An exception takes rank 1 away without farewell.
TEST(Tcp, ARankThatIsGoneIsNamed) {
  const int port = FreePort();
  const auto faults = Faults(3, [&](int64_t rank) {
    const auto endpoint = comm::ConnectTcp(Rank(rank, 3, port), 20);
    if (rank == 1) throw std::runtime_error("gone");
    try {
      comm::Wait(endpoint.get(), endpoint->Barrier().get(), 20, "barrier");
    } catch (const comm::CommError&) {  // the others are to see rank 1 go, not this one
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      throw;
    }
  });
  for (const std::size_t r : {0, 2}) {
    EXPECT_THAT(faults[r], HasSubstr("rank 1 on "));
    EXPECT_THAT(faults[r], HasSubstr("has ended, or its connection is lost"));
  }
}

TEST(Tcp, SilentRanksAreNamed) {
  const int port = FreePort();
  const auto faults = Faults(3, [&](int64_t rank) {
    const auto endpoint = comm::ConnectTcp(Rank(rank, 3, port), 20);
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const std::string silent = rank == 0 ? endpoint->Silent() : "rank 2 on this machine";
    EXPECT_THAT(silent, testing::StartsWith("rank 2 on "));
    comm::Wait(endpoint.get(), endpoint->Barrier().get(), 20, "barrier");
  });
  EXPECT_THAT(faults, testing::Each(""));
}

}  // namespace
}  // namespace orrery::runtime_test
