// SPDX-License-Identifier: Apache-2.0
// Measured collective times of one machine, fitted by `plan calibrate` from sweeps of sizes, as
// they stand in calib/profiles/collectives or in a file of the user's.
//
//   title: text
//   machine: what it was measured on
//   gpu: h100-sxm5-80gb              # optional: the profile of the chip, checked against the job's
//   sweeps:
//     - collective: all_reduce       # also "reduce"
//       algorithm: ring              # optional: absent = as the library chose
//       ranks: 8
//       nodes: 1
//       from: 8B                     # sizes that were measured
//       to: 8589934592B
//       points: 32
//       source: text
//       constants: {latency_1: {value: 13us, spread: 0.01, points: 32, source: text}, ...}
//       left_out_error: {below_64KiB: 0.01, to_16MiB: 0.04, above: 0.01}   # mean, relative
//       residuals: {8: -0.01, 16: 0.002, ...}     # ln(measured / formula) by bytes
//   node_form:                       # optional: all-reduce among any number of ranks of one node
//     ranks: [2, 4, 8]
//     constants: {offset: ..., step: ..., ring_bandwidth: ..., copy_bandwidth: ..., pipelining: ...}
//
// Constants: latency_N, bandwidth_N (as written, of S, not of the bus) of the N-th protocol, and
// pipelining in microseconds per square root of a byte.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/hardware/profile.h"
#include "model/hardware/sweep_curve.h"

namespace orrery {

inline constexpr int kSizeBands = 3;  // below 64 KiB, to 16 MiB, above
int SizeBand(double bytes);
const char* SizeBandName(int band);

struct GroupCurve {
  std::string collective;
  std::string algorithm;
  int ranks = 0, nodes = 0;
  SweepCurve curve;
  double least_bytes = 0, most_bytes = 0;
  int points = 0;
  std::array<std::optional<double>, kSizeBands> left_out_error;  // mean |error|
  std::string source;
  std::map<std::string, Provenance> constants;
};

struct NodeFormCurve {
  std::vector<int> ranks;  // that were measured, ascending
  NodeRingForm form;
  std::map<std::string, Provenance> constants;
};

struct MeasuredCollectives {
  std::string title, machine;
  std::string gpu;   // "" = not said
  std::string path;  // of the file
  std::vector<GroupCurve> groups;
  std::optional<NodeFormCurve> node_form;

  // "" for the algorithm: any. Null: there is none.
  const GroupCurve* Find(const std::string& collective, const std::string& algorithm, int ranks,
                         int nodes) const;
};

// Throw InputError with places.
MeasuredCollectives ReadMeasuredCollectives(const SourcePtr& source);
// An id of calib/profiles/collectives, or a path (it contains '/' or ends in .yaml). `gpu`: of the
// cluster that it is for; an error when the file names another one.
std::shared_ptr<const MeasuredCollectives> LoadMeasuredCollectives(const std::string& id_or_path,
                                                                   const std::string& gpu);

// LoadFabricProfile, with the sweeps that `collectives` names ("": none) for a cluster of `gpu`.
FabricProfile LoadFabricProfile(const std::string& id, const std::string& collectives,
                                const std::string& gpu);

}  // namespace orrery
