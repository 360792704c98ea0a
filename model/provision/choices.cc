// SPDX-License-Identifier: Apache-2.0
// Which node counts and batches an offer leaves, and why none of them runs.
#include "model/provision/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "model/twin/explain.h"
#include "model/twin/other_nodes.h"

namespace orrery {
namespace {

int GpusPerNode(const Site& site) {
  const SearchRequest& request = site.request;
  return request.gpus_per_node > 0 ? request.gpus_per_node : request.topology.node.gpus;
}

// A seller's own sizes: powers of two may be none of them.
std::set<int64_t> SoldInSteps(const Question& question, const Quote& quote) {
  constexpr int64_t kFewSizes = 20;
  std::set<int64_t> sizes;
  if (!question.any_nodes || quote.offer.step == 1) return sizes;
  const auto [low, high] = *question.any_nodes;
  const int64_t step = quote.offer.step, most = std::min(high, quote.MostSold());
  int64_t size = quote.offer.least_nodes;
  if (size < low) size += (low - size + step - 1) / step * step;
  if (most < size || (most - size) / step >= kFewSizes) return sizes;
  for (; size <= most; size += step) sizes.insert(size);
  return sizes;
}

}  // namespace

int64_t MostNodes(const Quote& quote, const Site& site) {
  return std::min(
      {site.request.topology.max_nodes, NodesThatCompute(site.request.topology), quote.MostSold()});
}

std::vector<int64_t> NodesOf(const Question& question, const Quote& quote, const Site& site) {
  const int64_t most = MostNodes(quote, site);
  // Spares make up whole steps where those that work do not.
  const auto sold = [&](int64_t count) {
    if (question.conditions.spares) return quote.Sells(count + *question.conditions.spares);
    for (int64_t more = 0; more < quote.offer.step; ++more)
      if (quote.Sells(count + more)) return true;
    return false;
  };
  std::set<int64_t> counts(question.nodes.begin(), question.nodes.end());
  counts.merge(SoldInSteps(question, quote));
  std::vector<int64_t> nodes;
  for (const int64_t count : counts) {
    const int64_t spares = question.conditions.spares.value_or(0);
    if (count + spares <= most && sold(count) && NodesPerDomain(site.request.topology, count) > 0)
      nodes.push_back(count);
  }
  return nodes;
}

std::vector<BatchSpan> BatchesOf(const Question& question, const Site& site) {
  if (!site.batches.empty()) return site.batches;
  return {SequencesOf(question.range, site.request.work.seq_len)};
}

std::vector<BatchSpan> SearchedBatches(const Question& question, const Site& site) {
  constexpr double kFewSteps = 1000;  // of more, the last one is less than a thousandth
  const double sequences =
      std::ceil(question.conditions.tokens / static_cast<double>(site.request.work.seq_len));
  std::vector<BatchSpan> searched;
  for (BatchSpan rest : BatchesOf(question, site)) {
    std::vector<BatchSpan> parts;
    if (static_cast<double>(rest.most) > sequences)
      rest.most = std::max(rest.least, static_cast<int64_t>(sequences));
    while (rest.least < rest.most && sequences / static_cast<double>(rest.most) < kFewSteps) {
      const int64_t half = std::max(rest.least, rest.most / 2);
      parts.push_back({half + 1, rest.most});
      rest.most = half;
    }
    parts.push_back(rest);
    searched.insert(searched.end(), parts.rbegin(), parts.rend());
  }
  return searched;
}

double RunSeconds(const Question& question, const FastestLayouts::Found& found) {
  const double steps = std::ceil(question.conditions.tokens / found.candidate.tokens * (1 - 1e-12));
  return steps * found.seconds * static_cast<double>(found.candidate.global_batch);
}

std::optional<Row> JustBeyond(const Question& question, const Quote& quote, const Site& site,
                              const Row& row) {
  constexpr double kLeastGain = 0.01;
  const int64_t most = BatchesOf(question, site).back().most;
  const BatchSpan beyond{most + 1, most + std::max<int64_t>(1, most / 4)};
  ShapeCache shapes;
  const auto found = FastestLayouts(site.request, site.profiles)
                         .Find(row.nodes, beyond, &shapes, SearchInput(question.conditions).reader);
  if (!found) return std::nullopt;
  Row other = row;
  other.candidate = found->candidate;
  other.candidate.plan = nullptr;
  other.run = EstimateRun(question.conditions, found->job, other.candidate, &quote);
  Prediction closed = row.candidate;
  closed.SetTime(row.candidate.ClosedForm());
  const Job job = JobOf(site.request, site.profiles, row.nodes, row.candidate.global_batch);
  const RunEstimate now = EstimateRun(question.conditions, job, closed, &quote);
  if (other.run.time > now.time * (1 - kLeastGain)) return std::nullopt;
  return other;
}

std::string WhyNotSold(const Question& question, const Quote& quote, const Site& site) {
  const int64_t spares = question.conditions.spares.value_or(0);
  const int64_t least = quote.offer.least_nodes, most = MostNodes(quote, site);
  std::string sold = most == least
                         ? fmt::format("{} node{} sold", most, most == 1 ? " is" : "s are")
                         : fmt::format("{} to {} nodes are sold", least, most);
  if (quote.offer.step > 1) sold += fmt::format(", in steps of {}", quote.offer.step);
  if (NodesThatCompute(site.request.topology) < site.request.topology.max_nodes)
    sold += " with GPUs that compute in the job's precision";
  return fmt::format("none of the node counts is sold{}: {}",
                     spares > 0 ? fmt::format(" with {} spares", spares) : "", sold);
}

void DropSpares(const Question& question, std::vector<Row>* rows) {
  std::map<std::pair<std::size_t, int64_t>, std::size_t> kept;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const Row& row = (*rows)[i];
    const auto [at, fresh] = kept.try_emplace({row.quote, row.nodes}, i);
    const Row& best = (*rows)[at->second];
    const bool late = question.deadline && best.run.time > *question.deadline;
    if (!fresh && late && row.run.time < best.run.time) at->second = i;
  }
  std::vector<Row> left;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    Row& row = (*rows)[i];
    if (row.on_frontier || kept.at({row.quote, row.nodes}) == i) left.push_back(std::move(row));
  }
  *rows = std::move(left);
}

std::string WhyNoLayout(const Question& question, const Site& site,
                        const std::vector<int64_t>& nodes) {
  std::string words;
  const BatchSpan batches = BatchesOf(question, site).back();
  // From the most memory on. Where sequences do not divide, the fewest GPUs give the smallest batch that would do.
  for (auto count = nodes.rbegin(); count != nodes.rend(); ++count) {
    SearchRequest request = site.request;
    request.nodes = {*count};
    const int64_t gpus = *count * GpusPerNode(site);
    request.global_batches = {DividingBatch(batches, gpus)};
    request.top = 1;
    request.refine = 0;
    // What is legal with larger micro-batches is legal with these, which need least memory.
    request.fixed.micro_batch = 1;
    request.fixed.recompute = Recompute::kFull;
    const SearchResult result = SearchOnly(request, site.profiles);
    if (NothingIsLegal(result)) {
      // Advised where a rule is known.
      const int64_t other =
          question.range.most > 0
              ? DividingBatch(SequencesOf(question.range, request.work.seq_len), gpus)
              : BatchThatDivides(request.global_batches[0], gpus);
      words = WhyNothingIsLegal(result, request.global_batches[0], gpus, 1);
      if (other != request.global_batches[0])
        words += fmt::format(" (such as --global-batch {})", other);
      continue;
    }
    const std::string at = fmt::format("{} node{}", *count, *count == 1 ? "" : "s");
    if (result.feasible())
      return fmt::format("fits on {} without the memory margin alone (--memory-margin)", at);
    for (const Rejection& rejection : result.rejections) {
      if (rejection.reason == kOutOfMemory)
        return fmt::format("out of memory: with {} a GPU {}", at,
                           rejection.example.substr(0, rejection.example.find(" (")));
    }
    return fmt::format("out of memory on {}", at);
  }
  return words;
}

}  // namespace orrery
