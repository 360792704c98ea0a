// SPDX-License-Identifier: Apache-2.0
// Scaled rotary positions: from a HuggingFace config.json over the ops of a plan to frequencies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/arch/catalogue.h"
#include "model/plan/ir/positions.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

// The rope ops of one layer, forward; `layer` counts from 0.
ir::Rotation RotationOfLayer(const std::string& config, int layer) {
  ModelSpec model =
      LoadModel(std::string(ORRERY_SOURCE_DIR) + "/tests/arch/data/hf/" + config).spec;
  model.layers = layer + 1;
  Workload work;
  work.seq_len = 8;
  work.global_batch = 1;
  const LowerResult result = Lower(model, work, {});
  const ir::Plan& plan = std::get<ir::Plan>(result);
  for (const ir::Program& program : plan.programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops) {
        if (op.kind == ir::OpKind::kRope && op.layer == layer)
          return ir::RotationOf(op.attrs, model.RotaryWidth());
      }
    }
  }
  ADD_FAILURE() << "no rope op";
  return {};
}

void ExpectFrequencies(const ir::Rotation& rotation,
                       const std::vector<std::pair<int, double>>& expected) {
  for (const auto& [pair, frequency] : expected)
    EXPECT_NEAR(rotation.Frequency(pair) / frequency, 1, 1e-12) << "pair " << pair;
}

// Expected: _compute_llama3_parameters and _compute_yarn_parameters of transformers 4.57's modeling_rope_utils.py, evaluated
// by hand in double precision.
TEST(Rotation, Llama31StretchesSlowTurns) {
  ExpectFrequencies(RotationOfLayer("llama-3.1-8b.json", 0), {{0, 1.0},
                                                              {20, 0.016560440080994446},
                                                              {28, 0.0032114459947525913},
                                                              {30, 0.0013718935677611381},
                                                              {33, 0.00031269375038406517},
                                                              {35, 9.556212353964683e-05},
                                                              {36, 7.78465527393245e-05},
                                                              {63, 3.068925988914511e-07}});
}

// OLMo 3 scales the layers that see everything, and magnifies; the others turn as if nothing were said.
TEST(Rotation, YarnStretchesAlongPairs) {
  const ir::Rotation whole = RotationOfLayer("olmo-3-7b.json", 3);
  ExpectFrequencies(whole, {{0, 1.0},
                            {17, 0.030634520893224042},
                            {18, 0.024955408670558694},
                            {20, 0.014855688896186194},
                            {25, 0.0038003201667920743},
                            {30, 0.0008148398229369278},
                            {35, 9.556212353964683e-05},
                            {36, 7.78465527393245e-05},
                            {63, 3.068925988914511e-07}});
  EXPECT_DOUBLE_EQ(whole.magnify, 1.2079441541679836);
  const ir::Rotation windowed = RotationOfLayer("olmo-3-7b.json", 0);
  EXPECT_EQ(windowed.stretch, 1);
  EXPECT_EQ(windowed.magnify, 1);
}

// Gemma 3: by 8 in layers that see everything, whose base is 1e6; 1e4 and plain in those with a window.
TEST(Rotation, LinearDividesAll) {
  const ir::Rotation whole = RotationOfLayer("gemma-3-4b.json", 5);
  ExpectFrequencies(whole, {{0, 0.125}, {64, 1.25e-4}});
  ExpectFrequencies(RotationOfLayer("gemma-3-4b.json", 0), {{0, 1.0}, {64, 1e-2}});
}

}  // namespace
}  // namespace orrery
