// SPDX-License-Identifier: Apache-2.0
// Sockets of the system.
#include "runtime/comm/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "model/base/diagnostics.h"
#include "runtime/comm/communicator.h"

namespace orrery::comm {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 20;
constexpr auto kPause = std::chrono::milliseconds(50);

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& host, int port, int* code) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  *code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return {list, freeaddrinfo};
}

int Milliseconds(TcpClock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TcpClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

bool AwaitEvent(int fd, short what, TcpClock::time_point until) {
  pollfd one{fd, what, 0};
  do {
    if (poll(&one, 1, Milliseconds(until)) > 0) return true;
  } while (TcpClock::now() < until);
  return false;
}

void SetFlag(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

// 0, or why not.
int Connect(const addrinfo& to, TcpClock::time_point until, Socket* socket) {
  *socket = Socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket->open()) return errno;
  SetBlocking(*socket, false);
  if (connect(socket->fd(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!AwaitEvent(socket->fd(), POLLOUT, until)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket->fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
  }
  SetBlocking(*socket, true);
  return 0;
}

[[noreturn]] void PortFault(int port, int error) {
  const char* why = error == EADDRINUSE ? "another program has it" : std::strerror(error);
  throw CommError(
      fmt::format("port {} cannot be opened: {}; set MASTER_PORT, or ORRERY_MASTER_PORT, "
                  "to one that is free",
                  port, why));
}

std::string Numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string numeric = text, mapped = "::ffff:";  // IPv4 on an IPv6 socket
  return numeric.starts_with(mapped) ? numeric.substr(mapped.size()) : numeric;
}

// IPv6 also takes IPv4; where there is none, IPv4.
Socket Bound(int family, int port, bool only_here, int* error) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  *error = errno;
  if (!socket.open()) return {};
  SetFlag(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  const auto network_port = htons(static_cast<uint16_t>(port));
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  six.sin6_port = four.sin_port = network_port;
  six.sin6_addr = in6addr_any;
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(only_here ? INADDR_LOOPBACK : INADDR_ANY);
  if (family == AF_INET6) SetFlag(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const int failed = family == AF_INET6
                         ? bind(socket.fd(), reinterpret_cast<sockaddr*>(&six), sizeof six)
                         : bind(socket.fd(), reinterpret_cast<sockaddr*>(&four), sizeof four);
  *error = errno;
  if (failed != 0 || listen(socket.fd(), SOMAXCONN) != 0) return {};
  SetBlocking(socket, false);  // who connects and goes at once would hold up accept()
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}
Socket& Socket::operator=(Socket&& other) noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = other.Release();
  return *this;
}
int Socket::Release() { return std::exchange(fd_, -1); }

Socket Listen(int port, bool only_here) {
  int error = 0;
  Socket socket;
  if (!only_here) socket = Bound(AF_INET6, port, false, &error);
  if (!socket.open() && error != EADDRINUSE) socket = Bound(AF_INET, port, only_here, &error);
  if (socket.open()) return socket;
  PortFault(port, error);
}

Socket ListenAt(const std::string& host, int port) {
  int code = 0, error = EADDRNOTAVAIL;
  const Addresses found = Resolve(host, port, &code);
  for (const addrinfo* at = found.get(); code == 0 && at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.open()) continue;
    SetFlag(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 && listen(socket.fd(), SOMAXCONN) == 0)
      return socket;
    error = errno;
  }
  if (error == EADDRNOTAVAIL) {
    throw CommError(
        fmt::format("{} is no address of this machine; ORRERY_LISTEN names the one to "
                    "listen at (0.0.0.0: all)",
                    host));
  }
  PortFault(port, error);
}

int PortOf(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetBlocking(const Socket& socket, bool blocking) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  fcntl(socket.fd(), F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

std::string PeerAddress(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  return getpeername(socket.fd(), plain, &length) == 0 ? Numeric(plain, length) : "";
}

std::string OwnAddress(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  return getsockname(socket.fd(), plain, &length) == 0 ? Numeric(plain, length) : "";
}

std::string AddressOf(const std::string& host) {
  int code = 0;
  const Addresses found = Resolve(host, 1, &code);
  return code == 0 && found ? Numeric(found->ai_addr, found->ai_addrlen) : "";
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

void CheckName(const std::string& host) {
  int code = 0;
  const Addresses found = Resolve(host, 1, &code);
  if (code == 0) return;
  throw InputError(fmt::format("MASTER_ADDR: '{}' is no address that can be found: {}", host,
                               gai_strerror(code)),
                   "the name or address of the machine of rank 0");
}

Socket Dial(const std::string& host, int port, TcpClock::time_point until) {
  std::string why = "no time";
  while (TcpClock::now() < until) {
    int code = 0;
    const Addresses found = Resolve(host, port, &code);
    if (code != 0) why = gai_strerror(code);
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      Socket socket;
      const int error = Connect(*to, until, &socket);
      if (error == 0) return socket;
      why = std::strerror(error);
    }
    std::this_thread::sleep_for(kPause);
  }
  throw CommError(why);
}

std::optional<Socket> Accept(const Socket& listener, TcpClock::time_point until) {
  while (AwaitEvent(listener.fd(), POLLIN, until)) {
    Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.open()) return socket;
  }
  return {};
}

std::optional<std::string> ReadLine(const Socket& socket, TcpClock::time_point until) {
  std::string line;
  while (line.size() < kLongestLine && AwaitEvent(socket.fd(), POLLIN, until)) {
    char c = 0;
    if (recv(socket.fd(), &c, 1, 0) <= 0) return {};
    if (c == '\n') return line;
    line += c;
  }
  return {};
}

bool WriteAll(const Socket& socket, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t sent = send(socket.fd(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += static_cast<std::size_t>(sent);
  }
  return true;
}

void PrepareForMessages(const Socket& socket) {
  SetBlocking(socket, false);
  SetFlag(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetFlag(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  SetFlag(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, 10);
  SetFlag(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetFlag(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace orrery::comm
