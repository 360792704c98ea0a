// SPDX-License-Identifier: Apache-2.0
// Spreads splits over threads and merges what they found.
#include "model/twin/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "model/base/check.h"
#include "model/base/parallel.h"
#include "model/base/text.h"
#include "model/memory/software_memory.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

constexpr std::size_t kDone = static_cast<std::size_t>(-1);

// "25 attention heads do not divide by tp 2" -> "attention heads do not divide by tp".
std::string WithoutNumbers(const std::string& reason) {
  std::string words;
  for (std::size_t i = 0; i < reason.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < reason.size() && reason[at] >= '0' && reason[at] <= '9';
    };
    const bool starts = i == 0 || reason[i - 1] == ' ';
    if (!digit(i) || !starts) {
      words += reason[i];
      continue;
    }
    while (digit(i + 1)) ++i;
    if (words.empty() && i + 1 < reason.size() && reason[i + 1] == ' ') ++i;
    if (!words.empty() && words.back() == ' ') words.pop_back();
  }
  return words;
}

void CheckFixed(const SearchRequest& request, const FrameworkPreset& preset) {
  const FixedAxes& fixed = request.fixed;
  for (const auto& [name, value] : {std::pair{"tp", fixed.tp},
                                    {"pp", fixed.pp},
                                    {"dp", fixed.dp},
                                    {"dp-outer", fixed.dp_outer},
                                    {"cp", fixed.cp},
                                    {"cp-inner", fixed.cp_inner},
                                    {"vpp", fixed.vpp},
                                    {"micro-batch", fixed.micro_batch}}) {
    if (value && *value < 1)
      throw InputError(fmt::format("{} is {}", name, *value), "every degree is at least 1");
  }
  if (fixed.zero && (*fixed.zero < 0 || *fixed.zero > 3)) {
    throw InputError(fmt::format("ZeRO stage {}", *fixed.zero), "stages are 0 to 3");
  }
  Strategy asked;
  asked.tp = fixed.tp.value_or(1);
  asked.pp = fixed.pp.value_or(1);
  asked.dp = 2;
  asked.dp_outer = fixed.dp_outer.value_or(1);
  asked.cp = fixed.cp.value_or(fixed.cp_method ? 2 : 1);
  asked.context.method = fixed.cp_method.value_or(preset.DefaultContext().method);
  asked.zero = fixed.zero.value_or(preset.zero.front());
  asked.sequence_parallel = fixed.sequence_parallel.value_or(false);
  asked.recompute = fixed.recompute.value_or(Recompute::kNone);
  asked.offload = fixed.offload.value_or(Offload{});
  asked.schedule = fixed.schedule.value_or(PipelineSchedule::k1F1B);
  asked.layout = fixed.layout;
  const std::string refusal = preset.Refuses(asked);
  if (!refusal.empty())
    throw InputError(refusal, "another --framework may: 'orrery' offers every axis");
}

// "tp 3 does not divide", "tp 8 x pp 3 do not divide": what the user fixed of the degrees.
std::string FixedDegrees(const FixedAxes& fixed) {
  std::string text;
  int count = 0;
  for (const auto& [name, value] : {std::pair{"tp", fixed.tp},
                                    {"pp", fixed.pp},
                                    {"cp", fixed.cp},
                                    {"dp", fixed.dp},
                                    {"dp-outer", fixed.dp_outer}}) {
    if (!value) continue;
    text += fmt::format("{}{} {}", count++ > 0 ? " x " : "", name, *value);
  }
  return text + (count == 1 ? " does not divide" : " do not divide");
}

void CheckArithmetic(const SearchRequest& request, const GpuProfile& gpu) {
  std::string hint;
  if (const std::string why = gpu.WhyNo(request.work.fp8, &hint); !why.empty())
    throw InputError(why, hint);
  if (gpu.Peak(request.work.precision).value > 0) return;
  std::string wrong, right;
  for (const auto& [name, precision] : kPrecisionNames) {
    if (precision == request.work.precision) wrong = name;
    if (gpu.Peak(precision).value > 0)
      right += fmt::format("{}{}", right.empty() ? "" : ", ", name);
  }
  throw InputError(fmt::format("{} has no {} arithmetic", gpu.header.id, wrong),
                   fmt::format("give --precision, one of: {}", right));
}

}  // namespace

Runner::Runner(const SearchRequest& request, const Profiles& profiles)
    : request_(request),
      profiles_(profiles),
      preset_(FindFramework(request.framework)),
      limits_(LimitsOf(profiles.gpu, profiles.framework)),
      memory_(request.model, request.work, limits_.allocation) {
  if (request.memory_limit) limits_.capacity = *request.memory_limit;
  CheckArithmetic(request, profiles.gpu);
  CheckFixed(request, preset_);
  if (request.work.seq_len < 1)
    throw InputError("the sequence length must be at least 1", "give --seq-len");
  MakeJobs();
  MakeSplits();
}

void Runner::MakeJobs() {
  const bool priced = request_.objective != Objective::kTime;
  if (priced && !request_.node_price && !request_.topology.node_price) {
    throw InputError(fmt::format("topology '{}' has no price, but the objective needs one",
                                 request_.topology.name),
                     "give a price per node and hour, or use the objective time");
  }
  std::vector<int64_t> nodes = request_.nodes, batches = request_.global_batches;
  if (nodes.empty()) nodes = {request_.topology.nodes};
  if (batches.empty()) batches = {request_.work.global_batch};
  for (const int64_t count : nodes) {
    for (const int64_t batch : batches) {
      if (batch < 1)
        throw InputError(fmt::format("global batch {}", batch), "at least one sequence per step");
      jobs_.push_back(orrery::JobOf(request_, profiles_, count, batch));
      evaluators_.push_back(
          std::make_unique<Evaluator>(request_, preset_, limits_, jobs_.back(), memory_));
    }
  }
}

void Runner::MakeSplits() {
  const Space space(request_, preset_);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    const std::vector<Split> degrees =
        space.Degrees(job.cluster.ranks(), job.cluster.domain_gpus());
    if (degrees.empty()) {
      SearchRequest free = request_;
      free.fixed.zero.reset(), free.fixed.vpp.reset(), free.fixed.sequence_parallel.reset();
      if (!Space(free, preset_).Degrees(job.cluster.ranks(), job.cluster.domain_gpus()).empty())
        throw InputError(
            "the fixed axes contradict each other: ZeRO 1 to 3 needs data-parallel ranks, model "
            "chunks need pipeline stages, sequence parallelism needs tensor-parallel ranks",
            "fix fewer of them");
      throw InputError(
          fmt::format("{} the {} GPUs of {} node{}", FixedDegrees(request_.fixed),
                      job.cluster.ranks(), job.cluster.nodes, job.cluster.nodes == 1 ? "" : "s"),
          "tp x pp x dp must be the number of GPUs");
    }
    for (const Split& degree : degrees) {
      std::vector<Split> splits = space.Splits(degree, job.work.global_batch);
      if (splits.empty()) CountUndivided(degree, static_cast<int>(i));
      for (Split& split : splits) {
        split.job = static_cast<int>(i);
        splits_.push_back(split);
      }
    }
  }
}

// Degrees under which the batch does not divide: one strategy per choice, whatever the micro-batch.
void Runner::CountUndivided(const Split& degrees, int job) {
  const int64_t strategies =
      Space(request_, preset_).Choices(degrees, jobs_[job].cluster.domain_gpus());
  counts_.space += strategies;
  counts_.illegal += strategies;
  const int64_t micro_batch = request_.fixed.micro_batch.value_or(1);
  Tally& tally = refusals_[fmt::format(
      "global batch {} does not divide by data-parallel ranks {} x micro-batch {}",
      jobs_[job].work.global_batch, degrees.data, micro_batch)];
  tally.strategies += strategies;
  Strategy example;
  example.tp = degrees.tp;
  example.pp = degrees.pp;
  example.cp = degrees.cp;
  example.dp = degrees.data;
  tally.example = DescribeLayout(example);
}

void Runner::Run(bool prune) {
  results_.assign(splits_.size(), {});
  next_.assign(splits_.size(), 0);
  given_.assign(splits_.size(), 0);
  EvaluateOptions options;
  options.prune = prune;
  std::atomic<std::size_t> next{0};
  const auto work = [&](std::vector<std::unique_ptr<Evaluator>>& evaluators) {
    for (std::size_t i = next++; i < splits_.size(); i = next++) {
      results_[i] = evaluators[splits_[i].job]->Run(splits_[i], static_cast<int64_t>(i), options);
      if (request_.progress)
        request_.progress("searching",
                          static_cast<double>(i + 1) / static_cast<double>(splits_.size()));
    }
  };
  int threads = request_.threads > 0 ? request_.threads
                                     : static_cast<int>(std::thread::hardware_concurrency());
  threads = std::clamp<int>(threads, 1, std::max<int>(1, static_cast<int>(splits_.size() / 4)));
  OnThreads(threads, [&](int thread) {
    if (thread == 0) return work(evaluators_);
    std::vector<std::unique_ptr<Evaluator>> own;
    for (const Job& job : jobs_) {
      own.push_back(std::make_unique<Evaluator>(request_, preset_, limits_, job, memory_));
    }
    work(own);
  });
  MergeCounts();
}

void Runner::MergeCounts() {
  for (const SplitResult& result : results_) {
    counts_.space += result.counts.space;
    counts_.illegal += result.counts.illegal;
    counts_.over_memory += result.counts.over_memory;
    counts_.bounded += result.counts.bounded;
    counts_.evaluated += result.counts.evaluated;
    for (const auto& [reason, tally] : result.refusals) {
      Tally& merged = refusals_[reason];
      merged.strategies += tally.strategies;
      if (merged.example.empty()) merged.example = tally.example;
    }
  }
}

const Entry* Runner::Head(std::size_t split) {
  SplitResult& result = results_[split];
  if (next_[split] >= result.best.size() && result.truncated && !result.best.empty()) {
    EvaluateOptions options;
    options.after = result.best.back().rank;
    const SplitResult more =
        evaluators_[splits_[split].job]->Run(splits_[split], static_cast<int64_t>(split), options);
    result.best.insert(result.best.end(), more.best.begin(), more.best.end());
    result.truncated = more.truncated;
  }
  return next_[split] < result.best.size() ? &result.best[next_[split]] : nullptr;
}

// `every`: splits that gave a candidate already, too.
std::size_t Runner::FirstSplit(bool every) {
  std::size_t first = kDone;
  const Entry* best = nullptr;
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    if (!every && given_[i] != 0) continue;
    const Entry* entry = Head(i);
    if (entry == nullptr || (best != nullptr && !(entry->rank < best->rank))) continue;
    best = entry, first = i;
  }
  return first;
}

std::optional<Candidate> Runner::Suited(double value, bool every, std::size_t* split) {
  const double margin = limits_.capacity.value * limits_.nearly_full;
  for (;;) {
    const std::size_t first = FirstSplit(every);
    if (first == kDone || Head(first)->rank.value >= value) return std::nullopt;
    const Entry entry = *Head(first);
    // The bound is below the exact memory: above the margin it decides without a plan.
    if (limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy)).value > margin) {
      nearly_full_.emplace(entry.rank, entry);
      ++next_[first];
      continue;
    }
    Candidate candidate = Complete(entry, true);
    if (candidate.memory->fits && !candidate.memory->nearly_full) {
      *split = first;
      return candidate;
    }
    if (candidate.memory->fits) nearly_full_.emplace(entry.rank, entry);
    counts_.exact_over_memory += !candidate.memory->fits;
    ++next_[first];
  }
}

std::optional<Candidate> Runner::NextBelow(double value, bool every) {
  std::size_t split = 0;
  std::optional<Candidate> candidate = Suited(value, every, &split);
  if (!candidate) return std::nullopt;
  ++next_[split];
  given_[split] = variants() ? 0 : 1;
  return candidate;
}

std::optional<Candidate> Runner::Next() {
  return NextBelow(std::numeric_limits<double>::infinity(), false);
}

bool Runner::AnyBelow(double value) {
  std::size_t split = 0;
  return Suited(value, true, &split).has_value();
}

std::optional<Candidate> Runner::BestNearlyFull(double value) {
  for (const auto& [rank, entry] : nearly_full_) {
    if (rank.value >= value) break;
    Candidate candidate = Complete(entry, true);
    if (candidate.memory->fits) return candidate;
  }
  return std::nullopt;
}

std::optional<Candidate> Runner::NextNearlyFull() {
  for (const auto& [rank, entry] : nearly_full_) {
    const auto split = static_cast<std::size_t>(rank.split);
    if ((full_given_ && rank <= *full_given_) || given_[split] != 0) continue;
    full_given_ = rank;
    Candidate candidate = Complete(entry, true);
    if (!candidate.memory->fits) {
      ++counts_.exact_over_memory;
      continue;
    }
    given_[split] = variants() ? 0 : 1;
    return candidate;
  }
  return std::nullopt;
}

// By (tp, pp), each list and the lists best first.
std::vector<std::vector<const Entry*>> Runner::Layouts() const {
  std::map<std::pair<int, int>, std::vector<const Entry*>> layouts;
  for (const SplitResult& result : results_) {
    for (const Entry& entry : result.best)
      layouts[{entry.strategy.tp, entry.strategy.pp}].push_back(&entry);
  }
  std::vector<std::vector<const Entry*>> ordered;
  const auto better = [](const Entry* a, const Entry* b) { return a->rank < b->rank; };
  for (auto& [degrees, entries] : layouts) {
    std::sort(entries.begin(), entries.end(), better);
    ordered.push_back(std::move(entries));
  }
  std::sort(ordered.begin(), ordered.end(),
            [&](const auto& a, const auto& b) { return better(a[0], b[0]); });
  return ordered;
}

void Runner::Prepare(std::size_t rows, std::size_t layouts) {
  std::vector<const Entry*> entries;
  for (const SplitResult& result : results_) {
    if (!result.best.empty()) entries.push_back(&result.best.front());
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->rank < b->rank; });
  if (entries.size() > rows) entries.resize(rows);
  const std::vector<std::vector<const Entry*>> best = Layouts();
  for (std::size_t i = 0; i < std::min(layouts, best.size()); ++i) entries.push_back(best[i][0]);
  std::vector<Candidate*> works;
  for (const Entry* entry : entries) {
    const auto [at, added] = completed_.try_emplace({entry->rank.split, entry->rank.sequence});
    if (!added) continue;
    at->second = Fill(*entry);
    works.push_back(&at->second);
  }
  counts_.exact_memory += static_cast<int64_t>(works.size());
  std::atomic<std::size_t> next{0};
  const int threads = request_.threads > 0 ? request_.threads
                                           : static_cast<int>(std::thread::hardware_concurrency());
  OnThreads(std::min(threads, static_cast<int>(works.size())), [&](int) {
    for (std::size_t i = next++; i < works.size(); i = next++) LayOut(works[i]);
  });
}

std::vector<Candidate> Runner::BestOfEachLayout(std::size_t most) {
  std::vector<Candidate> found;
  for (const auto& entries : Layouts()) {
    if (found.size() == most) break;
    for (const Entry* entry : entries) {
      Candidate candidate = Complete(*entry, true);
      if (!candidate.memory->fits || candidate.memory->nearly_full) continue;
      found.push_back(std::move(candidate));
      break;
    }
  }
  return found;
}

std::vector<Candidate> Runner::NearMisses(double value, std::size_t most) {
  std::vector<const Entry*> entries;
  for (const SplitResult& result : results_) {
    if (result.near_miss && result.near_miss->rank.value < value)
      entries.push_back(&*result.near_miss);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->rank < b->rank; });
  if (entries.size() > most) entries.resize(most);
  std::vector<Candidate> misses;
  for (const Entry* entry : entries) misses.push_back(Complete(*entry, true));
  return misses;
}

std::optional<Entry> Runner::BestOf(std::optional<Entry> SplitResult::*member) const {
  std::optional<Entry> best;
  for (const SplitResult& result : results_) {
    const std::optional<Entry>& entry = result.*member;
    if (entry && (!best || entry->rank < best->rank)) best = entry;
  }
  return best;
}

const Job& Runner::JobOf(const Candidate& candidate) const {
  for (const Job& job : jobs_) {
    if (job.cluster.nodes == candidate.nodes && job.work.global_batch == candidate.global_batch)
      return job;
  }
  ORRERY_CHECK(false, "no job with {} nodes and batch {}", candidate.nodes, candidate.global_batch);
}

Candidate Runner::Complete(const Entry& entry, bool exact_memory) {
  if (!exact_memory) return Fill(entry);
  const auto [at, added] = completed_.try_emplace({entry.rank.split, entry.rank.sequence});
  if (added) {
    at->second = Fill(entry);
    LayOut(&at->second);
    ++counts_.exact_memory;
  }
  return at->second;
}

Candidate Runner::Fill(const Entry& entry) const {
  const auto index = static_cast<std::size_t>(splits_[entry.rank.split].job);
  Candidate candidate{
      PredictionOf(jobs_[index], entry.strategy,
                   std::get<StepTime>(evaluators_[index]->predictor().Predict(entry.strategy)))};
  candidate.memory_bound = limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy));
  return candidate;
}

void Runner::LayOut(Candidate* candidate) const {
  const Job& job = JobOf(*candidate);
  auto plan = std::make_shared<const ir::Plan>(LowerLegal(job, candidate->strategy));
  AddLayout(job, *plan, request_.window, candidate);
  candidate->plan = std::move(plan);
}

std::vector<Rejection> Runner::Rejections() const {
  std::vector<Rejection> rejections;
  std::map<std::string, std::size_t> by_words;
  for (const auto& [reason, tally] : refusals_) {
    const std::string words = WithoutNumbers(reason);
    const auto [at, fresh] = by_words.emplace(words, rejections.size());
    if (fresh) rejections.push_back({words, 0, fmt::format("{} ({})", reason, tally.example)});
    rejections[at->second].strategies += tally.strategies;
  }
  if (counts_.over_memory > 0)
    rejections.push_back({"out of memory", counts_.over_memory, MemoryExample()});
  std::stable_sort(
      rejections.begin(), rejections.end(),
      [](const Rejection& a, const Rejection& b) { return a.strategies > b.strategies; });
  return rejections;
}

std::string Runner::MemoryExample() const {
  auto entry = BestOf(&SplitResult::near_miss);
  if (!entry) entry = BestOf(&SplitResult::smallest);
  if (!entry) return "";
  const Split& split = splits_[entry->rank.split];
  const Bytes total = limits_.Total(Bytes(entry->allocated), Communicators(entry->strategy));
  return fmt::format("needs at least {} of {} ({})", Format(total), Format(limits_.capacity),
                     DescribeLayout(entry->strategy, split.micro_batches));
}

}  // namespace orrery
