// SPDX-License-Identifier: Apache-2.0
// Profile files with new values: one line per constant, everything else as it was.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calib/fit/fit.h"
#include "calib/fit/holdout.h"
#include "calib/validate/left_out.h"
#include "model/twin/trust.h"

namespace orrery {

struct ConstantLine {
  std::string key, value, unit;
  std::optional<double> spread;
  int points = 0;
  std::string source;
};

// The text of a profile file with these constants replaced, or added at the end of `constants`.
// Throws InputError when the text has no `constants` map in block style with one line per constant.
std::string RewriteProfile(const std::string& name, const std::string& text,
                           const std::vector<ConstantLine>& lines);

// The text of a new profile file.
std::string NewProfile(const std::string& title, const std::string& parent,
                       const std::vector<ConstantLine>& lines);

// Lines by file ("framework/megatron"), of the constants that the data determined, and the intervals.
using ProfileLines = std::map<std::pair<ProfileLayer, std::string>, std::vector<ConstantLine>>;
ProfileLines LinesOf(const FitResult& result, const std::map<std::string, Interval>& intervals,
                     const std::string& interval_source, const ProfileStore& store);

// Writes them: below `folder` (gpu/, fabric/, framework/), to `folder` itself when it ends in .yaml and
// there is one file, or in place when it is empty. Returns the paths.
std::vector<std::string> WriteProfiles(const ProfileLines& lines, const std::string& folder,
                                       const ProfileStore& store);

// Writes a whole file, its folder included. Throws InputError.
void WriteText(const std::string& path, const std::string& text);

// Write trust.json and left_out.csv there likewise; return their paths.
std::string WriteTrust(const Trust& trust, const std::string& folder);
std::string WriteLeftOut(const LeftOutRows& rows, const std::string& folder);

}  // namespace orrery
