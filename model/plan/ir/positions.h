// SPDX-License-Identifier: Apache-2.0
// Where a rank's rows stand in their sequence: one function for every executor of plans.
//
// A sequence may be cut over a mesh axis (attr cp, of `parts` ranks with `part` positions each). In plain order rank r
// holds positions r * part .. ; in zigzag order the sequence has 2 * parts chunks, of which rank r holds number r, then
// number 2 * parts - 1 - r, so that causal attention is the same work for each (Brandon et al. 2023; TransformerEngine).
#pragma once

#include <cmath>
#include <cstdint>

#include "model/plan/ir/draws.h"
#include "model/plan/ir/op.h"

namespace orrery::ir {

struct Positions {
  int64_t part = 0;  // positions of a rank; 0: the sequence is whole
  int64_t parts = 1, coord = 0;
  bool zigzag = false;

  // Of local position p, 0 <= p < part. Order-preserving inside each chunk.
  ORRERY_ON_DEVICE int64_t At(int64_t p) const {
    if (part == 0) return p;
    if (!zigzag) return coord * part + p;
    const int64_t chunk = part / 2;
    return p < chunk ? coord * chunk + p : (2 * parts - 1 - coord) * chunk + (p - chunk);
  }
  // Pieces of consecutive positions that a rank holds.
  int64_t chunks() const { return part > 0 && zigzag ? 2 : 1; }
};

// As an op's attributes say for the rank with these coordinates, or for another rank of the axis. An axis that is not
// there counts as coordinate 0: Verify reports it.
template <class Coords>
Positions PositionsOf(const Attrs& attrs, const Coords& coords) {
  const int64_t axis = attrs.Int(Attr::kCp);
  if (axis < 0) return {};
  Positions positions{attrs.Int(Attr::kPart), attrs.Int(Attr::kParts), 0,
                      attrs.Get(Attr::kZigzag) != 0};
  if (axis < static_cast<int64_t>(coords.size()))
    positions.coord = coords[static_cast<decltype(coords.size())>(axis)];
  return positions;
}

// How fast the pairs of a head's columns turn with the position: base^(-2 i / turn) for pair i of turn / 2 (Su et al. 2021),
// divided by `stretch` where positions are scaled. How much of the division a pair gets grows along a ramp: over the turns
// that it makes in `original` positions, from all at `ramp_from` turns to none at `ramp_to`; with original = 0 over the
// pairs, from none at pair `ramp_from` to all at `ramp_to`, and all pairs get it whole where both are 0.
struct Rotation {
  double base = 10000;
  int64_t turn = 0;
  double stretch = 1, original = 0, ramp_from = 0, ramp_to = 0;
  double magnify = 1;  // of cosine and sine

  ORRERY_ON_DEVICE double Frequency(int64_t pair) const {
    const double plain = pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(turn));
    if (stretch == 1) return plain;
    double share = 1;
    if (original > 0) {
      const double turns = plain * original / 6.283185307179586;
      share = (ramp_to - turns) / (ramp_to - ramp_from);
    } else if (ramp_to > ramp_from) {
      share = (static_cast<double>(pair) - ramp_from) / (ramp_to - ramp_from);
    }
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return plain * (1 - share) + plain / stretch * share;
  }
};
inline Rotation RotationOf(const Attrs& attrs, int64_t turn) {
  return {attrs.Get(Attr::kBase),     turn,
          attrs.Get(Attr::kStretch),  attrs.Get(Attr::kOriginal),
          attrs.Get(Attr::kRampFrom), attrs.Get(Attr::kRampTo),
          attrs.Get(Attr::kMagnify)};
}

// Keys of a part_attn op: `members` parts one after another, that of rank `first` in front.
struct PartKeys {
  Positions positions;  // of the rank that holds them, for member 0
  int64_t members = 1;
  ORRERY_ON_DEVICE Positions Of(int64_t member) const {
    Positions held = positions;
    held.coord = (positions.coord + member) % positions.parts;
    return held;
  }
};
inline PartKeys PartKeysOf(const Attrs& attrs, Positions own) {
  const int64_t step = attrs.Int(Attr::kStep);
  PartKeys keys{own};
  if (step < 0) {  // all parts, in rank order
    keys.members = own.parts;
    keys.positions.coord = 0;
  } else {
    keys.positions.coord = ((own.coord - step) % own.parts + own.parts) % own.parts;
  }
  return keys;
}

}  // namespace orrery::ir
