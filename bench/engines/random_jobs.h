// SPDX-License-Identifier: Apache-2.0
// Random jobs: a layout drawn at random, of a random model on a random cluster under a random framework.
//
// Drawn: what a framework offers of degrees, schedules, recomputation, ZeRO, hybrid sharding, shared sequences and offload;
// micro-batches from one on; optimizer, precision and recipe of low precision; the network. Whether a layout fits into memory
// plays no part.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "model/twin/search.h"

namespace orrery {

// Everything that the job points into: neither copied nor moved.
struct RandomJob {
  SearchRequest request;
  Profiles profiles;
  Job job;
  Strategy layout;  // legal, and on offer
  std::string name;
};

enum class DrawnJobs {
  kCatalogue,  // any model, powers of two of whole nodes
  kUsers,      // a few models that people try first, 1 to 16 nodes of which 1 to all GPUs are used
};

// The job with a number under a seed: always the same. Null: hundreds of draws contradicted themselves.
std::unique_ptr<RandomJob> DrawJob(uint64_t seed, uint64_t number,
                                   DrawnJobs kind = DrawnJobs::kCatalogue);

}  // namespace orrery
