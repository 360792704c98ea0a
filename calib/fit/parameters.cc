// SPDX-License-Identifier: Apache-2.0
// Requests to variables of the solver.
#include "calib/fit/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

constexpr double kWidest = 8.0;  // standard deviations of the prior that a value may move by

// Not calibrated on step times.
bool IsOutside(const std::string& key) {
  static const char* const kOutside[] = {"peak_",
                                         "memory_context",
                                         "memory_buffers",
                                         "memory_communicator",
                                         "memory_fragmentation",
                                         "memory_loss",
                                         "memory_gradient",
                                         "residual_",
                                         "memory_nearly_full",
                                         "memory_bandwidth",
                                         "multiprocessors",
                                         "l2_cache",
                                         "host_waits"};
  if (key == "memory") return true;
  return std::any_of(std::begin(kOutside), std::end(kOutside),
                     [&](const char* start) { return key.starts_with(start); });
}

double PriorSpread(const ParameterRequest& request, const ProfileStore& store) {
  if (request.spread) return *request.spread;
  const Provenance* known = store.Find(request.names.front());
  const double spread = known != nullptr && known->spread ? *known->spread : kLeastSpread;
  return std::max(spread, kLeastSpread);  // a fitted spread comes from data that count again now
}

// The bounds in logarithms; a constant that may be zero goes down to a millionth of its prior.
void SetBounds(const ConstantRange& range, FitParameter* parameter) {
  Variable& v = parameter->variable;
  v.lower = v.prior - kWidest * std::max(v.sigma, 0.1);
  if (range.min > 0) v.lower = std::max(v.lower, std::log(range.min));
  v.upper = std::min(v.prior + kWidest * std::max(v.sigma, 0.1), std::log(range.max));
  v.start = std::clamp(v.start, v.lower, v.upper);
}

void FindHeirs(const ProfileStore& store, FitParameter* parameter) {
  for (const ConstantName& name : parameter->names) {
    for (int heir : store.Heirs(name)) {
      parameter->heirs.emplace_back(name.layer, heir);
      parameter->heir_keys.push_back(name.key);
    }
  }
}

// `centre`: other constants are drawn around it, so that it may be without rows of its own.
FitParameter MakeParameter(const ParameterRequest& request, bool centre,
                           const ProfileStore& store) {
  FitParameter parameter;
  parameter.names = request.names;
  const ConstantName& first = request.names.front();
  const ConstantRange range = RangeOf(first);
  parameter.kind = range.kind;
  FindHeirs(store, &parameter);
  if (parameter.heirs.empty() && !centre)
    throw InputError(
        fmt::format("{}: no row uses a profile that takes it from there", first.Text()),
        "name the file that sets it for the profiles of the rows");
  if (parameter.heirs.empty()) {
    parameter.before = request.prior.value_or(0.0);
  } else {
    parameter.before = store.Get(parameter.heirs.front().first, parameter.heirs.front().second,
                                 parameter.heir_keys.front());
  }
  parameter.prior = request.prior.value_or(parameter.before);
  if (parameter.prior <= 0)
    throw InputError(fmt::format("{} is {}: only constants above zero can be fitted", first.Text(),
                                 parameter.prior),
                     "give it a prior in a job file, or leave it out");
  if (parameter.prior < range.min || parameter.prior > range.max)
    throw InputError(fmt::format("{}: the prior {} is out of any plausible range", first.Text(),
                                 FormatConstant(parameter.prior, range.kind)));
  parameter.variable.sigma = PriorSpread(request, store);
  parameter.variable.prior = std::log(parameter.prior);
  parameter.variable.start = std::log(parameter.before > 0 ? parameter.before : parameter.prior);
  SetBounds(range, &parameter);
  return parameter;
}

// Links constants to those around which they are drawn: the centre moves with them.
void LinkCentres(const std::vector<ParameterRequest>& requests,
                 std::vector<FitParameter>* parameters) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].around) continue;
    const ConstantName& centre = *requests[i].around;
    const auto names = [&](const FitParameter& p) { return p.names.front() == centre; };
    const auto found = std::find_if(parameters->begin(),
                                    parameters->begin() + static_cast<std::ptrdiff_t>(i), names);
    if (found == parameters->begin() + static_cast<std::ptrdiff_t>(i))
      throw InputError(fmt::format("{} is drawn around {}, which no request above frees",
                                   requests[i].names.front().Text(), centre.Text()),
                       "free the family's constant first");
    FitParameter& parameter = (*parameters)[i];
    parameter.variable.around = static_cast<int>(found - parameters->begin());
    parameter.prior = found->prior;
    parameter.variable.prior = found->variable.prior;
    SetBounds(RangeOf(parameter.names.front()), &parameter);
  }
}

}  // namespace

void FitParameter::Apply(double value, ProfileStore* store) const {
  for (std::size_t i = 0; i < heirs.size(); ++i)
    store->Set(heirs[i].first, heirs[i].second, heir_keys[i], value);
}

std::vector<FitParameter> MakeParameters(const std::vector<ParameterRequest>& requests,
                                         ProfileStore* store) {
  std::set<ConstantName> seen;
  for (const ParameterRequest& request : requests) {
    for (const ConstantName& name : request.names) {
      if (!seen.insert(name).second)
        throw InputError(fmt::format("{} is named twice", name.Text()));
      store->Override(name);
    }
  }
  std::vector<FitParameter> parameters;
  std::set<ConstantName> centres;
  for (const ParameterRequest& request : requests) {
    if (request.around) centres.insert(*request.around);
  }
  for (const ParameterRequest& request : requests)
    parameters.push_back(MakeParameter(request, centres.contains(request.names.front()), *store));
  LinkCentres(requests, &parameters);
  return parameters;
}

ParameterRequest SiteRequest(const std::string& site) {
  return {{{ProfileLayer::kFramework, site, "site_factor"}}, 1.0, kSiteSpread, std::nullopt};
}

std::vector<ParameterRequest> DefaultRequests(
    const std::vector<std::pair<ProfileLayer, std::string>>& named, const ProfileStore& store) {
  std::vector<ParameterRequest> requests;
  for (const auto& [layer, file] : named) {
    for (const std::string& key : KeysOf(layer)) {
      const ConstantName name{layer, file, key};
      const Provenance* known = store.Find(name);
      if (IsOutside(key) || known == nullptr) continue;
      const ConstantKind kind = RangeOf(name).kind;
      if (ParseConstant(known->value, kind, name.Text()) <= 0) continue;
      requests.push_back({{name}, std::nullopt, std::nullopt});
    }
  }
  return requests;
}

}  // namespace orrery
