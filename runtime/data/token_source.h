// SPDX-License-Identifier: Apache-2.0
// Samples from a token file in an order that depends on seed and sample number alone: every layout
// on any number of ranks sees the same global batch.
//
// The file is cut into windows of as many tokens as a sample has (labels are the next token; what
// does not fill a window is left out). TokenSample g of the whole run is window Shuffled(seed,
// epoch) of its epoch g / windows. Encoder-decoder models read on: the encoder's tokens come first,
// the decoder goes on where they end (prefix language modelling, Raffel et al. 2020).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_shape.h"
#include "runtime/data/masking.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/token_file.h"

namespace orrery::train {

class TokenSource : public DataSource {
 public:
  // Throws DataError: what TokenFile refuses, and a file shorter than one sample.
  TokenSource(const std::string& path, const DataSpec& spec, const DataShape& shape,
              int64_t global_batch);

  void Load(const ir::Op& op, const LoadPlace& place, std::span<double> out) override;
  void Prefetch(int64_t step) override;
  void Resume(int64_t steps_done, int64_t samples_done) override;

  int64_t windows() const { return windows_; }  // samples of an epoch
  const TokenFile& file() const { return file_; }
  const ReadAhead& read_ahead() const { return ahead_; }
  TokenSample Make(int64_t number) const;  // sample `number` of the whole run

 private:
  double Value(const TokenSample& sample, ir::LoadWhat what, int64_t position) const;

  const TokenFile file_;
  const DataSpec spec_;
  const DataShape shape_;
  const int64_t global_batch_, windows_;
  Masking masking_;
  int64_t before_ = 0;              // number of step 1's first sample
  std::vector<int64_t> of_a_step_;  // samples of a step that this rank has asked for
  ReadAhead ahead_;                 // ends first: its thread uses the rest
};

// The token that stands for a hidden one: `asked` unless it is negative, else 103 for BERT's
// vocabulary, 256 for text when the vocabulary has room, else the last one.
uint32_t MaskToken(int64_t asked, int64_t vocab, bool text);

}  // namespace orrery::train
