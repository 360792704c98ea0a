// SPDX-License-Identifier: Apache-2.0
// The vocabulary that the writer and the parser of the plan text share: enum words, name quoting.
//
// A name stands bare when it starts with a letter or '_' and holds only word characters; else it is
// quoted. A reference to something whose name is not unique in its list is its index: %17.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "model/plan/ir/plan.h"

namespace orrery::ir {

inline constexpr std::array<std::string_view, 11> kDtypeWords = {
    "f64", "f32", "tf32", "f16", "bf16", "i32", "u8", "e4m3", "e5m2", "e8m0", "e2m1x2"};
inline constexpr std::array<std::string_view, 6> kInitWords = {"normal", "ones",   "zeros",
                                                               "codes",  "scales", "groups"};
inline constexpr std::array<std::string_view, 5> kPackingWords = {"none", "int8", "nf4", "e4m3",
                                                                  "e4m3_blocks"};
inline constexpr std::array<std::string_view, 8> kClassWords = {
    "param", "gathered", "grad", "grad_t", "master", "opt", "act", "scalar"};
inline constexpr std::array<std::string_view, 3> kLifeWords = {"step", "derived", "micro_batch"};
inline constexpr std::array<std::string_view, 2> kSpaceWords = {"device", "host"};
inline constexpr std::array<std::string_view, 11> kPhaseWords = {
    "input",       "forward",   "backward",  "weight_grad", "recompute", "param_gather",
    "grad_reduce", "grad_norm", "optimizer", "pipeline",    "setup"};
inline constexpr std::array<std::string_view, 4> kSegmentWords = {"step", "embedding", "layer",
                                                                  "head"};
inline constexpr std::array<std::string_view, 9> kLoadWords = {
    "tokens",   "labels",  "masked_positions", "masked_labels", "token_types",
    "features", "targets", "decoder_tokens",   "decoder_labels"};

// The arrays follow their enums: a new last enumerator needs its word here.
template <class Enum>
constexpr bool Covers(std::size_t words, Enum last) {
  return words == static_cast<std::size_t>(last) + 1;
}
static_assert(Covers(kDtypeWords.size(), Dtype::kE2m1x2));
static_assert(Covers(kInitWords.size(), Init::kGroups));
static_assert(Covers(kPackingWords.size(), Packed::kE4m3Blocks));
static_assert(Covers(kClassWords.size(), BufferClass::kScalar));
static_assert(Covers(kLifeWords.size(), Life::kMicroBatch));
static_assert(Covers(kSpaceWords.size(), Space::kHost));
static_assert(Covers(kPhaseWords.size(), Phase::kSetup));
static_assert(Covers(kSegmentWords.size(), Segment::kHead));
static_assert(Covers(kLoadWords.size(), LoadWhat::kDecoderLabels));

// Outside quotes; the rest of the printable characters are punctuation.
inline constexpr std::array<bool, 256> kWordChars = [] {
  std::array<bool, 256> word{};
  for (int c = '!'; c <= '~'; ++c) word[c] = true;
  for (const char c : std::string_view("=,()[]{};#\"%\\"))
    word[static_cast<unsigned char>(c)] = false;
  return word;
}();
constexpr bool IsWordChar(char c) { return kWordChars[static_cast<unsigned char>(c)]; }
constexpr bool IsBareName(std::string_view name) {
  if (name.empty()) return false;
  const char first = name[0];
  if (!((first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') || first == '_')) {
    return false;
  }
  for (const char c : name) {
    if (!IsWordChar(c)) return false;
  }
  return true;
}

// "when" masks and call flags: the word for kWhenLast alone.
inline constexpr std::string_view kLastWord = "last";

// Loop variables of a schedule by depth: i, j, k, l, m, n, v6, v7 ...
inline std::string LoopVariable(std::size_t depth) {
  if (depth < 6) return std::string(1, "ijklmn"[depth]);
  return "v" + std::to_string(depth);
}

}  // namespace orrery::ir
