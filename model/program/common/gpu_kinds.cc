// SPDX-License-Identifier: Apache-2.0
// Compares chips and memories by the words of names.
#include "model/program/common/gpu_kinds.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "model/hardware/profile.h"

namespace orrery::cli {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "nvidia_A100-80GB" -> nvidia, a100, 80gb
std::vector<std::string> KindWords(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!word.empty())
      words.push_back(std::exchange(word, ""));
  }
  return words;
}

// "a100", and "a100l" of sites; not "a1000".
bool NamesChip(const std::vector<std::string>& words, const std::string& chip) {
  return std::ranges::any_of(words, [&](const std::string& word) {
    return word.starts_with(chip) && (word.size() == chip.size() || !IsDigit(word[chip.size()]));
  });
}

// "80" of "80gb" and "80g"; "": no word is a memory.
std::string MemoryIn(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::size_t digits = static_cast<std::size_t>(std::ranges::count_if(word, IsDigit));
    const std::string unit = digits < word.size() ? word.substr(digits) : "";
    if (digits > 1 && (unit == "gb" || unit == "g")) return word.substr(0, digits);
  }
  return "";
}

}  // namespace

bool IsOtherGpu(const std::string& said, const std::string& gpu) {
  const std::vector<std::string> words = KindWords(said);
  const auto chip = [](const std::string& id) { return id.substr(0, id.find('-')); };
  const std::vector<std::string> known = ProfileIds("gpu");
  const bool named =
      std::ranges::any_of(known, [&](const std::string& id) { return NamesChip(words, chip(id)); });
  if (!named) return false;
  if (!NamesChip(words, chip(gpu))) return true;
  const std::string memory = MemoryIn(words), own = MemoryIn(KindWords(gpu));
  return !memory.empty() && !own.empty() && memory != own;
}

}  // namespace orrery::cli
