// SPDX-License-Identifier: Apache-2.0
// Evaluates and rescales curves of measured sweeps.
#include "model/hardware/sweep_curve.h"

#include <algorithm>
#include <cmath>

#include "model/base/check.h"

namespace orrery {
namespace {

const SweepCurve::Protocol& Fastest(const std::vector<SweepCurve::Protocol>& protocols,
                                    double bytes) {
  ORRERY_CHECK(!protocols.empty(), "a curve without protocols at {} bytes", bytes);
  return *std::ranges::min_element(protocols, {}, [&](const SweepCurve::Protocol& protocol) {
    return protocol.latency + bytes * protocol.per_byte;
  });
}

}  // namespace

double SweepCurve::Correction(double log_bytes) const {
  if (residuals.empty()) return 0;
  const auto above = std::ranges::lower_bound(residuals, log_bytes, {}, &Residual::log_bytes);
  if (above == residuals.begin()) return residuals.front().log_ratio;
  if (above == residuals.end()) return residuals.back().log_ratio;
  const Residual& low = *(above - 1);
  const double at = (log_bytes - low.log_bytes) / (above->log_bytes - low.log_bytes);
  return low.log_ratio + at * (above->log_ratio - low.log_ratio);
}

SweepCurve::Parts SweepCurve::Split(double bytes) const {
  const Protocol& fastest = Fastest(protocols, bytes);
  const double ratio = residuals.empty() ? 1.0 : std::exp(Correction(std::log(bytes)));
  return {ratio * (fastest.latency + per_root_byte * std::sqrt(bytes)),
          ratio * bytes * fastest.per_byte};
}

double SweepCurve::Formula(double bytes) const {
  const Protocol& fastest = Fastest(protocols, bytes);
  return fastest.latency + bytes * fastest.per_byte + per_root_byte * std::sqrt(bytes);
}

double SweepCurve::Time(double bytes) const {
  const Parts parts = Split(bytes);
  return parts.latency + parts.wire;
}

SweepCurve SweepCurve::ForVolume(double volume) const {
  SweepCurve curve = *this;
  for (Protocol& protocol : curve.protocols) protocol.per_byte *= volume;
  curve.per_root_byte *= std::sqrt(volume);
  for (Residual& residual : curve.residuals) residual.log_bytes -= std::log(volume);
  return curve;
}

SweepCurve SweepCurve::AtShare(double share) const {
  SweepCurve curve = *this;
  for (Protocol& protocol : curve.protocols) protocol.per_byte /= share;
  curve.per_root_byte /= std::sqrt(share);
  return curve;
}

SweepCurve NodeRingForm::CurveOf(int ranks, int rings) const {
  const double n = ranks;
  SweepCurve curve;
  curve.protocols.push_back(
      {offset + 2 * (n - 1) * per_step, 2 * (n - 1) / (n * bandwidth * rings) + 1 / (n * copy)});
  curve.per_root_byte = per_root_byte;
  curve.residuals = residuals;
  return curve;
}

}  // namespace orrery
