// SPDX-License-Identifier: Apache-2.0
// Machines as the table of launchers has them.
#include "runtime/launch/node_place.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "model/base/diagnostics.h"
#include "model/base/host_list.h"
#include "runtime/comm/secret.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/launch/launchers.h"

namespace orrery::launch {
namespace {

constexpr int kUsualPort = 29500;  // torchrun's

// A process per machine counts as its machine.
struct Columns {
  const char* index;
  const char* nodes;
};
Columns ColumnsOf(const LauncherRow& row) {
  if (row.node_index != nullptr && NumberOf(row.node_index) >= 0)
    return {row.node_index, row.nodes};
  return {row.index, row.size};
}

// The lines of a list that repeats a name per slot, in the order of their first.
void ReadNames(const std::string& path, NodePlace* place) {
  for (const HostSlots& host : ReadHostfile(path)) {
    const auto at = std::find(place->hosts.begin(), place->hosts.end(), host.host);
    if (at != place->hosts.end()) {
      ++place->slots_by_host[static_cast<std::size_t>(at - place->hosts.begin())];
      continue;
    }
    place->hosts.push_back(host.host);
    place->slots_by_host.push_back(host.slots);
  }
}

int PortOf(const LauncherRow& row) {
  if (const auto port = PortIn(row.port)) return *port;
  const std::string job = Variable(row.job);
  return job.empty() ? kUsualPort : launch::PortOfJob(job.substr(0, job.find('#')));
}

std::string FirstLabel(const std::string& host) { return host.substr(0, host.find('.')); }

bool IsNumeric(const std::string& host) {
  return host.find_first_not_of("0123456789.:abcdef") == std::string::npos;
}

// By the whole name; by its first label, if one host alone has it; else by address, which may ask a name server for each host.
int64_t IndexOfOwn(const std::vector<std::string>& hosts) {
  const std::string own = comm::OwnHost();
  const auto at = [&](auto found) { return static_cast<int64_t>(found - hosts.begin()); };
  if (const auto whole = std::ranges::find(hosts, own); whole != hosts.end()) return at(whole);
  const auto alike = [&](const std::string& host) {
    return !IsNumeric(host) && FirstLabel(host) == FirstLabel(own);
  };
  if (std::ranges::count_if(hosts, alike) == 1) return at(std::ranges::find_if(hosts, alike));
  const std::vector<InterfaceAddress> addresses = OwnAddresses();
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string address = comm::AddressOf(hosts[i]);
    if (std::ranges::any_of(addresses, [&](const auto& a) { return a.address == address; }) ||
        comm::IsLoopback(address))
      return static_cast<int64_t>(i);
  }
  return -1;
}

// A batch script has the list alone: what starts it on each machine sets the number.
std::string OfList(const std::string& name) {
  for (const LauncherRow& row : Launchers()) {
    const std::string list = Variable(row.hosts_file);
    if (list.empty()) continue;
    if (access(list.c_str(), R_OK) != 0)
      return fmt::format("{} is '{}', which cannot be read", row.hosts_file, list);
    NodePlace listed;
    ReadNames(list, &listed);
    const bool here = IndexOfOwn(listed.hosts) >= 0;
    return fmt::format("{} ('{}') names {}, {}", row.hosts_file, list, NamedHosts(listed.hosts),
                       here ? fmt::format("and {} does not say which this is", row.node_index)
                            : fmt::format("and not this host, {}", name));
  }
  return "";
}

}  // namespace

NodePlace FindNode(bool counted) {
  NodePlace place;
  place.name = comm::OwnHost();
  for (const LauncherRow& row : Launchers()) {
    if (row.index != nullptr && NumberOf(row.index) < 0) continue;
    const Columns columns = ColumnsOf(row);
    const std::string list = Variable(row.hosts_file);
    const bool count =
        NumberOf(columns.nodes) > 0 || !list.empty() || (counted && row.meets == Meets::kNode);
    if (NumberOf(columns.index) < 0 || !count) continue;
    place.launched_by = row.name;
    place.index = NumberOf(columns.index);
    place.first = std::max<int64_t>(NumberOf(row.first), 0);
    place.hosts = ExpandHosts(Variable(row.hosts));
    if (!list.empty() && access(list.c_str(), R_OK) == 0) ReadNames(list, &place);
    if (const std::string apart = CountsApart(row, place.hosts); !apart.empty())
      throw InputError(apart, fmt::format("unset {}", row.nodes));
    place.nodes = NumberOf(columns.nodes) > 0 ? NumberOf(columns.nodes)
                                              : static_cast<int64_t>(place.hosts.size());
    place.local = std::max<int64_t>(NumberOf(row.local_index), 0);
    place.slots = std::max<int64_t>(NumberOf(row.slots), 0);
    if (!Variable(row.node_name).empty()) place.name = comm::PlainHost(Variable(row.node_name));
    place.main = Variable(row.address);
    if (place.main.empty() && row.meets != Meets::kTcpSecret) place.main = Variable("MASTER_ADDR");
    const auto first = static_cast<std::size_t>(place.first);
    if (place.main.empty() && first < place.hosts.size()) place.main = place.hosts[first];
    const bool one_machine =
        NumberOf(row.local_size) > 0 && NumberOf(row.local_size) == NumberOf(row.size);
    if (place.main.empty() && one_machine) place.main = "127.0.0.1";
    place.port = PortOf(row);
    break;
  }
  if (place.launched_by.empty()) place.of_list = OfList(place.name);
  return place;
}

NodePlace NodeOfHosts(const std::vector<HostSlots>& hosts) {
  NodePlace place;
  place.launched_by = "a hostfile";
  place.name = comm::OwnHost();
  place.port = PortIn("MASTER_PORT").value_or(kUsualPort);
  for (const HostSlots& host : hosts) {
    place.hosts.push_back(host.host);
    place.slots_by_host.push_back(host.slots);
  }
  place.nodes = static_cast<int64_t>(hosts.size());
  place.main = place.hosts.front();
  place.index = IndexOfOwn(place.hosts);
  return place;
}

std::vector<InterfaceAddress> OwnAddresses() {
  std::vector<InterfaceAddress> four, six;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return four;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const unsigned needed = IFF_UP | IFF_RUNNING;
    if (at->ifa_addr == nullptr || (at->ifa_flags & needed) != needed ||
        (at->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (at->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text,
                sizeof text);
      four.push_back({at->ifa_name, text});
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      inet_ntop(AF_INET6, &address, text, sizeof text);
      six.push_back({at->ifa_name, text});
    }
  }
  freeifaddrs(list);
  four.insert(four.end(), six.begin(), six.end());
  return four;
}

int64_t CountGpus() {
  int64_t n = 0;
  while (access(fmt::format("/dev/nvidia{}", n).c_str(), F_OK) == 0) ++n;
  return n;
}

void ForgetLauncher() {
  for (const LauncherRow& row : Launchers()) {
    for (const char* name : {row.index, row.size, row.local_index, row.local_size, row.address,
                             row.node_index, row.nodes}) {
      if (name != nullptr) unsetenv(name);
    }
  }
}

}  // namespace orrery::launch
