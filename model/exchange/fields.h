// SPDX-License-Identifier: Apache-2.0
// What the tables of fields share: values as text, and where a field means anything.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "model/exchange/rules.h"

namespace orrery::exchange {

using Texts = std::function<std::string(const Case&)>;

inline Texts Number(int Strategy::*member) {
  return [member](const Case& c) { return Text(c.strategy.*member); };
}
inline Texts Switch(bool Strategy::*member) {
  return [member](const Case& c) { return OnOff(c.strategy.*member); };
}
// "" unless the condition holds: the field means nothing there.
inline Texts Where(bool (*holds)(const Case&), Texts text) {
  return [holds, text = std::move(text)](const Case& c) { return holds(c) ? text(c) : ""; };
}

inline bool Tensor(const Case& c) { return c.strategy.tp > 1; }
inline bool CutsAdapters(const Case& c) { return Tensor(c) && c.work.lora.on(); }
inline bool Pipeline(const Case& c) { return c.strategy.pp > 1; }
inline bool Replicas(const Case& c) { return c.strategy.data_parallel() > 1; }
// States can be shared out: over ranks that share sequences, too.
inline bool Shares(const Case& c) { return Replicas(c) || c.strategy.cp > 1; }
inline bool Sharded(const Case& c) { return Shares(c) && c.strategy.zero >= 1; }
inline bool Sharded3(const Case& c) { return Shares(c) && c.strategy.zero == 3; }
inline bool ReducesAfter(const Case& c) { return Shares(c) && c.strategy.zero <= 1; }
inline bool ShardsGradients(const Case& c) {
  return c.strategy.shards() > 1 && c.strategy.zero >= 2 && c.micro_batches() > 1;
}
// Accelerate's files start DeepSpeed: for the optimizer's states alone, which FSDP does not shard by themselves, and where that is
// what was predicted.
bool ByDeepSpeed(const Case& c);
inline bool Scatters(const Case& c) {
  return Tensor(c) && Pipeline(c) && !c.strategy.sequence_parallel;
}
inline bool Half(const Case& c) {
  return c.work.precision == Precision::kBf16 || c.work.precision == Precision::kFp16;
}
inline bool HoldsCodes(const Case& c) { return CanHoldCodes(c.work, c.strategy); }
inline bool RepeatsProducts(const Case& c) {
  return (c.strategy.recompute.modules & (kRecomputeKeys | kRecomputeUp)) != 0;
}
inline bool Repeats(const Case& c) {
  return (c.strategy.recompute.modules & (kRecomputeLayer | kRecomputeMlp)) != 0;
}

inline bool Context(const Case& c) { return c.strategy.cp > 1; }
inline bool TwoLevels(const Case& c) {
  return Context(c) && c.strategy.context.method == CpMethod::kA2aRing;
}

// The fused kernel that the job's framework takes, "cudnn"; "": attention is not fused.
std::string AttentionKernelOf(const Case& c);

}  // namespace orrery::exchange
