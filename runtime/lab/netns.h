// SPDX-License-Identifier: Apache-2.0
// Network namespaces without names, and TAP devices in them.
//
// Both live as long as a process holds their descriptors: when that process ends, however it ends,
// the kernel removes them. Linux only. Failures are LabError; what the machine refuses (privilege,
// /dev/net/tun) carries a hint.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace orrery::lab {

using MacAddress = std::array<uint8_t, 6>;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  int Release();

 private:
  int fd_;
};

// Why this process cannot build a lab; "" when it can. `hint`: what would help.
std::string WhyRefused(std::string* hint);

// Moves the calling thread into a new network namespace with its loopback up.
Descriptor EnterNewNamespace();
// Moves the calling thread into the namespace behind `path` (/proc/PID/fd/N).
void EnterNamespace(const std::string& path);

// A TAP device of the calling thread's namespace, up, with jumbo frames; not blocking. `trains`: frames
// are preceded by a virtio_net_hdr, and TCP hands over up to 64 KiB of one connection at a time, without
// checksums, where the kernel can: a fifth of the work per byte.
Descriptor MakeTap(const std::string& name, const MacAddress& mac, const std::string& address,
                   bool trains = false);
// Tells the calling thread's namespace where `address` is, for good.
void AddNeighbour(const std::string& device, const std::string& address, const MacAddress& mac);

}  // namespace orrery::lab
