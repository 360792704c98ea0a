// SPDX-License-Identifier: Apache-2.0
// NVLinks from the rates of bundles that NCCL's log prints.
#include "model/discover/nccl_links.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "model/hardware/profile.h"

namespace orrery::discover {
namespace {

constexpr double kMostLinks = 18;  // of a GPU, so far

// What NCCL counts for a link, and the link's own rate per direction, in GB/s.
struct NcclRate {
  int first, last;    // compute capability, 10 x
  int since, before;  // releases 2.SINCE up to 2.BEFORE
  double counted, own;
};

// NCCL's src/graph/topo.h by release (tags v2.5.6-1 to v2.30.7-1): VOLTA_NVLINK_WIDTH 21 up to v2.9.9-1, SM70_ and
// SM80_NVLINK_WIDTH 22 from v2.10.3-1, SM70_ and SM80_NVLINK_BW 20 from v2.18.1-1; SM90_NVLINK_BW 20 in 2.18 and 20.6 from
// v2.20.3-1, before 2.18 an H100 counts as an A100; SM100_NVLINK_BW 40 from v2.25.1-1, 40.1 from 2.27 on. Before v2.5.6-1
// no tree is printed. The likeliest first, for GPUs that nobody names.
constexpr NcclRate kNcclRates[] = {
    {90, 99, 20, 99, 20.6, 25}, {100, 129, 27, 99, 40.1, 50}, {70, 89, 18, 99, 20, 25},
    {90, 99, 18, 20, 20, 25},   {70, 99, 10, 18, 22, 25},     {70, 99, 5, 10, 21, 25},
    {100, 129, 25, 28, 40, 50}, {60, 69, 5, 99, 18, 20},      {86, 86, 8, 99, 12, 14.0625}};

// Links of a bundle; 0: its rate, which is printed with one decimal, is no multiple of this one.
int LinksOf(double rate, double of_one) {
  constexpr double kRounding = 0.06;
  const double links = std::round(rate / of_one);
  if (links < 1 || links > kMostLinks) return 0;
  return std::abs(rate - links * of_one) < kRounding ? static_cast<int>(links) : 0;
}

// None: the rate does not divide all bundles.
std::optional<ScaleUp> LinksBy(const std::vector<NvBundle>& bundles, const NcclRate& rate) {
  std::map<std::pair<int, int>, int> pairs;
  ScaleUp made;
  made.per_link = BytesPerSecond(rate.own * 1e9);
  for (const NvBundle& bundle : bundles) {
    const int links = LinksOf(bundle.rate, rate.counted);
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

}  // namespace

std::optional<ScaleUp> LinksOfRates(const std::vector<NvBundle>& bundles, const std::string& gpu,
                                    int release) {
  if (bundles.empty()) return {};
  int capability = 0;  // of any
  if (!gpu.empty()) {
    capability = static_cast<int>(std::lround(10 * LoadGpuProfile(gpu).compute_capability));
    if (capability <= 0) return {};
  }
  for (const NcclRate& rate : kNcclRates) {
    if (capability != 0 && (capability < rate.first || capability > rate.last)) continue;
    if (release != 0 && (release < rate.since || release >= rate.before)) continue;
    if (auto made = LinksBy(bundles, rate)) return made;
  }
  return {};
}

void FindSwitches(std::string_view gpu, int64_t gpus, ScaleUp* links) {
  if (gpus != 2 || links->mesh.size() != 1 || gpu.find("sxm") == std::string_view::npos) return;
  if (links->mesh[0].count != NvLinkOf(gpu).links) return;
  links->kind = IntraLink::kNvSwitch;
  links->links_per_gpu = links->mesh[0].count;
  links->mesh.clear();
}

}  // namespace orrery::discover
