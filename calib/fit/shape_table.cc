// SPDX-License-Identifier: Apache-2.0
// Marginal likelihood and left-out groups of Gaussian processes over shapes.
#include "calib/fit/shape_table.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <map>

#include "model/plan/lower/names.h"

namespace orrery {
namespace {

constexpr double kSpreads[] = {0.01, 0.02, 0.04, 0.08, 0.16, 0.32};
constexpr double kReaches[] = {0.5, 1, 2, 4, 8, 16};
constexpr double kNoises[] = {0.005, 0.01, 0.02, 0.04, 0.08};
constexpr std::size_t kMostForRule = 160;  // shapes that choose the rule
constexpr std::size_t kLeastGroups = 3, kLeastShapes = 4;
constexpr double kBetter = 0.95;  // left-out error with a table over that without it

struct Shaped {  // all measurements of one shape in one group
  KernelFactors::Shape shape{}, log2{};
  std::string group;
  double fitted = 0, unseen = 0;  // mean of ln(measured / predicted)
  int points = 0;
};

using Key = std::pair<Precision, std::string>;

std::map<Key, std::vector<Shaped>> ByKernel(const KernelSource& source,
                                            const std::vector<double>& fitted,
                                            const std::vector<double>& unseen) {
  std::map<Key, std::map<std::pair<std::string, KernelFactors::Shape>, Shaped>> sums;
  for (std::size_t i = 0; i < fitted.size(); ++i) {
    const auto place = source.PlaceOf(static_cast<int>(i));
    if (!place) continue;
    const std::string& group = source.observations()[i].model;
    Shaped& sum = sums[{place->precision, place->kernel}][{group, place->shape}];
    sum.shape = place->shape;
    sum.log2 = KernelFactors::Log2(place->shape);
    sum.group = group;
    sum.fitted -= fitted[i];
    sum.unseen -= unseen.empty() ? fitted[i] : unseen[i];
    ++sum.points;
  }
  std::map<Key, std::vector<Shaped>> kernels;
  for (auto& [key, shapes] : sums) {
    for (auto& [place, shape] : shapes) {
      shape.fitted /= shape.points;
      shape.unseen /= shape.points;
      kernels[key].push_back(shape);
    }
  }
  return kernels;
}

// At most `most` of them that lie far from each other: the farthest from those taken comes next.
std::vector<Shaped> Thinned(const std::vector<Shaped>& shapes, std::size_t most) {
  if (shapes.size() <= most) return shapes;
  std::vector<double> distance(shapes.size(), INFINITY);
  std::vector<Shaped> taken;
  for (std::size_t next = 0; taken.size() < most;) {
    taken.push_back(shapes[next]);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      distance[i] =
          std::min(distance[i], KernelFactors::Distance(shapes[i].log2, shapes[next].log2));
    next = static_cast<std::size_t>(std::ranges::max_element(distance) - distance.begin());
  }
  return taken;
}

Eigen::MatrixXd Covariance(const std::vector<Shaped>& shapes, const KernelFactors::Rule& rule) {
  const auto n = static_cast<Eigen::Index>(shapes.size());
  Eigen::MatrixXd covariance(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j <= i; ++j) {
      const double distance = KernelFactors::Distance(shapes[static_cast<std::size_t>(i)].log2,
                                                      shapes[static_cast<std::size_t>(j)].log2);
      covariance(i, j) = covariance(j, i) =
          rule.spread * rule.spread * KernelFactors::Correlation(distance, rule.reach);
    }
    covariance(i, i) += rule.noise * rule.noise;
  }
  return covariance;
}

Eigen::VectorXd Logs(const std::vector<Shaped>& shapes) {
  Eigen::VectorXd logs(static_cast<Eigen::Index>(shapes.size()));
  for (Eigen::Index i = 0; i < logs.size(); ++i)
    logs[i] = shapes[static_cast<std::size_t>(i)].fitted;
  return logs;
}

double LogLikelihood(const std::vector<Shaped>& shapes, const KernelFactors::Rule& rule) {
  const Eigen::LLT<Eigen::MatrixXd> llt(Covariance(shapes, rule));
  if (llt.info() != Eigen::Success) return -INFINITY;
  const Eigen::VectorXd logs = Logs(shapes);
  return -0.5 * logs.dot(llt.solve(logs)) -
         llt.matrixL().toDenseMatrix().diagonal().array().log().sum();
}

KernelFactors::Rule MostLikelyRule(const std::vector<Shaped>& shapes) {
  KernelFactors::Rule best;
  double most = -INFINITY;
  for (const double spread : kSpreads) {
    for (const double reach : kReaches) {
      for (const double noise : kNoises) {
        const KernelFactors::Rule rule{spread, reach, noise};
        const double likelihood = LogLikelihood(shapes, rule);
        if (likelihood > most) most = likelihood, best = rule;
      }
    }
  }
  return best;
}

// Positions of what is left out together.
std::vector<std::vector<Eigen::Index>> GroupsOf(const std::vector<Shaped>& shapes) {
  std::map<std::string, std::vector<Eigen::Index>> by_name;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    by_name[shapes[i].group].push_back(static_cast<Eigen::Index>(i));
  std::vector<std::vector<Eigen::Index>> groups;
  for (const auto& [name, members] : by_name) groups.push_back(members);
  if (groups.size() >= kLeastGroups) return groups;
  groups.clear();
  for (std::size_t i = 0; i < shapes.size(); ++i) groups.push_back({static_cast<Eigen::Index>(i)});
  return groups;
}

double MissOf(double log) { return std::abs(std::exp(-log) - 1); }

// What is left of a group without it is, by blocks of the inverse covariance P: P_gg^-1 (P y)_g.
void LeaveOut(const std::vector<Shaped>& shapes, ShapeTable* table) {
  const Eigen::LLT<Eigen::MatrixXd> llt(Covariance(shapes, table->rule));
  const auto n = static_cast<Eigen::Index>(shapes.size());
  const Eigen::MatrixXd precision = llt.solve(Eigen::MatrixXd::Identity(n, n));
  const Eigen::VectorXd weighted = precision * Logs(shapes);
  for (const std::vector<Eigen::Index>& group : GroupsOf(shapes)) {
    const Eigen::VectorXd left =
        precision(group, group).ldlt().solve(Eigen::VectorXd(weighted(group)));
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Shaped& shape = shapes[static_cast<std::size_t>(group[i])];
      const double from_others = shape.fitted - left[static_cast<Eigen::Index>(i)];
      table->formula_error += MissOf(shape.unseen) / static_cast<double>(n);
      table->table_error += MissOf(shape.unseen - from_others) / static_cast<double>(n);
    }
  }
}

}  // namespace

std::vector<ShapeTable> FitShapeTables(const KernelSource& source,
                                       const std::vector<double>& fitted,
                                       const std::vector<double>& unseen) {
  std::vector<ShapeTable> tables;
  for (const auto& [key, measured] : ByKernel(source, fitted, unseen)) {
    ShapeTable table;
    table.precision = key.first;
    table.kernel = key.second;
    const std::vector<Shaped> shapes = Thinned(measured, kMostFactorShapes);
    table.rule = MostLikelyRule(Thinned(shapes, kMostForRule));
    for (const Shaped& shape : shapes) {
      table.shapes.push_back({shape.shape, shape.fitted});
      table.points += shape.points;
    }
    LeaveOut(shapes, &table);
    table.used = shapes.size() >= kLeastShapes && table.table_error < kBetter * table.formula_error;
    tables.push_back(std::move(table));
  }
  return tables;
}

std::string RenderShapeTables(const std::vector<ShapeTable>& tables) {
  if (tables.empty()) return "";
  std::string text = fmt::format("\n{:<28}{:>7}{:>9}{:>8}{:>8}{:>12}{:>10}\n", "table of shapes",
                                 "shapes", "spread", "reach", "noise", "left out:", "table");
  text += fmt::format("{:<28}{:>7}{:>9}{:>8}{:>8}{:>12}{:>10}\n", "", "", "%", "x2", "%",
                      "formula %", "%");
  for (const ShapeTable& table : tables) {
    const char* name = NameIn(kPrecisionNames, table.precision);
    text += fmt::format("{:<28}{:>7}{:>9.1f}{:>8.1f}{:>8.1f}{:>12.1f}{:>10.1f}  {}\n",
                        fmt::format("{} {}", table.kernel, name), table.shapes.size(),
                        100 * table.rule.spread, table.rule.reach, 100 * table.rule.noise,
                        100 * table.formula_error, 100 * table.table_error,
                        table.used ? "used" : "not used: left-out shapes are no better with it");
  }
  return text + "used: predictions take measured over formula of near shapes, 1 far from them.\n";
}

}  // namespace orrery
