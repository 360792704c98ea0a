// SPDX-License-Identifier: Apache-2.0
// Both ends of a transformer: token embedding and language-model head, vocabulary-parallel.
#pragma once

#include "model/plan/lower/transformer.h"

namespace orrery {

// Of regroup, from x[rows, parts, columns] to [parts, rows, columns]; inverse: columns of all parts side by side.
inline ir::Attrs SideBySide(int64_t rows, int64_t columns, int64_t parts, bool inverse) {
  return {{ir::Attr::kRows, double(rows)},
          {ir::Attr::kH, double(columns)},
          {ir::Attr::kParts, double(parts)},
          {ir::Attr::kZigzag, 0},
          {ir::Attr::kInverse, double(inverse)}};
}

// Parameters of the two ends that a stage holds; invalid refs: not on this stage, or the model has none.
struct EndParams {
  ParamRef table;                                          // token embedding
  ParamRef positions, token_types, norm_gamma, norm_beta;  // rest of the embedding
  ParamRef final_gamma, final_beta;                        // final norm (pre-norm models)
  ParamRef encoder_gamma, encoder_beta;                    // T5: final norm of the encoder
  ParamRef relative_encoder, relative_decoder;             // T5: relative position bias tables
  ParamRef dense_w, dense_b, dense_gamma, dense_beta, vocab_bias;  // masked-LM transform
  ParamRef lm_table;                    // == table when tied on one stage
  bool table_shared_with_head = false;  // tied, both on this stage
};

void AddEmbeddingUnits(StageBuilder& stage, EndParams& ends);
void AddHeadUnits(StageBuilder& stage, EndParams& ends);

// x: residual stream to write. `what` tells encoder from decoder tokens; `name` prefixes the buffers.
void EmbeddingForward(StageBuilder& stage, const EndParams& ends, ir::LoadWhat what,
                      const std::string& name, ir::ViewId x);
// final_touch: no later op of the step touches the table's gradient.
void EmbeddingBackward(StageBuilder& stage, const EndParams& ends, ir::LoadWhat what,
                       const std::string& name, ir::ViewId dx, int wgrad_block, bool final_touch);

// Final norm, logits, cross-entropy and their gradients: reads x (residual stream), writes dx.
void HeadForwardBackward(StageBuilder& stage, const EndParams& ends, ir::ViewId x, ir::ViewId dx);

// Plain multi-layer perceptron (Family::kMlp), one program per stage.
void EmitMlpStage(StageBuilder& stage);
// Encoder-decoder on one stage.
void EmitEncoderDecoder(StageBuilder& stage);
// Decoder or encoder, any number of stages and chunks.
void EmitTransformerStage(StageBuilder& stage);

}  // namespace orrery
