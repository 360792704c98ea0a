// SPDX-License-Identifier: Apache-2.0
// What this program is: version.cc and commit.cc of the build folder.
#pragma once

namespace orrery::cli {

// kFeatures, kMissing: libraries that it was built with, and without. kCommit is empty outside of a git repository.
extern const char *const kVersion, *const kBuild, *const kFeatures, *const kMissing, *const kCommit;

}  // namespace orrery::cli
