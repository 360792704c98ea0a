// SPDX-License-Identifier: Apache-2.0
// Where the catalogues (scenarios/, topologies/, calib/profiles/) lie.
#pragma once

#include <string>

namespace orrery {

// The folder that holds `scenarios/models`: $ORRERY_ROOT when set; else the nearest folder above
// the running program (or its share/orrery); else the source tree that this program was built from.
// Throws InputError when $ORRERY_ROOT holds no catalogue or when none is found.
std::string DataRoot();

}  // namespace orrery
