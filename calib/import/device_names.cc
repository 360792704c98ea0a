// SPDX-License-Identifier: Apache-2.0
// Words of device names: chip, form factor, memory.
#include "calib/import/device_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "model/hardware/catalog.h"

namespace orrery::measured {
namespace {

constexpr double kSameMemory = 0.12;  // label, usable and printed memory of one card differ by less

// Of every GPU profile: what its name begins with ("a100", "gb200").
const std::set<std::string>& KnownChips() {
  static const std::set<std::string> kChips = [] {
    std::set<std::string> chips;
    for (const std::string& id : ProfileIds("gpu")) chips.insert(id.substr(0, id.find('-')));
    return chips;
  }();
  return kChips;
}

// "NVIDIA A100-SXM4-80GB" -> {nvidia, a100, sxm4, 80gb}.
std::set<std::string> WordsOf(const std::string& name) {
  std::set<std::string> words;
  std::string word;
  for (const char c : name + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

// Whether a device of this name is this GPU, by chip and form factor; memory is compared apart.
bool IsDevice(const std::string& name, const std::string& gpu) {
  static const std::set<std::string> kForms = {"sxm2", "sxm3", "sxm4", "sxm5", "pcie", "nvl"};
  const std::set<std::string> said = WordsOf(name), ours = WordsOf(gpu);
  if (!said.contains(gpu.substr(0, gpu.find('-')))) return false;
  for (const std::string& form : kForms) {
    if (!said.contains(form)) continue;
    const bool ours_says =
        std::ranges::any_of(kForms, [&](const std::string& one) { return ours.contains(one); });
    return !ours_says || ours.contains(form);
  }
  return true;
}

// "80gb" of a name, in bytes. "GH200 120GB" and "GH200 480GB" name the memory of the processor.
double BytesInName(const std::string& name) {
  const std::set<std::string> words = WordsOf(name);
  if (words.contains("gh200")) return 0;
  for (const std::string& word : words) {
    if (!word.ends_with("gb")) continue;
    const std::string digits = word.substr(0, word.size() - 2);
    if (!digits.empty() && digits.size() < 5 &&
        std::ranges::all_of(digits, [](unsigned char c) { return std::isdigit(c) != 0; }))
      return std::stod(digits) * 1e9;
  }
  return 0;
}

bool NamesChip(const std::set<std::string>& words) {
  return std::ranges::any_of(KnownChips(),
                             [&](const std::string& chip) { return words.contains(chip); });
}

}  // namespace

bool IsMemoryOf(double bytes, const GpuProfile& gpu) {
  const auto near = [&](double own) { return own > 0 && std::abs(bytes / own - 1) < kSameMemory; };
  return near(gpu.memory.value) || near(gpu.memory_usable.value);
}

std::string OtherDevice(const std::vector<std::string>& names, const GpuProfile& gpu) {
  std::string other;
  for (const std::string& name : names) {
    if (IsDevice(name, gpu.header.id)) {
      const double bytes = BytesInName(name);
      if (bytes == 0 || IsMemoryOf(bytes, gpu)) return "";
    }
    if (other.empty() || NamesChip(WordsOf(name))) other = name;
  }
  return other.empty() ? "" : fmt::format("it ran on '{}'", other);
}

std::string OtherChip(const std::string& text, const GpuProfile& gpu) {
  const std::set<std::string> words = WordsOf(text);
  const std::string& id = gpu.header.id;
  if (!NamesChip(words) || words.contains(id.substr(0, id.find('-')))) return "";
  return fmt::format("it ran on '{}'", text);
}

}  // namespace orrery::measured
