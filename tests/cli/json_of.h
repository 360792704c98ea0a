// SPDX-License-Identifier: Apache-2.0
// What the real program answers with --json.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_plan.h"

namespace orrery {

// --json is added where the words lack it. It has to end with `code`.
inline nlohmann::json JsonOf(const std::vector<std::string>& words, int code = 0,
                             const std::map<std::string, std::string>& environment = {}) {
  const bool said = std::find(words.begin(), words.end(), "--json") != words.end();
  const Outcome outcome = RunPlan(said ? words : With(words, {"--json"}), environment);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

struct TextAndJson {
  Outcome text;
  nlohmann::json json;
};
// Both of one run: --json FILE writes beside the text.
inline TextAndJson BothOf(const std::vector<std::string>& words) {
  const std::string path = ScratchFolder() + "/both.json";
  TextAndJson both{RunPlan(With(words, {"--json", path})), {}};
  both.json = nlohmann::json::parse(ReadText(path), nullptr, false);
  return both;
}

}  // namespace orrery
