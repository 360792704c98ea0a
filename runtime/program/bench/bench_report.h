// SPDX-License-Identifier: Apache-2.0
// Predicted collective times as nccl-tests prints them, and beside measured ones.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "calib/import/nccl_log.h"
#include "model/collectives/nccl_choice.h"
#include "runtime/program/bench/bench_command.h"
#include "runtime/program/bench/bench_sweep.h"

namespace orrery::cli {

struct BenchRow {
  FittedSize size;
  Seconds time;
  std::string algorithm;                              // whose time it is
  nccl::Protocol protocol = nccl::Protocol::kSimple;  // of that one
  std::optional<nccl::Choice> nccl;  // what NCCL would choose; nullopt: it does not run this here
  std::shared_ptr<const MeasuredTime> follows;  // the sweep behind `time`; null: the profiles
  std::optional<double> measured_us;
  int line = 0;  // of the log

  double us() const { return 1e6 * time.value; }
  double algbw() const { return 1e-9 * static_cast<double>(size.bytes) / time.value; }  // GB/s
  double error() const { return us() / *measured_us - 1; }
};

struct BenchResult {
  Sweep sweep;
  std::string network;  // backend
  std::vector<BenchRow> rows;
  std::shared_ptr<const nccl::Communicator> nccl;  // of all ranks; null: NCCL does not run here
  const measured::NcclLog* log = nullptr;
  const measured::NcclRun* measured = nullptr;
  std::string
      mismatch;  // why the log cannot be of this cluster: it names another GPU; "": nothing says so

  double busbw(const BenchRow& row, int ranks) const {
    return row.algbw() * WireFactor(sweep.collective, ranks);
  }
};

// The table of nccl-tests, so that what reads theirs reads this; or measured beside predicted.
std::string BenchText(const BenchSimulation& simulation, const BenchResult& result);
std::string BenchBrief(const BenchSimulation& simulation, const BenchResult& result);  // one line
nlohmann::ordered_json BenchJson(const BenchSimulation& simulation, const BenchResult& result);

// The two lines of column titles from "size" on, and the columns before the times of a row.
std::string ColumnTitles(bool predicted);
std::string RowStart(const Sweep& sweep, const FittedSize& size, const std::string& redop);

// A number in `width` characters as nccl-tests writes it: two decimals, fewer when it is large.
std::string FloatText(double value, int width);

}  // namespace orrery::cli
