// SPDX-License-Identifier: Apache-2.0
// What the words of a CSV of published runs mean: families, software, precisions and the like as people write them.
//
// Case, blanks, dashes and underscores never matter. A word that is not this project's own comes with a note that
// says how it was read; one that means nothing here has a refusal instead.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plan/lower/strategy.h"
#include "model/twin/step_predictor.h"

namespace orrery {

template <class T>
struct Meaning {
  std::optional<T> value;
  std::string note;  // how it was read, when that is not obvious; with no value: why not
};

// kMlp: linear layers of `hidden` inputs, the last of `vocab` outputs.
enum class CsvFamily { kGpt, kLlama, kBert, kT5, kVit, kMlp };

// What of the layout tells an unnamed framework.
struct LayoutHint {
  bool model_parallel = false;  // tp, pp or cp above 1
  int zero = 0;
};

// "": no cell, or one of the ways to say that nothing is known (NaN, None, unknown, ?).
std::string KnownText(const std::string& cell);

Meaning<CsvFamily> FamilyOf(const std::string& text, bool gated);
// A framework's name; what is written may be an alias of its YAML, also with more behind it. No value: none of the catalogue's.
Meaning<std::string> FrameworkOf(const std::string& text, const LayoutHint& hint);
// Of all but the products that run in fewer bits.
Meaning<Precision> PrecisionOf(const std::string& text);
// "fp8" with the recipe of a second column; without one the first of `offered`.
Meaning<Fp8> Fp8Of(const std::string& precision, const std::string& recipe,
                   const std::vector<Fp8>& offered);
Meaning<Optimizer> OptimizerOf(const std::string& text);
// No value and no note: not printed.
Meaning<Recompute> RecomputeOf(const std::string& text);
Meaning<Offload> OffloadOf(const std::string& text);  // empty: nothing lies on the host
Meaning<bool> FlashOf(const std::string& text);
Meaning<bool> YesOrNo(const std::string& text);
Meaning<Window> WindowOf(const std::string& text);
// The stage of "3", "ZeRO-1", "FULL_SHARD", "distributed optimizer".
Meaning<int> ZeroOf(const std::string& text);
// A catalogued cluster by another of its names, such as that of a cloud's instance; no note: not one of these.
std::optional<std::string> TopologyAlias(const std::string& text);

}  // namespace orrery
