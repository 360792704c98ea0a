// SPDX-License-Identifier: Apache-2.0
// Lowers a case, runs it in the reference interpreter and compares it with one rank.
#include "tests/parity/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "model/plan/ir/verify.h"
#include "model/plan/lower/names.h"

namespace orrery::parity {
namespace {

using interpreter::StepResult;

constexpr const char* kScheduleNames[] = {"gpipe", "1f1b", "interleaved", "zero-bubble",
                                          "zero-bubble-v"};
constexpr const char* kPrecisionNames[] = {"fp32", "tf32", "fp16", "bf16"};

interpreter::RunOptions Options(const Job& job, uint64_t order_seed) {
  interpreter::RunOptions options;
  options.data.vocab = job.model.vocab;
  options.data.token_types = std::max<int64_t>(job.model.token_types, 1);
  options.order_seed = order_seed;
  options.initial_loss_scale = job.initial_loss_scale;
  return options;
}

LowerResult LowerCase(const Case& c) {
  LowerOptions options;
  if (c.uniform_dtype)
    options.uniform_dtype = ir::Dtype::kF32;  // as wide as token numbers: one element size
  options.optimizer = c.job->optimizer;
  options.exact_casts = c.job->exact_casts;
  options.adapter_init = ir::Init::kNormal;  // from zero the first gradients of A are zero as well
  return Lower(c.job->model, c.job->work, c.strategy, options);
}

double Deviation(double value, double reference) {
  if (value == reference || (!std::isfinite(value) && !std::isfinite(reference)))
    return 0;  // an overflow
  const double relative = std::abs(value - reference) / std::max(std::abs(reference), 1e-300);
  return std::isnan(relative) ? HUGE_VAL : relative;
}

}  // namespace

std::string Describe(const Case& c) {
  const Strategy& s = c.strategy;
  std::string text =
      fmt::format("{}: tp{} pp{} dp{}x{} zero{} {} v{} mb{}", c.job->key, s.tp, s.pp, s.dp_outer,
                  s.dp, s.zero, kScheduleNames[static_cast<int>(s.schedule)], s.vpp, s.micro_batch);
  if (s.cp > 1)
    text += fmt::format(" cp{} {} inner{}{}", s.cp, NameIn(kCpMethodNames, s.context.method),
                        s.context.inner, s.context.zigzag ? " zigzag" : "");
  text +=
      (s.offload.on() ? " offload " + OffloadText(s.offload) : "") +
      (s.gradients_on_host ? " and gradients" : "") + (s.reduce_once ? " reduced once" : "") +
      (s.fp8_weights ? " fp8-weights" : "") +
      fmt::format(" M{} recompute {}{}{}", MicroBatches(c.job->work, s), RecomputeText(s.recompute),
                  s.sequence_parallel ? " sp" : "", s.flash_attention ? " flash" : "");
  text += fmt::format(
      " | overlap {}{} in-backward {} tp-async {} scatter {} bucket {} prefetch {} rings {} recv "
      "{} send {}",
      s.overlap_grad_reduce, s.overlap_param_gather, s.reduce_in_backward, s.tp_async,
      s.scatter_gather, s.bucket_layers, s.prefetch, s.rings, s.recv_slots, s.send_slots);
  text += fmt::format(" pool {} fp32-grads {} {}{} seed {}", s.frame_pool, s.fp32_grads,
                      kPrecisionNames[static_cast<int>(c.job->work.precision)],
                      c.uniform_dtype ? " uniform" : "", c.order_seed);
  return text;
}

std::vector<StepResult> Reference(const Job& job) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<StepResult>> known;
  const std::lock_guard lock(mutex);
  const auto [entry, fresh] = known.try_emplace(job.key);
  if (!fresh) return entry->second;
  Job reference = job;
  if (job.exact_casts) reference.work.fp8 = Fp8::kOff, reference.work.fp8_skip = {};
  Case c{&reference, {}};
  c.strategy.fp8_weights = job.fp8_weights && !job.exact_casts;
  c.strategy.split_products = job.split_products;
  c.strategy.micro_batch = job.reference_micro_batch > 0 ? job.reference_micro_batch
                                                         : static_cast<int>(job.work.global_batch);
  const LowerResult lowered = LowerCase(c);
  if (const auto* refusal = std::get_if<Refusal>(&lowered))
    throw interpreter::PlanFault("refused: " + refusal->reason);
  interpreter::Interpreter run(std::get<ir::Plan>(lowered), Options(job, 1));
  for (int step = 0; step < kSteps; ++step) entry->second.push_back(run.Step());
  return entry->second;
}

Outcome RunCase(const Case& c) {
  Outcome outcome;
  try {
    const std::vector<StepResult> reference = Reference(*c.job);
    const LowerResult lowered = LowerCase(c);
    if (const auto* refusal = std::get_if<Refusal>(&lowered)) {
      outcome.failure = "refused: " + refusal->reason;
      return outcome;
    }
    const ir::Plan& plan = std::get<ir::Plan>(lowered);
    for (const ir::Finding& finding : ir::Verify(plan)) {
      outcome.failure = fmt::format("verify: {} at stage {} {}: {}", ir::FaultName(finding.fault),
                                    finding.stage, finding.where, finding.message);
      return outcome;
    }
    interpreter::Interpreter run(plan, Options(*c.job, c.order_seed));
    for (int step = 0; step < kSteps && outcome.failure.empty(); ++step) {
      const StepResult result = run.Step();
      const double loss = Deviation(result.loss, reference.at(step).loss);
      const double norm = Deviation(result.gradient_norm, reference.at(step).gradient_norm);
      outcome.worst = std::max({outcome.worst, loss, norm});
      if (outcome.worst > kTolerance)
        outcome.failure = fmt::format("step {}: loss {} against {}, gradient norm {} against {}",
                                      step + 1, result.loss, reference[step].loss,
                                      result.gradient_norm, reference[step].gradient_norm);
    }
    outcome.executed = run.executed();
  } catch (const std::exception& error) {
    outcome.failure = error.what();
  }
  return outcome;
}

Summary RunAll(const std::vector<Case>& cases) {
  std::vector<Outcome> outcomes(cases.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) outcomes[i] = RunCase(cases[i]);
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  Summary summary;
  for (size_t i = 0; i < cases.size(); ++i) {
    ++summary.plans;
    summary.executed += outcomes[i].executed;
    if (!outcomes[i].failure.empty())
      summary.failures.push_back(Describe(cases[i]) + "\n    " + outcomes[i].failure);
    if (outcomes[i].worst <= summary.worst) continue;
    summary.worst = outcomes[i].worst;
    summary.worst_case = Describe(cases[i]);
  }
  return summary;
}

std::string Summary::Text(const std::string& title) const {
  std::string text = fmt::format(
      "{}: {} plans, {} failures, worst deviation {:.1e}, {} ops executed\n  worst: {}\n", title,
      plans, failures.size(), worst, executed, worst_case);
  for (size_t i = 0; i < failures.size() && i < 20; ++i) text += "  FAIL " + failures[i] + "\n";
  return text;
}

}  // namespace orrery::parity
