// SPDX-License-Identifier: Apache-2.0
// Spreads jobs over threads and merges what they found.
#include "model/twin/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "model/arch/parameters.h"
#include "model/base/check.h"
#include "model/base/text.h"
#include "model/memory/software_memory.h"
#include "model/plan/ir/verify.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

constexpr std::size_t kDone = static_cast<std::size_t>(-1);

std::unique_ptr<Setting> MakeSetting(const SearchRequest& request, const Profiles& profiles,
                                     int64_t nodes, int64_t global_batch) {
  auto setting = std::make_unique<Setting>();
  setting->nodes = nodes;
  setting->cluster = Summarise(request.topology, nodes, request.gpus_per_node);
  setting->work = request.work;
  setting->work.global_batch = global_batch;
  setting->cost = {&profiles.gpu, &profiles.fabric, &profiles.framework, &setting->cluster};
  const auto price = request.node_price ? request.node_price : request.topology.node_price;
  if (price) setting->price = price->value / 3600.0 * static_cast<double>(nodes);
  return setting;
}

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
  asked.zero = fixed.zero.value_or(preset.zero.front());
  asked.sequence_parallel = fixed.sequence_parallel.value_or(false);
  asked.recompute = fixed.recompute.value_or(Recompute::kNone);
  asked.schedule = fixed.schedule.value_or(PipelineSchedule::k1F1B);
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
                                    {"dp", fixed.dp},
                                    {"dp-outer", fixed.dp_outer}}) {
    if (!value) continue;
    text += fmt::format("{}{} {}", count++ > 0 ? " x " : "", name, *value);
  }
  return text + (count == 1 ? " does not divide" : " do not divide");
}

void CheckArithmetic(const SearchRequest& request, const GpuProfile& gpu) {
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
  MakeSettings();
  MakeJobs();
}

void Runner::MakeSettings() {
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
      settings_.push_back(MakeSetting(request_, profiles_, count, batch));
      evaluators_.push_back(
          std::make_unique<Evaluator>(request_, preset_, limits_, *settings_.back(), memory_));
    }
  }
}

void Runner::MakeJobs() {
  const Space space(request_, preset_);
  for (std::size_t i = 0; i < settings_.size(); ++i) {
    const Setting& setting = *settings_[i];
    const std::vector<Job> degrees =
        space.Degrees(setting.cluster.ranks(), setting.cluster.domain_gpus());
    if (degrees.empty()) {
      throw InputError(
          fmt::format("{} the {} GPUs of {} node{}", FixedDegrees(request_.fixed),
                      setting.cluster.ranks(), setting.nodes, setting.nodes == 1 ? "" : "s"),
          "tp x pp x dp must be the number of GPUs");
    }
    for (const Job& degree : degrees) {
      std::vector<Job> jobs = space.Jobs(degree, setting.work.global_batch);
      if (jobs.empty()) CountUndivided(degree, static_cast<int>(i));
      for (Job& job : jobs) {
        job.setting = static_cast<int>(i);
        jobs_.push_back(job);
      }
    }
  }
}

// Degrees under which the batch does not divide: one strategy per choice, whatever the micro-batch.
void Runner::CountUndivided(const Job& degrees, int setting) {
  const int64_t strategies = Space(request_, preset_).Choices(degrees.tp, degrees.pp, degrees.data);
  counts_.space += strategies;
  counts_.illegal += strategies;
  const int64_t micro_batch = request_.fixed.micro_batch.value_or(1);
  Tally& tally = refusals_[fmt::format(
      "global batch {} does not divide by data-parallel ranks {} x micro-batch {}",
      settings_[setting]->work.global_batch, degrees.data, micro_batch)];
  tally.strategies += strategies;
  Strategy example;
  example.tp = degrees.tp;
  example.pp = degrees.pp;
  example.dp = degrees.data;
  tally.example = DescribeLayout(example);
}

void Runner::Run(bool prune) {
  results_.assign(jobs_.size(), {});
  next_.assign(jobs_.size(), 0);
  EvaluateOptions options;
  options.prune = prune;
  std::atomic<std::size_t> next{0};
  const auto work = [&](std::vector<std::unique_ptr<Evaluator>>& evaluators) {
    for (std::size_t i = next++; i < jobs_.size(); i = next++) {
      results_[i] = evaluators[jobs_[i].setting]->Run(jobs_[i], static_cast<int64_t>(i), options);
    }
  };
  int threads = request_.threads > 0 ? request_.threads
                                     : static_cast<int>(std::thread::hardware_concurrency());
  threads = std::clamp<int>(threads, 1, std::max<int>(1, static_cast<int>(jobs_.size() / 4)));
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) {
    pool.emplace_back([&] {
      std::vector<std::unique_ptr<Evaluator>> own;
      for (const auto& setting : settings_) {
        own.push_back(std::make_unique<Evaluator>(request_, preset_, limits_, *setting, memory_));
      }
      work(own);
    });
  }
  work(evaluators_);
  for (std::thread& thread : pool) thread.join();
  MergeCounts();
}

void Runner::MergeCounts() {
  for (const JobResult& result : results_) {
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

void Runner::Advance(std::size_t job) {
  JobResult& result = results_[job];
  if (++next_[job] < result.best.size()) return;
  if (!result.truncated) {
    next_[job] = kDone;
    return;
  }
  EvaluateOptions options;
  options.after = result.best.back().rank;
  result = evaluators_[jobs_[job].setting]->Run(jobs_[job], static_cast<int64_t>(job), options);
  next_[job] = result.best.empty() ? kDone : 0;
}

std::optional<Candidate> Runner::Next() {
  for (;;) {
    std::size_t first = kDone;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (next_[i] == kDone || next_[i] >= results_[i].best.size()) continue;
      if (first == kDone ||
          results_[i].best[next_[i]].rank < results_[first].best[next_[first]].rank)
        first = i;
    }
    if (first == kDone) return std::nullopt;
    Candidate candidate = Complete(results_[first].best[next_[first]], true);
    ++counts_.exact_memory;
    if (!candidate.memory->fits) {
      ++counts_.exact_over_memory;
      Advance(first);
      continue;
    }
    if (request_.variants) {
      Advance(first);
    } else {
      next_[first] = kDone;
    }
    return candidate;
  }
}

std::vector<Candidate> Runner::OtherLayouts(const Candidate& winner, std::size_t most) {
  std::map<std::pair<int, int>, std::vector<const Entry*>> layouts;
  for (const JobResult& result : results_) {
    for (const Entry& entry : result.best)
      layouts[{entry.strategy.tp, entry.strategy.pp}].push_back(&entry);
  }
  layouts.erase({winner.strategy.tp, winner.strategy.pp});
  std::vector<std::vector<const Entry*>> ordered;
  const auto better = [](const Entry* a, const Entry* b) { return a->rank < b->rank; };
  for (auto& [degrees, entries] : layouts) {
    std::sort(entries.begin(), entries.end(), better);
    ordered.push_back(std::move(entries));
  }
  std::sort(ordered.begin(), ordered.end(),
            [&](const auto& a, const auto& b) { return better(a[0], b[0]); });
  std::vector<Candidate> others;
  for (const auto& entries : ordered) {
    if (others.size() == most) break;
    for (const Entry* entry : entries) {
      Candidate candidate = Complete(*entry, true);
      ++counts_.exact_memory;
      if (!candidate.memory->fits) continue;
      others.push_back(std::move(candidate));
      break;
    }
  }
  return others;
}

std::vector<Candidate> Runner::NearMisses(const Candidate* winner, std::size_t most) {
  std::vector<const Entry*> entries;
  for (const JobResult& result : results_) {
    if (result.near_miss) entries.push_back(&*result.near_miss);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->rank < b->rank; });
  std::vector<Candidate> misses;
  for (const Entry* entry : entries) {
    if (misses.size() == most) break;
    const Setting& setting = *settings_[jobs_[entry->rank.job].setting];
    if (winner) {
      const double value =
          ObjectiveValue(request_.objective, winner->ClosedForm().total, SettingOf(*winner));
      if (ObjectiveValue(request_.objective, entry->seconds, setting) >= value) break;
    }
    ++counts_.exact_memory;
    misses.push_back(Complete(*entry, true));
  }
  return misses;
}

std::optional<Entry> Runner::BestOf(std::optional<Entry> JobResult::*member) const {
  std::optional<Entry> best;
  for (const JobResult& result : results_) {
    const std::optional<Entry>& entry = result.*member;
    if (entry && (!best || entry->rank < best->rank)) best = entry;
  }
  return best;
}

const Setting& Runner::SettingOf(const Candidate& candidate) const {
  for (const auto& setting : settings_) {
    if (setting->nodes == candidate.nodes && setting->work.global_batch == candidate.global_batch)
      return *setting;
  }
  ORRERY_CHECK(false, "no setting with {} nodes and batch {}", candidate.nodes,
               candidate.global_batch);
}

Candidate Runner::Complete(const Entry& entry, bool exact_memory) {
  return Fill(entry, static_cast<std::size_t>(jobs_[entry.rank.job].setting), exact_memory);
}

Candidate Runner::Fill(const Entry& entry, std::size_t index, bool exact_memory, bool digest) {
  const Setting& setting = *settings_[index];
  Candidate candidate;
  candidate.strategy = entry.strategy;
  candidate.nodes = setting.nodes;
  candidate.global_batch = setting.work.global_batch;
  candidate.micro_batches = MicroBatches(setting.work, entry.strategy);
  candidate.time = std::get<StepTime>(evaluators_[index]->predictor().Predict(entry.strategy));
  candidate.memory_bound = limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy));
  const double sequences = static_cast<double>(setting.work.global_batch);
  const double tokens = sequences * static_cast<double>(setting.work.seq_len);
  candidate.tokens_per_second = tokens / candidate.time.total;
  const double flops =
      ModelFlopsPerSequence(request_.model, setting.work.seq_len, setting.work.masked_positions)
          .value *
      sequences;
  const double peak = profiles_.gpu.Peak(setting.work.precision).value;
  candidate.mfu =
      flops / (candidate.time.total * static_cast<double>(entry.strategy.ranks()) * peak);
  if (setting.price) {
    candidate.price_per_step = Dollars(*setting.price * candidate.time.total);
    candidate.price_per_billion_tokens =
        Dollars(*setting.price * candidate.time.total / tokens * 1e9);
  }
  if (!exact_memory) return candidate;
  const LowerResult lowered = Lower(request_.model, setting.work, entry.strategy);
  const auto* plan = std::get_if<ir::Plan>(&lowered);
  ORRERY_CHECK(plan != nullptr, "{} is refused: {}", DescribeLayout(entry.strategy),
               std::get<Refusal>(lowered).reason);
  candidate.memory = ReportMemory(*plan, limits_, Communicators(entry.strategy));
  ir::VerifyOptions options;
  options.window = request_.window;
  if (digest) candidate.digest = ir::Digest(*plan);
  candidate.verify_findings = static_cast<int>(ir::Verify(*plan, options).size());
  return candidate;
}

std::variant<Candidate, Refusal> Runner::Assess(const Strategy& strategy) {
  const Setting& setting = *settings_.front();
  if (strategy.ranks() != setting.cluster.ranks()) {
    return Refusal{fmt::format("{} takes {} GPUs, the cluster has {}", DescribeLayout(strategy),
                               strategy.ranks(), setting.cluster.ranks()),
                   "tp x pp x dp must be the number of GPUs"};
  }
  const auto entry = evaluators_.front()->One(strategy);
  if (const auto* refusal = std::get_if<Refusal>(&entry)) return *refusal;
  return Fill(std::get<Entry>(entry), 0, true, true);
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
  auto entry = BestOf(&JobResult::near_miss);
  if (!entry) entry = BestOf(&JobResult::smallest);
  if (!entry) return "";
  const Job& job = jobs_[entry->rank.job];
  const Bytes total = limits_.Total(Bytes(entry->allocated), Communicators(entry->strategy));
  return fmt::format("asks at least {} of {} ({})", Format(total), Format(limits_.capacity),
                     DescribeLayout(entry->strategy, job.micro_batches));
}

}  // namespace orrery
