// SPDX-License-Identifier: Apache-2.0
// Which shapes can have products in 8 or 4 bits.
#include "model/plan/lower/check_low_precision.h"

#include <fmt/format.h>

#include "model/plan/lower/coded.h"
#include "model/plan/lower/transformer.h"

namespace orrery {
namespace {

using Result = std::optional<Refusal>;

const char* NameOf(Fp8 recipe) { return NameIn(kFp8Names, recipe); }

Result Multiple(Fp8 recipe, int64_t extent, const char* what, const char* hint) {
  const int multiple = FormOf(recipe).multiple;
  if (extent % multiple == 0) return std::nullopt;
  return Refusal{
      fmt::format("{} {} are no multiple of {} (fp8 {})", what, extent, multiple, NameOf(recipe)),
      hint};
}

}  // namespace

Result CheckSkippedLayers(const ModelSpec& model, const Workload& work) {
  const SkippedLayers& skip = work.fp8_skip;
  if (!skip.any()) return std::nullopt;
  if (work.fp8 == Fp8::kOff)
    return Refusal{"16-bit layers at both ends (fp8_skip) need products in 8 bits in the others",
                   "--fp8 NAME, or no --fp8-skip"};
  if (work.lora.on())
    return Refusal{"16-bit layers at both ends (fp8_skip) are not supported with adapters",
                   "no --fp8-skip"};
  if (model.family == Family::kEncoderDecoder)
    return Refusal{
        "16-bit layers at both ends (fp8_skip) are not supported in encoder-decoder models",
        "no --fp8-skip"};
  if (int64_t{skip.first} + skip.last >= model.layers)
    return Refusal{fmt::format("products in 8 bits skip the first {} and the last {} of {} layers",
                               skip.first, skip.last, model.layers),
                   "fewer in --fp8-skip, or --fp8 off"};
  return std::nullopt;
}

Result CheckLowPrecision(const ModelSpec& model, const Workload& work, const Strategy& s) {
  const Fp8 recipe = work.fp8;
  if (auto refused = CheckSkippedLayers(model, work)) return refused;
  if (auto refused = CheckCodedWeights(work, s)) return refused;
  if (recipe == Fp8::kOff) return std::nullopt;
  if (model.family == Family::kMlp)
    return Refusal{"low precision of a plain MLP is not lowered", "--fp8 off"};
  const int64_t attention = model.heads * model.head_dim;
  const int64_t projected = (model.heads + 2 * model.kv_heads) * model.head_dim;
  const int64_t rows = work.seq_len / s.cp / (s.sequence_parallel ? s.tp : 1);
  const char* narrower = s.tp > 1 ? "a smaller tp, or --fp8 current" : "--fp8 off";
  if (auto refused = Multiple(recipe, model.hidden, "hidden columns", "--fp8 off")) return refused;
  if (auto refused = Multiple(recipe, model.ffn / s.tp, "MLP columns per rank", narrower))
    return refused;
  if (auto refused = Multiple(recipe, projected / s.tp,
                              "columns of queries, keys and values per rank", narrower))
    return refused;
  if (auto refused = Multiple(recipe, attention / s.tp, "attention columns per rank", narrower))
    return refused;
  const int64_t keys = model.kv_heads * model.head_dim;
  if (SplitsProducts(model, work, s, SubKind::kAttention))
    if (auto refused = Multiple(recipe, keys / s.tp, "columns of keys per rank", narrower))
      return refused;
  return Multiple(recipe, rows, "rows of a sequence per rank", "another seq_len, or a smaller tp");
}

bool OverlapsTensors(Fp8 recipe) { return recipe != Fp8::kNvfp4 && recipe != Fp8::kBlockwise; }

std::string RoundingOfParts(const Workload& work, const Strategy& s) {
  const bool of_tensor = work.fp8 == Fp8::kCurrent || work.fp8 == Fp8::kNvfp4;
  if (!of_tensor || s.tp * s.cp == 1) return "";
  const std::string ranks = s.cp == 1   ? fmt::format("tp {}", s.tp)
                            : s.tp == 1 ? fmt::format("cp {}", s.cp)
                                        : fmt::format("tp {} x cp {}", s.tp, s.cp);
  return fmt::format(
      "fp8 {} scales each rank's part of a tensor by itself ({}): casts round otherwise than on "
      "one rank, and losses differ by that",
      NameIn(kFp8Names, work.fp8), ranks);
}

}  // namespace orrery
