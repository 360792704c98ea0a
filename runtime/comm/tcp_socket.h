// SPDX-License-Identifier: Apache-2.0
// TCP connections with deadlines.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace orrery::comm {

using TcpClock = std::chrono::steady_clock;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept;

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release();
  void Close() { *this = Socket(); }

 private:
  int fd_ = -1;
};

// On the port (0: any) of all addresses, or of this machine's own only. Throws CommError.
Socket Listen(int port, bool only_here);
// On the port (0: any) of the first address of a name that is this machine's. Throws CommError.
Socket ListenAt(const std::string& host, int port);
int PortOf(const Socket& socket);
void SetBlocking(const Socket& socket, bool blocking);

// Numeric addresses of the other end, of this one, and of a name (the first one; "": none).
std::string PeerAddress(const Socket& socket);
std::string OwnAddress(const Socket& socket);
std::string AddressOf(const std::string& host);
bool IsLoopback(const std::string& address);

// Throws InputError when the name does not resolve.
void CheckName(const std::string& host);
// Tries until then. Throws CommError: what happened last.
Socket Dial(const std::string& host, int port, TcpClock::time_point until);
// None: nobody came until then.
std::optional<Socket> Accept(const Socket& listener, TcpClock::time_point until);

// A line without its end; none: the other end closed, or was silent until then, or sent something
// that is no line of at most 1 MiB.
std::optional<std::string> ReadLine(const Socket& socket, TcpClock::time_point until);
bool WriteAll(const Socket& socket, const std::string& text);

// For messages: no waiting, small ones at once, a lost machine is noticed within half a minute.
void PrepareForMessages(const Socket& socket);

}  // namespace orrery::comm
