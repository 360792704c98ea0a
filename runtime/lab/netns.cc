// SPDX-License-Identifier: Apache-2.0
// Namespaces and TAP devices through system calls alone: no iproute2 is needed.
#include "runtime/lab/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/lab/error.h"
#include "runtime/lab/settings.h"

namespace orrery::lab {
namespace {

constexpr char kTunDevice[] = "/dev/net/tun";
constexpr int kTapQueue = 4096;  // frames that wait for the switch to read them

// An ioctl on interface `name` of this namespace.
class Interface {
 public:
  explicit Interface(const std::string& name)
      : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    std::memset(&request_, 0, sizeof request_);
    name.copy(request_.ifr_name, IFNAMSIZ - 1);
  }
  ifreq& request() { return request_; }
  void Call(unsigned long number, const char* what) {
    if (ioctl(socket_.get(), number, &request_) == 0) return;
    throw LabError(fmt::format("{}: {}: {}", request_.ifr_name, what, std::strerror(errno)));
  }
  void Up() {
    Call(SIOCGIFFLAGS, "cannot read its state");
    request_.ifr_flags = static_cast<short>(request_.ifr_flags | IFF_UP);
    Call(SIOCSIFFLAGS, "cannot be brought up");
  }

 private:
  Descriptor socket_;
  ifreq request_;
};

void SetAddress(const std::string& text, sockaddr* address) {
  sockaddr_in in = {};
  in.sin_family = AF_INET;
  inet_pton(AF_INET, text.c_str(), &in.sin_addr);
  std::memcpy(address, &in, sizeof in);
}

void SetHardware(const MacAddress& mac, sockaddr* address) {
  std::memset(address, 0, sizeof *address);
  address->sa_family = ARPHRD_ETHER;
  std::memcpy(address->sa_data, mac.data(), mac.size());
}

// Not every kernel has the setting; without it there are a few stray frames.
void WriteSetting(const char* path, const char* value) {
  const Descriptor file(open(path, O_WRONLY | O_CLOEXEC));
  if (file.get() >= 0 && write(file.get(), value, std::strlen(value)) < 0) return;
}

Descriptor OpenTun() {
  Descriptor tap(open(kTunDevice, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (tap.get() >= 0) return tap;
  throw LabError(fmt::format("{}: {}", kTunDevice, std::strerror(errno)),
                 errno == ENOENT ? "load the module (modprobe tun), or start the container with "
                                   "--device /dev/net/tun"
                                 : "run it as root");
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

int Descriptor::Release() { return std::exchange(fd_, -1); }

Descriptor EnterNewNamespace() {
  if (unshare(CLONE_NEWNET) != 0) {
    const bool refused = errno == EPERM;
    throw LabError(fmt::format("a network namespace is refused: {}", std::strerror(errno)),
                   refused ? "run it as root, or in a container started with --cap-add SYS_ADMIN "
                             "--cap-add NET_ADMIN --device /dev/net/tun"
                           : "the kernel needs CONFIG_NET_NS");
  }
  Descriptor space(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (space.get() < 0) throw LabError("/proc is not mounted");
  WriteSetting("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
  WriteSetting("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
  Interface("lo").Up();
  return space;
}

void EnterNamespace(const std::string& path) {
  const Descriptor space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (space.get() < 0 || setns(space.get(), CLONE_NEWNET) != 0) {
    throw LabError(fmt::format("cannot enter {}: {}", path, std::strerror(errno)),
                   errno == EPERM || errno == EACCES ? "run it as root" : "");
  }
}

Descriptor MakeTap(const std::string& name, const MacAddress& mac, const std::string& address,
                   bool trains) {
  Descriptor tap = OpenTun();
  ifreq request = {};
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | (trains ? IFF_VNET_HDR : 0));
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(tap.get(), TUNSETIFF, &request) != 0) {
    throw LabError(fmt::format("a TAP device is refused: {}", std::strerror(errno)),
                   "run it as root, or with the capability NET_ADMIN");
  }
  // A kernel that cannot do it goes on frame by frame.
  if (trains) (void)ioctl(tap.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4);
  Interface device(name);
  SetHardware(mac, &device.request().ifr_hwaddr);
  device.Call(SIOCSIFHWADDR, "hardware address");
  device.request().ifr_mtu = static_cast<int>(kMtu);
  device.Call(SIOCSIFMTU, "frame size");
  device.request().ifr_qlen = kTapQueue;
  device.Call(SIOCSIFTXQLEN, "queue length");
  SetAddress(address, &device.request().ifr_addr);
  device.Call(SIOCSIFADDR, "address");
  SetAddress("255.255.255.0", &device.request().ifr_netmask);
  device.Call(SIOCSIFNETMASK, "network mask");
  device.Up();
  return tap;
}

void AddNeighbour(const std::string& device, const std::string& address, const MacAddress& mac) {
  const Descriptor socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  arpreq request = {};
  SetAddress(address, &request.arp_pa);
  SetHardware(mac, &request.arp_ha);
  request.arp_flags = ATF_PERM | ATF_COM;
  device.copy(request.arp_dev, sizeof request.arp_dev - 1);
  if (ioctl(socket_fd.get(), SIOCSARP, &request) != 0)
    throw LabError(fmt::format("{}: neighbour {}: {}", device, address, std::strerror(errno)));
}

// In a child, because a thread cannot leave a namespace without privilege either.
std::string WhyRefused(std::string* hint) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      const Descriptor space = EnterNewNamespace();
      MakeTap("eth0", {2, 0, 0, 0, 0, 1}, DataAddress(0));
    } catch (const LabError& error) {
      text = error.what() + std::string("\n") + error.hint;
    }
    const bool written = write(ends[1], text.data(), text.size()) >= 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char chunk[512];
  for (ssize_t got; (got = read(ends[0], chunk, sizeof chunk)) > 0;)
    text.append(chunk, static_cast<std::size_t>(got));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  const std::size_t end = text.find('\n');
  if (hint != nullptr && end != std::string::npos) *hint = text.substr(end + 1);
  return text.substr(0, end);
}

}  // namespace orrery::lab
