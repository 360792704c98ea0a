// SPDX-License-Identifier: Apache-2.0
// Damaged texts for readers of files: cut, flipped, joined with others, with odd characters and absurd numbers.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

inline std::size_t RandomBelow(std::mt19937_64& random, std::size_t bound) {
  return bound == 0 ? 0 : random() % bound;
}

// One of `seeds`, damaged one to four times. `odd`: characters that matter to the reader.
inline std::string MutatedText(std::mt19937_64& random, const std::vector<std::string>& seeds,
                               std::string_view odd) {
  const auto below = [&](std::size_t bound) { return RandomBelow(random, bound); };
  std::string text = seeds[below(seeds.size())];
  const std::string& other = seeds[below(seeds.size())];
  for (std::size_t rounds = 1 + below(4); rounds > 0; --rounds) {
    const std::size_t at = below(text.size() + 1);
    switch (below(8)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        if (at < text.size()) text[at] ^= static_cast<char>(1u << below(8));
        break;
      case 2:
        text = text.substr(0, at) + other.substr(below(other.size()));
        break;
      case 3:
        text.erase(at, below(20));
        break;
      case 4:
        text.insert(at, std::string(below(60), odd[below(odd.size())]));
        break;
      case 5:  // a number becomes another one
        if (const std::size_t digit = text.find_first_of("0123456789", at);
            digit != std::string::npos)
          text.replace(digit, 1, std::to_string(random() >> below(64)));
        break;
      case 6:
        text.insert(at, "1e308");
        break;
      default:
        text.insert(at, other.substr(below(other.size()), below(200)));
        break;
    }
  }
  return text;
}

}  // namespace orrery
