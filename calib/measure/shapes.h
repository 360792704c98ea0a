// SPDX-License-Identifier: Apache-2.0
// Matrix products and attentions of all models of the catalogue, read off their plans.
//
// Each model is lowered at its own sequence length with as many sequences as make about 8192
// tokens; models above 20 B parameters as one of 8 tensor-parallel ranks. A product whose output
// only goes through gelu appears twice, with and without it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/base/diagnostics.h"

namespace orrery {

struct DeviceShape {
  bool attention = false;
  std::string op;        // "nt": storage of A and B; "forward", "backward"
  std::string epilogue;  // "none", "bias", "accumulate", "bias+gelu", "gelu"; attention: ""
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1, heads = 0, kv_heads = 0, seq_q = 0, seq_kv = 0, head_dim = 0;
  bool causal = false;
  auto operator<=>(const DeviceShape&) const = default;
};

struct ModelShape {
  DeviceShape shape;
  std::vector<std::string> models;  // that have it
  int64_t calls = 0;                // per micro-batch, most of any model
};

inline constexpr int64_t kShapeTokens = 8192;
// `calls` of one model's shapes, with sequences of about `tokens` in all. Throws InputError when
// the model cannot be lowered.
std::vector<ModelShape> ShapesOf(const LoadedModel& model, const std::string& name,
                                 int64_t tokens = kShapeTokens);
// All models of the catalogue; equal shapes once.
std::vector<ModelShape> CatalogueShapes();
// CSV with the columns of calib/measure/shapes.csv.
std::string ShapesCsv(const std::vector<ModelShape>& shapes);

}  // namespace orrery
