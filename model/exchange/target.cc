// SPDX-License-Identifier: Apache-2.0
// The table of targets, with the releases whose names their rows use.
#include "model/exchange/target.h"

#include "model/base/check.h"

namespace orrery::exchange {
namespace {

constexpr TargetInfo kTargets[] = {
    {"megatron", kMegatron, "Megatron-LM, core 0.20 (commit d98e8a64, 22 Aug 2026)", "megatron",
     "nvcr.io/nvidia/pytorch:25.06-py3"},
    {"bridge", kBridge, "Megatron-Bridge 0.7.0 (commit 067f987d, 22 Aug 2026)", "megatron",
     "nvcr.io/nvidia/nemo:25.09"},
    {"deepspeed", kDeepSpeed, "DeepSpeed 0.19.6", "deepspeed", "nvcr.io/nvidia/pytorch:25.06-py3"},
    {"accelerate", kAccelerate, "Accelerate 1.15 with the TrainingArguments of Transformers",
     "huggingface@fsdp", "nvcr.io/nvidia/pytorch:25.06-py3"},
    {"torchtitan", kTitan, "torchtitan since 23 Feb 2026 (commit b5bcd76c, 21 Aug 2026)",
     "torchtitan", "nvcr.io/nvidia/pytorch:25.06-py3"},
    {"torchtitan-toml", kTitanToml, "torchtitan v0.2.2, the last release with TOML files",
     "torchtitan", "nvcr.io/nvidia/pytorch:25.06-py3"},
    {"fsdp", kFsdp, "PyTorch 2.6 or newer, fully_shard (FSDP2)", "fsdp",
     "nvcr.io/nvidia/pytorch:25.06-py3"},
    {"ddp", kDdp, "PyTorch 2.6 or newer, DistributedDataParallel", "ddp",
     "nvcr.io/nvidia/pytorch:25.06-py3"},
};

}  // namespace

std::span<const TargetInfo> Targets() { return kTargets; }

const TargetInfo& InfoOf(Target target) {
  for (const TargetInfo& info : kTargets) {
    if (info.target == target) return info;
  }
  ORRERY_CHECK(false, "no target {}", static_cast<unsigned>(target));
  return kTargets[0];
}

}  // namespace orrery::exchange
