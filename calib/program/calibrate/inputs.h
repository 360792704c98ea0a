// SPDX-License-Identifier: Apache-2.0
// The files that a fit is given: CSVs of published runs, sheets of logged runs, logs with a sheet.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "calib/fit/log_measure.h"
#include "calib/import/kernel_csv.h"
#include "calib/program/calibrate/argument_row.h"

namespace orrery {

// What became of a file.
enum class Fate { kUsed, kNotUsed, kMismatched };

struct FileCheck {
  std::string file;
  Fate fate = Fate::kUsed;
  std::string why;                // what was taken of it, or why nothing was
  std::vector<std::string> rows;  // names of the runs that it gave
};

struct FitInputs {
  std::vector<FileCheck> checks;   // one per file, one per log of a sheet
  std::vector<CaseRow> rows;       // to be fitted, logged ones included
  std::vector<CaseRow> predicted;  // to be compared only
  std::vector<LoggedRun> runs;
  std::vector<measured::KernelSample> kernels;
};

// X.yaml: a sheet. X with X.yaml beside it: that sheet. A CSV of timed kernels, by its columns kind
// and seconds; another CSV: the columns of `plan validate`. Any other file: a log with Megatron's dump of
// arguments, which ran at `place`. Throws InputError: a sheet or CSV with mistakes; no file can be used.
FitInputs LoadInputs(const std::vector<std::string>& files, const RunPlace& place = {});

// Takes runs out of the fresh ones that are among the earlier ones, whatever their logs are called. Throws InputError: no
// other is left.
void DropRepeated(const FitInputs& earlier, FitInputs* fresh);

// Takes timed kernels of another GPU than `gpu` out of the inputs, by the device that their rows name or by rates above its peak. "":
// any.
// Throws InputError: nothing is left of all files.
void CheckKernels(const std::string& gpu, FitInputs* inputs);

// The site that logs alone calibrate, "megatron@my-cluster": of the framework and topology (name or file) that are
// given, else ("") of those that all logged runs name. "": they name several, or some rows are of no log.
std::string SiteOf(const FitInputs& inputs, const std::string& topology,
                   const std::string& framework);

// Those that logged runs name.
std::set<std::string> SitesOf(const FitInputs& inputs);

// Files of which no row is left, and why: `reasons` by name of the row.
void TakeReasons(const std::map<std::string, std::string>& reasons, FitInputs* inputs);
// Those of the given files of which something is used.
std::vector<std::string> FilesOf(const std::vector<std::string>& files,
                                 const std::vector<FileCheck>& checks);
// Throws InputError with all checks where no file is used.
void RefuseUnused(const std::vector<FileCheck>& checks);
// What an error says of a file that others are read without.
std::string ReasonOf(const InputError& error);
// A line per file: used, not used or mismatched.
std::string RenderChecks(const std::vector<FileCheck>& checks);

// What to know of logs: times that change on the way, garbled lines. Empty: nothing.
std::string RenderLogs(const std::vector<LoggedRun>& runs);

// Reads a sheet and all its logs: which log, which model, cluster and layout each run was.
//
//   description: text                   # of the whole sheet
//   runs:
//     - name: bert-large-8
//       log: bert-large-8.txt           # beside this file; any format of calib/import; default: the
//                                         sheet's own name without .yaml
//       window: microstep               # step (default), or microstep: forward and backward of one micro-batch;
//                                         # sustained: microstep of software whose timer does not wait for the
//                                         # device, taken where it has to: the steps at the end of its log
//       steps: 1..80                    # of the log; default: all but the first
//       use: predict                    # fit (default), or predict: kept out of the fit, compared with it
//       job: {model: bert-large, nodes: 1}        # keys are the flags of `plan predict`, `_` for `-`
//       layout: {zero: 1, micro_batch: 32}        # likewise
//
// calib/calibration.md describes it for users. Throws InputError with everything that is wrong.
std::vector<LoggedRun> ReadRunSheet(const std::string& path);

// Fills in what the log measured of the run that `run->row` describes. Throws InputError: nothing of it.
void ReadLog(LoggedRun* run);

}  // namespace orrery
