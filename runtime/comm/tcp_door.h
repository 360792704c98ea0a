// SPDX-License-Identifier: Apache-2.0
// A listener that lets in who proves to know the run's secret, and the other side of it.
//
// Lines, the nonces fresh for each connection, T all other words of the first two:
//   caller    orrery-rank/2 RANK SIZE PORT HOST NONCE
//   listener  prove NONCE Proof(secret, "listener", T)
//   caller    Proof(secret, "caller", T)
//   listener  ok
// What was recorded proves nothing in another connection. Callers are served side by side: those that
// say nothing, or something else, hold nobody up.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "runtime/comm/tcp_socket.h"

namespace orrery::comm {

struct Caller {
  int64_t rank = 0, size = 0;
  int port = 0;      // where it listens itself
  std::string host;  // plain (secret.h)
};
struct Admitted {
  Caller caller;
  Socket socket;
};

class Door {
 public:
  Door(Socket listener, std::string secret, int64_t own_rank)
      : listener_(std::move(listener)), secret_(std::move(secret)), own_rank_(own_rank) {}

  const Socket& listener() const { return listener_; }
  // The next one with the right proof; none: nobody until then.
  std::optional<Admitted> Await(TcpClock::time_point until);
  // Address of a caller whose proof was wrong, the last one; empty: there was none.
  const std::string& refused() const { return refused_; }

 private:
  struct Guest {
    Socket socket;
    TcpClock::time_point until;
    std::string heard, proof;  // of it; that it has to give
    Caller caller;
  };
  enum class Heard { kMore, kGone, kAdmitted };

  void AwaitSomething(TcpClock::time_point until);
  void LetIn();
  Heard Listen(Guest* guest);
  Heard Answer(Guest* guest, const std::string& line);

  Socket listener_;
  std::string secret_, refused_;
  int64_t own_rank_;
  std::deque<Guest> guests_;
};

// Connects to rank `to` and proves; again where the connection breaks before that. Throws CommError:
// what happened last, or that the other one is no rank of this run or has another secret. `first`: a
// connection that is there already.
Socket EnterDoor(const std::string& address, int port, int64_t to, const Caller& self,
                 const std::string& secret, TcpClock::time_point until, Socket first = Socket());

}  // namespace orrery::comm
