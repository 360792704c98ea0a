// SPDX-License-Identifier: Apache-2.0
// Lines of text until every pair of ranks is connected.
#include "runtime/comm/tcp_rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <sstream>

#include "runtime/comm/secret.h"
#include "runtime/comm/tcp_door.h"

namespace orrery::comm {
namespace {

constexpr auto kRefusal =
    std::chrono::seconds(5);  // beyond the deadline, until rank 0 has said why

struct Found {  // of another rank
  std::string address, host;
  int port = 0;
};

std::string Ranks(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string Seconds(double seconds) { return fmt::format("{:.3g} s", seconds); }

class Rendezvous {
 public:
  Rendezvous(const TcpPlace& place, double deadline_s)
      : place_(place),
        deadline_s_(deadline_s),
        until_(TcpClock::now() + std::chrono::duration_cast<TcpClock::duration>(
                                     std::chrono::duration<double>(deadline_s))),
        peers_(static_cast<std::size_t>(place.size)),
        found_(peers_.size()) {
    Peer(place.rank).host = OwnHost();
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

  // At the address that the others dial, and at no other. A machine that calls its own name 127.0.1.1
  // cannot know which that is.
  Socket ListenAsFirst() const {
    if (!place_.listen.empty()) return ListenAt(place_.listen, place_.port);
    if (IsLoopback(place_.address)) return Listen(place_.port, true);
    if (IsLoopback(AddressOf(place_.address))) return Listen(place_.port, false);
    return ListenAt(place_.address, place_.port);
  }

  // Rank 0.
  void Collect() {
    if (place_.size == 1) return;
    Door door(ListenAsFirst(), place_.secret, 0);
    for (std::vector<int64_t> missing; !(missing = Missing(1)).empty();) {
      std::optional<Admitted> admitted = door.Await(until_);
      if (!admitted) {
        Refuse(fmt::format("not all ranks have come to {}:{} after {}: {} {} missing{}",
                           place_.address, place_.port, Seconds(deadline_s_), Ranks(missing),
                           missing.size() == 1 ? "is" : "are", RefusedBy(door)));
      }
      Welcome(std::move(*admitted));
    }
    std::string table = "peers";
    for (int64_t r = 1; r < place_.size; ++r)
      table += fmt::format(" {} {} {}", FoundOf(r).address, FoundOf(r).port, Peer(r).host);
    for (int64_t r = 1; r < place_.size; ++r)
      WriteAll(Peer(r).socket, table + " " + Peer(0).host + "\n");
  }

  static std::string RefusedBy(const Door& door) {
    if (door.refused().empty()) return "";
    return fmt::format("; {} came with another ORRERY_SECRET", door.refused());
  }

  void Welcome(Admitted admitted) {
    const auto& [rank, size, port, host] = admitted.caller;
    std::string wrong;
    if (size != place_.size) {
      wrong = fmt::format("rank {} on {} has WORLD_SIZE {}, and rank 0 has {}", rank, host, size,
                          place_.size);
    } else if (rank < 1 || rank >= size || Peer(rank).socket.open()) {
      wrong = fmt::format("two processes have RANK {}; the second is on {}", rank, host);
    }
    if (!wrong.empty()) {
      WriteAll(admitted.socket, "no " + wrong + "\n");
      Refuse(wrong);
    }
    FoundOf(rank) = {PeerAddress(admitted.socket), host, port};
    Peer(rank) = {std::move(admitted.socket), host};
  }

  [[noreturn]] void Refuse(const std::string& why) {
    for (const TcpPeer& peer : peers_) {
      if (peer.socket.open()) WriteAll(peer.socket, "no " + why + "\n");
    }
    throw CommError(why);
  }

  Caller Self(int port) { return {place_.rank, place_.size, port, Peer(place_.rank).host}; }

  // Any other rank.
  void Report() {
    const std::string where = fmt::format("{}:{}", place_.address, place_.port);
    Socket& first = Peer(0).socket;
    Socket listener;
    try {
      first = Dial(place_.address, place_.port, until_);
      // On the interface that leads to rank 0.
      const std::string own = OwnAddress(first);
      listener = IsLoopback(own) ? Listen(0, true) : ListenAt(own, 0);
    } catch (const CommError& error) {
      throw CommError(fmt::format("rank 0 does not listen at {} after {}: {}", where,
                                  Seconds(deadline_s_), error.what()));
    }
    try {
      first = EnterDoor(place_.address, place_.port, 0, Self(PortOf(listener)), place_.secret,
                        until_ + kRefusal, std::move(first));
    } catch (const CommError& error) {
      throw CommError(fmt::format("rank 0 at {}: {}", where, error.what()));
    }
    Door door(std::move(listener), place_.secret, place_.rank);
    const auto line = ReadLine(first, until_ + kRefusal);
    if (line && line->starts_with("no "))
      throw CommError("rank 0 has failed: " + line->substr(3), true);
    std::istringstream words(line.value_or(""));
    if (!ReadTable(&words)) {
      throw CommError(
          fmt::format("what listens at {} does not answer as rank 0 of this run", where));
    }
    DialLower();
    AwaitHigher(&door);
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
        Peer(r).socket = EnterDoor(found.address, found.port, r, Self(0), place_.secret, until_);
      } catch (const CommError& error) {
        throw CommError(fmt::format("rank {} on {} cannot be reached at {}:{}: {}", r, found.host,
                                    found.address, found.port, error.what()));
      }
    }
  }

  void AwaitHigher(Door* door) {
    for (std::vector<int64_t> missing; !(missing = Missing(place_.rank + 1)).empty();) {
      std::optional<Admitted> admitted = door->Await(until_);
      if (!admitted) {
        throw CommError(fmt::format("{} {} not connected after {}", Ranks(missing),
                                    missing.size() == 1 ? "has" : "have", Seconds(deadline_s_)));
      }
      const int64_t rank = admitted->caller.rank;
      if (rank > place_.rank && rank < place_.size) Peer(rank).socket = std::move(admitted->socket);
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
  return Rendezvous(place, deadline_s).Run();
}

}  // namespace orrery::comm
