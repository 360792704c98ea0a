// SPDX-License-Identifier: Apache-2.0
// The figures of NCCL 2.10 and what each later release changed: src/graph/tuning.cc at the tags v2.10.3-1 to v2.30.7-1.
// lines.cc has the rules that are more than a figure.
#include "model/collectives/nccl/releases.h"

#include <limits>
#include <map>

namespace orrery::nccl {
namespace {

constexpr std::size_t kLl = Row(Protocol::kLl), kSimple = Row(Protocol::kSimple);
constexpr std::size_t kHopper = 2, kBlackwell = 3;  // rows of a ByGeneration
constexpr double kUnlimited = std::numeric_limits<double>::max();

// 2.10 knows Volta's figures and, for compute capability 8.0 alone, Ampere's.
Rules FirstRules() {
  Rules r;
  r.base = {{{4.4F, 4.4F, 0}, {3.6F, 10, 8.4F}, {}, {}, {}, {}, {}}};
  r.hop_nvlink = {{{.52F, 1.25F, 28}, {.47F, 1.9F, 3.4F}, {0, 0, 8}, {0, 0, 8}, {}, {}, {}}};
  r.hop_pcie = {{{1, 1.9F, 28}, {1, 2.5F, 5.7F}, {0, 0, 8}, {0, 0, 8}, {}, {}, {}}};
  r.hop_network = {{{5, 8.5F, 28}, {2.7F, 4, 9.6F}, {0, 0, 10.7F}, {0, 0, 10.7F}, {}, {}, {}}};
  r.ll_hops = 1.8F;
  r.direct_peer = .5F;
  r.most_ll = {{{39, 39, 20.4}, {87.7, 22.5, 19}, {87.7, 22.5, 19}, {87.7, 22.5, 19}}};
  r.ring128 = r.tree128 = {{{20, 20, 20}, {20, 20, 20}, {20, 20, 20}, {20, 20, 20}}};
  r.tree = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {24, 23.6, 17.8}, {24, 23.6, 17.8}}};
  r.most_bus = {kUnlimited, 235, kUnlimited, kUnlimited};
  r.ring_ll = 1.0 / 4;
  r.ring_ll_copies = 1.0 / 3;
  r.ring128_alone = .7;
  return r;
}

void SetRing(float simple, Rules* r) { r->hop_network[Row(Algorithm::kRing)][kSimple] = simple; }

// Hops of a tree by Simple; before and after, one hop stood for a chunk of 256 KiB.
void SetTree(float inside, float pcie, float across, Rules* r) {
  constexpr std::size_t kTree = Row(Algorithm::kTree);
  r->hop_nvlink[kTree][kSimple] = inside;
  r->hop_pcie[kTree][kSimple] = pcie;
  r->hop_network[kTree][kSimple] = across;
}

// Hops by Simple, and what they add up to before any.
void SetSimple(Algorithm algorithm, float base, float inside, float across, Rules* r) {
  r->base[Row(algorithm)][kSimple] = base;
  r->hop_nvlink[Row(algorithm)][kSimple] = inside;
  r->hop_network[Row(algorithm)][kSimple] = across;
}

// As far as no later one changes it.
std::map<Release, Rules> History() {
  std::map<Release, Rules> all;
  Rules r = FirstRules();
  constexpr std::size_t kTree = Row(Algorithm::kTree), kRing = Row(Algorithm::kRing);
  const auto since = [&](int minor, int patch) { all[Release{2, minor, patch}] = r; };
  since(10, 0);
  SetRing(28, &r);
  since(12, 0);
  SetRing(9.6F, &r);
  r.chain = .75;
  since(14, 0);
  r.most_bus[kHopper] = r.most_bus[kBlackwell] = 370;
  r.ring128[kHopper] = r.tree128[kHopper] = {36.7, 36.7, 36.7};
  r.tree[kHopper] = {38.7, 41.4, 33};
  SetSimple(Algorithm::kNvls, 40, 0, 0, &r);
  since(17, 0);
  r.base[kTree] = {6.8F, 14, 0};
  r.base[kRing] = {6.6F, 14, 8.4F};
  r.hop_nvlink[kTree][kLl] = r.hop_nvlink[kRing][kLl] = .6F;
  SetRing(14, &r);
  SetSimple(Algorithm::kCollNetChain, 0, 4.75F, 14, &r);
  SetSimple(Algorithm::kNvls, 23, 0, 18, &r);
  SetSimple(Algorithm::kNvlsTree, 23, 0, 19, &r);
  r.ll_hops = 1;
  r.chain = 1;
  r.most_bus.fill(kUnlimited);
  since(18, 0);
  SetTree(4, 6, 14, &r);
  r.tree128[kHopper] = {36.7, 36.7, 29};
  r.tree[kHopper] = {38.7, 41.4, 36};
  r.chained_tree = .85;
  since(18, 3);
  SetTree(28, 28, 28, &r);
  SetSimple(Algorithm::kCollNetDirect, 0, 3.7F, 31, &r);
  SetSimple(Algorithm::kCollNetChain, 0, 2.8F, 30, &r);
  r.hop_pcie[Row(Algorithm::kCollNetDirect)][kSimple] = 3.7F;
  r.hop_pcie[Row(Algorithm::kCollNetChain)][kSimple] = 2.8F;
  SetSimple(Algorithm::kNvls, 0, 23, 18, &r);
  SetSimple(Algorithm::kNvlsTree, 0, 23, 14, &r);
  r.direct_peer = .4F;
  since(19, 0);
  SetSimple(Algorithm::kNvls, 0, 25, 18, &r);
  SetSimple(Algorithm::kNvlsTree, 0, 25, 14, &r);
  r.most_ll[kHopper] = {141, 45, 35};
  r.ring_ll = r.ring_ll_copies = .5;
  since(21, 0);
  r.base[kTree][kSimple] = 8.4F;
  SetTree(4, 4, 14, &r);
  r.ring128_alone = .92;
  r.base[Row(Algorithm::kPat)] = {8, 8, 8};
  r.hop_network[Row(Algorithm::kPat)][kSimple] = 14;
  r.pat = .85;
  since(23, 0);
  r.pat = .75;
  since(24, 0);
  r.most_ll[kBlackwell] = {282, 90, 70};
  r.ring128[kBlackwell] = {73.4, 73.4, 73.4};
  r.tree128[kBlackwell] = {73.4, 73.4, 58};
  r.tree[kBlackwell] = {77.4, 82.8, 72};
  since(25, 0);
  r.tree128[kBlackwell] = {55.6, 31.67, 20};
  r.tree[kBlackwell] = {70, 42.8, 24};
  r.nvls_tree = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.1}}};
  since(28, 0);
  r.ring128[kBlackwell] = {73.4, 34.6, 73.4};
  since(28, 7);
  SetSimple(Algorithm::kNvlsTree, 0, 25, 20.9F, &r);
  r.nvls_tree[kBlackwell] = {0, 96, 43.8};
  since(28, 9);
  r.ring128[kBlackwell] = {34.5, 34.6, 34.5};
  since(29, 0);
  r.ring128[kBlackwell] = {40, 40, 40};
  since(29, 7);
  r.nvls_tree[kBlackwell] = {0, 96, 80};
  since(30, 0);
  return all;
}

}  // namespace

const Rules& RulesOf(Release release) {
  static const std::map<Release, Rules> all = History();
  const auto later = all.upper_bound(release);
  return later == all.begin() ? later->second : std::prev(later)->second;
}

std::size_t GenerationOf(int capability, Release release) {
  const bool exact = release < Release{2, 17, 0};
  if (exact) return capability == 80 ? 1 : capability == 90 && release >= Release{2, 15, 0} ? 2 : 0;
  if (capability >= 100 && release >= Release{2, 25, 0}) return 3;
  if (capability >= 90) return 2;
  return capability >= 80 ? 1 : 0;
}

}  // namespace orrery::nccl
