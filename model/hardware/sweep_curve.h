// SPDX-License-Identifier: Apache-2.0
// The measured time of one collective on one group of ranks, as a function of its size.
//
//   T(S) = [min over protocols (a_p + S / b_p) + g sqrt(S)] exp(r(ln S))
//
// S as nccl-tests prints it. Protocols of a library trade latency for bandwidth; g sqrt(S) is what
// pipelining costs at best (Hockney's line with an optimal chunk); r is a table of what these leave
// of the logarithm of the measured times: linear between its entries, constant beyond them.
#pragma once

#include <vector>

namespace orrery {

struct SweepCurve {
  struct Protocol {
    double latency = 0;   // a, seconds
    double per_byte = 0;  // 1 / b, seconds per byte of S
  };
  struct Residual {
    double log_bytes = 0;
    double log_ratio = 0;  // ln(measured / formula)
  };
  std::vector<Protocol> protocols;  // at least one
  double per_root_byte = 0;         // g, seconds per square root of a byte
  std::vector<Residual> residuals;  // ascending; may be empty

  // Both in seconds, for S > 0.
  double Formula(double bytes) const;
  double Time(double bytes) const;

  // What of Time() is latency and pipelining, and what is bytes over bandwidth.
  struct Parts {
    double latency = 0, wire = 0;
  };
  Parts Split(double bytes) const;

  // The same transfer with `volume` times the bytes behind each byte of S.
  SweepCurve ForVolume(double volume) const;
  // With `share` of the bandwidth.
  SweepCurve AtShare(double share) const;

  double Correction(double log_bytes) const;  // r
};

// A ring of n ranks of one node, from sweeps of some other n:
//   T = o + 2 (n-1) l + S [2 (n-1) / (n B R(n)) + 1 / (n C)] + g sqrt(S), times exp(r(ln S))
// for all-reduce. R(n): rings that the links hold (packed Hamiltonian cycles of a mesh; 1 behind a
// switch). The copy term is each rank's own pass over its chunk.
struct NodeRingForm {
  double offset = 0;         // o, seconds
  double per_step = 0;       // l, seconds
  double bandwidth = 0;      // B, bytes per second, of one ring
  double copy = 0;           // C, bytes per second
  double per_root_byte = 0;  // g
  std::vector<SweepCurve::Residual> residuals;

  SweepCurve CurveOf(int ranks, int rings) const;
};

}  // namespace orrery
