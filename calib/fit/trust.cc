// SPDX-License-Identifier: Apache-2.0
// Gathers what a fit knows of its errors.
#include "calib/fit/trust.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/base/node.h"

namespace orrery {
namespace {

// Whether the catalogue's file of a constant still says that a fit gave it, in the words of rewrite.cc.
bool IsStillFitted(const std::string& text) {
  try {
    const ConstantName name = ParseConstantName(text);
    const auto path = std::filesystem::path(DataRoot()) / "calib" / "profiles" /
                      FolderOf(name.layer) / (name.file + ".yaml");
    Diagnostics diagnostics;
    const Node root = Node::Parse(ReadSource(path.string()), &diagnostics);
    const std::optional<Node> constants = root.Find("constants");
    const std::optional<Node> entry = constants ? constants->Find(name.key) : std::nullopt;
    if (!entry) return false;
    const std::string source = entry->String("source", "");
    return std::ranges::any_of(std::array{"fitted", "mostly its prior", "prior of the fit"},
                               [&](const char* words) { return source.starts_with(words); });
  } catch (const InputError&) {  // no such file or key: of an earlier release
    return false;
  }
}

// In training runs that were left out.
int RowsOf(const Trust& trust) {
  int rows = 0;
  for (const KinErrors& errors : trust.kin) rows = std::max(rows, errors.rows);
  return rows;
}

std::map<std::string, double> SiteSpreadsByName(const FitResult& result) {
  std::vector<FitParameter> parameters;
  for (const FittedConstant& constant : result.constants) parameters.push_back(constant.parameter);
  std::map<std::string, double> spreads;
  for (const auto& [centre, spread] : SiteSpreads(parameters)) {
    for (const ConstantName& name : parameters[static_cast<std::size_t>(centre)].names)
      spreads[name.Text()] = spread;
  }
  return spreads;
}

// The 80 % quantile of |difference of errors| between rows of one sweep.
SweepDifference DifferenceOf(const Evidence& evidence, const Unseen& unseen,
                             const std::vector<int>& which) {
  std::map<std::string, std::vector<int>> sweeps;
  for (int row : which) {
    const std::string& sweep = evidence.observations()[row]->sweep;
    if (!sweep.empty()) sweeps[sweep].push_back(row);
  }
  std::vector<double> sizes;
  for (const auto& [name, rows] : sweeps) {
    for (std::size_t a = 0; a < rows.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b)
        sizes.push_back(std::abs(unseen.error[rows[a]] - unseen.error[rows[b]]));
    }
  }
  if (static_cast<int>(sizes.size()) < kLeastPoints) return {};
  const auto at =
      sizes.begin() + static_cast<std::ptrdiff_t>(0.8 * static_cast<double>(sizes.size() - 1));
  std::nth_element(sizes.begin(), at, sizes.end());
  return {*at, static_cast<int>(sizes.size())};
}

void AddDifferences(const Evidence& evidence, const Unseen& unseen, Trust* trust) {
  std::map<std::string, std::vector<int>> rows;
  for (std::size_t i = 0; i < evidence.observations().size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    if (!seen.run) continue;
    rows[""].push_back(static_cast<int>(i));
    rows[evidence.store().framework(seen.framework).header.id].push_back(static_cast<int>(i));
  }
  for (const auto& [framework, which] : rows) {
    const SweepDifference one = DifferenceOf(evidence, unseen, which);
    if (one.pairs > 0) trust->differences[framework] = one;
  }
}

}  // namespace

Trust MakeTrust(const Evidence& evidence, const Unseen& unseen, const std::vector<KinError>& errors,
                const FitResult& result) {
  Trust trust;
  for (const FittedConstant& constant : result.constants) {
    auto& names = trust.constants.emplace_back();
    for (const ConstantName& name : constant.parameter.names) names.push_back(name.Text());
  }
  for (Eigen::Index i = 0; i < result.covariance.rows(); ++i) {
    for (Eigen::Index j = 0; j < result.covariance.cols(); ++j)
      trust.covariance.push_back(result.covariance(i, j));
  }
  trust.site_spread = SiteSpreadsByName(result);
  for (const Observation* seen : evidence.observations()) {
    if (seen->run) trust.runs.push_back(*seen->run);
  }
  if (unseen.error.empty() || errors.empty()) return trust;
  KinModel model = FitAndCover(errors);
  trust.kin = model.kin;
  trust.sites = std::move(model.sites);
  AddDifferences(evidence, unseen, &trust);
  return trust;
}

Trust Merged(const Trust& old, const Trust& fresh) {
  std::set<std::string> replaced;
  for (const auto& names : fresh.constants) replaced.insert(names.begin(), names.end());
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < old.constants.size(); ++i) {
    const auto& names = old.constants[i];
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          return replaced.contains(name) || !IsStillFitted(name);
        }))
      kept.push_back(i);
  }
  Trust merged = fresh;
  const std::size_t a = fresh.constants.size(), n = a + kept.size();
  merged.covariance.assign(n * n, 0.0);
  for (std::size_t i = 0; i < a; ++i) {
    for (std::size_t j = 0; j < a; ++j) merged.covariance[i * n + j] = fresh.covariance[i * a + j];
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    merged.constants.push_back(old.constants[kept[i]]);
    for (std::size_t j = 0; j < kept.size(); ++j)
      merged.covariance[(a + i) * n + a + j] =
          old.covariance[kept[i] * old.constants.size() + kept[j]];
  }
  double nearer = 0;  // kin that is further away is never more certain
  if (2 * RowsOf(fresh) < RowsOf(old)) merged.kin = old.kin;
  for (std::size_t c = 0; c < kKins; ++c) {
    nearer = merged.kin[c].spread = std::max(nearer, merged.kin[c].spread);
  }
  merged.sites.insert(old.sites.begin(), old.sites.end());
  for (const auto& [framework, one] : old.differences) {
    SweepDifference& known = merged.differences[framework];
    if (known.pairs == 0 || (framework.empty() && one.pairs > known.pairs)) known = one;
  }
  merged.runs.insert(merged.runs.end(), old.runs.begin(), old.runs.end());
  std::set<std::string> sites, constants;
  for (const RunIdentity& run : merged.runs) sites.insert(SiteOf(run));
  for (const auto& names : merged.constants) constants.insert(names.begin(), names.end());
  for (const auto& [name, spread] : old.site_spread) {
    if (constants.contains(name) && !replaced.contains(name))
      merged.site_spread.emplace(name, spread);
  }
  std::erase_if(merged.sites, [&](const auto& site) { return !sites.contains(site.first); });
  return merged;
}

}  // namespace orrery
