// SPDX-License-Identifier: Apache-2.0
// Whether predictions put layouts into the right order, and what a wrong order costs.
//
// A sweep: rows of one source that agree in model, cluster, software, precision and batch and
// differ in layout only, three at least. Kendall's tau-b of a sweep compares the order of its
// predicted with that of its measured times (Kendall 1945; 1: equal, 0: unrelated); its regret is
// how much slower the layout is that the prediction puts first than the best measured one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calib/validate/validate.h"

namespace orrery {

inline constexpr std::size_t kLeastSwept = 3;  // rows of a sweep

struct Sweep {
  std::vector<const CasePrediction*> rows;  // all predicted
  double tau = 0;
  double regret = 0;   // relative
  std::string chosen;  // names of the rows
  std::string best;
};

struct RankingSummary {
  int sweeps = 0;
  int rows = 0;
  double tau = 0;           // mean over sweeps
  double regret = 0;        // mean
  double worst_regret = 0;  // and the row chosen there
  std::string worst_case;
  int best_found = 0;  // sweeps whose best layout was chosen
};

// tau-b; 0 when all predictions or all measurements are equal. Both as long.
double KendallTau(const std::vector<double>& predicted, const std::vector<double>& measured);

std::vector<Sweep> FindSweeps(const std::vector<const CasePrediction*>& cases);
RankingSummary SummariseRanking(const std::vector<Sweep>& sweeps);

}  // namespace orrery
