// SPDX-License-Identifier: Apache-2.0
// PCI devices and product names as parts of the catalogue.
//
// Source of the ids: the PCI ID repository (pci-ids.ucw.cz), pciutils/pciids@c1c12547, 22 August 2026.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/base/quantity.h"

namespace orrery::discover {

// Of "10de:2330", hexadecimal in lower case; "": not in the catalogue.
std::string GpuOfPci(std::string_view id);
// Of "NVIDIA H100 80GB HBM3", "GH100 [H100 SXM5 80GB]"; "": not in the catalogue, or it is not clear
// which.
std::string GpuOfName(std::string_view name);
// All that a type in Slurm's Gres may mean, the one to assume first: "a100" comes with 40 and 80 GB.
std::vector<std::string> GpusOfType(std::string_view type);
bool IsSliceOfGpu(std::string_view type);     // "a100_1g.5gb": an instance of MIG
bool IsGpuClass(std::string_view pci_class);  // "0302", "0380" or "1200" and below
bool IsNicClass(std::string_view pci_class);  // "02.."
// Of what the firmware calls a machine. false: nothing, or what a hypervisor calls every guest, such
// as "Virtual Machine".
bool NamesMachine(std::string_view product);
// Fabric profile of a NIC by its id and class: "efa", "infiniband", "tcp"; "": it may be several.
std::string NetworkOfPci(std::string_view id, std::string_view pci_class);

// NVLink of a GPU of the catalogue: its name, the rate of one link and their number; "": has none.
struct LinkFact {
  std::string name;
  BytesPerSecond rate;
  int links = 0;
};
LinkFact NvLinkOf(std::string_view gpu);

// "32.0 GT/s PCIe" and a width: the rate per direction after encoding; 0: not said.
BytesPerSecond PcieRate(std::string_view speed, int width);
// Of 16 lanes of a GPU of the catalogue, as its vendor's data sheet has them; 0: not known.
BytesPerSecond PcieOf(std::string_view gpu);

}  // namespace orrery::discover
