// SPDX-License-Identifier: Apache-2.0
// JSON documents, one a line, between the main node and another.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/comm/tcp_socket.h"

namespace orrery::launch {

class Channel {
 public:
  Channel() = default;
  explicit Channel(comm::Socket socket);

  bool open() const { return socket_.open(); }
  const comm::Socket& socket() const { return socket_; }
  // What has come, without waiting. Closes itself where the other end has, and at what is no JSON.
  std::vector<nlohmann::json> Read();
  // A node that reads nothing for two seconds gets no more.
  void Send(const nlohmann::json& message);
  void Close() { socket_.Close(); }

 private:
  comm::Socket socket_;
  std::string pending_;
};

}  // namespace orrery::launch
