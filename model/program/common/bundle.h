// SPDX-License-Identifier: Apache-2.0
// An answer with all that it was computed from: one JSON file, schema orrery.bundle/1.
//
//   version, commit  of the program that answered
//   question         the words behind `plan`
//   files            what was read: path, text
//   answer           the JSON of --json
// Paths: files of the catalogue as they lie below it; own models, profiles, ... below .orrery/; any other file below
// files/N/, N standing for its folder. So a bundle holds no path of the machine that wrote it.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/program/common/flags.h"

namespace orrery::cli {

inline constexpr const char* kBundleSchema = "orrery.bundle/1";

struct Bundle {
  std::string version, commit;
  std::vector<std::string> question;
  std::vector<std::pair<std::string, std::string>> files;
  nlohmann::ordered_json answer;
};

// The commands that write bundles, and flags that no question has: they say where answers go.
inline constexpr std::array kBundledCommands = {"predict", "simulate", "provision"};
inline constexpr std::array kOutputFlags = {"--bundle", "--json", "--html", "--trace", "--out"};

// Before the work: throws InputError when the file cannot be written.
void CheckBundle(const Flag& flag);
// Nothing without the flag; else the bundle of the command that runs. Throws InputError when it cannot be written.
void WriteBundle(const Flag& flag, const nlohmann::ordered_json& answer);

// Throws InputError: no such file, no bundle, of another release's schema, with paths that leave its folder, or
// with a question that does more than ask.
Bundle ReadBundle(const std::string& path);

}  // namespace orrery::cli
