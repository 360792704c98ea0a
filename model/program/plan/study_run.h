// SPDX-License-Identifier: Apache-2.0
// The rows of a study on threads.
#pragma once

#include <functional>
#include <vector>

#include "model/program/plan/study_files.h"

namespace orrery::cli {

struct StudyRunOptions {
  Engine engine = Engine::kClosed;
  int threads = 1;
  StudyPlace place;  // of this process; chunks of rows are dealt out to all
};

// Predicts the rows of this process that `done` lacks (empty: all). `sink` gets each chunk as it is ready, from any thread.
// Returns their number. An exception of a prediction or of the sink comes out here.
int64_t RunStudy(const Study& study, const StudyRunOptions& options, const std::vector<bool>& done,
                 const std::function<void(const std::vector<StudyRow>&)>& sink);

}  // namespace orrery::cli
