// SPDX-License-Identifier: Apache-2.0
// 4096 GPUs: figures are printed, not asserted, except that routes stay valid.
#include <chrono>
#include <cstdio>

#include "tests/topo/testing.h"

namespace orrery {
namespace {

double Milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since)
      .count();
}

TEST(Scale, Builds4096GpusAndRoutesThem) {
  const TopologySpec spec = LoadTopology("selene");
  auto start = std::chrono::steady_clock::now();
  const Cluster cluster = BuildCluster(spec, 512);
  std::printf("build of 4096 GPUs = %.1f ms (%zu devices, %zu links)\n", Milliseconds(start),
              cluster.devices.size(), cluster.links.size());
  ASSERT_EQ(cluster.ranks(), 4096);

  std::vector<LinkId> route;
  std::size_t hops = 0;
  constexpr int kLookUps = 200'000;
  start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < kLookUps; ++i) {
    route.clear();
    cluster.AppendRoute(i * 7919 % 4096, i * 104'729 % 4096, static_cast<int>(i % 4), &route);
    hops += route.size();
  }
  std::printf("route look-up = %.3f us, %.1f links on average\n",
              Milliseconds(start) * 1e3 / kLookUps, static_cast<double>(hops) / kLookUps);
  for (int64_t i = 0; i < 5'000; ++i) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectValidRoute(cluster, i * 7919 % 4096, i * 104'729 % 4096, static_cast<int>(i % 4)));
  }

  start = std::chrono::steady_clock::now();
  int64_t ranks = 0;
  for (int64_t n = 1; n <= 512; ++n) ranks += Summarise(spec, n).ranks();
  std::printf("summary = %.3f us\n", Milliseconds(start) * 1e3 / 512);
  EXPECT_EQ(ranks, 8 * 512 * 513 / 2);
}

}  // namespace
}  // namespace orrery
