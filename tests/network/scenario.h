// SPDX-License-Identifier: Apache-2.0
// Random traffic that any backend can play: links, jobs with start dates, and when each job ended.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "model/engine/network/network.h"

namespace orrery::net {

struct ScenarioJob {
  std::vector<LinkUse> uses;
  BytesPerSecond cap = kNoCap;
  double start = 0;  // seconds
  double bytes = 0;
};

struct Scenario {
  std::vector<double> capacity;
  std::vector<ScenarioJob> jobs;
};

struct ScenarioShape {
  int links = 20;
  int jobs = 200;
  int largest_weight = 1;
  double capped = 0;  // share of the jobs
  bool all_at_once = false;
};

inline Scenario RandomScenario(const ScenarioShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * (random() / 4294967296.0);
  };
  Scenario scenario;
  for (int i = 0; i < shape.links; ++i) scenario.capacity.push_back(uniform(1e9, 100e9));
  for (int i = 0; i < shape.jobs; ++i) {
    ScenarioJob job;
    std::vector<bool> taken(static_cast<std::size_t>(shape.links));
    for (unsigned hops = 1 + random() % 4; hops > 0; --hops) {
      const auto link = static_cast<LinkId>(random() % static_cast<unsigned>(shape.links));
      if (taken[static_cast<std::size_t>(link)]) continue;
      taken[static_cast<std::size_t>(link)] = true;
      job.uses.push_back({link, 1.0 + random() % static_cast<unsigned>(shape.largest_weight)});
    }
    if (uniform(0, 1) < shape.capped) job.cap = BytesPerSecond(uniform(1e8, 5e9));
    job.start = shape.all_at_once ? 0.0 : uniform(0, 0.5);
    job.bytes = std::floor(uniform(1e6, 1e9));
    scenario.jobs.push_back(job);
  }
  return scenario;
}

inline Wires WiresOf(const Scenario& scenario, double scale = 1) {
  Wires wires;
  for (const double capacity : scenario.capacity) wires.capacity.emplace_back(capacity * scale);
  return wires;
}

// Date of the end of every job.
inline std::vector<double> Play(const Scenario& scenario, Network* network) {
  std::vector<double> ends(scenario.jobs.size(), -1);
  for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
    const ScenarioJob& job = scenario.jobs[i];
    const PathId path = network->AddPath(job.uses, job.cap, "job");
    network->After(Seconds(job.start), [=, &ends] {
      const double bytes = job.bytes;
      network->Start(path, Bytes(bytes), [=, &ends] { ends[i] = network->Now().value; });
    });
  }
  network->Run();
  return ends;
}

}  // namespace orrery::net
