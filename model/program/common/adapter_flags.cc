// SPDX-License-Identifier: Apache-2.0
// Reads the flags of adapters.
#include "model/program/common/adapter_flags.h"

#include <fmt/format.h>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/program/common/names.h"

namespace orrery::cli {

Lora ReadLora(const JobFlags& flags, Diagnostics* diagnostics) {
  Lora lora;
  lora.rank = static_cast<int>(ReadInteger(flags.lora_rank, 1, 65536, diagnostics).value_or(0));
  for (const Flag* flag : {&flags.lora_alpha, &flags.lora_targets, &flags.lora_base}) {
    if (flag->given && !flags.lora_rank.given)
      diagnostics->Error(flag->where, fmt::format("{} without adapters", flag->name),
                         "--lora-rank N fine-tunes adapters");
  }
  if (flags.lora_alpha.given &&
      (ParseNumber(flags.lora_alpha.text, &lora.alpha) != NumberFault::kNone || lora.alpha <= 0))
    diagnostics->Error(
        flags.lora_alpha.where,
        fmt::format("--lora-alpha: '{}' is no positive number", flags.lora_alpha.text));
  return lora;
}

bool SetTargets(const JobFlags& flags, const SearchRequest& request, Lora* lora) {
  if (flags.lora_targets.given) {
    AtFlag(flags.lora_targets,
           [&] { lora->targets = ReadLoraTargets(flags.lora_targets.text, request.model.gated); });
  }
  const char* const kept = report::Name(request.work.precision);
  if (flags.lora_base.given && flags.lora_base.text != kept) {
    throw InputError(
        {{flags.lora_base.where,
          fmt::format("frozen weights in {} are not supported", flags.lora_base.text),
          fmt::format("QLoRA's nf4 and int8 need products that read blocks of 4 or 8 bits and "
                      "rescale them; --lora-base {} keeps what --precision says",
                      kept)}});
  }
  return flags.lora_targets.given;
}

}  // namespace orrery::cli
