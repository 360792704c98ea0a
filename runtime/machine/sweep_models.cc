// SPDX-License-Identifier: Apache-2.0
// Small models of four families.
#include "runtime/machine/sweep_models.h"

#include <fmt/format.h>

namespace orrery::machine {
namespace {

struct Row {
  int64_t hidden, heads, ffn, seq, batch, vocab, layers;
  bool flash = false;
  Optimizer optimizer = Optimizer::kAdam;
};

constexpr Row kGpt[] = {
    {64, 2, 256, 32, 1, 512, 2},
    {64, 1, 256, 128, 8, 4096, 2},
    {128, 2, 512, 64, 2, 1024, 2},
    {128, 4, 256, 128, 1, 30528, 1},
    {192, 3, 768, 64, 8, 1024, 2},
    {256, 4, 1024, 128, 1, 2048, 2},
    {256, 2, 512, 64, 4, 4096, 2},
    {256, 4, 1024, 128, 8, 512, 1},
    {384, 6, 768, 32, 2, 1024, 2},
    {512, 8, 2048, 128, 2, 1024, 1},
    {512, 4, 1024, 32, 1, 8192, 1},
    {512, 8, 1024, 256, 1, 512, 1},
    {768, 12, 3072, 64, 2, 1024, 1},
    {1024, 16, 2048, 128, 1, 1024, 1},
    {128, 2, 512, 64, 2, 1024, 1, true},
    {256, 4, 1024, 128, 4, 512, 1, true},
    {512, 8, 1024, 256, 1, 512, 1, true},
    {64, 2, 256, 32, 1, 512, 1, false, Optimizer::kSgd},
    {512, 8, 2048, 32, 1, 1024, 1, false, Optimizer::kSgd},
    {64, 2, 256, 32, 1, 512, 1, false, Optimizer::kLamb},
    {512, 8, 2048, 32, 1, 1024, 1, false, Optimizer::kLamb},
};
constexpr Row kBert[] = {{64, 1, 256, 128, 1, 30528, 2},
                         {128, 2, 512, 32, 4, 2048, 1},
                         {256, 4, 1024, 128, 4, 2048, 1},
                         {512, 8, 2048, 128, 1, 1024, 1},
                         {256, 4, 1024, 128, 2, 1024, 1, true}};
constexpr Row kLlama[] = {
    {64, 2, 192, 32, 1, 512, 1}, {256, 4, 768, 128, 4, 1024, 1}, {512, 8, 1408, 128, 1, 512, 1}};
constexpr Row kT5[] = {{64, 2, 256, 32, 1, 512, 1}, {256, 4, 1024, 64, 4, 1024, 1}};

ModelSpec Spec(const Row& row) {
  ModelSpec m;
  m.layers = row.layers;
  m.hidden = row.hidden;
  m.ffn = row.ffn;
  m.heads = m.kv_heads = row.heads;
  m.head_dim = row.hidden / row.heads;
  m.vocab = row.vocab;
  m.max_positions = row.seq;
  return m;
}

ModelSpec Gpt(const Row& row) { return Spec(row); }

ModelSpec Bert(const Row& row) {
  ModelSpec m = Spec(row);
  m.family = Family::kEncoder;
  m.token_types = 2;
  m.post_norm = m.pooler = m.embedding_norm = true;
  return m;
}

ModelSpec Llama(const Row& row) {
  ModelSpec m = Spec(row);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.gated = true;
  m.positions = Positions::kRotary;
  m.linear_bias = m.qkv_bias = m.tied_embeddings = false;
  return m;
}

ModelSpec T5(const Row& row) {
  ModelSpec m = Spec(row);
  m.family = Family::kEncoderDecoder;
  m.decoder_layers = row.layers;
  m.relative_buckets = 8;
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kRelu;
  m.positions = Positions::kRelativeBias;
  m.linear_bias = m.qkv_bias = false;
  return m;
}

SweepModel Make(const char* family, const Row& row, ModelSpec spec, Precision precision) {
  SweepModel model;
  model.name =
      fmt::format("{} of width {}, {} x {} tokens", family, row.hidden, row.batch, row.seq);
  model.spec = std::move(spec);
  model.spec.name = family;
  model.work.seq_len = row.seq;
  model.work.global_batch = row.batch;
  model.work.precision = precision;
  model.work.optimizer = row.optimizer;
  model.flash = row.flash;
  return model;
}

}  // namespace

std::vector<SweepModel> SweepModels(Precision precision) {
  std::vector<SweepModel> models;
  for (const Row& row : kGpt) models.push_back(Make("gpt", row, Gpt(row), precision));
  for (const Row& row : kBert) models.push_back(Make("bert", row, Bert(row), precision));
  for (const Row& row : kLlama) models.push_back(Make("llama", row, Llama(row), precision));
  for (const Row& row : kT5) models.push_back(Make("t5", row, T5(row), precision));
  return models;
}

std::vector<SweepModel> LeftOutModels(Precision precision) {
  constexpr Row kFirst = {320, 5, 1280, 96, 3, 3000, 2}, kSecond = {160, 5, 640, 80, 6, 5000, 3},
                kThird = {640, 10, 1536, 96, 1, 700, 1};
  return {Make("gpt", kFirst, Gpt(kFirst), precision),
          Make("bert", kSecond, Bert(kSecond), precision),
          Make("llama", kThird, Llama(kThird), precision)};
}

}  // namespace orrery::machine
