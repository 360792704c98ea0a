// SPDX-License-Identifier: Apache-2.0
// Tables of what NCCL chose, row by row, beside what this twin says for the same machine, ranks and size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

// One row: columns topology, gpus_per_node, nodes, collective, bytes, chosen_algorithm,
// chosen_protocol, channels, threads.
struct NcclRow {
  std::string machine, collective, algorithm, protocol;
  int gpus_per_node = 0, nodes = 0, channels = 0, threads = 0;
  double bytes = 0;
};

struct ChoiceAgreement {
  NcclRow row;
  bool algorithm = false, protocol = false, channels = false, threads = false;
  // The fastest of this twin's own prices (the first release took that for the choice).
  bool fastest_algorithm = false, fastest_protocol = false;
  std::string choice;  // "ring ll128 8x640"
};

// Machines are topology files FOLDER/NAME.yaml, or names of the catalogue. Throws InputError.
std::vector<ChoiceAgreement> CompareChoices(const std::string& file, const std::string& folder);

}  // namespace orrery
