// SPDX-License-Identifier: Apache-2.0
// What two bundles differ in: flags, lines of YAML files, whole files; each can be applied to the old question.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/program/common/bundle.h"

namespace orrery::cli {

using BundledFiles = std::map<std::string, std::string>;  // text by path

// The words of each flag, and of none before the first.
using QuestionFlags = std::vector<std::pair<std::string, std::vector<std::string>>>;
QuestionFlags FlagsOf(const std::vector<std::string>& question);
std::vector<std::string> WordsOf(const QuestionFlags& flags);

// What the old question becomes.
struct BundleState {
  QuestionFlags question;
  BundledFiles files;
};

struct BundleItem {
  std::string what, before, after;
  std::function<void(BundleState*)> apply;
};

// In the order of the questions and the paths. `start`: the old question, with the new one's files that it did not read.
std::vector<BundleItem> ItemsBetween(const Bundle& before, const Bundle& after, BundleState* start);

}  // namespace orrery::cli
