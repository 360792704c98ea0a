// SPDX-License-Identifier: Apache-2.0
// Rows of a study on disk, written by several processes, killed and resumed without a row lost or doubled.
//
// Each process appends whole rows to a file of its own in OUT.parts/; rows that are there when it starts are not computed
// again, a row that was cut off or damaged is. When all rows are there, process 0 writes OUT, in order, under another name first.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "model/program/plan/study_row.h"

namespace orrery::cli {

// Of the launcher that started us; {0, 1}: none did.
struct StudyPlace {
  int rank = 0, size = 1;
  int on_machine = 1;  // processes that share this one
  // Only RANK and WORLD_SIZE say so: of torchrun, or left in a container that runs this alone.
  bool by_common_names = false;
};
// From the variables of Open MPI, MPICH, Slurm and torchrun. Nothing here links MPI.
StudyPlace FindStudyPlace();

class StudyFiles {
 public:
  // Throws InputError: the file cannot be written, holds another study or was changed, or another process writes here.
  // `how`: what else makes rows what they are, such as the engine.
  StudyFiles(const Study& study, const Flag& out, const StudyPlace& place, std::string how);
  ~StudyFiles();

  bool Complete() const { return complete_; }  // OUT has all rows already
  // By row: it is on disk. Of when this process started.
  const std::vector<bool>& done() const { return done_; }
  int64_t rows_done() const { return rows_done_; }

  // Whole lines of rows. Safe for concurrent use. Throws InputError: the disk is full.
  void Append(const std::string& lines);
  // Rows on disk now, of all processes; reads what was written since the last call. Safe for concurrent use.
  int64_t CountRows();
  // Writes OUT from the parts and removes them.
  void Merge();
  // Calls visit(line) for each row of OUT, in order.
  void ForEachRow(const std::function<void(const std::string& line)>& visit) const;

 private:
  std::string Folder() const { return out_.text + ".parts"; }
  std::vector<std::string> Parts() const;
  void CheckStudy() const;
  bool CheckOut() const;  // OUT has all rows; false: there is none, or an empty file
  void CutOff(const std::string& part) const;

  const Study& study_;
  const Flag out_;
  const std::string how_;
  std::mutex mutex_;
  int descriptor_ = -1;
  bool complete_ = false;
  std::vector<bool> done_;
  int64_t rows_done_ = 0;
  std::mutex counting_;  // guards what follows
  std::vector<bool> seen_;
  std::map<std::string, int64_t> read_to_;  // by part: bytes
  int64_t rows_seen_ = 0;
};

}  // namespace orrery::cli
