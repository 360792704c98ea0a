// SPDX-License-Identifier: Apache-2.0
// Hostfiles of mpirun: "NAME slots=N" or "NAME" per line, '#' begins a comment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::launch {

struct HostSlots {
  std::string host;  // name or address
  int64_t slots = 1;
  std::string note = {};  // behind '#', where it is written
};

// Throws InputError with the line; a file that names no host is none.
std::vector<HostSlots> ReadHostfile(const std::string& path);
// The same as mpirun takes it: a host that stands there once for each slot has as many. Throws InputError, too, for what
// Open MPI cannot read: line ends of Windows, addresses of IPv6.
std::vector<HostSlots> ReadHostfileOfMpirun(const std::string& path);
int64_t SlotsOf(const std::vector<HostSlots>& hosts);

std::string HostfileText(const std::vector<HostSlots>& hosts);
// Whole or not at all: readers see the old file or the new one. Throws InputError.
void WriteHostfile(const std::string& path, const std::string& text);

}  // namespace orrery::launch
