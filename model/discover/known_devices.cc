// SPDX-License-Identifier: Apache-2.0
// Tables of devices.
#include "model/discover/known_devices.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>
#include <vector>

namespace orrery::discover {
namespace {

constexpr std::pair<const char*, const char*> kGpuIds[] = {
    {"10de:1db1", "v100-sxm2-16gb"}, {"10de:1df5", "v100-sxm2-16gb"},
    {"10de:1db4", "v100-pcie-16gb"}, {"10de:1db5", "v100-sxm2-32gb"},
    {"10de:1db8", "v100-sxm3-32gb"}, {"10de:1df6", "v100s-pcie-32gb"},
    {"10de:20b0", "a100-sxm4-40gb"}, {"10de:20b1", "a100-pcie-40gb"},
    {"10de:20b2", "a100-sxm4-80gb"}, {"10de:20b5", "a100-pcie-80gb"},
    {"10de:20f1", "a100-pcie-40gb"}, {"10de:2237", "a10g"},
    {"10de:26b9", "l40s"},           {"10de:2330", "h100-sxm5-80gb"},
    {"10de:2331", "h100-pcie-80gb"}, {"10de:2321", "h100-nvl-94gb"},
    {"10de:2324", "h800-sxm5-80gb"}, {"10de:2329", "h20-sxm-96gb"},
    {"10de:2335", "h200-sxm-141gb"}, {"10de:233b", "h200-nvl-141gb"},
    {"10de:2342", "gh200-96gb"},     {"10de:2901", "b200-sxm-180gb"},
    {"10de:2941", "gb200-per-gpu"},  {"10de:3182", "b300-sxm-288gb"},
    {"10de:31a1", "gb300-per-gpu"},  {"10de:31c2", "gb300-per-gpu"},
    {"10de:31c3", "gb300-per-gpu"},  {"1002:7408", "mi250x"},
    {"1002:74a1", "mi300x"},         {"1002:74b5", "mi300x"},
    {"1002:74a5", "mi325x"},         {"1002:74b9", "mi325x"},
    {"1002:75a0", "mi350x"},         {"1002:75a3", "mi355x"},
    {"1da3:1000", "gaudi-hl205"},    {"1da3:1010", "gaudi-hl205"},
    {"1da3:1020", "gaudi2"},         {"1da3:1060", "gaudi3"},
};

// Words that all stand in a product's name, more special rows first.
struct NameRow {
  std::vector<const char*> words;
  const char* id;
};
const std::vector<NameRow>& NameRows() {
  static const std::vector<NameRow> rows = {
      {{"GB300"}, "gb300-per-gpu"},
      {{"GB200"}, "gb200-per-gpu"},
      {{"GH200", "96"}, "gh200-96gb"},
      {{"GH200", "120"}, "gh200-96gb"},  // 120 and 480 GB are its CPU's memory
      {{"GH200", "480"}, "gh200-96gb"},
      {{"GH200"}, ""},
      {{"B300"}, "b300-sxm-288gb"},
      {{"B200"}, "b200-sxm-180gb"},
      {{"H200", "NVL"}, "h200-nvl-141gb"},
      {{"H200"}, "h200-sxm-141gb"},
      {{"H20"}, "h20-sxm-96gb"},
      {{"H800", "SXM"}, "h800-sxm5-80gb"},
      {{"H800", "80GB", "HBM3"}, "h800-sxm5-80gb"},
      {{"H100", "NVL"}, "h100-nvl-94gb"},
      {{"H100L", "94"}, "h100-nvl-94gb"},
      {{"H100", "PCIE"}, "h100-pcie-80gb"},
      {{"H100", "SXM5", "80"}, "h100-sxm5-80gb"},
      {{"H100", "80GB", "HBM3"}, "h100-sxm5-80gb"},
      {{"A100", "SXM4", "80"}, "a100-sxm4-80gb"},
      {{"A100", "SXM", "80"}, "a100-sxm4-80gb"},
      {{"A100", "SXM4", "40"}, "a100-sxm4-40gb"},
      {{"A100", "SXM", "40"}, "a100-sxm4-40gb"},
      {{"A100", "PCIE", "80"}, "a100-pcie-80gb"},
      {{"A100", "PCIE", "40"}, "a100-pcie-40gb"},
      {{"V100S", "PCIE", "32"}, "v100s-pcie-32gb"},
      {{"V100", "SXM3", "32"}, "v100-sxm3-32gb"},
      {{"V100", "SXM2", "32"}, "v100-sxm2-32gb"},
      {{"V100", "SXM2", "16"}, "v100-sxm2-16gb"},
      {{"V100", "PCIE", "16"}, "v100-pcie-16gb"},
      {{"A10G"}, "a10g"},
      {{"L40S"}, "l40s"},
      {{"MI355X"}, "mi355x"},
      {{"MI350X"}, "mi350x"},
      {{"MI325X"}, "mi325x"},
      {{"MI300X"}, "mi300x"},
      {{"MI250X"}, "mi250x"},
      {{"HL-325"}, "gaudi3"},
      {{"HL-225"}, "gaudi2"},
      {{"HL-205"}, "gaudi-hl205"},
      {{"GAUDI3"}, "gaudi3"},
      {{"GAUDI2"}, "gaudi2"},
  };
  return rows;
}

// Short names, as administrators choose them for Slurm's Gres: the parts of the catalogue that they may
// mean. First the board of most clusters with the least memory: a layout for it fits the others.
struct Family {
  const char* name;
  std::vector<std::string> gpus;
};
const std::vector<Family>& Families() {
  static const std::vector<Family> families = {
      {"v100", {"v100-sxm2-16gb", "v100-sxm2-32gb", "v100-sxm3-32gb", "v100-pcie-16gb"}},
      {"v100s", {"v100s-pcie-32gb"}},
      {"a100", {"a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"}},
      {"h100", {"h100-sxm5-80gb", "h100-pcie-80gb", "h100-nvl-94gb"}},
      {"h800", {"h800-sxm5-80gb"}},
      {"h20", {"h20-sxm-96gb"}},
      {"h200", {"h200-sxm-141gb", "h200-nvl-141gb"}},
      {"b200", {"b200-sxm-180gb"}},
      {"b300", {"b300-sxm-288gb"}},
      {"gb200", {"gb200-per-gpu"}},
      {"gb300", {"gb300-per-gpu"}},
      {"t4", {"t4"}},
      {"l4", {"l4"}},
      {"l40s", {"l40s"}},
      {"a10g", {"a10g"}},
      {"a40", {"a40"}},
      {"a6000", {"rtx-a6000"}},
      {"3090", {"rtx-3090"}},
      {"4090", {"rtx-4090"}},
      {"mi250x", {"mi250x"}},
      {"mi300x", {"mi300x"}},
      {"mi325x", {"mi325x"}},
      {"mi350x", {"mi350x"}},
      {"mi355x", {"mi355x"}},
      {"gaudi2", {"gaudi2"}},
      {"gaudi3", {"gaudi3"}},
  };
  return families;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// "nvidia_a100-sxm4" -> a100, sxm4: the words that tell parts apart.
std::vector<std::string> TypeWords(std::string_view type) {
  constexpr std::string_view kVendors[] = {"nvidia", "tesla", "geforce", "rtx", "amd", "instinct"};
  std::vector<std::string> words(1);
  for (const char c : Lower(type)) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      words.back() += c;
    else
      words.emplace_back();
  }
  std::erase_if(words, [&](std::string& word) {
    if (word.starts_with("rtx")) word.erase(0, 3);  // "rtx3090"
    return word.empty() || std::ranges::find(kVendors, word) != std::end(kVendors);
  });
  return words;
}

}  // namespace

std::string GpuOfPci(std::string_view id) {
  for (const auto& [pci, gpu] : kGpuIds) {
    if (id == pci) return gpu;
  }
  return "";
}

std::string GpuOfName(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const NameRow& row : NameRows()) {
    if (std::ranges::all_of(
            row.words, [&](const char* word) { return upper.find(word) != std::string::npos; }))
      return row.id;
  }
  return "";
}

std::vector<std::string> GpusOfType(std::string_view type) {
  const std::vector<std::string> words = TypeWords(type);
  if (words.empty()) return {};
  const auto family = std::ranges::find(Families(), words[0], &Family::name);
  if (family == Families().end()) {
    const std::string one = GpuOfName(type);
    return one.empty() ? std::vector<std::string>() : std::vector<std::string>{one};
  }
  std::vector<std::string> gpus;
  for (const std::string& gpu : family->gpus) {
    const bool meant = std::all_of(words.begin() + 1, words.end(), [&](const std::string& word) {
      return word.starts_with("hbm") || gpu.find("-" + word) != std::string::npos;
    });
    if (meant) gpus.push_back(gpu);
  }
  return gpus;
}

bool IsSliceOfGpu(std::string_view type) {
  const std::size_t g = type.find("g.");
  return g != std::string_view::npos && g > 0 && g + 2 < type.size() &&
         std::isdigit(static_cast<unsigned char>(type[g - 1])) &&
         std::isdigit(static_cast<unsigned char>(type[g + 2]));
}

bool IsGpuClass(std::string_view pci_class) {
  return pci_class.starts_with("0302") || pci_class.starts_with("0380") ||
         pci_class.starts_with("1200");
}

bool IsNicClass(std::string_view pci_class) { return pci_class.starts_with("02"); }

bool NamesMachine(std::string_view product) {
  constexpr std::string_view kGuests[] = {"Virtual Machine", "KVM",      "Google Compute Engine",
                                          "OpenStack",       "HVM domU", "VMware",
                                          "Standard PC"};
  return !product.empty() && product.size() < 64 &&
         std::ranges::none_of(kGuests,
                              [&](std::string_view one) { return product.starts_with(one); });
}

std::string NetworkOfPci(std::string_view id, std::string_view pci_class) {
  if (id.starts_with("1d0f:efa")) return "efa";
  if (pci_class.starts_with("0207")) return "infiniband";
  if (id.starts_with("15b3:")) return "";  // Ethernet class: RoCE, or plain sockets
  return id.empty() ? "" : "tcp";
}

LinkFact NvLinkOf(std::string_view gpu) {
  // Rate of one link per direction: the vendor's figures, as topologies/*.yaml carry them.
  constexpr double kGb = 1e9;
  if (gpu.starts_with("v100-sxm")) return {"NVLink2", BytesPerSecond(25 * kGb), 6};
  if (gpu.starts_with("a100")) return {"NVLink3", BytesPerSecond(25 * kGb), 12};
  if (gpu.starts_with("h100") || gpu.starts_with("h20") || gpu.starts_with("h800") ||
      gpu.starts_with("gh200"))
    return {"NVLink4", BytesPerSecond(25 * kGb), 18};
  if (gpu.starts_with("b200") || gpu.starts_with("b300") || gpu.starts_with("gb"))
    return {"NVLink5", BytesPerSecond(50 * kGb), 18};
  return {};
}

BytesPerSecond PcieRate(std::string_view speed, int width) {
  const double transfers = std::strtod(std::string(speed.substr(0, 32)).c_str(), nullptr);
  if (!(transfers > 0) || transfers > 1000 || width < 1 || width > 64) return {};
  // 8b/10b up to 5 GT/s, 128b/130b to 32, no line code but flits (242 of 256 bytes) above.
  const double code = transfers <= 5 ? 0.8 : transfers <= 32 ? 128.0 / 130.0 : 242.0 / 256.0;
  return BytesPerSecond(transfers * 1e9 / 8 * code * width);
}

BytesPerSecond PcieOf(std::string_view gpu) {
  const auto is = [&](auto... family) { return (gpu.starts_with(family) || ...); };
  if (is("v100")) return PcieRate("8", 16);
  if (is("a100", "a10g", "l40s", "mi250x", "gaudi-hl205", "gaudi2")) return PcieRate("16", 16);
  if (is("h100", "h20", "h800", "gh200", "b200", "gb200", "mi3", "gaudi3"))
    return PcieRate("32", 16);
  if (is("b300")) return PcieRate("64", 16);
  return {};
}

}  // namespace orrery::discover
