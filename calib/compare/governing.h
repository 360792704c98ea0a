// SPDX-License-Identifier: Apache-2.0
// Which constants of calib/profiles govern the time of a kind of work.
#pragma once

#include <string>
#include <vector>

namespace orrery::compare {

// `work`: a name of measured::WorkNames(), "idle" or the name of a term of BreakdownTerms(); `phase`: of a plan, "" when it is not known.
// Names without their profile, those with most say first; empty: no constant governs it. `precision` and `optimizer` of the
// job, "" where they are not known, leave out what governs only others.
std::vector<std::string> GoverningConstants(const std::string& work, const std::string& phase,
                                            const std::string& precision = "",
                                            const std::string& optimizer = "");

// All that the table names, for tests.
std::vector<std::string> AllGoverning();

}  // namespace orrery::compare
