// SPDX-License-Identifier: Apache-2.0
// Messages and single words between all pairs of ranks, driven forward without blocking.
//
// A frame is a number, a length and bytes. What comes before it is asked for waits in memory.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/tcp_rendezvous.h"

namespace orrery::comm {

struct TcpMessage {
  std::byte* bytes = nullptr;  // null in a receive: nobody wants it any more
  int64_t n = 0;
  uint64_t number = 0;
  int64_t about = 0;  // of a word, which has no bytes: what it says
  bool done = false;
  std::vector<std::byte> own;  // where `bytes` would not last
};
using TcpMessagePtr = std::shared_ptr<TcpMessage>;

class TcpMesh {
 public:
  TcpMesh(std::vector<TcpPeer> peers, int64_t rank);

  // Messages of one number to one rank are first in, first out. Done: written or read whole.
  TcpMessagePtr Send(int64_t peer, uint64_t number, const void* bytes, int64_t n);
  TcpMessagePtr Receive(int64_t peer, uint64_t number, void* bytes, int64_t n);
  // The buffer of a message is not to be used any more.
  static void Abandon(TcpMessage* message, bool sends);

  void Drive();  // throws CommError: lengths that differ

  // Alive and gone.
  std::vector<int64_t> Silent();  // do not answer within a second
  int64_t Lost() const;           // a rank whose connection broke without farewell; -1: none
  bool peer_failed() const { return lowest_failed_ >= 0; }
  // What failed first, as the rank says that has told of it: "rank 1 on n1 has failed, as rank 0 on n0 says".
  std::string FirstCause() const;
  // Tells the others that this rank has failed, and of which rank (-1: of none but itself). True: it is the one to report it.
  bool ClaimFailure(int64_t blamed);
  // Until the others have said farewell too, a few seconds at most. `patient` false: at once.
  void Leave(bool patient);

  int64_t size() const { return static_cast<int64_t>(links_.size()); }
  const std::string& host(int64_t rank) const {
    return links_[static_cast<std::size_t>(rank)].host;
  }

 private:
  enum Word : uint64_t { kAsk = ~uint64_t{3}, kAnswer, kFailed, kFarewell };
  struct Header {
    uint64_t number = 0;
    int64_t n = 0;
  };
  struct Link {
    Socket socket;
    std::string host;
    bool answered = false, left = false, lost = false;
    std::deque<TcpMessagePtr> out;
    int64_t written = 0;  // of the first, its header included
    Header header;        // of what comes
    int64_t read = 0;     // likewise
    TcpMessagePtr in;
    std::map<uint64_t, std::deque<TcpMessagePtr>> wanted, waiting;  // by number
  };

  Link& At(int64_t rank) { return links_[static_cast<std::size_t>(rank)]; }
  void Say(int64_t peer, Word word, int64_t about = 0);
  void SayAll(Word word, int64_t about = 0);
  void DriveFor(std::chrono::milliseconds time, bool until_failure);
  void Write(Link* link);
  void Read(int64_t peer, Link* link);
  void Begin(int64_t peer, Link* link);
  void Hear(int64_t peer, Link* link, const Header& word);
  void Break(Link* link);
  [[noreturn]] void Mismatch(int64_t from, int64_t to, int64_t sent, int64_t expected);

  int64_t rank_;
  std::vector<Link> links_;
  int64_t lowest_failed_ = -1, blamed_ = -1;  // and of which rank that one has
};

}  // namespace orrery::comm
