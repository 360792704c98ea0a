// SPDX-License-Identifier: Apache-2.0
// Layouts in words.
#include <fmt/format.h>

#include "model/plan/lower/balance.h"
#include "model/plan/lower/names.h"
#include "model/twin/predict.h"

namespace orrery {
namespace {

std::string ScheduleWords(const Strategy& s) {
  if (s.pp == 1) return "";
  switch (s.schedule) {
    case PipelineSchedule::kGpipe:
      return ", GPipe";
    case PipelineSchedule::k1F1B:
      return ", 1F1B";
    case PipelineSchedule::kInterleaved:
      return fmt::format(", interleaved x {}", s.vpp);
    case PipelineSchedule::kZeroBubble:
      return ", zero-bubble";
    case PipelineSchedule::kZeroBubbleV:
      return ", zero-bubble in a V";
  }
  return "";
}

}  // namespace

std::string DescribeLayout(const Strategy& s, int64_t micro_batches) {
  std::string text = fmt::format("tp {}, pp {}, dp {}", s.tp, s.pp, s.dp * s.dp_outer);
  if (s.cp > 1) {
    text += fmt::format(", cp {} ({}", s.cp, NameIn(kCpMethodNames, s.context.method));
    if (s.context.inner > 1) text += fmt::format(", inner {}", s.context.inner);
    text += s.context.zigzag ? ", zigzag)" : ")";
  }
  if (s.zero > 0 && s.dp_outer > 1) {
    text += fmt::format(" (ZeRO {} over {} x {} replicas)", s.zero, s.dp, s.dp_outer);
  } else if (s.zero > 0) {
    text += fmt::format(" (ZeRO {})", s.zero);
  }
  text += fmt::format(", micro-batch {}", s.micro_batch);
  if (micro_batches > 0) text += fmt::format(" x {}", micro_batches);
  text += ScheduleWords(s);
  if (s.layout) text += ", layers " + LayoutWords(*s.layout);
  if (s.recompute != Recompute::kNone) text += ", recompute " + RecomputeText(s.recompute);
  if (s.offload.on()) text += ", offload " + OffloadText(s.offload);
  if (s.sequence_parallel) text += ", sequence parallel";
  return text;
}

}  // namespace orrery
