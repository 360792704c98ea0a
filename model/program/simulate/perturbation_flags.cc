// SPDX-License-Identifier: Apache-2.0
// Reads --jitter, --slow-gpu, --degraded-link and --failed-nic.
#include "model/program/simulate/perturbation_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "model/base/plain_text.h"
#include "model/hardware/faults.h"
#include "model/program/common/share.h"

namespace orrery::cli {
namespace {

std::vector<std::string> Items(const std::string& text) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::optional<SlowGpu> ReadSlowGpu(const std::string& item, const Flag& flag,
                                   Diagnostics* diagnostics) {
  const std::size_t colon = std::min(item.find(':'), item.size());
  const std::string_view text = item;
  SlowGpu gpu{.where = flag.where};
  if (colon < item.size() && ParseRanks(text.substr(0, colon), &gpu) &&
      ParseNumber(text.substr(colon + 1), &gpu.factor) == NumberFault::kNone &&
      gpu.factor >= kLeastFactor && gpu.factor <= kMostFactor)
    return gpu;
  diagnostics->Error(
      flag.where, fmt::format("{}: '{}' is no rank and factor", flag.name, item),
      fmt::format("write RANK:FACTOR with a factor from {} to {}, such as 3:1.5 or 8..15:1.2",
                  kLeastFactor, kMostFactor));
  return std::nullopt;
}

std::optional<SlowLink> ReadSlowLink(const std::string& item, const Flag& flag,
                                     Diagnostics* diagnostics) {
  const std::size_t colon = item.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    diagnostics->Error(flag.where, fmt::format("{}: '{}' is no link and share", flag.name, item),
                       "write LINK:SHARE, such as 'n0.nic0 -> leaf0:25%'");
    return std::nullopt;
  }
  SlowLink link{.name = item.substr(0, colon), .where = flag.where};
  link.share = ReadLinkShare(item.substr(colon + 1), link.name, flag.name, flag.where, diagnostics);
  return link;
}

// "3" or, with the prefix "nic", "nic3".
bool ParseIndex(std::string_view text, std::string_view prefix, int64_t* index) {
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return ParseInteger(text, index) == NumberFault::kNone && *index >= 0;
}

}  // namespace

bool Perturbations::any() const {
  return jitter > 0 || !slow_gpus.empty() || !slow_links.empty() || !dead_nics.empty();
}

std::string Perturbations::Words() const {
  std::vector<std::string> words;
  if (jitter > 0) words.push_back(fmt::format("jitter {:.3g} % (seed {})", 100 * jitter, seed));
  for (const SlowGpu& gpu : slow_gpus) {
    const std::string ranks = gpu.first == gpu.last
                                  ? fmt::format("rank {}", gpu.first)
                                  : fmt::format("ranks {} to {}", gpu.first, gpu.last);
    words.push_back(fmt::format("{} {:.3g} times as slow", ranks, gpu.factor));
  }
  for (const SlowLink& link : slow_links) {
    const std::string count = link.links > 1 ? fmt::format(" ({} links)", link.links) : "";
    words.push_back(fmt::format("{}{} at {:.3g} %", link.name, count, 100 * link.share));
  }
  std::vector<std::string> dead;
  for (const DeadNic& nic : dead_nics) dead.push_back(fmt::format("n{}.nic{}", nic.node, nic.nic));
  if (!dead.empty()) words.push_back(fmt::format("{} failed", fmt::join(dead, " and ")));
  return fmt::format("{}", fmt::join(words, ", "));
}

bool ParseRanks(std::string_view text, SlowGpu* gpu) {
  const std::size_t dots = text.find("..");
  const bool range = dots != std::string_view::npos;
  return ParseInteger(text.substr(0, dots), &gpu->first) == NumberFault::kNone &&
         ParseInteger(range ? text.substr(dots + 2) : text, &gpu->last) == NumberFault::kNone &&
         gpu->first >= 0 && gpu->first <= gpu->last;
}

double ReadJitter(const std::string& text, const std::string& subject, const Location& where,
                  Diagnostics* diagnostics) {
  const std::optional<double> jitter = ParseShare(text);
  if (!jitter) {
    diagnostics->Error(where, fmt::format("{}: '{}' is not a share", subject, text),
                       "write 2% or 0.02");
  } else if (!(*jitter >= 0 && *jitter <= 1)) {
    diagnostics->Error(where, fmt::format("{}: {} is out of range", subject, text),
                       "from 0% to 100%");
  } else {
    return *jitter;
  }
  return 0;
}

double ReadLinkShare(const std::string& text, const std::string& link, const std::string& subject,
                     const Location& where, Diagnostics* diagnostics) {
  const std::optional<double> share = ParseShare(text);
  if (!share) {
    diagnostics->Error(where, fmt::format("{}: '{}' is not a share of {}", subject, text, link),
                       "write 25% or 0.25: the share of its rate that remains");
  } else if (*share == 0) {
    diagnostics->Error(
        where, fmt::format("{}: {} would have no bandwidth, and no step would end", subject, link),
        "a share above 0; --failed-nic takes a NIC out, and routes then avoid it");
  } else if (!(*share >= kLeastShare && *share <= 1)) {
    diagnostics->Error(where, fmt::format("{}: {} of {} is out of range", subject, text, link),
                       fmt::format("from {:g}% to 100%", 100 * kLeastShare));
  } else {
    return *share;
  }
  return 1;
}

DeadNic ReadNic(const std::string& text, const std::string& subject, const Location& where,
                Diagnostics* diagnostics) {
  DeadNic nic{.where = where};
  const std::size_t middle = std::min(text.find_first_of(":."), text.size());
  const std::string_view view = text;
  if (middle == text.size() || !ParseIndex(view.substr(0, middle), "n", &nic.node) ||
      !ParseIndex(view.substr(middle + 1), "nic", &nic.nic)) {
    diagnostics->Error(where, fmt::format("{}: '{}' is no NIC of a node", subject, text),
                       "write NODE:NIC, such as 0:nic3");
  }
  return nic;
}

Perturbations ReadPerturbations(const SimulateFlags& flags, Perturbations base,
                                Diagnostics* diagnostics) {
  if (flags.jitter.given)
    base.jitter = ReadJitter(flags.jitter.text, "--jitter", flags.jitter.where, diagnostics);
  if (const auto seed = ReadInteger(flags.seed, 0, int64_t{1} << 62, diagnostics))
    base.seed = static_cast<uint64_t>(*seed);
  if (flags.slow_gpu.given) {
    base.slow_gpus.clear();
    for (const std::string& item : Items(flags.slow_gpu.text)) {
      if (const auto gpu = ReadSlowGpu(item, flags.slow_gpu, diagnostics))
        base.slow_gpus.push_back(*gpu);
    }
  }
  if (flags.degraded_link.given) {
    base.slow_links.clear();
    for (const std::string& item : Items(flags.degraded_link.text)) {
      if (const auto link = ReadSlowLink(item, flags.degraded_link, diagnostics))
        base.slow_links.push_back(*link);
    }
  }
  if (flags.failed_nic.given) {
    base.dead_nics.clear();
    for (const std::string& item : Items(flags.failed_nic.text))
      base.dead_nics.push_back(ReadNic(item, "--failed-nic", flags.failed_nic.where, diagnostics));
  }
  return base;
}

}  // namespace orrery::cli
