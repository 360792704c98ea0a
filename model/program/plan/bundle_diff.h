// SPDX-License-Identifier: Apache-2.0
// Which change of a question, a file or the program moved a step or a run of weeks, and which term of it.
//
// The old question with the old files is changed into the new one item by item, and asked again after each: what the answer
// moves by is that item's part, so that the parts add up to the whole. Where items act on each other, the part of the
// earlier one is what it does alone.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/program/common/bundle.h"
#include "model/program/plan/headline.h"

namespace orrery::cli {

// A flag, a line of a YAML file ("calib/profiles/gpu/x.yaml: clock_share"), a whole file, or the program.
struct MovedBy {
  std::string what, before, after;
  double seconds = 0;                          // of the step
  std::optional<double> run_seconds, dollars;  // of the run
  std::string term, layout;  // the one that moved most; the new layout where it is another one
  double term_seconds = 0;
  std::string now;                  // the new offer or topology, where it is another one
  std::vector<std::string> others;  // offers or topologies behind the first whose own answer moved
  std::vector<std::string> named;   // of Headline::OtherAnswers(), with what each is now
};

struct BundleDiff {
  std::string old_question, new_question, old_version, new_version;
  Headline before, after;  // as the bundles have them
  std::vector<MovedBy> moved;
  int without_effect = 0;  // changed items that moved nothing
};

// Throws InputError when a bundle has no step, or this program cannot answer it.
BundleDiff Diff(const Bundle& before, const Bundle& after);

std::string DiffText(const BundleDiff& diff);
std::string DiffBrief(const BundleDiff& diff);  // in one line
nlohmann::ordered_json DiffJson(const BundleDiff& diff);

// "crusoe-h100, 8 nodes, 36.0 d, 216 kUSD"; "none".
std::string AnswerWords(const std::optional<HeadlineRow>& row);
bool DifferentAnswers(const std::optional<HeadlineRow>& a, const std::optional<HeadlineRow>& b);

inline constexpr double kSameFigure = 1e-9;  // relative: rounding
double PartOf(const Headline& headline, const char* term);

}  // namespace orrery::cli
