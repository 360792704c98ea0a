// SPDX-License-Identifier: Apache-2.0
// Serves callers without waiting for any of them.
#include "runtime/comm/tcp_door.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/secret.h"

namespace orrery::comm {
namespace {

constexpr const char* kHello = "orrery-rank/2";
constexpr auto kGuestTime = std::chrono::seconds(5);  // for the two lines of a caller
constexpr std::size_t kMostGuests = 128;              // more: the oldest goes
constexpr std::size_t kLongestLine = 512;
constexpr auto kPause = std::chrono::milliseconds(50);

std::string Transcript(const Caller& caller, const std::string& theirs, const std::string& ours,
                       int64_t listener) {
  return fmt::format("{} {} {} {} {} {} {}", caller.rank, caller.size, caller.port, caller.host,
                     theirs, ours, listener);
}

}  // namespace

std::optional<Admitted> Door::Await(TcpClock::time_point until) {
  for (;;) {
    const auto now = TcpClock::now();
    std::erase_if(guests_, [&](const Guest& guest) { return guest.until < now; });
    for (std::size_t i = 0; i < guests_.size();) {
      const Heard heard = Listen(&guests_[i]);
      if (heard == Heard::kMore) {
        ++i;
        continue;
      }
      Admitted admitted{guests_[i].caller, std::move(guests_[i].socket)};
      guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
      if (heard == Heard::kAdmitted) return admitted;
    }
    if (TcpClock::now() >= until) return {};
    AwaitSomething(std::min(until, now + kPause));
    LetIn();
  }
}

void Door::AwaitSomething(TcpClock::time_point until) {
  std::vector<pollfd> events = {{listener_.fd(), POLLIN, 0}};
  for (const Guest& guest : guests_) events.push_back({guest.socket.fd(), POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TcpClock::now()).count();
  poll(events.data(), events.size(), static_cast<int>(std::max<int64_t>(left, 0)));
}

void Door::LetIn() {
  for (std::size_t n = 0; n < kMostGuests; ++n) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool full = !socket.open() && (errno == EMFILE || errno == ENFILE);
    if (full || guests_.size() == kMostGuests) {
      if (!guests_.empty()) guests_.pop_front();
    }
    if (!socket.open()) return;
    guests_.push_back({std::move(socket), TcpClock::now() + kGuestTime, "", "", {}});
  }
}

Door::Heard Door::Listen(Guest* guest) {
  char chunk[kLongestLine];
  for (;;) {
    const ssize_t got = recv(guest->socket.fd(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Heard::kMore : Heard::kGone;
    if (got == 0) return Heard::kGone;
    guest->heard.append(chunk, static_cast<std::size_t>(got));
    const std::size_t end = guest->heard.find('\n');
    if (end == std::string::npos) {
      if (guest->heard.size() > kLongestLine) return Heard::kGone;
      continue;
    }
    // Who is of this run waits for an answer to each line.
    if (end + 1 != guest->heard.size()) return Heard::kGone;
    const std::string line = guest->heard.substr(0, end);
    guest->heard.clear();
    if (const Heard heard = Answer(guest, line); heard != Heard::kMore) return heard;
  }
}

Door::Heard Door::Answer(Guest* guest, const std::string& line) {
  Caller& caller = guest->caller;
  if (!guest->proof.empty()) {
    if (!SameProof(line, guest->proof)) {
      refused_ = PeerAddress(guest->socket);
      return Heard::kGone;
    }
    SetBlocking(guest->socket, true);
    return WriteAll(guest->socket, "ok\n") ? Heard::kAdmitted : Heard::kGone;
  }
  std::istringstream words(line);
  std::string hello, host, nonce;
  if (!(words >> hello >> caller.rank >> caller.size >> caller.port >> host >> nonce)) {
    if (hello == kHello) refused_ = PeerAddress(guest->socket);
    return Heard::kGone;
  }
  if (hello != kHello || caller.port < 0 || caller.port > 65535) return Heard::kGone;
  caller.host = PlainHost(host);
  const std::string ours = Nonce(), all = Transcript(caller, nonce, ours, own_rank_);
  guest->proof = Proof(secret_, "caller", all);
  const bool sent =
      WriteAll(guest->socket, fmt::format("prove {} {}\n", ours, Proof(secret_, "listener", all)));
  return sent ? Heard::kMore : Heard::kGone;
}

Socket EnterDoor(const std::string& address, int port, int64_t to, const Caller& self,
                 const std::string& secret, TcpClock::time_point until, Socket first) {
  std::string why = "no time";
  while (TcpClock::now() < until) {
    Socket socket = first.open() ? std::move(first) : Dial(address, port, until);
    const std::string nonce = Nonce();
    WriteAll(socket, fmt::format("{} {} {} {} {} {}\n", kHello, self.rank, self.size, self.port,
                                 self.host, nonce));
    const auto line = ReadLine(socket, until);
    std::istringstream words(line.value_or(""));
    std::string prove, theirs, proof;
    if (line && (!(words >> prove >> theirs >> proof) || prove != "prove"))
      throw CommError(fmt::format("it does not answer as rank {} of this run", to));
    if (line) {
      const std::string all = Transcript(self, nonce, theirs, to);
      if (!SameProof(proof, Proof(secret, "listener", all)))
        throw CommError("it has another ORRERY_SECRET, or is no rank of this run");
      WriteAll(socket, Proof(secret, "caller", all) + "\n");
      if (ReadLine(socket, until) == "ok") return socket;
    }
    why = "the connection breaks before it answers";
    std::this_thread::sleep_for(kPause);
  }
  throw CommError(why);
}

}  // namespace orrery::comm
