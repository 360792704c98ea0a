// SPDX-License-Identifier: Apache-2.0
// The table of algorithms: one row for each file in algorithms/.
#include <algorithm>

#include "model/base/check.h"
#include "model/collectives/algorithm.h"

namespace orrery {

// The rows. Of equally fast ones the first is taken.
#define ORRERY_ALGORITHMS(ROW) \
  ROW(Ring)                    \
  ROW(DoubleBinaryTree)        \
  ROW(Nvls)                    \
  ROW(NvlsTree)                \
  ROW(Hierarchical)            \
  ROW(Direct)                  \
  ROW(SendRecv)

#define ORRERY_DECLARE(name) const Algorithm& name##Algorithm();
ORRERY_ALGORITHMS(ORRERY_DECLARE)
#undef ORRERY_DECLARE

namespace {

std::vector<const Algorithm*>& Rows() {
#define ORRERY_ROW(name) &name##Algorithm(),
  static std::vector<const Algorithm*> rows = {ORRERY_ALGORITHMS(ORRERY_ROW)};
#undef ORRERY_ROW
  return rows;
}

}  // namespace

std::span<const Algorithm* const> Algorithms() { return Rows(); }

const Algorithm* FindAlgorithm(std::string_view name) {
  const auto found = std::ranges::find_if(
      Rows(), [&](const Algorithm* algorithm) { return algorithm->name() == name; });
  return found == Rows().end() ? nullptr : *found;
}

std::vector<std::string> AlgorithmNames() {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : Rows()) names.push_back(algorithm->name());
  return names;
}

RegisteredAlgorithm::RegisteredAlgorithm(const Algorithm& algorithm) : algorithm_(algorithm) {
  ORRERY_CHECK(FindAlgorithm(algorithm.name()) == nullptr, "a second algorithm '{}'",
               algorithm.name());
  Rows().push_back(&algorithm);
}

RegisteredAlgorithm::~RegisteredAlgorithm() { std::erase(Rows(), &algorithm_); }

}  // namespace orrery
