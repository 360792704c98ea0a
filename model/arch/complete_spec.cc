// SPDX-License-Identifier: Apache-2.0
// Fills derived dimensions of a model and checks those that must fit each other.
#include <fmt/format.h>

#include "model/arch/readers.h"

namespace orrery {
namespace {

void CompleteHeadDim(const Node& node, const SpecKeys& keys, ModelSpec* spec) {
  if (spec->head_dim > 0) return;
  if (spec->hidden % spec->heads != 0) {
    node.ErrorAt(
        keys.heads,
        fmt::format("{} heads do not divide a hidden width of {}", spec->heads, spec->hidden),
        fmt::format("give {} when a head is not {} / {} wide", keys.head_dim, keys.hidden,
                    keys.heads));
    return;
  }
  spec->head_dim = spec->hidden / spec->heads;
}

}  // namespace

void CompleteSpec(const Node& node, const SpecKeys& keys, ModelSpec* spec) {
  if (!node.diagnostics()->ok()) return;  // what follows would only repeat the first mistakes
  if (spec->family == Family::kMlp) return;
  CompleteHeadDim(node, keys, spec);
  if (spec->ffn == 0) spec->ffn = 4 * spec->hidden;
  if (spec->kv_heads == 0) spec->kv_heads = spec->heads;
  if (spec->heads % spec->kv_heads != 0) {
    node.ErrorAt(keys.kv_heads, fmt::format("{} key-value heads do not divide {} heads",
                                            spec->kv_heads, spec->heads));
  }
  if (spec->positions == Positions::kRotary && spec->head_dim % 2 != 0) {
    node.ErrorAt(keys.heads,
                 fmt::format("rotary positions need an even head width, not {}", spec->head_dim));
  }
}

}  // namespace orrery
