// SPDX-License-Identifier: Apache-2.0
// The parts of a step as a record or a trace tells them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "calib/import/training_log.h"

namespace orrery::compare {

inline constexpr double kRoundingError = 1e-9;  // seconds; traces count in nanoseconds
inline constexpr const char* kWaiting = "waiting for the host or other ranks";
// A trace tells neither a message from the wait for its partners, nor whom a stream waits for.
inline constexpr const char* kBetweenKernels = "communication, waiting and fixed costs";

struct Ranks {
  std::set<int64_t> ranks;
  double scale = 1;  // one over ranks times steps
};

// A trace holds the steps that it annotates, or else one.
Ranks RanksOf(const measured::TrainingLog& log);

bool Communicates(const measured::SpanSample& span);

// Every span says which term of the breakdown it belongs to, as those of this project do.
bool NamesTerms(const measured::TrainingLog& log);

// A trace that `plan run` wrote. Its ranks have clocks of their own, and it says how far those may be apart.
bool IsTraceOfRun(const measured::TrainingLog& log);

using NamedSeconds = std::map<std::string, double>;  // per rank and step

// Kernels whole; of a message, which holds the wait for its partners, what no kernel covers, counted once for the one
// that began first.
NamedSeconds TermsOfTrace(const measured::TrainingLog& log, double step);

// Of two files of which at most one is a trace. Records and timers of logs: each part, terms of the breakdown by their
// names. Next to a trace: kernels, of the rank that computes longest, and the rest of the step; empty where it names no
// terms or the other file has none.
std::pair<NamedSeconds, NamedSeconds> PartsOf(const measured::TrainingLog& predicted,
                                              double predicted_step,
                                              const measured::TrainingLog& measured,
                                              double measured_step);

}  // namespace orrery::compare
