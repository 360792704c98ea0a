// SPDX-License-Identifier: Apache-2.0
// Reads and writes lines.
#include "runtime/program/launch/channel.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

namespace orrery::launch {
namespace {

constexpr std::size_t kLongestLine = std::size_t{4} << 20;

}  // namespace

Channel::Channel(comm::Socket socket) : socket_(std::move(socket)) {
  comm::PrepareForMessages(socket_);
  comm::SetBlocking(socket_, true);
  const timeval limit{2, 0};
  setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

std::vector<nlohmann::json> Channel::Read() {
  std::vector<nlohmann::json> messages;
  char chunk[4096];
  while (open()) {
    const ssize_t got = recv(socket_.fd(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0 || pending_.size() > kLongestLine) {
      Close();
      break;
    }
    pending_.append(chunk, static_cast<std::size_t>(got));
  }
  for (std::size_t end; (end = pending_.find('\n')) != std::string::npos;) {
    auto message = nlohmann::json::parse(pending_.substr(0, end), nullptr, false);
    pending_.erase(0, end + 1);
    if (!message.is_object()) {
      Close();
      break;
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

void Channel::Send(const nlohmann::json& message) {
  if (!open()) return;
  const auto replace = nlohmann::json::error_handler_t::replace;
  // What the other end has said before it closed is still to be read.
  if (!comm::WriteAll(socket_, message.dump(-1, ' ', false, replace) + "\n"))
    shutdown(socket_.fd(), SHUT_WR);
}

}  // namespace orrery::launch
