// SPDX-License-Identifier: Apache-2.0
// Reads versions of NCCL.
#include "model/hardware/nccl_release.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "model/base/diagnostics.h"

namespace orrery::nccl {
namespace {

constexpr int kMajor = 2;
constexpr int kLastPatch = 99;

// nullopt: not two or three numbers with points, or something else behind them than a build ("-1", "+cuda12.1").
std::optional<Release> NumbersOf(std::string_view text) {
  Release version{0, 0, kLastPatch};
  const std::array<int *, 3> parts = {&version.major, &version.minor, &version.patch};
  const char *at = text.data(), *const end = at + text.size();
  std::size_t read = 0;
  for (int *part : parts) {
    if (read > 0) {
      if (at == end || *at != '.') break;
      ++at;
    }
    const auto [next, error] = std::from_chars(at, end, *part);
    if (error != std::errc() || *part < 0 || *part > kLastPatch) return std::nullopt;
    at = next;
    ++read;
  }
  if (read < 2 || (at != end && *at != '+' && *at != '-')) return std::nullopt;
  return version;
}

}  // namespace

Release ReadRelease(std::string_view text) {
  const std::string known =
      fmt::format("the rules of {0}.{1} to {0}.{2} are known", kMajor, kFirstMinor, kLastMinor);
  const std::optional<Release> version = NumbersOf(text);
  if (!version)
    throw InputError(fmt::format("'{}' is no release of NCCL", text), "such as 2.18.3; " + known);
  if (version->major != kMajor || version->minor < kFirstMinor || version->minor > kLastMinor)
    throw InputError(fmt::format("how NCCL {} chooses is not known", text), known);
  return *version;
}

Release NearestRelease(std::string_view text) {
  const std::optional<Release> version = NumbersOf(text);
  if (!version) return kOwnRelease;
  return std::clamp(*version, {kMajor, kFirstMinor, 0}, {kMajor, kLastMinor, kLastPatch});
}

std::string ReleaseText(Release release) {
  std::string text = fmt::format("{}.{}", release.major, release.minor);
  if (release.patch != kLastPatch) text += fmt::format(".{}", release.patch);
  return text;
}

// Messages of the commits v2.15.1-1 ("Add support for H100 (sm90)") and v2.25.1-1 ("Add Blackwell/SM100 support").
Release FirstOn(int capability) {
  constexpr int kHopper = 90, kBlackwell = 100;
  if (capability >= kBlackwell) return {kMajor, 25, 1};
  return capability >= kHopper ? Release{kMajor, 15, 1} : Release{kMajor, kFirstMinor, 0};
}

}  // namespace orrery::nccl
