// SPDX-License-Identifier: Apache-2.0
// Lines for people.
#include "runtime/program/run/console.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "model/base/text.h"
#include "model/plan/lower/names.h"
#include "model/program/common/job.h"
#include "runtime/launch/host_memory.h"
#include "runtime/launch/stop_request.h"
#include "runtime/program/run/share_of_peak.h"

namespace orrery::cli {

namespace {

// Fast kernels for products need rows that begin at multiples of 16 bytes. What an H100 loses in 16 bits is `gemm_aligned_2`
// and `gemm_aligned_4` of the Hopper profile; rows at multiples of 8 bytes are not measured, and not named.
std::string SlowRows(const ir::Plan& plan) {
  constexpr int64_t kMeasured = 4, kLeast = 1024;  // elements in 8 bytes; of a product that matters
  for (const ir::Program& program : plan.programs)
    for (const ir::Block& block : program.blocks)
      for (const ir::Op& op : block.ops)
        if (op.kind == ir::OpKind::kMatmul)
          if (const int64_t n = op.attrs.Int(ir::Attr::kN); n >= kLeast && n % kMeasured != 0)
            return fmt::format(
                "note: a GPU multiplies rows of {} numbers of 16 bits at about {} of the rate of "
                "{}: "
                "pad the vocabulary of the model file to a multiple of 8\n",
                n, n % 2 != 0 ? "a fifth" : "two fifths", (n + 63) / 64 * 64);
  return "";
}

}  // namespace

void Say(std::FILE* to, const std::string& text) {
  constexpr int kLook = 50;  // milliseconds
  pollfd reader{fileno(to), POLLOUT, 0};
  for (int ready = 0; (ready = poll(&reader, 1, kLook)) <= 0;) {
    if (ready < 0 && errno != EINTR) break;
    if (launch::SignalSeen() != 0) return;
  }
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

std::string RunHeading(const RunJob& job, const std::string& host, int64_t arena_bytes,
                       double peak_flops_per_s) {
  std::string text = fmt::format("{}: {} parameters, {} FLOP a step\n{}{}\n", job.name,
                                 report::Scaled(static_cast<double>(job.facts.parameters)),
                                 report::Scaled(job.facts.flops), ir::kPlanLine, job.digest);
  text += fmt::format("{} rank{} on {} over {}{}{}\n", job.ranks(), job.ranks() == 1 ? "" : "s",
                      host, job.comm == Comm::kLocal ? "local threads" : CommName(job.comm),
                      job.layout.empty() ? "" : ": ", job.layout);
  if (job.given != nullptr)
    text += fmt::format("weights of {}, family {}: {} tensors, {} elements\n", job.init_from,
                        job.given->table().family, job.given->tensors(),
                        report::Scaled(static_cast<double>(job.given->elements())));
  std::string yardstick =
      "of a core " + Format(FlopsPerSecond{peak_flops_per_s}) + " (matrix products, measured)";
  if (job.on_cuda) {
    yardstick = fmt::format("of a {} {}", job.gpu,
                            peak_flops_per_s > 0
                                ? Format(FlopsPerSecond{peak_flops_per_s}) + " (bf16, data sheet)"
                                : "unknown");
  }
  text += fmt::format("arena of rank 0 {}, peak {}, data {}\n",
                      Format(Bytes{static_cast<double>(arena_bytes)}), yardstick, job.data);
  if (job.on_cuda) text += SlowRows(job.plan);
  if (job.ranks() > 1)
    text += "times of steps below: of rank 0; the median and --json: of the slowest rank\n";
  return text;
}

constexpr double kInputBound = 0.05;  // share of a step from which on input is worth a word

std::string StepLine(const RunJob& job, const launch::StepRecord& record, double peak_flops_per_s) {
  const double seconds = record.result.seconds;
  const auto units = static_cast<double>(job.facts.tokens);
  const double input = record.result.load_s;
  return fmt::format(
      "step {:>4}/{}  loss {:<10.6g}  grad norm {:<9.4g}  {:>8}  {:>7} {}/s  MFU {:>6}  "
      "{}mem {:>8}  ETA {}{}\n",
      record.step, job.steps, record.result.loss, record.result.gradient_norm,
      Format(Seconds{seconds}), report::Scaled(units / seconds),
      job.facts.has_tokens ? "tokens" : "samples", ShareOfPeak(Mfu(job, seconds, peak_flops_per_s)),
      job.on_cuda ? "host " : "", Format(Bytes{launch::PeakResidentMemory()}),
      Format(Seconds{seconds * static_cast<double>(job.steps - record.step)}),
      input > kInputBound * seconds ? "  input " + Format(Seconds{input}) : "");
}

// Which steps the median is of: "3 of 8 steps: without the first and 4 in which other programs took a core".
std::string CountedSteps(const StepSeconds& seconds, int64_t steps) {
  std::string text = fmt::format("{} of {} step{}", seconds.counted, steps, steps == 1 ? "" : "s");
  std::string without;
  if (seconds.first_left_out) without = "the first";
  if (seconds.disturbed > 0 && !seconds.all_disturbed)
    without += fmt::format("{}{} in which another program took a core",
                           without.empty() ? "" : " and ", seconds.disturbed);
  if (!without.empty()) text += ": without " + without;
  if (seconds.all_disturbed) text += "; other programs took a core in each of them";
  return text;
}

// Where the plan's nodes were.
std::string PlacedHosts(const RunJob& job, const std::vector<RankPart>& parts) {
  constexpr std::size_t kMost = 16;
  const std::vector<int32_t>& nodes = job.plan.nodes;
  if (nodes.empty()) return "";
  const bool together = std::ranges::all_of(
      parts, [&](const RankPart& part) { return part.host == parts.front().host; });
  if (together)
    return fmt::format("placement: all ranks are on {}; the order of nodes ({}) changes nothing\n",
                       parts.front().host, NodeOrderText(nodes));
  std::string text = "placement:";
  const std::size_t each = parts.size() / nodes.size();
  for (std::size_t place = 0; place < std::min(nodes.size(), kMost); ++place)
    text += fmt::format("{} ranks {}..{} on {} (node {})", place == 0 ? "" : ",", place * each,
                        place * each + each - 1, HostOfPlace(job, parts, place), nodes[place]);
  return text + (nodes.size() > kMost ? ", ... (--json has all)\n" : "\n");
}

std::string RunSummary(const RunJob& job, const RunRecord& record, double peak_flops_per_s,
                       bool stopped_at_once) {
  const std::vector<RankPart>& parts = record.parts;
  const StepSeconds seconds = SecondsOf(record.steps);
  if (seconds.counted == 0) return stopped_at_once ? "" : "no steps remain\n";
  int64_t largest = 0;
  for (const RankPart& part : parts) largest = std::max(largest, part.arena_bytes);
  std::string text =
      fmt::format("median step {} (min {}, max {}; {}), {} {}/s, MFU {}, largest arena {}\n",
                  Format(Seconds{seconds.median}), Format(Seconds{seconds.min}),
                  Format(Seconds{seconds.max}), CountedSteps(seconds, record.steps.size()),
                  report::Scaled(static_cast<double>(job.facts.tokens) / seconds.median),
                  job.facts.has_tokens ? "tokens" : "samples",
                  report::Percent(Mfu(job, seconds.median, peak_flops_per_s)),
                  Format(Bytes{static_cast<double>(largest)}));
  if (const double mfu = Mfu(job, seconds.median, peak_flops_per_s); mfu > 1)
    text += fmt::format("MFU {}: no step is above the peak, {}\n", report::Percent(mfu),
                        job.on_cuda ? "so the GPU is not the one that the data sheet is of"
                                    : "which was measured while other programs had the cores");
  text += PlacedHosts(job, parts);
  if (const double share = InputShare(record.steps); share > kInputBound)
    text +=
        fmt::format("input-bound: {} of a step goes into reading data\n", report::Percent(share));
  return text;
}

}  // namespace orrery::cli
