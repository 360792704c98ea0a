// SPDX-License-Identifier: Apache-2.0
// Measured times as nccl-tests prints them, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/program/common/bench_flags.h"
#include "runtime/program/common/rank_flags.h"
#include "runtime/timing/time_collective.h"

namespace orrery::bench {

struct MeasuredRank {
  std::string host;
  int64_t process = 0;
};

struct Measuring {
  cli::Sweep sweep;
  TimingOptions options;
  ir::Dtype dtype = ir::Dtype::kF32;
  bool maximum = false;
  cli::Comm comm = cli::Comm::kLocal;
  int64_t ranks = 1;
  std::string device = "CPU";  // or the GPU's name
  std::string size_step;       // "2(factor)" or "1024(bytes)"
  std::string topology;        // of the predictions; "": there are none

  std::string redop() const;
};

struct MeasuredRow {
  cli::FittedSize size;
  CallTime time;
  std::optional<double> predicted_us;

  double error() const { return *predicted_us / time.out_of_place.us - 1; }
};

std::string HeadingText(const Measuring& what, const std::vector<MeasuredRank>& ranks);
std::string RowText(const Measuring& what, const MeasuredRow& row);
std::string EndText(const Measuring& what, const std::vector<MeasuredRow>& rows);
std::string BriefText(const Measuring& what, const std::vector<MeasuredRow>& rows);  // one line
int64_t WrongOf(const std::vector<MeasuredRow>& rows);

// Schema orrery.bench/1, simulated false.
nlohmann::ordered_json MeasuredJson(const Measuring& what, const std::vector<MeasuredRank>& ranks,
                                    const std::vector<MeasuredRow>& rows);

}  // namespace orrery::bench
