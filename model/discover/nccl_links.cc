// SPDX-License-Identifier: Apache-2.0
// NVLinks from the rates of bundles that NCCL's log prints.
#include "model/discover/nccl_links.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "model/collectives/nccl/system.h"
#include "model/hardware/profile.h"

namespace orrery::discover {
namespace {

constexpr double kMostLinks = 18;  // of a GPU, so far

// Links of a bundle: its rate is theirs times NCCL's rate of one, which releases before 2.12 put higher (22 GB/s, and 21
// before 2.8; src/graph/topo.h of each). 0: it is no multiple of any.
int LinksOf(double rate, double of_one) {
  for (const double one : {of_one, 20.0, 22.0, 21.0}) {
    const double links = rate / one;
    if (links < 0.9 || links > kMostLinks + 0.1) continue;
    if (std::abs(links - std::round(links)) < 0.02) return static_cast<int>(std::lround(links));
  }
  return 0;
}

}  // namespace

std::optional<ScaleUp> LinksOfRates(const std::vector<NvBundle>& bundles, const std::string& gpu) {
  const double capability = LoadGpuProfile(gpu).compute_capability;
  if (capability <= 0 || bundles.empty()) return {};
  const double of_one = double{nccl::NvLinkRate(static_cast<int>(std::lround(10 * capability)))};
  std::map<std::pair<int, int>, int> pairs;
  ScaleUp made;
  for (const NvBundle& bundle : bundles) {
    const int links = LinksOf(bundle.rate, of_one);
    if (links == 0) return {};
    if (bundle.to < 0) {
      made.links_per_gpu = std::max(made.links_per_gpu, links);
    } else {
      pairs[std::minmax(bundle.from, bundle.to)] = links;
    }
  }
  made.kind = made.links_per_gpu > 0 ? IntraLink::kNvSwitch : IntraLink::kCubeMesh;
  if (made.kind == IntraLink::kCubeMesh) {
    for (const auto& [ends, links] : pairs) made.mesh.push_back({ends.first, ends.second, links});
  }
  return made;
}

}  // namespace orrery::discover
