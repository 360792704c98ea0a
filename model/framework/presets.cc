// SPDX-License-Identifier: Apache-2.0
// The table of frameworks.
//
// Sources: Megatron-LM arguments.py (gradients of bf16 runs are accumulated in fp32; the distributed optimizer is
// ZeRO 1; layers must divide by pp x vpp unless the ends are counted; scatter-gather of tensors in the pipeline is
// on unless asked off; --hidden-dropout and --attention-dropout are 0.1 unless asked otherwise); DeepSpeed's PipelineEngine (with tensor parallelism it partitions activations and gradients
// between stages: pipe_partitioned and grad_partitioned are on by default), DeepSpeed documentation of
// zero_optimization (pipelines work with stages 0 and 1) and its BF16_Optimizer (fp32 accumulation without
// ZeRO); Devlin et al. 2018, appendix A.2 (BERT trains with dropout 0.1, and so do its recipes for apex DDP and
// DeepSpeed); PyTorch documentation of DistributedDataParallel and FullyShardedDataParallel (SHARD_GRAD_OP,
// FULL_SHARD, HYBRID_SHARD).
#include "model/framework/presets.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using enum PipelineSchedule;

Strategy Knobs(bool overlap_reduce, bool reduce_in_backward, int bucket_layers,
               bool recompute_unread = true) {
  Strategy s;
  s.recompute_unread = recompute_unread;
  s.overlap_grad_reduce = overlap_reduce;
  s.reduce_in_backward = reduce_in_backward;
  s.bucket_layers = bucket_layers;
  return s;
}

const std::vector<FrameworkPreset>& Table() {
  static const std::vector<FrameworkPreset> table = [] {
    const std::vector<Recompute> any{Recompute::kNone, Recompute::kSelective, Recompute::kFull};
    const std::vector<Recompute> whole{Recompute::kNone, Recompute::kFull};
    std::vector<FrameworkPreset> rows(5);
    rows[0] = {
        .name = "orrery",
        .description =
            "everything that this project can lower, also combinations that no framework offers",
        .tensor = true,
        .sequence = true,
        .hybrid = true,
        .uneven_chunks = true,
        .zero = {0, 1, 2, 3},
        .zero_with_pipeline = 3,
        .schedules = {k1F1B, kInterleaved, kZeroBubble, kGpipe},
        .recompute = any,
        .fp32_grads = Fp32Grads::kNever,
        .defaults = Knobs(true, false, 1, false)};
    rows[1] = {.name = "megatron",
               .description =
                   "Megatron-LM: tensor, sequence and (interleaved) pipeline parallelism, "
                   "distributed optimizer",
               .tensor = true,
               .sequence = true,
               .zero = {0, 1},
               .zero_with_pipeline = 1,
               .schedules = {k1F1B, kInterleaved},
               .recompute = any,
               .fp32_grads = Fp32Grads::kBf16,
               .defaults = Knobs(true, true, 1),
               .dropout = 0.1};
    rows[2] = {.name = "deepspeed",
               .description =
                   "DeepSpeed: ZeRO 0 to 3, pipelines with ZeRO 0 and 1, tensor parallelism "
                   "through Megatron",
               .tensor = true,
               .zero = {0, 1, 2, 3},
               .zero_with_pipeline = 1,
               .schedules = {k1F1B},
               .recompute = whole,
               .fp32_grads = Fp32Grads::kBf16Zero0,
               .defaults = Knobs(true, false, 1),
               .dropout = 0.1};
    rows[3] = {.name = "ddp",
               .description =
                   "PyTorch DistributedDataParallel: replicas only, gradients reduced in buckets "
                   "during backward",
               .zero = {0},
               .recompute = whole,
               .fp32_grads = Fp32Grads::kNever,
               .defaults = Knobs(true, true, 1),
               .dropout = 0.1};
    rows[4] = {.name = "fsdp",
               .description =
                   "PyTorch FullyShardedDataParallel: ZeRO 2 and 3, sharded over all ranks or "
                   "inside a node",
               .hybrid = true,
               .zero = {2, 3},
               .recompute = whole,
               .fp32_grads = Fp32Grads::kNever,
               .defaults = Knobs(true, false, 1)};
    // Pays between nodes (a fifth of the step of gpt3-175b on aws-p4d), costs up to 0.5 % where stages share a node;
    // sequence parallelism, which this preset has, sends parts anyway.
    rows[0].defaults.scatter_gather = false;
    return rows;
  }();
  return table;
}

bool Low(Precision precision) {
  return precision == Precision::kFp16 || precision == Precision::kBf16;
}

const char* ScheduleWord(PipelineSchedule schedule) {
  switch (schedule) {
    case kGpipe:
      return "the GPipe schedule";
    case k1F1B:
      return "the 1F1B schedule";
    case kInterleaved:
      return "the interleaved schedule";
    case kZeroBubble:
      return "the zero-bubble schedule";
  }
  return "";
}

template <class T>
bool Has(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

Strategy FrameworkPreset::Complete(Strategy s, Precision precision) const {
  const Strategy chosen = s;
  s = defaults;
  s.tp = chosen.tp;
  s.pp = chosen.pp;
  s.dp = chosen.dp;
  s.dp_outer = chosen.dp_outer;
  s.cp = chosen.cp;
  s.ep = chosen.ep;
  s.vpp = chosen.vpp;
  s.micro_batch = chosen.micro_batch;
  s.schedule = chosen.schedule;
  s.zero = chosen.zero;
  s.sequence_parallel = chosen.sequence_parallel;
  s.recompute = chosen.recompute;
  s.flash_attention = chosen.flash_attention;
  switch (fp32_grads) {
    case Fp32Grads::kNever:
      break;
    case Fp32Grads::kBf16:
      s.fp32_grads = precision == Precision::kBf16;
      break;
    case Fp32Grads::kBf16Zero0:
      s.fp32_grads = precision == Precision::kBf16 && s.zero == 0;
      break;
  }
  if (!Low(precision)) s.fp32_grads = false;
  if (s.zero >= 2)
    s.reduce_in_backward = false;  // their reductions are in the backward pass anyway
  return s;
}

std::string FrameworkPreset::Refuses(const Strategy& s) const {
  if (s.tp > 1 && !tensor) return fmt::format("{} has no tensor parallelism", name);
  if (s.sequence_parallel && !sequence) return fmt::format("{} has no sequence parallelism", name);
  if (s.pp > 1 && !pipeline()) return fmt::format("{} has no pipeline parallelism", name);
  if (s.pp > 1 && !Has(schedules, s.schedule))
    return fmt::format("{} lacks {}", name, ScheduleWord(s.schedule));
  if (s.dp_outer > 1 && !hybrid) return fmt::format("{} has no hybrid sharding", name);
  if (!Has(zero, s.zero) && !(s.zero == 0 && s.dp == 1))
    return fmt::format("{} has no ZeRO stage {}", name, s.zero);
  if (s.pp > 1 && s.zero > zero_with_pipeline) {
    return fmt::format("{} runs pipelines only with ZeRO up to stage {}", name, zero_with_pipeline);
  }
  if (!Has(recompute, s.recompute)) return fmt::format("{} lacks this kind of recomputation", name);
  return "";
}

std::span<const FrameworkPreset> FrameworkPresets() { return Table(); }

std::vector<std::string> FrameworkNames() {
  std::vector<std::string> names;
  for (const FrameworkPreset& preset : Table()) names.emplace_back(preset.name);
  return names;
}

const FrameworkPreset& FindFramework(std::string_view name) {
  for (const FrameworkPreset& preset : Table()) {
    if (name == preset.name) return preset;
  }
  throw InputError(fmt::format("unknown framework '{}'", name),
                   SuggestName(name, FrameworkNames()));
}

}  // namespace orrery
