// SPDX-License-Identifier: Apache-2.0
// Whoever does not know the run's secret: cannot join, end or delay the rendezvous of its ranks.
// ORRERY_STRANGER_RUNS sets how many runs (5).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <sstream>
#include <thread>

#include "runtime/comm/secret.h"
#include "runtime/comm/tcp.h"
#include "runtime/comm/tcp_door.h"
#include "tests/from_environment.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/rank_faults.h"

namespace orrery::runtime_test {
namespace {

using comm::Socket;
using comm::TcpClock;
using testing::HasSubstr;

constexpr const char* kSecret = "a secret of the test's own";

TcpClock::time_point Soon() { return TcpClock::now() + std::chrono::seconds(2); }

// Comes again and again until it is told to stop; some connections it keeps, silent.
class Stranger {
 public:
  Stranger(int port, uint64_t seed) : port_(port), random_(seed), thread_([this] { Come(); }) {}
  ~Stranger() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Come() {
    while (!stop_) {
      try {
        Socket socket =
            comm::Dial("127.0.0.1", port_, TcpClock::now() + std::chrono::milliseconds(60));
        Disturb(&socket);
        if (random_() % 3 == 0 && held_.size() < 300) held_.push_back(std::move(socket));
      } catch (const comm::CommError&) {  // the ranks have met
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void Disturb(Socket* socket) {
    const std::string hello = fmt::format("orrery-rank/2 {} 3 4242 evil 00\n", random_() % 4);
    switch (random_() % 6) {
      case 0:
        return;  // silence
      case 1: {
        std::string bytes(random_() % 900, '\0');
        for (char& c : bytes) c = static_cast<char>(random_());
        comm::WriteAll(*socket, bytes);
        return;
      }
      case 2:
        comm::WriteAll(*socket, hello.substr(0, random_() % hello.size()));
        return;
      case 3:
        comm::WriteAll(*socket, hello + stale_ + "\n");
        return;  // does not wait
      case 4:
        Replay(socket, hello);
        return;
      default:
        comm::WriteAll(*socket, std::string(2000, 'x'));
        return;
    }
  }

  // A proof of a conversation that was recorded, and then the same words again.
  void Replay(Socket* socket, const std::string& hello) {
    comm::WriteAll(*socket, hello);
    comm::ReadLine(*socket, TcpClock::now() + std::chrono::milliseconds(20));
    comm::WriteAll(*socket, stale_ + "\n");
    EXPECT_NE(comm::ReadLine(*socket, TcpClock::now() + std::chrono::milliseconds(20)), "ok");
  }

  int port_;
  std::mt19937_64 random_;
  const std::string stale_ = comm::Proof(kSecret, "caller", "1 3 4242 evil 00 11 0");
  std::vector<Socket> held_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void Meet(int port) {
  const auto faults = Faults(3, [&](int64_t rank) {
    // Rank 0 is alone with them for a while.
    std::this_thread::sleep_for(std::chrono::milliseconds(100 * rank));
    const auto endpoint = comm::ConnectTcp({rank, 3, "127.0.0.1", port, kSecret, ""}, 30);
    EXPECT_EQ(ExerciseEndpoint(endpoint.get()), "");
  });
  EXPECT_THAT(faults, testing::Each(""));
}

TEST(Strangers, DoNotEndDelayOrJoinARun) {
  const auto runs = static_cast<int>(FromEnvironment("ORRERY_STRANGER_RUNS", 5));
  for (int run = 0; run < runs; ++run) {
    SCOPED_TRACE(run);
    const auto alone = TcpClock::now();
    Meet(FreePort());
    const auto undisturbed = TcpClock::now() - alone;
    const int port = FreePort();
    const Stranger first(port, 2 * static_cast<uint64_t>(run)),
        second(port, 2 * static_cast<uint64_t>(run) + 1);
    const auto begin = TcpClock::now();
    Meet(port);
    // One silent guest has five seconds, and there are many.
    EXPECT_LT(TcpClock::now() - begin, 4 * undisturbed + std::chrono::seconds(4));
  }
}

TEST(Strangers, AnotherSecretIsNamedOnBothSides) {
  const int port = FreePort();
  const auto faults = Faults(2, [&](int64_t rank) {
    comm::ConnectTcp({rank, 2, "127.0.0.1", port, rank == 0 ? kSecret : "quite another secret", ""},
                     1);
  });
  EXPECT_THAT(faults[0], HasSubstr("rank 1 is missing"));
  EXPECT_THAT(faults[1], HasSubstr("it has another ORRERY_SECRET, or is no rank of this run"));
}

TEST(Strangers, OnlyTheChosenAddressListens) {
  const int port = FreePort();
  std::thread rank([&] {
    EXPECT_THROW(comm::ConnectTcp({0, 2, "127.0.0.1", port, kSecret, "127.0.0.2"}, 1.5),
                 comm::CommError);
  });
  EXPECT_TRUE(comm::Dial("127.0.0.2", port, Soon()).open());
  EXPECT_THROW(comm::Dial("127.0.0.1", port, TcpClock::now() + std::chrono::milliseconds(200)),
               comm::CommError);
  rank.join();
  const auto faults = Faults(1, [&](int64_t) {
    comm::ConnectTcp({0, 2, "127.0.0.1", port, kSecret, "192.0.2.1"}, 1);
  });
  EXPECT_THAT(faults[0], HasSubstr("192.0.2.1 is no address of this machine; ORRERY_LISTEN"));
}

TEST(Strangers, NamesOfHostsAreLettersDigitsDotsAndDashes) {
  EXPECT_EQ(comm::PlainHost("node-7.cluster_a"), "node-7.cluster_a");
  EXPECT_EQ(comm::PlainHost("a b\x1b[2J\n\"'$(x)"), "a?b??2J?????x?");
  EXPECT_EQ(comm::PlainHost(""), "unknown");
  EXPECT_EQ(comm::PlainHost(std::string(500, 'x')).size(), 63u);
}

TEST(Strangers, ProofsDependOnEveryPart) {
  const std::string proof = comm::Proof(kSecret, "caller", "words");
  EXPECT_EQ(proof.size(), 64u);
  // printf "caller\nwords" | openssl dgst -sha256 -hmac "a secret of the test's own"
  EXPECT_EQ(proof, "46a0e10313a5949addfa79e52b21ddb698220933ee03530b8605b6021072e082");
  EXPECT_NE(proof, comm::Proof(kSecret, "listener", "words"));
  EXPECT_NE(proof, comm::Proof("another", "caller", "words"));
  EXPECT_NE(proof, comm::Proof(kSecret, "caller", "word"));
  EXPECT_NE(comm::Nonce(), comm::Nonce());
}

}  // namespace
}  // namespace orrery::runtime_test
