// SPDX-License-Identifier: Apache-2.0
// Releases of NCCL by their numbers.
#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace orrery::nccl {

struct Release {
  int major = 0, minor = 0, patch = 0;
  auto operator<=>(const Release&) const = default;
};

// The release whose search for channels these rules are, and which is taken where nobody names one.
inline constexpr Release kOwnRelease{2, 28, 9};
// From here to there the rules of choice are known (model/collectives/nccl/releases.cc).
inline constexpr int kFirstMinor = 10, kLastMinor = 30;

// Of "2.18.3", also as NCCL, its packages and PyTorch print it ("2.18.3+cuda12.1", "2.18.3-1"). "2.18" is the last of 2.18.
// Throws InputError: no version, or one whose rules are not known, with those that are.
Release ReadRelease(std::string_view text);
// The nearest release whose rules are known, for texts that nobody typed here; kOwnRelease of "" and what is no version.
Release NearestRelease(std::string_view text);
std::string ReleaseText(Release release);  // "2.18.3", "2.18" of the last

// The first release that runs on a chip of this compute capability in tenths, as far as it is later than the first known one.
Release FirstOn(int capability);

}  // namespace orrery::nccl
