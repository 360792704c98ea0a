// SPDX-License-Identifier: Apache-2.0
// A server and a client as children, each in the namespace of its node.
#include "tests/lab/tcp_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <vector>

namespace orrery::lab {
namespace {

constexpr uint16_t kPort = 5201;
constexpr unsigned kLongest = 60;  // seconds
constexpr std::size_t kChunk = 1 << 16;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

sockaddr_in AddressOf(int node) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  inet_pton(AF_INET, DataAddress(node).c_str(), &address.sin_addr);
  return address;
}

// Waits for one byte: the other side is ready.
bool AwaitByte(int fd) {
  char byte;
  return read(fd, &byte, 1) == 1;
}

// Runs `body` in a child inside `node`; it writes what it found to the returned descriptor.
pid_t StartInside(const State& state, int node, int* result, const std::function<void(int)>& body) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLongest);
    try {
      EnterNamespace(state.NamespacePath(node));
      body(ends[1]);
    } catch (const std::exception&) {
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  *result = ends[0];
  return child;
}

// Accepts one connection, then `serve`.
void Listen(int node, int ready, const std::function<void(int)>& serve) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = AddressOf(node);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) _exit(1);
  if (listen(listener, 1) != 0 || write(ready, "", 1) != 1) _exit(1);
  const int peer = accept(listener, nullptr, nullptr);
  setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  serve(peer);
}

int Connect(int node) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const sockaddr_in address = AddressOf(node);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) _exit(1);
  return fd;
}

double Probe(const State& state, int from, int to, const std::function<void(int)>& serve,
             const std::function<double(int)>& ask) {
  int ready = -1, answer = -1;
  const pid_t server = StartInside(state, to, &ready, [&](int say) { Listen(to, say, serve); });
  double found = -1;
  if (AwaitByte(ready)) {
    const pid_t client = StartInside(state, from, &answer, [&](int say) {
      const double result = ask(Connect(to));
      if (write(say, &result, sizeof result) < 0) _exit(1);
    });
    if (read(answer, &found, sizeof found) != sizeof found) found = -1;
    close(answer);
    waitpid(client, nullptr, 0);
  }
  close(ready);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return found;
}

}  // namespace

double MeasureRoundTrip(const State& state, int from, int to, int rounds) {
  const auto echo = [](int peer) {
    char byte;
    while (read(peer, &byte, 1) == 1)
      if (write(peer, &byte, 1) != 1) return;
  };
  return Probe(state, from, to, echo, [rounds](int fd) {
    double least = 1e9;
    for (int i = 0; i < rounds; ++i) {
      const double begin = Now();
      if (write(fd, "", 1) != 1 || !AwaitByte(fd)) return -1.0;
      least = std::min(least, Now() - begin);
    }
    return least;
  });
}

double MeasureRate(const State& state, int from, int to, int64_t bytes) {
  // The server says when everything is there.
  const auto swallow = [bytes](int peer) {
    std::vector<char> chunk(kChunk);
    int64_t left = bytes;
    while (left > 0) {
      const ssize_t got = read(peer, chunk.data(), chunk.size());
      if (got <= 0) return;
      left -= got;
    }
    if (write(peer, "", 1) != 1) return;
  };
  return Probe(state, from, to, swallow, [bytes](int fd) {
    const std::vector<char> chunk(kChunk);
    const double begin = Now();
    for (int64_t left = bytes; left > 0;) {
      const ssize_t sent = write(
          fd, chunk.data(), std::min<std::size_t>(chunk.size(), static_cast<std::size_t>(left)));
      if (sent <= 0) return -1.0;
      left -= sent;
    }
    if (!AwaitByte(fd)) return -1.0;
    return static_cast<double>(bytes) / (Now() - begin);
  });
}

}  // namespace orrery::lab
