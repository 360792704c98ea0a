// SPDX-License-Identifier: Apache-2.0
// Optimal string alignment distance (Damerau-Levenshtein without repeated edits), counted in
// halves.
#include "model/base/edit_distance.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace orrery {
namespace {

std::size_t Substitution(char a, char b) {
  if (a == b) return 0;
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return lower(a) == lower(b) ? 1 : 2;
}

}  // namespace

std::size_t HalfEdits(std::string_view a, std::string_view b) {
  // Three rolling rows: the one before last is needed for swaps.
  std::array<std::vector<std::size_t>, 3> rows;
  for (auto& row : rows) row.resize(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = 2 * j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& now = rows[i % 3];
    const auto& last = rows[(i + 2) % 3];
    const auto& before = rows[(i + 1) % 3];
    now[0] = 2 * i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] =
          std::min({last[j] + 2, now[j - 1] + 2, last[j - 1] + Substitution(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 2);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace orrery
