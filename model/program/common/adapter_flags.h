// SPDX-License-Identifier: Apache-2.0
// The flags of adapters: --lora-rank, --lora-alpha, --lora-targets, --lora-base.
#pragma once

#include "model/arch/lora.h"
#include "model/program/common/job_flags.h"

namespace orrery::cli {

// Rank and alpha; off without --lora-rank. Flags that need it are refused.
Lora ReadLora(const JobFlags& flags, Diagnostics* diagnostics);

// Needs the model, whose gate is a map of its own in HuggingFace's names, and the precision. False: --lora-targets is not
// given; peft: what PEFT takes for the family. Throws InputError for unknown maps, and for a type of the frozen weights other than the precision.
bool SetTargets(const JobFlags& flags, const LoadedModel& model, const SearchRequest& request,
                Lora* lora);

}  // namespace orrery::cli
