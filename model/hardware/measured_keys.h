// SPDX-License-Identifier: Apache-2.0
// Keys of files with measured collective times, for their reader and their writer.
#pragma once

#include <string>

namespace orrery {

inline std::string LatencyKey(int protocol) { return "latency_" + std::to_string(protocol); }
inline std::string BandwidthKey(int protocol) { return "bandwidth_" + std::to_string(protocol); }
inline constexpr const char* kPipeliningKey = "pipelining";
inline constexpr const char* kBandKeys[] = {"below_64KiB", "to_16MiB", "above"};
// Offset, step, bandwidth of one ring, of a copy, pipelining loss.
inline constexpr const char* kNodeKeys[] = {"offset", "step", "ring_bandwidth", "copy_bandwidth",
                                            "pipelining"};

}  // namespace orrery
