// SPDX-License-Identifier: Apache-2.0
// Term-by-term differences between layouts, and the winner's step with more of each resource.
#include "model/twin/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "model/base/text.h"
#include "model/twin/evaluator.h"

namespace orrery {
namespace {

constexpr double kLeastGain = 0.005;  // smaller ones are noise

std::string Seconds_(double seconds) { return Format(Seconds(std::abs(seconds))); }

// "saves 0.8 s of pipeline bubble and 0.1 s of optimizer, pays 0.2 s of compute"
std::string SavesAndPays(const std::vector<TermDifference>& terms, double scale) {
  std::string saves, pays;
  for (const TermDifference& term : terms) {
    if (std::abs(term.seconds) < 0.005 * scale) continue;
    std::string& list = term.seconds > 0 ? saves : pays;
    list += fmt::format("{}{} of {}", list.empty() ? "" : ", ", Seconds_(term.seconds), term.term);
  }
  if (saves.empty() && pays.empty()) return "no term differs by more than 0.5 %";
  if (saves.empty()) return "pays " + pays;
  return pays.empty() ? "saves " + saves : "saves " + saves + "; pays " + pays;
}

// Of what one resource costs: a constant, and what takes that time.
struct Part {
  const char* constant;
  const char* what;
  Seconds FrameworkProfile::*seconds;
};

constexpr Part kIssuing[] = {
    {"host_forward_op", "ops of the forward pass", &FrameworkProfile::host_forward_op},
    {"host_backward_op", "ops of the backward pass", &FrameworkProfile::host_backward_op},
    {"host_collective", "collectives inside layers", &FrameworkProfile::host_collective},
    {"host_module", "hooks that gather the weights of modules", &FrameworkProfile::host_module},
    {"host_unfused_softmax", "unfused softmax", &FrameworkProfile::host_unfused_softmax},
};
constexpr Part kLatencies[] = {
    {"tensor_latency", "tensor-parallel collectives", &FrameworkProfile::tensor_latency},
    {"tensor_latency_per_rank", "tensor-parallel collectives",
     &FrameworkProfile::tensor_latency_per_rank},
    {"gather_latency", "gathers of sharded weights", &FrameworkProfile::gather_latency},
    {"pipeline_latency", "transfers between stages", &FrameworkProfile::pipeline_latency},
};

struct Resource {
  const char* name;
  const char* what;
  void (*twice)(Profiles&, ClusterSummary&);
  std::span<const Part> parts;  // halved as well
};

constexpr Resource kResources[] = {
    {"arithmetic",
     "twice the arithmetic rate",
     [](Profiles& p, ClusterSummary&) {
       for (FlopsPerSecond* peak :
            {&p.gpu.peak_fp32, &p.gpu.peak_tf32, &p.gpu.peak_fp16, &p.gpu.peak_bf16})
         *peak *= 2.0;
     },
     {}},
    {"memory bandwidth",
     "twice the memory bandwidth",
     [](Profiles& p, ClusterSummary&) { p.gpu.memory_bandwidth *= 2.0; },
     {}},
    {"links inside a node",
     "twice the rate of the links inside a node",
     [](Profiles&, ClusterSummary& c) {
       c.scaleup_per_gpu *= 2.0;
       c.per_link *= 2.0;
       c.pcie_rate *= 2.0;
     },
     {}},
    {"network between nodes",
     "twice the rate of the network between nodes",
     [](Profiles&, ClusterSummary& c) { c.nic_rate *= 2.0; },
     {}},
    {"latency", "half the latency of every message",
     [](Profiles& p, ClusterSummary& c) {
       for (Seconds* s : {&p.gpu.scaleup_hop, &p.gpu.nvls_round_trip, &p.gpu.collective_launch,
                          &p.gpu.bandwidth_launch, &p.fabric.hop, &p.fabric.launch,
                          &p.fabric.bandwidth_launch, &c.fabric_latency})
         *s *= 0.5;
     },
     kLatencies},
    {"host", "a host that issues all its work twice as fast", [](Profiles&, ClusterSummary&) {},
     kIssuing},
};

std::string LimitWords(const char* what, double before, double after) {
  return fmt::format("{}: {} instead of {} ({:.1f} % less)", what, Format(Seconds(after)),
                     Format(Seconds(before)), 100.0 * (1.0 - after / before));
}

// "16 nodes, batch 1024, tp 2, pp 1, ...": what is the winner's is not said.
std::string NamedBeside(const Candidate& winner, const Candidate& other) {
  std::string text;
  if (other.nodes != winner.nodes)
    text += fmt::format("{} node{}, ", other.nodes, other.nodes == 1 ? "" : "s");
  if (other.global_batch != winner.global_batch)
    text += fmt::format("batch {}, ", other.global_batch);
  return text + DescribeLayout(other.strategy, other.micro_batches);
}

double Messages(const Breakdown& time) { return time.Exposed() + time.Hidden(); }

// The winner's step when the closed form of its terms becomes `after`. A term that shrinks does so in proportion in the
// step of the answer, contention in proportion to all messages; what a term gains is added.
double WithChange(const Candidate& winner, const StepTime& after) {
  const StepTime& closed = winner.ClosedForm();
  const auto shrunk = [](double before, double now) {
    return before > 0 && now < before ? std::max(0.0, now) / before : 1.0;
  };
  double total = winner.time.total;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double before = closed.*term.seconds, now = after.*term.seconds;
    const double share = term.seconds == &Breakdown::contention
                             ? shrunk(Messages(closed), Messages(after))
                             : shrunk(before, now);
    total += winner.time.*term.seconds * (share - 1) + std::max(0.0, now - before);
  }
  return total;
}

}  // namespace

Comparison Compare(const Candidate& winner, const Candidate& other, const ComparedBy& by) {
  Comparison comparison;
  comparison.other = other;
  // Where only one of them is simulated, what both have.
  const bool like = winner.simulated.has_value() == other.simulated.has_value();
  const StepTime& my_time = like ? winner.time : winner.ClosedForm();
  const StepTime& its_time = like ? other.time : other.ClosedForm();
  for (const BreakdownTerm& term : BreakdownTerms())
    comparison.terms.push_back(
        {term.name, by.weight * its_time.*term.seconds - my_time.*term.seconds});
  std::stable_sort(
      comparison.terms.begin(), comparison.terms.end(),
      [](const auto& a, const auto& b) { return std::abs(a.seconds) > std::abs(b.seconds); });
  const double mine = my_time.total;
  const double its = its_time.total;
  const std::string layout = NamedBeside(winner, other);
  const auto more = [&](double its_step, double my_step) {
    const double counted = by.weight * its_step;
    return std::abs(by.weight - 1) < 1e-9
               ? fmt::format("{:+.1f} %", 100.0 * (counted / my_step - 1.0))
               : fmt::format("counts as {} of 1, {:+.1f} %", Format(Seconds(counted)),
                             100.0 * (counted / my_step - 1.0));
  };
  if (by.winner_fed > mine || by.other_fed > its) {
    const double with = std::max(its, by.other_fed), ours = std::max(mine, by.winner_fed);
    comparison.words = fmt::format(
        "against {} ({} per step with its input{}, {}; 1: {}; without input {})", layout,
        Format(Seconds(with * by.slowest)), by.slowest > 1 ? " and its slowest node" : "",
        more(with, ours), Format(Seconds(ours * by.slowest)), Format(Seconds(its)));
    return comparison;
  }
  const char* engine = !like ? ", both in closed form" : other.simulated ? ", simulated" : "";
  comparison.words =
      fmt::format("against {} ({} per step{}, {}) the winner {}", layout, Format(Seconds(its)),
                  engine, more(its, mine), SavesAndPays(comparison.terms, mine));
  return comparison;
}

Limit InputLimit(const Candidate& winner, double fed, double slowest) {
  const double before = slowest * fed, after = slowest * winner.time.total;
  std::string words = LimitWords("an input as fast as the GPUs", before, after);
  if (slowest > 1) words += ", a step of the slowest node (--straggler)";
  return {"input pipeline", after, 1 - after / before, std::move(words)};
}

std::vector<Limit> NextLimits(const SearchRequest& request, const Profiles& profiles,
                              const Candidate& winner, const std::optional<Candidate>& unlimited,
                              ShapeCache* shapes) {
  std::vector<Limit> limits;
  const double before = winner.time.total;
  // No resource makes an input faster.
  const auto fed = [&](const Candidate& of) {
    return FedIn(request.input, JobOf(request, profiles, of.nodes, of.global_batch),
                 of.strategy.data_parallel());
  };
  const double least = fed(winner);
  const auto words_of = [](const char* what, double then, double seconds, double input) {
    return LimitWords(what, then, seconds) +
           (seconds <= input ? ", as fast as the input (--input, --storage)" : "");
  };
  const auto with = [&](const auto& change) {
    Profiles changed = profiles;
    Job job = JobOf(request, changed, winner.nodes, winner.global_batch);
    change(changed, job.cluster);
    const double step =
        WithChange(winner, std::get<StepTime>(StepPredictor(job, shapes).Predict(winner.strategy)));
    return std::max(step, least);
  };
  for (const Resource& resource : kResources) {
    const double after = with([&](Profiles& changed, ClusterSummary& cluster) {
      resource.twice(changed, cluster);
      for (const Part& part : resource.parts) changed.framework.*part.seconds *= 0.5;
    });
    const double gain = 1.0 - after / before;
    if (gain < kLeastGain) continue;
    std::string words = words_of(resource.what, before, after, least);
    // Of several constants, the one behind most of it.
    const Part* most = nullptr;
    double most_seconds = 0.5 * (before - after);
    for (const Part& part : resource.parts) {
      const double saved = before - with([&](Profiles& changed, ClusterSummary&) {
                             changed.framework.*part.seconds *= 0.5;
                           });
      if (saved <= most_seconds) continue;
      most = &part;
      most_seconds = saved;
    }
    if (most != nullptr)
      words += fmt::format(", {:.0f} % of that by {} ({})",
                           100 * std::min(1.0, most_seconds / (before - after)), most->what,
                           most->constant);
    limits.push_back({resource.name, after, gain, words});
  }
  const bool like = unlimited && unlimited->global_batch == winner.global_batch &&
                    unlimited->nodes == winner.nodes;
  const double free_fed = like ? fed(*unlimited) : 0;
  const double after = like ? std::max(unlimited->time.total, free_fed) : before;
  if (after < (1 - kLeastGain) * before) {
    limits.push_back({"GPU memory", after, 1.0 - after / before,
                      words_of("unlimited memory", before, after, free_fed) + ", with " +
                          DescribeLayout(unlimited->strategy, unlimited->micro_batches) +
                          fmt::format(", which needs {}", Format(unlimited->memory_bound))});
  }
  std::stable_sort(limits.begin(), limits.end(),
                   [](const Limit& a, const Limit& b) { return a.gain > b.gain; });
  return limits;
}

}  // namespace orrery
