// SPDX-License-Identifier: Apache-2.0
// What a GPU holds next to the tensors of its plan: the key of an answer's "memory", and its words in tables.
#pragma once

namespace orrery::report {

struct MemoryPart {
  const char* key;
  const char* words;
};
inline constexpr MemoryPart kMemoryParts[] = {
    {"gaps_bytes", "gaps in the static layout"},
    {"loss_copies_bytes", "logits copies made by the loss"},
    {"loader_mask_bytes", "attention mask of the data loader"},
    {"gradient_copies_bytes", "half-precision copies of gradients"},
    {"buckets_bytes", "buckets of reductions"},
    {"scores_buffer_bytes", "buffer of attention scores"},
    {"dummy_gradients_bytes", "dummy weight gradients of TransformerEngine"},
    {"workspaces_bytes", "workspaces of libraries"},
    {"context_bytes", "framework context and communication buffers"},
    {"fragmentation_bytes", "allocator fragmentation"},
};

}  // namespace orrery::report
