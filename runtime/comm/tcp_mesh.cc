// SPDX-License-Identifier: Apache-2.0
// Frames in and out.
#include "runtime/comm/tcp_mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "runtime/comm/communicator.h"

namespace orrery::comm {
namespace {

constexpr int64_t kLongest = int64_t{1} << 48;  // bytes: beyond it, this is not what a rank sends
constexpr auto kAnswerTime = std::chrono::milliseconds(1000);
constexpr auto kClaimTime = std::chrono::milliseconds(300);
constexpr auto kFarewellTime = std::chrono::milliseconds(5000);
constexpr auto kHasteTime = std::chrono::milliseconds(100);

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

void CopyBytes(void* to, const void* from, int64_t n) {
  if (n > 0 && to != nullptr) std::memcpy(to, from, static_cast<std::size_t>(n));
}

}  // namespace

TcpMesh::TcpMesh(std::vector<TcpPeer> peers, int64_t rank) : rank_(rank) {
  for (TcpPeer& peer : peers) {
    links_.emplace_back();
    links_.back().socket = std::move(peer.socket);
    links_.back().host = std::move(peer.host);
  }
}

TcpMessagePtr TcpMesh::Send(int64_t peer, uint64_t number, const void* bytes, int64_t n) {
  auto message = std::make_shared<TcpMessage>();
  message->bytes = static_cast<std::byte*>(const_cast<void*>(bytes));
  message->n = n;
  message->number = number;
  Link& link = At(peer);
  if (peer != rank_) {
    link.out.push_back(message);
    if (link.out.size() == 1) Write(&link);
    return message;
  }
  std::deque<TcpMessagePtr>& wanted = link.wanted[number];
  if (wanted.empty()) {
    Abandon(message.get(), true);
    link.waiting[number].push_back(message);
  } else {
    if (wanted.front()->n != n) Mismatch(peer, rank_, n, wanted.front()->n);
    CopyBytes(wanted.front()->bytes, bytes, n);
    wanted.front()->done = true;
    wanted.pop_front();
  }
  message->done = true;
  return message;
}

TcpMessagePtr TcpMesh::Receive(int64_t peer, uint64_t number, void* bytes, int64_t n) {
  Link& link = At(peer);
  std::deque<TcpMessagePtr>& waiting = link.waiting[number];
  if (waiting.empty()) {
    auto message = std::make_shared<TcpMessage>();
    message->bytes = static_cast<std::byte*>(bytes);
    message->n = n;
    message->number = number;
    link.wanted[number].push_back(message);
    return message;
  }
  TcpMessagePtr message = waiting.front();  // whole, or as far as it has come
  waiting.pop_front();
  if (message->n != n) Mismatch(peer, rank_, message->n, n);
  const int64_t there = message->done ? n : link.read - static_cast<int64_t>(sizeof(Header));
  CopyBytes(bytes, message->own.data(), there);
  message->bytes = static_cast<std::byte*>(bytes);
  message->own.clear();
  return message;
}

void TcpMesh::Abandon(TcpMessage* message, bool sends) {
  if (message->done) return;
  if (sends) message->own.assign(message->bytes, message->bytes + message->n);
  message->bytes = sends ? message->own.data() : nullptr;
}

void TcpMesh::Mismatch(int64_t from, int64_t to, int64_t sent, int64_t expected) {
  throw CommError(
      fmt::format("{} bytes sent from rank {} where rank {} expects {}", sent, from, to, expected));
}

void TcpMesh::Drive() {
  std::vector<pollfd> events;
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < size(); ++r) {
    const Link& link = At(r);
    if (!link.socket.open()) continue;
    const int what = POLLIN | (link.out.empty() ? 0 : POLLOUT);
    events.push_back({link.socket.fd(), static_cast<short>(what), 0});
    ranks.push_back(r);
  }
  if (events.empty() || poll(events.data(), events.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < events.size(); ++i) {
    Link& link = At(ranks[i]);
    if ((events[i].revents & POLLOUT) != 0) Write(&link);
    if ((events[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) Read(ranks[i], &link);
  }
}

void TcpMesh::Write(Link* link) {
  while (!link->out.empty() && link->socket.open()) {
    TcpMessage& message = *link->out.front();
    Header header{message.number, message.number >= kAsk ? message.about : message.n};
    const auto whole = static_cast<int64_t>(sizeof header);
    const int64_t of_header = std::min(link->written, whole), of_bytes = link->written - of_header;
    iovec parts[2] = {{reinterpret_cast<std::byte*>(&header) + of_header,
                       static_cast<std::size_t>(whole - of_header)},
                      {message.bytes + of_bytes, static_cast<std::size_t>(message.n - of_bytes)}};
    msghdr all{};
    all.msg_iov = parts;
    all.msg_iovlen = 2;
    const ssize_t sent = sendmsg(link->socket.fd(), &all, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && !WouldBlock()) link->out.clear();  // reading finds out why
    if (sent < 0) return;
    link->written += sent;
    if (link->written < whole + message.n) continue;
    message.done = true;
    link->written = 0;
    link->out.pop_front();
  }
}

void TcpMesh::Read(int64_t peer, Link* link) {
  constexpr auto kHeader = static_cast<int64_t>(sizeof(Header));
  std::byte nowhere[4096];
  while (link->socket.open()) {
    std::byte* to = reinterpret_cast<std::byte*>(&link->header) + link->read;
    int64_t n = kHeader - link->read;
    if (n <= 0) {
      to = link->in->bytes == nullptr ? nowhere : link->in->bytes + (link->read - kHeader);
      n = kHeader + link->header.n - link->read;
      if (to == nowhere) n = std::min<int64_t>(n, sizeof nowhere);
    }
    const ssize_t got = recv(link->socket.fd(), to, static_cast<std::size_t>(n), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && WouldBlock()) return;
    if (got <= 0) return Break(link);
    link->read += got;
    if (link->read == kHeader) Begin(peer, link);
    if (link->in == nullptr || link->read < kHeader + link->header.n) continue;
    link->in->done = true;
    link->in.reset();
    link->read = 0;
  }
}

// A header is there: where do its bytes go?
void TcpMesh::Begin(int64_t peer, Link* link) {
  const Header header = link->header;
  if (header.number >= kAsk) {
    link->read = 0;
    return Hear(peer, link, header);
  }
  if (header.n < 0 || header.n > kLongest) return Break(link);
  std::deque<TcpMessagePtr>& wanted = link->wanted[header.number];
  if (!wanted.empty()) {
    link->in = wanted.front();
    wanted.pop_front();
    if (link->in->n != header.n) Mismatch(peer, rank_, header.n, link->in->n);
    return;
  }
  link->in = std::make_shared<TcpMessage>();
  link->in->n = header.n;
  link->in->own.resize(static_cast<std::size_t>(header.n));
  link->in->bytes = link->in->own.data();
  link->waiting[header.number].push_back(link->in);
}

void TcpMesh::Hear(int64_t peer, Link* link, const Header& word) {
  if (word.number == kAsk) Say(peer, kAnswer);
  if (word.number == kAnswer) link->answered = true;
  if (word.number == kFarewell) link->left = true;
  if (word.number != kFailed || (lowest_failed_ >= 0 && peer >= lowest_failed_)) return;
  lowest_failed_ = peer;
  blamed_ = word.n > 0 && word.n <= size() ? word.n - 1 : peer;
}

void TcpMesh::Break(Link* link) {
  link->lost = !link->left;
  link->socket.Close();
  link->out.clear();
}

void TcpMesh::Say(int64_t peer, Word word, int64_t about) {
  Link& link = At(peer);
  if (!link.socket.open()) return;
  auto message = std::make_shared<TcpMessage>();
  message->number = word;
  message->about = about;
  link.out.push_back(message);
  if (link.out.size() == 1) Write(&link);
}
void TcpMesh::SayAll(Word word, int64_t about) {
  for (int64_t r = 0; r < size(); ++r) {
    if (r != rank_) Say(r, word, about);
  }
}

void TcpMesh::DriveFor(std::chrono::milliseconds time, bool until_failure) {
  for (const auto until = TcpClock::now() + time;
       TcpClock::now() < until && !(until_failure && peer_failed());) {
    Drive();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int64_t TcpMesh::Lost() const {
  for (int64_t r = 0; r < size(); ++r) {
    if (links_[static_cast<std::size_t>(r)].lost) return r;
  }
  return -1;
}

std::vector<int64_t> TcpMesh::Silent() {
  for (Link& link : links_) link.answered = false;
  SayAll(kAsk);
  DriveFor(kAnswerTime, true);
  std::vector<int64_t> silent;
  for (int64_t r = 0; r < size(); ++r) {
    if (r != rank_ && !At(r).answered) silent.push_back(r);
  }
  return silent;
}

std::string TcpMesh::FirstCause() const {
  const auto named = [&](int64_t r) { return fmt::format("rank {} on {}", r, host(r)); };
  const std::string teller = named(lowest_failed_);
  if (blamed_ == lowest_failed_) return teller + " has failed";
  if (blamed_ == rank_) return teller + " has failed: it had no answer from this rank";
  return fmt::format("{} has failed, as {} says", named(blamed_), teller);
}

bool TcpMesh::ClaimFailure(int64_t blamed) {
  SayAll(kFailed, blamed + 1);
  DriveFor(kClaimTime, false);
  return lowest_failed_ < 0 || rank_ < lowest_failed_;
}

void TcpMesh::Leave(bool patient) {
  SayAll(kFarewell);
  const auto until = TcpClock::now() + (patient ? kFarewellTime : kHasteTime);
  const auto busy = [&](const Link& link) {
    return link.socket.open() && (!link.out.empty() || (patient && !link.left));
  };
  while (TcpClock::now() < until && std::any_of(links_.begin(), links_.end(), busy)) {
    Drive();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (Link& link : links_) link.socket.Close();
}

}  // namespace orrery::comm
