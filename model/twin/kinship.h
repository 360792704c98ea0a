// SPDX-License-Identifier: Apache-2.0
// How near the calibrated runs are to a question: same layer shape, same model, new model on a known cluster, new
// cluster, new chip, new framework or fact.
//
// The error of a prediction is the sum of what each of these contributes, so a question gets the errors that the fit made
// on runs whose nearest kin were left out in the same way (calib/fit/kinship.h). One function says how near: KinshipOf(),
// for questions and for the runs that were left out.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/price/setting.h"
#include "model/twin/run_facts.h"
#include "model/twin/situation.h"

namespace orrery {

class CsvTable;

// What errors of predictions may depend on.
struct RunIdentity {
  std::string framework;  // with its release, without its site: "megatron@2021"
  std::string gpu, fabric, topology;
  RunFacts facts;
  Situation at{};
};

// Nearest first. A question is of the last class that holds for it.
enum class Kin { kShape, kModel, kCluster, kNewCluster, kNewChip, kNewFramework };
inline constexpr int kKins = 6;
const char* NameOf(Kin kin);  // "new model on a known cluster"

struct Kinship {
  Kin kin = Kin::kNewFramework;
  bool new_chip = false;       // also where the framework is new, too
  bool new_gpu = false;        // the very GPU, with its memory: its profile holds priors
  bool new_fabric = false;     // no run between nodes on this kind of network
  bool new_site = false;       // the framework on this cluster
  bool new_framework = false;  // the release
  bool new_attention = false;  // the kernel on this chip
  double doublings = 0;  // outside of the range of this release's runs, at most kMostDoublings
  std::vector<std::string>
      outside;  // what of it was never calibrated: "64 nodes: calibrated on 1 to 32"
};

inline constexpr double kMostDoublings = 10;

// Layer shape: hidden size, sequence length, tokens per micro-batch, tensor parallelism. Model: layers and hidden size.
// Cluster: topology and release. Chip: the GPU without its memory size. Fact: known where a run of any release of the
// framework had it (of a framework without runs: any run), kernels of attention and products on this chip, too; products on
// the part of this site, where sites have parts with runs of their own.
Kinship KinshipOf(const RunIdentity& asked, const std::vector<const RunIdentity*>& runs);

RunIdentity IdentityOf(const CostSetting& setting, const Workload& work, const Strategy& strategy,
                       const Situation& at);
std::string ChipOf(const std::string& gpu);          // "a100-sxm4" of "a100-sxm4-80gb"
std::string FamilyOf(const std::string& framework);  // "megatron" of "megatron@2021"
// Where residuals of a site are told apart: "nemo@dgxc-h100, several nodes".
std::string SiteOf(const RunIdentity& run);

// Columns of calib/profiles/left_out.csv that hold an identity, with leading comma: ",framework,gpu,...".
std::string IdentityColumns();
std::string IdentityCells(const RunIdentity* run);  // null: empty cells

// Reads those of one table, which must outlive it.
class IdentityReader {
 public:
  explicit IdentityReader(const CsvTable& table);

  RunIdentity Read(std::size_t row);

 private:
  const CsvTable& table_;
  std::array<std::optional<std::size_t>, kFeatures> columns_;
  std::unordered_map<std::string_view, RunFacts> known_;  // by their text, which many rows share
};

}  // namespace orrery
