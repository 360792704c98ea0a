// SPDX-License-Identifier: Apache-2.0
// Lines of text until every pair of ranks is connected.
#include "runtime/comm/tcp_meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <sstream>

namespace orrery::comm {
namespace {

constexpr const char* kHello = "orrery-rank/1";
constexpr auto kLine = std::chrono::seconds(5);  // who connects says a line within
constexpr auto kRefusal =
    std::chrono::seconds(5);  // beyond the deadline, until rank 0 has said why

struct Found {  // of another rank
  std::string address, host;
  int port = 0;
};

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return *name == '\0' ? "unknown" : name;
}

std::string Ranks(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string Seconds(double seconds) { return fmt::format("{:.3g} s", seconds); }

class Meeting {
 public:
  Meeting(const TcpPlace& place, double deadline_s)
      : place_(place),
        deadline_s_(deadline_s),
        until_(TcpClock::now() + std::chrono::duration_cast<TcpClock::duration>(
                                     std::chrono::duration<double>(deadline_s))),
        peers_(static_cast<std::size_t>(place.size)),
        found_(peers_.size()) {
    Peer(place.rank).host = HostName();
  }

  std::vector<TcpPeer> Run() {
    CheckName(place_.address);
    place_.rank == 0 ? Collect() : Report();
    for (const TcpPeer& peer : peers_) {
      if (peer.socket.open()) PrepareForMessages(peer.socket);
    }
    return std::move(peers_);
  }

 private:
  TcpPeer& Peer(int64_t rank) { return peers_[static_cast<std::size_t>(rank)]; }
  Found& FoundOf(int64_t rank) { return found_[static_cast<std::size_t>(rank)]; }

  // Of ranks that should be connected: those that are not.
  std::vector<int64_t> Missing(int64_t begin) const {
    std::vector<int64_t> missing;
    for (int64_t r = begin; r < place_.size; ++r) {
      if (r != place_.rank && !peers_[static_cast<std::size_t>(r)].socket.open())
        missing.push_back(r);
    }
    return missing;
  }

  // Rank 0.
  void Collect() {
    if (place_.size == 1) return;
    const Socket listener = Listen(place_.port, IsLoopback(place_.address));
    for (std::vector<int64_t> missing; !(missing = Missing(1)).empty();) {
      std::optional<Socket> socket = Accept(listener, until_);
      if (!socket) {
        Refuse(fmt::format("not all ranks have come to {}:{} after {}: {} {} missing",
                           place_.address, place_.port, Seconds(deadline_s_), Ranks(missing),
                           missing.size() == 1 ? "is" : "are"));
      }
      Welcome(std::move(*socket));
    }
    std::string table = "peers";
    for (int64_t r = 1; r < place_.size; ++r)
      table += fmt::format(" {} {} {}", FoundOf(r).address, FoundOf(r).port, Peer(r).host);
    for (int64_t r = 1; r < place_.size; ++r)
      WriteAll(Peer(r).socket, table + " " + Peer(0).host + "\n");
  }

  // Whatever else connects to an open port is ignored.
  void Welcome(Socket socket) {
    const auto line = ReadLine(socket, std::min(until_, TcpClock::now() + kLine));
    if (!line) return;
    std::istringstream words(*line);
    std::string hello, host;
    int64_t rank = 0, size = 0;
    int port = 0;
    if (!(words >> hello >> rank >> size >> port >> host) || hello != kHello) return;
    std::string wrong;
    if (size != place_.size) {
      wrong = fmt::format("rank {} on {} has WORLD_SIZE {}, and rank 0 has {}", rank, host, size,
                          place_.size);
    } else if (rank < 1 || rank >= size || Peer(rank).socket.open()) {
      wrong = fmt::format("two processes have RANK {}; the second is on {}", rank, host);
    }
    if (!wrong.empty()) {
      WriteAll(socket, "no " + wrong + "\n");
      Refuse(wrong);
    }
    FoundOf(rank) = {PeerAddress(socket), host, port};
    Peer(rank) = {std::move(socket), host};
  }

  [[noreturn]] void Refuse(const std::string& why) {
    for (const TcpPeer& peer : peers_) {
      if (peer.socket.open()) WriteAll(peer.socket, "no " + why + "\n");
    }
    throw CommError(why);
  }

  // Any other rank.
  void Report() {
    const std::string where = fmt::format("{}:{}", place_.address, place_.port);
    Socket& first = Peer(0).socket;
    try {
      first = Dial(place_.address, place_.port, until_);
    } catch (const CommError& error) {
      throw CommError(fmt::format("rank 0 does not listen at {} after {}: {}", where,
                                  Seconds(deadline_s_), error.what()));
    }
    const Socket listener = Listen(0, IsLoopback(PeerAddress(first)));
    WriteAll(first, fmt::format("{} {} {} {} {}\n", kHello, place_.rank, place_.size,
                                PortOf(listener), Peer(place_.rank).host));
    const auto line = ReadLine(first, until_ + kRefusal);
    if (line && line->starts_with("no ")) throw CommError(line->substr(3), true);
    std::istringstream words(line.value_or(""));
    if (!ReadTable(&words)) {
      throw CommError(
          fmt::format("what listens at {} does not answer as rank 0 of this run", where));
    }
    DialLower();
    AwaitHigher(listener);
  }

  bool ReadTable(std::istringstream* words) {
    std::string head;
    if (!(*words >> head) || head != "peers") return false;
    for (int64_t r = 1; r < place_.size; ++r) {
      Found& found = FoundOf(r);
      if (!(*words >> found.address >> found.port >> found.host)) return false;
      // Rank 0 has seen a neighbour by an address that only they know.
      if (IsLoopback(found.address)) found.address = PeerAddress(Peer(0).socket);
      Peer(r).host = found.host;
    }
    return static_cast<bool>(*words >> Peer(0).host);
  }

  void DialLower() {
    for (int64_t r = 1; r < place_.rank; ++r) {
      const Found& found = FoundOf(r);
      try {
        Peer(r).socket = Dial(found.address, found.port, until_);
      } catch (const CommError& error) {
        throw CommError(fmt::format("rank {} on {} cannot be reached at {}:{}: {}", r, found.host,
                                    found.address, found.port, error.what()));
      }
      WriteAll(Peer(r).socket, fmt::format("{} {}\n", kHello, place_.rank));
    }
  }

  void AwaitHigher(const Socket& listener) {
    for (std::vector<int64_t> missing; !(missing = Missing(place_.rank + 1)).empty();) {
      std::optional<Socket> socket = Accept(listener, until_);
      if (!socket) {
        throw CommError(fmt::format("{} {} not connected after {}", Ranks(missing),
                                    missing.size() == 1 ? "has" : "have", Seconds(deadline_s_)));
      }
      const auto line = ReadLine(*socket, std::min(until_, TcpClock::now() + kLine));
      std::istringstream words(line.value_or(""));
      std::string hello;
      int64_t rank = 0;
      if (!(words >> hello >> rank) || hello != kHello) continue;
      if (rank > place_.rank && rank < place_.size) Peer(rank).socket = std::move(*socket);
    }
  }

  TcpPlace place_;
  double deadline_s_;
  TcpClock::time_point until_;
  std::vector<TcpPeer> peers_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<TcpPeer> MeetOverTcp(const TcpPlace& place, double deadline_s) {
  return Meeting(place, deadline_s).Run();
}

}  // namespace orrery::comm
