// SPDX-License-Identifier: Apache-2.0
// best_layout MODEL TOPOLOGY NODES BATCH: the fastest layout in closed form, with liborrery.
#include <cstdio>
#include <cstdlib>

#include "model/arch/catalogue.h"
#include "model/base/diagnostics.h"
#include "model/hardware/catalog.h"
#include "model/twin/search.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    const orrery::LoadedModel model = orrery::LoadModel(argv[1]);
    orrery::SearchRequest request;
    request.model = model.spec;
    request.topology = orrery::LoadTopology(argv[2]);
    request.nodes = {std::atoll(argv[3])};
    request.work.seq_len = model.defaults.seq_len.value_or(1024);
    request.work.global_batch = std::atoll(argv[4]);
    request.framework = "megatron";
    const orrery::SearchResult result = orrery::Search(request);
    if (!result.feasible()) return 3;
    const orrery::Candidate& best = result.ranked.front();
    std::printf("%s: %.9g s\n", orrery::DescribeLayout(best.strategy).c_str(), best.time.total);
    return 0;
  } catch (const orrery::InputError& error) {
    std::fprintf(stderr, "%s", error.what());
    return 2;
  }
}
