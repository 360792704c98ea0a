// SPDX-License-Identifier: Apache-2.0
// Lists of hosts as Slurm writes them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orrery {

// The names in Slurm's short form ("gpu[08-10,12],login"), at most `most`. Empty where it is none.
std::vector<std::string> ExpandHosts(const std::string& text, std::size_t most = 65536);

}  // namespace orrery
