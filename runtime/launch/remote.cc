// SPDX-License-Identifier: Apache-2.0
// Words of the agent, and what of them a shell reads.
#include "runtime/launch/remote.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>

#include "runtime/comm/secret.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/launch/launchers.h"
#include "runtime/launch/mpirun.h"
#include "runtime/launch/node_place.h"

namespace orrery::launch {

bool HostIsHere(const std::string& host) {
  if (host == comm::OwnHost() || comm::IsLoopback(host)) return true;
  const auto own = OwnAddresses();
  return std::ranges::any_of(own, [&](const auto& at) { return at.address == host; });
}

bool IsHostName(const std::string& host) {
  if (host.empty() || host.front() == '-') return false;
  if (host.find(':') == std::string::npos) return comm::PlainHost(host) == host;
  // IPv6: "fe80::1%eth0".
  const std::string address = host.substr(0, host.find('%'));
  const std::string zone = host.substr(std::min(host.size(), address.size() + 1));
  return std::ranges::all_of(
             address,
             [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; }) &&
         (zone.empty() || comm::PlainHost(zone) == zone);
}

std::string Quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

namespace {

std::vector<std::string> AgentWords() {
  const std::string agent = Variable("OMPI_MCA_plm_rsh_agent");
  std::istringstream in(agent.empty() ? "ssh -o BatchMode=yes" : agent);
  return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace

std::string AgentProgram() {
  const std::vector<std::string> words = AgentWords();
  return words.empty() ? "" : FindProgram(words.front());
}

std::vector<std::string> OnHost(const std::string& host, const std::string& script) {
  if (HostIsHere(host)) return {"/bin/sh", "-c", script};
  std::vector<std::string> words = AgentWords();
  // The agent's far end hands it to the user's own shell, which may be of another kind.
  words.insert(words.end(), {host, "/bin/sh -c " + Quoted(script)});
  return words;
}

}  // namespace orrery::launch
