// SPDX-License-Identifier: Apache-2.0
// Shares models, memory forms and shapes among topologies; picks the batch of the shortest run.
#include "model/provision/site_layouts.h"

#include <limits>
#include <thread>
#include <utility>

#include "model/provision/choices.h"

namespace orrery {

// Models and memory forms are shared by topologies that compute in the same precision and allocate alike.
SiteLayouts::SiteLayouts(const Question& question, const std::vector<Site>& sites)
    : question_(question), sites_(sites) {
  const int threads = question.threads > 0
                          ? question.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  shapes_.resize(static_cast<std::size_t>(threads));
  std::map<std::pair<std::string, Allocation>, std::shared_ptr<MemoryModel>> memories;
  for (const Site& site : sites_) {
    const Allocation allocation = AllocationOf(site.profiles.framework);
    const Workload& work = site.request.work;
    kinds_.push_back(
        std::to_string(static_cast<int>(work.precision)) + "/" +
        std::to_string(static_cast<int>(work.optimizer)) + "/" + std::to_string(work.seq_len) +
        "/" + std::to_string(work.masked_positions) + "/" + std::to_string(work.dropout) + "/" +
        std::to_string(work.AttentionDropout()) + "/" + std::to_string(work.clip_norm));
    const std::pair key(kinds_.back(), allocation);
    layouts_.push_back(
        std::make_unique<FastestLayouts>(site.request, site.profiles, memories[key]));
    memories[key] = layouts_.back()->memory();
  }
}

Job SiteLayouts::JobAt(std::size_t site, int64_t nodes, int64_t batch) const {
  return JobOf(sites_[site].request, sites_[site].profiles, nodes, batch);
}

double SiteLayouts::LeastGpuSeconds(std::size_t site, int64_t nodes, std::size_t thread) {
  return layouts_[site]->LeastGpuSeconds(nodes, ShapesOf(site, thread));
}

double SiteLayouts::Settle(std::size_t site, FastestLayouts::Found* found, std::size_t most_rivals,
                           std::size_t thread) {
  return layouts_[site]->Settle(found, ShapesOf(site, thread),
                                SearchInput(question_.conditions).reader, most_rivals);
}

std::optional<FastestLayouts::Found> SiteLayouts::FindOn(std::size_t site, int64_t nodes,
                                                         const BatchSpan& batches, double below,
                                                         std::size_t thread) {
  return layouts_[site]->Find(nodes, batches, ShapesOf(site, thread),
                              SearchInput(question_.conditions).reader, below);
}

std::optional<FastestLayouts::Found> SiteLayouts::Fastest(std::size_t site, int64_t nodes,
                                                          double below, std::size_t thread) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<BatchSpan> spans = SearchedBatches(question_, sites_[site]);
  std::vector<std::optional<FastestLayouts::Found>> of_spans;
  for (const BatchSpan& batches : spans)
    of_spans.push_back(FindOn(site, nodes, batches, below, thread));
  if (std::ranges::none_of(of_spans, [](const auto& of) { return of.has_value(); }))
    return std::nullopt;
  std::optional<FastestLayouts::Found> best;
  double least = kInfinity;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    std::optional<FastestLayouts::Found>& found = of_spans[i];
    // Runs have whole steps, so that of two batches the one with more seconds per sequence may end first.
    if (!found && below < kInfinity) found = FindOn(site, nodes, spans[i], kInfinity, thread);
    if (!found) continue;
    const double seconds = RunSeconds(question_, *found);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(found);
  }
  return best;
}

int64_t SiteLayouts::looked() const {
  int64_t looked = 0;
  for (const auto& layouts : layouts_) looked += layouts->looked();
  return looked;
}

}  // namespace orrery
